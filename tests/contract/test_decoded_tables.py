"""Tables of decoded records: their columns, fields that come later, and statistics that never hide a row."""

import json
import math
import re
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.types import LongType, NestedField, StructType
from tests.contract import decoded_rows
from tests.contract.builders import orders
from tests.contract.decoded_rows import (
    DECODED,
    VALUE,
    a_value,
    nested,
    publish_decoded,
    stage_decoded,
    with_more_fields,
)
from tests.contract.sink_outputs import ROWS, DeltaOutput, IcebergOutput, plan_to, rows_of
from tests.contract.test_new_columns import DeltaLake, IcebergLake
from tests.contract.test_sink_replace import of_partition, replacing
from tests.duckdb_tables import files_read_by_duckdb, rows_by_duckdb
from tests.iceberg_lake import catalog_beside, name_at, table_at

from kafka_ingest.errors import (
    ColumnsChangedError,
    InvalidBackfillError,
    OutputNotUsableError,
    RecordsFilteredError,
    StagedOutputUnusableError,
    TooManyDeadLettersError,
)
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.receipt import Filtered, WrittenFile
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.sinks.delta.columns import nullable, raw_schema
from kafka_ingest.sinks.iceberg.columns import RAW


class Delta(DeltaLake):
    """Delta tables."""

    output = DeltaOutput

    def offsets_where(self, path: Path, condition: str) -> list[list[int]]:
        """Return the offsets of rows of a condition as readers find them that skip files by statistics."""
        polars = pl.SQLContext(t=pl.scan_delta(str(path))).execute(f"select kafka_offset from t where {condition}")  # noqa: S608
        return [
            sorted(polars.collect()["kafka_offset"].to_list()),
            sorted(rows_by_duckdb("delta", str(path), condition)["kafka_offset"].to_pylist()),
        ]

    def files_read(self, path: Path, condition: str) -> int:
        return files_read_by_duckdb("delta", str(path), condition)

    def with_bounds(self, path: Path) -> set[str]:
        """Return the columns of which the metadata of the only file have bounds."""
        actions = pa.table(DeltaTable(str(path)).get_add_actions(flatten=True))
        names = [name.removeprefix("min.") for name in actions.column_names if name.startswith("min.")]
        return {name for name in names if actions[f"min.{name}"][0].is_valid}

    def allows_nulls(self, path: Path) -> bool:
        """Whether every part of the table's columns allows nulls."""
        return "false" not in DeltaTable(str(path)).schema().to_json().lower()


class Iceberg(IcebergLake):
    """Iceberg tables."""

    output = IcebergOutput

    def offsets_where(self, path: Path, condition: str) -> list[list[int]]:
        table = table_at(path)
        return [
            sorted(table.scan(row_filter=condition).to_arrow()["kafka_offset"].to_pylist()),
            sorted(rows_by_duckdb("iceberg", table.metadata_location, condition)["kafka_offset"].to_pylist()),
        ]

    def files_read(self, path: Path, condition: str) -> int:
        return len(list(table_at(path).scan(row_filter=condition).plan_files()))

    def with_bounds(self, path: Path) -> set[str]:
        table = table_at(path)
        [task] = table.scan().plan_files()
        return {str(table.schema().find_column_name(number)) for number in task.file.lower_bounds}

    def allows_nulls(self, path: Path) -> bool:
        fields = index_by_id(table_at(path).schema()).values()
        return [field.name for field in fields if field.required] == ["key"]  # of the map


@pytest.fixture(params=[Delta, Iceberg], ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def output(lake: Any, tmp_path: Path) -> Any:
    return prepared(lake, tmp_path / "orders")


def prepared(lake: Any, path: Path, options: TableOptions = DECODED) -> Any:
    made = lake.output(path, options)
    made.sink.publisher.prepare()
    return made


def values_of(rows: pa.Table) -> list[Any]:
    """Return the values of all rows, with maps as pairs whoever read them."""
    return sorted(map(plain, rows["value"].to_pylist()), key=str)


def plain(value: Any) -> Any:
    match value:
        case {"key": key, "value": inner, **rest} if not rest:
            return (key, inner)
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
        case _:
            return value


# ── Columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_commit_makes_the_table_with_the_columns_of_its_rows_and_every_reader_reads_them(
    lake: Any, output: Any
) -> None:
    published = publish_decoded(output, plan_to(output, 1), nested())
    names = lake.columns(output.path)
    assert names[:6] == ["kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "key", "value"]
    assert output.seen() == rows_of(published)
    expected = sorted((plain(a_value(number)) for number in [*range(ROWS)] * 2), key=str)
    for rows in lake.read(output.path):
        assert values_of(rows) == expected
    assert lake.allows_nulls(output.path)
    look = output.sink.inspector.look_at(published.plan.batch_id)
    assert [count.rows for count in look.counts] == [ROWS, ROWS]
    assert look.problems == []
    assert output.sink.publisher.columns_there({}) == {
        "key": "string",
        "value": "struct",
        "value.id": "bigint",
        "value.city": "string",
        "value.total": "decimal(12,2)",
        "value.due": "date",
        "value.at": "timestamp",
        "value.tags": "array",
        "value.tags[]": "string",
        "value.lines": "array",
        "value.lines[]": "struct",
        "value.lines[].sku": "string",
        "value.lines[].count": "int",
        "value.labels": "map of string",
        "value.labels[]": "bigint",
    }


def test_fields_that_come_later_are_added_at_every_depth_and_are_null_in_older_rows(lake: Any, output: Any) -> None:
    publish_decoded(output, plan_to(output, 1), nested())
    published = publish_decoded(output, plan_to(output, 2), with_more_fields())
    for rows in lake.read(output.path):
        of_batch = [str(published.plan.batch_id) == each for each in rows["kafka_batch"].to_pylist()]
        found = list(zip(of_batch, map(plain, rows["value"].to_pylist()), rows["extra"].to_pylist(), strict=True))
        assert {(new, row["zip"], row["lines"][0]["note"], extra) for new, row, extra in found} == {
            (False, None, None, None),
            (True, "8000", "gift", Decimal("1.5")),
        }
        # Whatever the order in the files, each value stands under its own name.
        for new, row, _ in found:
            number = row["id"]
            lines = [{"sku": "t" if new else "s", "count": number, "note": "gift" if new else None}]
            assert row == plain(a_value(number) | {"zip": row["zip"], "lines": lines})
    # And a later batch may be without some of them: rows of a table have nulls there.
    publish_decoded(output, plan_to(output, 3), nested())
    assert [rows["extra"].null_count for rows in lake.read(output.path)] == [4 * ROWS] * 3


MISFITS = {
    "another type": ({"id": pa.int32()}, r"value.id +bigint +int\n"),
    "a wider type": ({"total": pa.decimal128(14, 2)}, r"value.total +decimal\(12,2\) +decimal\(14,2\)\n"),
    "a deep one": ({"tags": pa.list_(pa.int64())}, r"value.tags\[\] +string +bigint\n"),
    "another case": ({"ID": pa.int64()}, r"value.ID +\(none\) +bigint\n"),
}


@pytest.mark.parametrize(("types", "said"), MISFITS.values(), ids=MISFITS)
def test_fields_that_readers_would_misread_are_refused_before_committing_side_by_side(
    lake: Any, output: Any, types: dict[str, pa.DataType], said: str
) -> None:
    publish_decoded(output, plan_to(output, 1), nested())
    columns, seen = lake.columns(output.path), output.seen()
    others = {field.name: types.get(field.name, field.type) for field in VALUE} | types
    changed = nested() | {"value": pa.array([None] * ROWS, pa.struct(list(others.items())))}
    directory, published = stage_decoded(output, plan_to(output, 2), changed)
    with pytest.raises(ColumnsChangedError, match=f"{said}(?s:.*)the next run writes the batch again"):
        output.sink.publisher.can_take(directory, published.receipt)
    # Also where the table became another after the question; then no run writes it again.
    instead = f"change the table's columns back(?s:.*)kafka-ingest abandon {published.plan.batch_id}"
    with pytest.raises(ColumnsChangedError, match=f"{said}(?s:.*){instead}"):
        output.sink.publisher.publish(directory, published)
    assert (lake.columns(output.path), output.seen()) == (columns, seen)


@pytest.mark.parametrize(("lake", "name"), [(Delta(), "a,b"), (Iceberg(), "a.b")], ids=["delta", "iceberg"])
def test_a_name_that_the_format_does_not_take_is_refused_before_committing(
    lake: Any, name: str, tmp_path: Path
) -> None:
    output = prepared(lake, tmp_path / "orders")
    columns = nested() | {"value": pa.array([None] * ROWS, pa.struct([(name, pa.int64())]))}
    directory, published = stage_decoded(output, plan_to(output, 1), columns)
    with pytest.raises(ColumnsChangedError, match=f"value.`{name}` with '.' in its name"):
        output.sink.publisher.can_take(directory, published.receipt)
    # And before anything is staged.
    [said] = output.sink.publisher.misfits({"value": "struct", f"value.`{name}`": "bigint", "value.id": "bigint"})
    assert said == f"value.`{name}` with '{name[1]}' in its name"
    assert output.data_files() != []
    assert output.seen() == {}


class Tables:
    """Tables that another program has made for decoded records, with one column of its own."""

    @staticmethod
    def delta(path: Path, **kinds: str) -> None:
        fields = [field for field in raw_schema()["fields"] if field["name"].startswith("kafka_")]
        fields += [nullable(name, kind) for name, kind in {**kinds, "note": "string"}.items()]
        schema = {"type": "struct", "fields": fields}
        DeltaTable.create(str(path), deltalake.Schema.from_json(json.dumps(schema)))

    @staticmethod
    def iceberg(path: Path, **kinds: str) -> None:
        catalog = catalog_beside(path)
        catalog.create_namespace_if_not_exists("shop")
        own = [field for field in RAW.fields if field.name.startswith("kafka_")]
        more = [NestedField(100 + n, name, LongType(), required=False) for n, name in enumerate([*kinds, "note"])]
        catalog.create_table(name_at(path), Schema(*own, *more), location=f"file://{path}")


def test_a_table_of_another_program_is_taken_as_it_is_and_keeps_its_own_columns_empty(
    lake: Any, tmp_path: Path
) -> None:
    path = tmp_path / "orders"
    getattr(Tables, type(lake).__name__.lower())(path, id="long")
    output = prepared(lake, path)
    assert set(output.sink.publisher.columns_there({})) == {"id", "note"}
    columns = {"id": pa.array(range(ROWS), pa.int64()), "city": pa.array(["x"] * ROWS)}
    published = publish_decoded(output, plan_to(output, 1), columns)
    assert lake.columns(path)[-1] == "city"
    for rows in lake.read(path):
        assert (rows["note"].null_count, rows["id"].null_count, rows["city"].null_count) == (2 * ROWS, 0, 0)
    assert output.seen() == rows_of(published)


def test_a_field_that_allows_no_nulls_in_the_table_is_refused_before_committing(lake: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    getattr(TablesWithoutNulls, type(lake).__name__.lower())(path)
    output = prepared(lake, path)
    columns = {"line": pa.array([{"sku": None}] * ROWS, pa.struct([("sku", pa.int64())]))}
    directory, published = stage_decoded(output, plan_to(output, 1), columns)
    # Delta's library would commit it, and readers would read no row of the table any more; Iceberg's would never.
    with pytest.raises(ColumnsChangedError, match=r"line.sku, which is (NOT NULL|required) in the table"):
        output.sink.publisher.can_take(directory, published.receipt)
    [said] = output.sink.publisher.misfits({"line": "struct", "line.sku": "bigint"})
    assert said.startswith("line.sku, which is ")
    assert output.sink.publisher.misfits({"note": "string"}) == []


class TablesWithoutNulls:
    """Tables that another program has made with a struct whose field allows no nulls."""

    @staticmethod
    def delta(path: Path) -> None:
        line = {"type": "struct", "fields": [nullable("sku", "long") | {"nullable": False}]}
        fields = [field for field in raw_schema()["fields"] if field["name"].startswith("kafka_")]
        schema = {"type": "struct", "fields": [*fields, nullable("line", line)]}
        DeltaTable.create(str(path), deltalake.Schema.from_json(json.dumps(schema)))

    @staticmethod
    def iceberg(path: Path) -> None:
        catalog = catalog_beside(path)
        catalog.create_namespace_if_not_exists("shop")
        own = [field for field in RAW.fields if field.name.startswith("kafka_")]
        line = NestedField(100, "line", StructType(NestedField(101, "sku", LongType(), required=True)), required=False)
        catalog.create_table(name_at(path), Schema(*own, line), location=f"file://{path}")


CHANGED_BY_ANOTHER_ENGINE: dict[str, tuple[Callable[[Any], object], str]] = {
    "renamed": (
        lambda change: change.rename_column("key", "name"),
        r"key, .* called name now",
    ),
    "dropped": (lambda change: change.delete_column("key"), "key, .* leads to field 5, which was dropped"),
    "renamed in a struct": (
        lambda change: change.rename_column("value.city", "town"),
        "value.city, .* called town now",
    ),
    "renamed in a list": (
        lambda change: change.rename_column("value.lines.element.sku", "article"),
        r"value.lines\[\].sku, .* called article now",
    ),
}


@pytest.mark.parametrize(("change", "said"), CHANGED_BY_ANOTHER_ENGINE.values(), ids=CHANGED_BY_ANOTHER_ENGINE)
def test_a_name_of_an_iceberg_field_that_was_renamed_or_dropped_is_not_given_to_a_new_one(
    change: Callable[[Any], object], said: str, tmp_path: Path
) -> None:
    output = prepared(Iceberg(), tmp_path / "orders")
    publish_decoded(output, plan_to(output, 1), nested())
    written = output.sink.publisher.columns_there({})
    assert output.sink.publisher.misfits(written) == []
    with table_at(output.path).update_schema() as update:
        change(update)
    before = table_at(output.path).scan().to_arrow()
    assert re.search(said, listing(output.sink.publisher.misfits(written)))
    with pytest.raises(ColumnsChangedError, match=said):
        publish_decoded(output, plan_to(output, 2), nested())
    # The library would let the name lead to the new field in older files, too.
    assert table_at(output.path).scan().to_arrow() == before


def test_a_raw_table_is_no_table_of_decoded_records_nor_the_other_way_round(lake: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    output = prepared(lake, path)
    publish_decoded(output, plan_to(output, 1), nested())
    with pytest.raises(OutputNotUsableError, match="column value: expected binary, found struct<"):
        prepared(lake, path, TableOptions())
    for decoded in (True, False):
        publisher = lake.output(path, TableOptions(decoded=not decoded)).sink.publisher
        with pytest.raises(ColumnsChangedError, match=f"expected {'raw' if decoded else 'decoded'} records"):
            publisher.check_records(decoded=decoded)
        publisher.check_records(decoded=not decoded)


def test_a_batch_without_rows_makes_a_table_without_columns_which_the_next_ones_bring(lake: Any, output: Any) -> None:
    plan = plan_to(output, 1)
    directory, published = stage_decoded(output, plan, nested(), files=(), rows_read=0)
    for file in output.sink.publisher.data_needs(directory).place.iterdir():
        file.unlink()
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    assert output.sink.publisher.columns_there({}) is None
    assert output.seen() == {}
    second = publish_decoded(output, plan_to(output, 2), nested())
    assert output.seen() == rows_of(second)
    assert {"key", "value"} <= set(lake.columns(output.path))


def test_kafkas_own_columns_are_a_matter_of_on_new_columns(lake: Any, tmp_path: Path) -> None:
    path = tmp_path / "orders"
    lake.make(path, ("kafka_topic_id", "key", "value"))
    with pytest.raises(OutputNotUsableError, match="column kafka_topic_id: expected string, found none"):
        prepared(lake, path)
    output = prepared(lake, path, TableOptions(OnNewColumns.ADD, decoded=True))
    publish_decoded(output, plan_to(output, 1), nested())
    assert {"kafka_topic_id", "key", "value"} <= set(lake.columns(path))


def test_a_table_of_decoded_records_is_partitioned_as_one_of_raw_ones(lake: Any, tmp_path: Path) -> None:
    terms = terms_of(["kafka_partition", "day(kafka_timestamp)"])
    output = prepared(lake, tmp_path / "orders", TableOptions(partition_by=terms, decoded=True))
    published = publish_decoded(output, plan_to(output, 1), nested())
    publish_decoded(output, plan_to(output, 2), nested() | {"extra": pa.array(["x"] * ROWS)})
    assert rows_of(published).items() <= output.seen().items()
    condition = "kafka_partition = 1"
    assert lake.files_read(output.path, condition) == 2
    assert [len(found) for found in lake.offsets_where(output.path, condition)] == [2 * ROWS] * 2
    assert lake.files_read(output.path, "kafka_partition = 7") == 0


def test_rows_are_replaced_by_what_their_records_are_decoded_to_now_in_one_commit(lake: Any, output: Any) -> None:
    old, other = (publish_decoded(output, plan_to(output, number), nested()) for number in (1, 2))
    plan = replacing(output, 3, old.plan, 0)
    assert output.sink.replacer.rows_of(plan.replaces).rows == ROWS
    new = publish_decoded(output, plan, with_more_fields())
    assert output.seen() == of_partition(old, 1) + rows_of(other) + rows_of(new)
    for rows in lake.read(output.path):
        found = dict(zip(rows["kafka_batch"].to_pylist(), rows["extra"].to_pylist(), strict=True))
        assert {batch for batch, extra in found.items() if extra is not None} == {str(plan.batch_id)}
    assert [len(each) for each in lake.offsets_where(output.path, "extra = 1.5")] == [ROWS, ROWS]


LETTER = WrittenFile.of_one("part-9.parquet", 10, 1, orders(0), 5, 5)


@pytest.mark.parametrize(
    ("before", "now", "error", "said"),
    [
        ({"dead_letters": (LETTER,)}, {}, InvalidBackfillError, r"without dead letters, found some in orders-0\["),
        ({}, {"dead_letters": (LETTER,)}, TooManyDeadLettersError, "found 1 that cannot be decoded"),
        ({}, {"filtered": (Filtered(orders(0), 2),)}, RecordsFilteredError, "orders-0: 0 before, 2 now"),
        ({"filtered": (Filtered(orders(0), 2),)}, {}, RecordsFilteredError, "orders-0: 2 before, 0 now"),
        ({"filtered": (Filtered(orders(0), 2),)}, {"filtered": (Filtered(orders(0), 2),)}, None, ""),
    ],
)
def test_records_that_were_rows_are_rows_again_and_all_others_stay_what_they_were(
    output: Any, before: dict[str, Any], now: dict[str, Any], error: type[Exception] | None, said: str
) -> None:
    old = publish_decoded(output, plan_to(output, 1), nested(), **before)
    plan, replacer = replacing(output, 2, old.plan, 0), output.sink.replacer
    directory, published = stage_decoded(output, plan, nested(), **now)
    with pytest.raises(error, match=said) if error is not None else nullcontext():
        replacer.rows_of(plan.replaces)
        replacer.can_take(directory, plan, published.receipt)


def test_files_of_one_batch_with_different_columns_are_no_files_of_one_attempt(output: Any) -> None:
    directory, published = stage_decoded(output, plan_to(output, 1), nested())
    [_, second] = published.receipt.files
    path = output.sink.publisher.data_needs(directory).place / second.name
    rows = pyarrow.parquet.ParquetFile(path).read()
    pyarrow.parquet.write_table(rows.append_column("extra", rows["key"]), path)
    changed = replace(second, size_bytes=path.stat().st_size)
    receipt = replace(published.receipt, files=(published.receipt.files[0], changed))
    with pytest.raises(StagedOutputUnusableError, match=f"{second.name}: expected the columns of part-00000.parquet"):
        output.sink.publisher.can_take(directory, receipt)


# ── Statistics ────────────────────────────────────────────────────────────────────────────────────────────────────────

NAN = math.nan
LONG = "x" * 40
HARD = {
    "text": [LONG + "a", LONG + "b", "y", None, "", "\U0010ffff" * 33, "\ud7ff" * 33, "z", "é" * 40, "b"],
    "huge": ["a" * 5_000, "b" * 5_000, "c" * 5_000, "d" * 5_000, "w", "m", "n", "o", "p", "q"],
    "word": [LONG + each for each in "abcdefghij"],
    "number": [2**62, -(2**62), 0, 1, 2, 3, 4, 5, None, 7],
    "real": [1.0, NAN, 2.0, 3.0, NAN, NAN, NAN, NAN, -0.0, None],
    "mixed": [1.0, NAN, 2.0, 3.0, 4.0, NAN, 5.0, 6.0, NAN, 7.0],
    "amount": [Decimal(n).scaleb(-2) for n in (-5, 10**11, 0, 1, 2, 3, 4, 5, 6, 7)],
    "day": [date(1, 1, 2), date(9999, 12, 30), None, *[date(2026, 1, 1)] * 7],
    "moment": [datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, 1, 2, 3, 4, UTC), *[None] * 8],
    "local": [datetime(2026, 1, 1), datetime(9999, 12, 30), *[None] * 8],  # noqa: DTZ001 - of no zone
    "yes": [True, False, None, *[True] * 7],
    "none": [None] * 10,
}
KINDS = {
    "amount": pa.decimal128(18, 2),
    "moment": pa.timestamp("us", "UTC"),
    "local": pa.timestamp("us"),
    "none": pa.string(),
}


def hard_columns() -> dict[str, "pa.Array[Any]"]:
    return {name: pa.array(values, KINDS.get(name)) for name, values in HARD.items()}


@pytest.fixture
def hard(lake: Any, tmp_path: Path) -> Any:
    """A table of one file, with values whose statistics are easily wrong."""
    output = prepared(lake, tmp_path / "orders")
    publish_decoded(output, plan_to(output, 1, partitions=1), hard_columns())
    return output


def test_a_query_reads_no_file_that_cannot_have_its_rows(lake: Any, hard: Any) -> None:
    for condition in ("number = 9000000000000000000", "text = 'a'", "day > '9999-12-30'", "none = 'a'"):
        read = lake.files_read(hard.path, condition)
        assert read == (1 if condition == "text = 'a'" else 0), condition


def test_there_are_no_bounds_where_one_may_be_wrong(lake: Any, hard: Any) -> None:
    found = {name for name in lake.with_bounds(hard.path) if name in HARD}
    of_some_format = {"text", "amount", "yes", "local"}
    assert found - of_some_format == {"word", "number", "day", "moment"}


def test_values_that_no_bound_can_hold_do_not_stop_the_commit(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Times that Python has not are no values of the rows that like_spark divides.
    monkeypatch.setattr(decoded_rows, "files_of", lambda rows, _needs: [("", rows)])
    output = prepared(lake, tmp_path / "orders")
    first, last = -(2**62), 2**62
    columns = {
        "text": pa.array(["a" * 15 + "\ud7ff" + "b"] * ROWS),
        "day": pa.array([-800_000, 2_932_897] * (ROWS // 2), pa.int32()).cast(pa.date32()),
        "moment": pa.array([first, last] * (ROWS // 2), pa.timestamp("us", "UTC")),
        "local": pa.array([first, last] * (ROWS // 2), pa.timestamp("us")),
    }
    publish_decoded(output, plan_to(output, 1, partitions=1), columns)
    for condition in ("text > 'a'", "day > '2026-01-01' or day < '2026-01-01'", "kafka_offset >= 0"):
        for found in lake.offsets_where(output.path, condition):
            assert found == [*range(ROWS)], condition
