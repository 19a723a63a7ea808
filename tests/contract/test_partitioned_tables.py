"""Partitioned tables: each file is of one partition, queries read only theirs, and all else is as it is without."""

import json
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyiceberg.io.pyarrow import DataFileStatistics
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.typedef import Record as Values
from tests.contract.builders import NOON, TOPIC_ID, attempt_of, batch_id_of, plan_of
from tests.contract.sink_outputs import DeltaOutput, IcebergOutput, opened
from tests.duckdb_tables import files_read_by_duckdb, rows_by_duckdb
from tests.iceberg_lake import catalog_beside, iceberg_at, name_at, table_at
from tests.like_spark import files_of

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, StagedOutputUnusableError
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.sinks.delta.columns import raw_schema
from kafka_ingest.sinks.iceberg.columns import RAW
from kafka_ingest.writing.stage_files import staged_files

Record = tuple[str, int, int, datetime | None]
"""Topic, partition, offset, time."""
Value = int | str | datetime

pytestmark = pytest.mark.long

BY_TOPIC_AND_DAY = TableOptions(partition_by=terms_of(["kafka_topic", "day(kafka_timestamp)"]))
BY_HOUR = TableOptions(partition_by=terms_of(["hour(kafka_timestamp)", "kafka_partition"]))
FIRST = datetime(2026, 1, 2, 23, 59, 59, 999_000, tzinfo=UTC)
NEXT_DAY = FIRST + timedelta(milliseconds=1)


class DeltaLake:
    """Delta tables as other programs make, change and read them."""

    output = DeltaOutput
    compactable = BY_TOPIC_AND_DAY

    def location(self, path: Path, options: TableOptions) -> OutputLocation:
        return OutputLocation.local("delta", path, options.as_options())

    def make(self, path: Path, options: TableOptions) -> None:
        """Make a table as another program does that a feed with these options could write."""
        schema = deltalake.Schema.from_json(json.dumps(raw_schema(options)))
        terms = [term.own_column for term in options.partition_by]
        DeltaTable.create(str(path), schema, partition_by=terms or None)

    def partitions(self, path: Path) -> Counter[tuple[str | None, ...]]:
        """Return how many files each partition has."""
        table = DeltaTable(str(path))
        actions = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        columns = table.metadata().partition_columns
        text = [
            [None if (value := each[f"partition.{name}"]) is None else str(value) for name in columns]
            for each in actions
        ]
        return Counter(tuple(values) for values in text)

    def files_read(self, path: Path, topic: str, day: str) -> int:
        """Return how many files a query for one topic and day reads, as the library plans it."""
        chosen = [("kafka_topic", "=", topic), ("kafka_date", "=", date.fromisoformat(day))]
        return len(DeltaTable(str(path)).file_uris(file_pruning_predicate=chosen))

    def files_planned(self, path: Path, column: str, comparison: str, value: Value) -> dict[str, int]:
        """Return reader → how many files it reads for a query by one column that the table is not partitioned by."""
        condition = pyarrow.parquet.filters_to_expression([(column, comparison, value)])
        by_statistics = DeltaTable(str(path)).to_pyarrow_dataset().get_fragments(filter=condition)
        found = {"pyarrow": len(list(by_statistics))}
        if not isinstance(value, datetime):  # its extension skips no file of a Delta table by a time
            found["DuckDB"] = files_read_by_duckdb("delta", str(path), f"{column} {comparison} {value!r}")
        return found

    def read(self, path: Path, *, polars: bool = True) -> list[pa.Table]:
        rows = DeltaTable(str(path)).to_pyarrow_table()
        by_polars = [pl.read_delta(str(path)).to_arrow()] if polars else []
        return [*by_polars, rows, rows_by_duckdb("delta", str(path))]

    def compact(self, path: Path) -> None:
        DeltaTable(str(path)).optimize.compact()


class IcebergLake:
    """The same of Iceberg tables."""

    output = IcebergOutput
    compactable = TableOptions(partition_by=terms_of(["kafka_topic", "kafka_partition"]))
    """The library needs another package to write days."""

    def location(self, path: Path, options: TableOptions) -> OutputLocation:
        return iceberg_at(path, options)

    def make(self, path: Path, options: TableOptions) -> None:
        spec = PartitionSpec(
            *(
                PartitionField(
                    RAW.find_field(term.column).field_id,
                    1000 + number,
                    DayTransform() if term.is_of_time else IdentityTransform(),
                    f"part_{number}" if term.is_of_time else term.column,
                )
                for number, term in enumerate(options.partition_by)
            )
        )
        self.make_with(path, spec)

    def make_with(self, path: Path, spec: PartitionSpec) -> None:
        catalog = catalog_beside(path)
        catalog.create_namespace_if_not_exists("shop")
        catalog.create_table(name_at(path), RAW, location=f"file://{path}", partition_spec=spec)

    def partitions(self, path: Path) -> Counter[tuple[str | None, ...]]:
        rows = table_at(path).inspect.files().to_pylist()
        found = [[None if value is None else str(value) for value in row["partition"].values()] for row in rows]
        return Counter(tuple(values) for values in found)

    def files_read(self, path: Path, topic: str, day: str) -> int:
        end = (datetime.fromisoformat(day) + timedelta(days=1)).date().isoformat()
        condition = (
            f"kafka_topic == '{topic}' and kafka_timestamp >= '{day}T00:00:00+00:00' "
            f"and kafka_timestamp < '{end}T00:00:00+00:00'"
        )
        return len(list(table_at(path).scan(row_filter=condition).plan_files()))

    def files_planned(self, path: Path, column: str, comparison: str, value: Value) -> dict[str, int]:
        table = table_at(path)
        condition = f"{column} {comparison} {(value.isoformat() if isinstance(value, datetime) else value)!r}"
        return {
            "PyIceberg": len(list(table.scan(row_filter=condition).plan_files())),
            "DuckDB": files_read_by_duckdb("iceberg", table.metadata_location, condition),
        }

    def read(self, path: Path, *, polars: bool = True) -> list[pa.Table]:
        rows = table_at(path).scan().to_arrow()
        with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
            by_polars = [pl.scan_iceberg(table_at(path)).collect().to_arrow()] if polars else []
        return [*by_polars, rows, rows_by_duckdb("iceberg", table_at(path).metadata_location)]

    def compact(self, path: Path) -> None:
        table = table_at(path)
        table.overwrite(table.scan().to_arrow())


LAKES = [DeltaLake, IcebergLake]


@pytest.fixture(params=LAKES, ids=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders"


def an_output(lake: Any, path: Path, options: TableOptions = BY_TOPIC_AND_DAY) -> Any:
    output = lake.output(path, options)
    output.sink.publisher.prepare()
    return output


def rows_of(batch_id: str, records: Sequence[Record]) -> pa.Table:
    """Return records as rows of the raw format."""
    topics, partitions, offsets, times = zip(*records, strict=True)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    nothing = [None] * len(records)
    return pa.table(
        {
            "kafka_topic": pa.array(topics, pa.string()),
            "kafka_partition": pa.array(partitions, pa.int32()),
            "kafka_offset": pa.array(offsets, pa.int64()),
            "kafka_timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "key": pa.array(nothing, pa.binary()),
            "value": pa.array([f"{each}".encode() for each in offsets], pa.binary()),
            "kafka_headers": pa.array(nothing, pa.list_(header)),
            "kafka_topic_id": pa.array([TOPIC_ID] * len(records), pa.string()),
            "kafka_timestamp_ms": pa.array([None if at else -1 for at in times], pa.int64()),
            "kafka_batch": pa.array([batch_id] * len(records), pa.string()),
        }
    )


def written(
    lake: Any,
    output: Any,
    records: Sequence[Record],
    *,
    number: int = 1,
    options: TableOptions = BY_TOPIC_AND_DAY,
    change: Callable[[pa.Table], pa.Table] = lambda rows: rows,
    replaces: Sequence[ReplacedRange] = (),
) -> tuple[Path, PublishedReceipt]:
    """Stage records of one task, as Spark does; return the attempt's directory and what is to be published."""
    ranges: dict[TopicPartition, list[int]] = {}
    for topic, partition, offset, _ in records:
        ranges.setdefault(TopicPartition(topic, partition), []).append(offset)
    plan = plan_of(
        *((each, min(offsets), max(offsets) + 1) for each, offsets in ranges.items()), number=number, output=output.path
    )
    kind = BatchKind.REPLACE if replaces else plan.kind
    plan = replace(plan, output=lake.location(output.path, options), kind=kind, replaces=tuple(replaces))
    directory = opened(output, plan)
    needs = output.sink.publisher.data_needs(directory)
    assert needs.place is not None
    for part, (folder, rows) in enumerate(files_of(rows_of(str(plan.batch_id), records), needs)):
        (needs.place / folder).mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(change(rows), needs.place / folder / f"part-{part:05}.parquet")
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=1,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt_of(plan, 1).document_sha256,
        rows_read=len(records),
        files=tuple(staged_files(needs.place)),
        written_at=NOON,
        written_by="stand-in for Spark",
    )
    assert receipt.contradictions(plan) == []
    output.write_receipt(directory, receipt.as_bytes())
    return directory, PublishedReceipt(plan, receipt, ())


def publish(lake: Any, output: Any, records: Sequence[Record], **written_with: Any) -> PublishedReceipt:
    directory, published = written(lake, output, records, **written_with)
    output.sink.staging.verify(directory, published.receipt)
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    return published


def seen(rows: pa.Table) -> Counter[tuple[str, int, int]]:
    columns = (rows[name].to_pylist() for name in ("kafka_topic", "kafka_partition", "kafka_offset"))
    return Counter(zip(*columns, strict=True))


def positions(records: Sequence[Record]) -> Counter[tuple[str, int, int]]:
    return Counter(record[:3] for record in records)


TWO_TOPICS: list[Record] = [
    *(("orders", 0, offset, FIRST if offset % 2 else NEXT_DAY) for offset in range(10)),
    *(("refunds", 1, offset, FIRST) for offset in range(5)),
    ("refunds", 1, 5, None),
]


# ── Written and read ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_table_is_partitioned_as_the_feed_says_and_every_reader_sees_every_row(lake: Any, path: Path) -> None:
    output = an_output(lake, path)
    published = publish(lake, output, TWO_TOPICS)
    assert lake.partitions(path) == {
        ("orders", "2026-01-02"): 1,
        ("orders", "2026-01-03"): 1,
        ("refunds", "2026-01-02"): 1,
        ("refunds", None): 1,
    }
    for rows in lake.read(path):
        assert seen(rows) == positions(TWO_TOPICS)
        assert rows["kafka_timestamp"].null_count == 1
    [found] = output.sink.publisher.published_receipts()
    assert found.files.state is FilesState.INTACT
    look = output.sink.inspector.look_at(published.plan.batch_id)
    assert (look.problems, sum(count.rows for count in look.counts)) == ([], len(TWO_TOPICS))
    assert [count.offsets for count in look.counts] == [10, 6], (
        "though offsets of a partition are in two files by turns"
    )


def test_a_query_for_a_topic_and_a_day_reads_their_files_alone(lake: Any, path: Path) -> None:
    output = an_output(lake, path)
    publish(lake, output, TWO_TOPICS)
    publish(lake, output, [(topic, 0, offset + 20, at) for topic, _, offset, at in TWO_TOPICS], number=2)
    assert sum(lake.partitions(path).values()) == 8
    assert lake.files_read(path, "orders", "2026-01-03") == 2
    assert lake.files_read(path, "refunds", "2026-01-03") == 0
    assert lake.files_read(path, "payments", "2026-01-02") == 0


def test_a_query_for_offsets_a_partition_a_time_or_a_batch_reads_the_files_that_may_have_them_alone(
    lake: Any, path: Path
) -> None:
    output = an_output(lake, path, NO_TABLE_OPTIONS)
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    for number, (partition, first, at) in enumerate([(0, 0, noon), (0, 10, NEXT_DAY), (1, 0, noon)], start=1):
        records: list[Record] = [("orders", partition, first + each, at) for each in range(10)]
        publish(lake, output, records, number=number, options=NO_TABLE_OPTIONS)
    for rows in lake.read(path):
        assert rows.num_rows == len(seen(rows)) == 30
    for column, comparison, value, files in (
        ("kafka_offset", ">=", 10, 1),
        ("kafka_offset", "<", 10, 2),
        ("kafka_offset", ">", 19, 0),
        ("kafka_partition", "=", 1, 1),
        ("kafka_partition", "=", 2, 0),
        ("kafka_timestamp", ">=", NEXT_DAY, 1),
        ("kafka_timestamp", "<", NEXT_DAY, 2),
        ("kafka_timestamp", "<", noon, 0),
        ("kafka_batch", "=", str(batch_id_of(2)), 1),
    ):
        planned = lake.files_planned(path, column, comparison, value)
        assert planned == dict.fromkeys(planned, files), (column, comparison, value)


def test_a_delta_table_has_the_day_in_a_column_of_its_own(path: Path) -> None:
    publish(DeltaLake(), an_output(DeltaLake(), path), TWO_TOPICS)
    for rows in DeltaLake().read(path):
        dates = Counter(rows["kafka_date"].to_pylist())
        assert dates == {FIRST.date(): 10, NEXT_DAY.date(): 5, None: 1}


def test_hours_are_in_utc_also_before_1970_and_at_the_ends_of_what_is_a_date(lake: Any, path: Path) -> None:
    times = [
        datetime(2026, 1, 2, 5, 59, 59, 999_999, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        None,
    ]
    records = [("orders", 0, offset, at) for offset, at in enumerate(times)]
    publish(lake, an_output(lake, path, BY_HOUR), records, options=BY_HOUR)
    assert len(lake.partitions(path)) == len(times)
    if lake.output is DeltaOutput:
        hours = {hour for hour, _ in lake.partitions(path)}
        assert hours == {"2026-01-02T05", "1969-12-31T23", "0001-01-01T00", "9999-12-31T23", None}
    [_, rows, _] = lake.read(path)
    assert seen(rows) == positions(records)


def test_no_topic_name_leads_a_file_elsewhere(lake: Any, path: Path) -> None:
    names = ["...", "null", "A", "a", "x" * 243, "a.b-c_d", "1", "true"]
    records: list[Record] = [(name, 0, 3, FIRST) for name in names]
    output = an_output(lake, path)
    publish(lake, output, records)
    assert {topic for topic, _ in lake.partitions(path)} == set(names)
    for rows in lake.read(path):
        assert seen(rows) == positions(records)


def test_topics_named_as_no_value_is_or_too_long_for_a_folder_are_what_they_are_to_readers_that_believe_the_table(
    lake: Any, path: Path
) -> None:
    names = ["__HIVE_DEFAULT_PARTITION__", "x" * 244, "x" * 249]
    records: list[Record] = [(name, 0, 3, FIRST) for name in names]
    publish(lake, an_output(lake, path), records)
    assert {topic for topic, _ in lake.partitions(path)} == set(names)
    for rows in lake.read(path, polars=False):
        assert seen(rows) == positions(records)


def test_every_reader_sees_every_row_while_a_compaction_has_some_partitions_only(lake: Any, path: Path) -> None:
    output = an_output(lake, path, lake.compactable)
    publish(lake, output, TWO_TOPICS, options=lake.compactable)
    more: list[Record] = [("orders", 0, 20, FIRST)]
    publish(lake, output, more, number=2, options=lake.compactable)
    lake.compact(path)
    later: list[Record] = [("orders", 0, 21, FIRST), ("refunds", 1, 21, NEXT_DAY)]
    publish(lake, output, later, number=3, options=lake.compactable)
    for rows in lake.read(path):
        assert seen(rows) == positions(TWO_TOPICS + more + later)


# ── Files that are not of one partition ───────────────────────────────────────────────────────────────────────────────


def refused(lake: Any, output: Any, *, change: Callable[[pa.Table], pa.Table], records: Sequence[Record]) -> str:
    directory, published = written(lake, output, records, change=change)
    with pytest.raises(StagedOutputUnusableError) as error:
        output.sink.publisher.can_take(directory, published.receipt)
    return str(error.value)


def with_times(times: Sequence[datetime | None]) -> Callable[[pa.Table], pa.Table]:
    def change(rows: pa.Table) -> pa.Table:
        column = pa.array(times, pa.timestamp("us", "UTC"))
        return rows.set_column(rows.schema.get_field_index("kafka_timestamp"), "kafka_timestamp", column)

    return change


@pytest.mark.parametrize(
    ("times", "found"),
    [((FIRST, NEXT_DAY), "2026-01-02, 2026-01-03"), ((FIRST, None), "2026-01-02, None")],
    ids=["two days", "a null among values"],
)
def test_a_file_of_two_partitions_is_refused_by_name(
    lake: Any, path: Path, times: tuple[datetime | None, ...], found: str
) -> None:
    output, records = an_output(lake, path), [("orders", 0, offset, FIRST) for offset in range(2)]
    said = refused(lake, output, change=with_times(times), records=records)
    assert f"day(kafka_timestamp): expected rows of one partition, found {found}" in said


def test_a_days_own_column_that_says_another_day_is_refused(path: Path) -> None:
    lake, records = DeltaLake(), [("orders", 0, 0, FIRST)]

    def change(rows: pa.Table) -> pa.Table:
        other = pa.array([NEXT_DAY.date()], pa.date32())
        return rows.set_column(rows.schema.get_field_index("kafka_date"), "kafka_date", other)

    said = refused(lake, an_output(lake, path), change=change, records=records)
    assert "column kafka_date: expected 2026-01-02 alone, found 2026-01-03" in said


@pytest.mark.parametrize(("times", "found"), [((FIRST, NEXT_DAY), "2026-01-03"), ((FIRST, None), "None")])
def test_files_are_looked_at_again_in_the_commit_which_adds_none_that_is_not_of_one_partition(
    lake: Any, path: Path, times: tuple[datetime | None, ...], found: str
) -> None:
    output, records = an_output(lake, path), [("orders", 0, offset, FIRST) for offset in range(2)]
    directory, published = written(lake, output, records, change=with_times(times))
    with pytest.raises(OutputConflictError, match=f"expected rows of one partition, found 2026-01-02, {found}"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_files_that_the_library_would_file_elsewhere_are_not_committed(path: Path) -> None:
    lake = IcebergLake()
    output = an_output(lake, path)
    directory, published = written(lake, output, TWO_TOPICS)
    output.sink.publisher.can_take(directory, published.receipt)
    with (
        patch.object(DataFileStatistics, "partition", return_value=Values("orders", 20_455)),
        pytest.raises(OutputConflictError, match=r"filed .*refunds.* found Record\[orders, 20455\]"),
    ):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()
    output.sink.publisher.publish(directory, published)
    assert sum(lake.partitions(path).values()) == 4


# ── Tables of others ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_existing_table_that_is_partitioned_as_the_feed_says_is_taken(lake: Any, path: Path) -> None:
    lake.make(path, BY_TOPIC_AND_DAY)
    output = an_output(lake, path)
    publish(lake, output, TWO_TOPICS)
    assert len(lake.partitions(path)) == 4
    for rows in lake.read(path):
        assert seen(rows) == positions(TWO_TOPICS)


@pytest.mark.parametrize(
    ("has", "asked"),
    [
        (["kafka_topic"], []),
        ([], ["kafka_topic"]),
        (["day(kafka_timestamp)", "kafka_topic"], ["kafka_topic", "day(kafka_timestamp)"]),
        (["day(kafka_timestamp)"], ["hour(kafka_timestamp)"]),
        (["kafka_topic"], ["kafka_topic", "kafka_partition"]),
    ],
    ids=["not asked for", "not partitioned", "another order", "a day for an hour", "one too few"],
)
def test_a_table_that_is_partitioned_otherwise_is_refused_by_name(
    lake: Any, path: Path, has: list[str], asked: list[str]
) -> None:
    output = lake.output(path, TableOptions(partition_by=terms_of(asked)))
    lake.make(path, TableOptions(partition_by=terms_of(has)))
    with pytest.raises(OutputNotUsableError) as error:
        output.sink.publisher.prepare()
    own = [term.own_column for term in terms_of(asked)] if lake.output is DeltaOutput else asked
    there = [term.own_column for term in terms_of(has)] if lake.output is DeltaOutput else has
    expected = (
        f"partitioned by {', '.join(there) or 'nothing'}, sink.partition_by asks for {', '.join(own) or 'nothing'}"
    )
    assert expected in str(error.value)


def test_a_transform_that_no_feed_can_ask_for_is_refused_by_name(path: Path) -> None:
    output = IcebergOutput(path, NO_TABLE_OPTIONS)
    source = RAW.find_field("kafka_topic").field_id
    IcebergLake().make_with(path, PartitionSpec(PartitionField(source, 1000, BucketTransform(4), "bucket")))
    with pytest.raises(OutputNotUsableError, match=r"partitioned by bucket\[4\]\(kafka_topic\)"):
        output.sink.publisher.prepare()


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"write.metadata.metrics.default": "none"}, "kafka_topic: none"),
        ({"write.metadata.metrics.default": "counts"}, "kafka_timestamp: counts"),
        ({"write.metadata.metrics.column.kafka_topic": "counts"}, "kafka_topic: counts"),
        ({"write.metadata.metrics.default": "some"}, "Unsupported metrics mode: some"),
    ],
    ids=["none", "counts", "one column", "no such"],
)
def test_a_table_that_keeps_no_bounds_of_its_partitions_is_refused_by_name(
    path: Path, properties: dict[str, str], found: str
) -> None:
    output = IcebergOutput(path, BY_TOPIC_AND_DAY)
    IcebergLake().make(path, BY_TOPIC_AND_DAY)
    with table_at(path).transaction() as change:
        change.set_properties(**properties)
    with pytest.raises(OutputNotUsableError, match=f"write.metadata.metrics.*{found}"):
        output.sink.publisher.prepare()


def test_shortened_bounds_and_none_of_other_columns_lead_to_the_same_partitions(path: Path) -> None:
    IcebergLake().make(path, BY_TOPIC_AND_DAY)
    with table_at(path).transaction() as change:
        change.set_properties(
            **{
                "write.metadata.metrics.default": "none",
                "write.metadata.metrics.column.kafka_topic": "truncate(3)",
                "write.metadata.metrics.column.kafka_timestamp": "full",
            }
        )
    publish(IcebergLake(), an_output(IcebergLake(), path), TWO_TOPICS)
    assert {topic for topic, _ in IcebergLake().partitions(path)} == {"orders", "refunds"}
    assert table_at(path).scan(row_filter="kafka_topic == 'orders'").to_arrow().num_rows == 10


# ── What operators ask and do ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("by", [[], ["kafka_batch", "kafka_topic_id"]], ids=["by topic", "by batch"])
def test_a_batch_is_counted_found_and_removed_wherever_a_compaction_put_its_rows(
    lake: Any, path: Path, by: list[str]
) -> None:
    options = TableOptions(partition_by=terms_of(by)) if by else lake.compactable
    output = an_output(lake, path, options)
    first = publish(lake, output, TWO_TOPICS, options=options)
    later = [(topic, partition, offset + 20, at) for topic, partition, offset, at in TWO_TOPICS]
    second = publish(lake, output, later, number=2, options=options)
    lake.compact(path)
    assert [each.files.state for each in output.sink.publisher.published_receipts()] == [FilesState.INTACT] * 2
    for published, records in ((first, TWO_TOPICS), (second, later)):
        look = output.sink.inspector.look_at(published.plan.batch_id)
        assert (list(look.problems), sum(count.offsets for count in look.counts)) == ([], len(records))
        position = TopicPartition("refunds", 1), records[-1][2]
        assert any(
            output.sink.inspector.holds(published.plan.batch_id, file, *position) for file in published.receipt.files
        )


def test_a_batch_that_expires_takes_no_other_along(lake: Any, path: Path) -> None:
    output = an_output(lake, path)
    publish(lake, output, TWO_TOPICS)
    later = [(topic, partition, offset + 20, at) for topic, partition, offset, at in TWO_TOPICS]
    publish(lake, output, later, number=2)
    output.sink.archive.note_removal(Removal(batch_id_of(1), RemovalCause.EXPIRED, NOON, "ops", "old"))
    output.sink.remover.hide(batch_id_of(1))
    assert output.sink.remover.unfinished() == []
    for rows in lake.read(path):
        assert seen(rows) == positions(later)


def test_records_that_are_staged_again_stay_in_their_partitions(lake: Any, path: Path) -> None:
    output = an_output(lake, path)
    source, earlier = written(lake, output, TWO_TOPICS)
    plan = replace(earlier.plan, batch_id=batch_id_of(2))
    target = opened(output, plan)
    ranges = [OffsetRange(TopicPartition("orders", 0), 2, 7), OffsetRange(TopicPartition("refunds", 1), 4, 6)]
    files = tuple(output.sink.staging.restage(source, earlier.receipt, target, ranges))
    receipt = replace(earlier.receipt, batch_id=plan.batch_id, plan_fingerprint=plan.fingerprint, files=files)
    output.sink.publisher.can_take(target, receipt)
    output.sink.publisher.publish(target, replace(earlier, plan=plan, receipt=receipt))
    [_, rows, _] = lake.read(path)
    assert seen(rows) == positions(
        [
            each
            for each in TWO_TOPICS
            if (each[2] in range(2, 7) and each[0] == "orders") or (each[0] == "refunds" and each[2] >= 4)
        ]
    )
    assert len(lake.partitions(path)) == 4


# ── Receipts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_files_of_a_partitioned_table_may_share_intervals_but_hold_no_more_records_than_offsets(path: Path) -> None:
    lake = DeltaLake()
    _, published = written(lake, an_output(lake, path), TWO_TOPICS)
    [first, *_] = published.receipt.files
    longer = tuple(OffsetRange(each.topic_partition, 0, 100) for each in published.plan.ranges)
    plan = replace(published.plan, ranges=longer)
    receipt = replace(published.receipt, plan_fingerprint=plan.fingerprint)
    assert receipt.contradictions(plan) == []
    twice = replace(receipt, files=(*receipt.files, replace(first, name="again.parquet")))
    assert replace(twice, rows_read=twice.rows).contradictions(plan) == [
        "the files hold 15 records of orders-0 in 10 offsets: some are duplicates"
    ]
    unpartitioned = replace(published.plan, output=lake.location(path, NO_TABLE_OPTIONS))
    receipt = replace(published.receipt, plan_fingerprint=unpartitioned.fingerprint)
    assert any("both hold offsets of orders-0" in problem for problem in receipt.contradictions(unpartitioned))


# ── Replacing rows ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("lake", "compacted"),
    [(DeltaLake, False), (DeltaLake, True), (IcebergLake, False)],
    ids=["delta", "delta compacted", "iceberg"],
    indirect=["lake"],
)
def test_rows_of_a_partitioned_table_are_replaced_and_all_others_stay_in_their_partitions(
    lake: Any, path: Path, *, compacted: bool
) -> None:
    output = an_output(lake, path)
    first = publish(lake, output, TWO_TOPICS)
    later = [(topic, partition, offset + 20, at) for topic, partition, offset, at in TWO_TOPICS]
    publish(lake, output, later, number=2)
    if compacted:
        lake.compact(path)
    before = lake.partitions(path)
    orders = [record for record in TWO_TOPICS if record[0] == "orders"]
    of_first = first.plan.ranges[0]
    directory, again = written(lake, output, orders, number=3, replaces=[ReplacedRange(of_first, batch_id_of(1))])
    output.sink.publisher.can_take(directory, again.receipt)
    output.sink.replacer.can_take(directory, again.plan, again.receipt)
    output.sink.publisher.publish(directory, again)

    assert lake.partitions(path).keys() == before.keys()
    for rows in lake.read(path):
        assert seen(rows) == positions(TWO_TOPICS + later)
        found = Counter(zip(rows["kafka_batch"].to_pylist(), rows["kafka_topic"].to_pylist(), strict=True))
        assert found == {
            (str(batch_id_of(1)), "refunds"): 6,
            (str(batch_id_of(2)), "orders"): 10,
            (str(batch_id_of(2)), "refunds"): 6,
            (str(batch_id_of(3)), "orders"): 10,
        }
    states = {each.plan.batch_id: each.files.state for each in output.sink.publisher.published_receipts()}
    assert states[batch_id_of(2)] is states[batch_id_of(3)] is FilesState.INTACT
    assert lake.files_read(path, "orders", "2026-01-03") == 2
