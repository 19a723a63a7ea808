"""What a table in PostgreSQL does besides the contract of all outputs: its columns, and what it refuses a batch for."""

import asyncio
import re
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, LiteralString

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import URL, Column, Connection, MetaData, Table, make_url, text
from sqlalchemy.dialects import postgresql
from tests.contract.builders import batch_id_of
from tests.contract.conftest import PostgresqlServer
from tests.contract.decoded_rows import DECODED, publish_decoded, stage_decoded
from tests.contract.sink_outputs import (
    ROWS,
    PostgresqlBeside,
    PostgresqlOutput,
    made,
    plan_to,
    publish,
    rows_of,
    written,
)
from tests.postgresql_tables import (
    CONN_ID,
    connect,
    connections_to_postgresql,
    execute,
    new_role,
    postgresql_at,
    rows_in_postgresql,
    schema_of,
)

from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.errors import (
    BatchRevokedError,
    ColumnsChangedError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.control_rows import PublishedBatch
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.observing.account_of_output import account_of
from kafka_ingest.sinks.choose import SinkConnections, format_found, sink_of
from kafka_ingest.sinks.postgresql import database
from kafka_ingest.sinks.postgresql.database import DatabaseSettings
from kafka_ingest.sinks.postgresql.named_table import NamedTable
from kafka_ingest.sinks.postgresql.output import PostgresqlOutput as PostgresqlTable
from kafka_ingest.sinks.postgresql.table_rows import of_ranges

pytestmark = pytest.mark.usefixtures("postgresql_server")

RAW: LiteralString = (
    "kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamptz, key bytea, value bytea, "
    "kafka_headers jsonb, kafka_topic_id text, kafka_timestamp_ms bigint, kafka_batch uuid"
)


@pytest.fixture
def output(request: pytest.FixtureRequest, tmp_path: Path) -> PostgresqlOutput:
    found = made(PostgresqlOutput, tmp_path / "orders", request)
    assert isinstance(found, PostgresqlOutput)
    return found


def tables(output: PostgresqlOutput) -> list[str]:
    """Return the tables in an output's schema."""
    with connect() as connection:
        query = "SELECT tablename FROM pg_tables WHERE schemaname = %s ORDER BY 1"
        return [name for (name,) in connection.execute(query, [schema_of(output.path)])]


def column_types(output: PostgresqlOutput) -> dict[str, str]:
    with connect() as connection:
        query = (
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0 AND attrelid = "
            "to_regclass(%s) ORDER BY attnum"
        )
        return dict(connection.execute(query, [f"{schema_of(output.path)}.{output.path.name}"]).fetchall())


def taken(output: PostgresqlOutput, number: int, **written_with: Any) -> tuple[Path, PublishedReceipt]:
    """Write a batch, and ask whether the table can take it, as a commit does before COMMITTING."""
    directory, published = written(output, plan_to(output, number), **written_with)
    output.sink.publisher.can_take(directory, published.receipt)
    return directory, published


# ── Columns ───────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUE = pa.struct(
    [
        ("of", pa.map_(pa.string(), pa.decimal128(12, 2))),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
    ]
)
INNER = {"of": [("a", Decimal("1.50"))], "at": datetime(2026, 1, 2, tzinfo=UTC), "raw": b"\xff", "ratio": float("nan")}
COLUMNS = {
    "nested": pa.array([INNER] * ROWS, VALUE),
    "tags": pa.array([["é", None]] * ROWS, pa.list_(pa.string())),
    "total": pa.array([Decimal("12345678901234567890123456789012.123456")] * ROWS, pa.decimal128(38, 6)),
    "local": pa.array([datetime(1, 1, 1)] * ROWS, pa.timestamp("us")),  # noqa: DTZ001 - without a zone
    "due": pa.array([date(9999, 12, 31)] * ROWS, pa.date32()),
    "flag": pa.array([True] * ROWS, pa.bool_()),
    "small": pa.array([-32_768] * ROWS, pa.int16()),
    "real": pa.array([float("-inf")] * ROWS, pa.float32()),
    "precise": pa.array([0.1] * ROWS, pa.float64()),
    "Raw %(x)s": pa.array([b"\x00"] * ROWS, pa.binary()),
    "none": pa.array([None] * ROWS, pa.string()),
}


def test_values_of_every_type_come_back_from_columns_of_their_types(output: PostgresqlOutput) -> None:
    decoded = PostgresqlOutput(output.path, DECODED)
    publish_decoded(decoded, plan_to(decoded, 1, partitions=1), COLUMNS)
    [first, *_] = rows_in_postgresql(output.path, 'nested, tags, total, local, due, flag, small, "real", precise')
    assert first == (
        {"of": {"a": "1.50"}, "at": "2026-01-02T00:00:00+00:00", "raw": "/w==", "ratio": "nan"},
        ["é", None],
        Decimal("12345678901234567890123456789012.123456"),
        datetime(1, 1, 1),  # noqa: DTZ001
        date(9999, 12, 31),
        True,
        -32_768,
        float("-inf"),
        0.1,
    )
    assert {row[0] for row in rows_in_postgresql(output.path, '"Raw %(x)s"')} == {b"\x00"}
    assert column_types(output) == {
        "kafka_topic": "text",
        "kafka_partition": "integer",
        "kafka_offset": "bigint",
        "kafka_timestamp": "timestamp with time zone",
        "nested": "jsonb",
        "tags": "jsonb",
        "total": "numeric(38,6)",
        "local": "timestamp without time zone",
        "due": "date",
        "flag": "boolean",
        "small": "smallint",
        "real": "real",
        "precise": "double precision",
        "Raw %(x)s": "bytea",
        "none": "text",
        "kafka_headers": "jsonb",
        "kafka_topic_id": "text",
        "kafka_timestamp_ms": "bigint",
        "kafka_batch": "uuid",
    }


def test_a_field_that_comes_later_is_added_and_one_of_another_type_is_refused_before_the_batch_is_committing(
    output: PostgresqlOutput,
) -> None:
    decoded = PostgresqlOutput(output.path, DECODED)
    publish_decoded(decoded, plan_to(decoded, 1, partitions=1), {"id": pa.array([1] * ROWS, pa.int32())})
    execute(output.path, "UPDATE {} SET kafka_topic_id = 'earlier'")
    more = {"id": pa.array([1] * ROWS, pa.int32()), "city": pa.array(["Bern"] * ROWS)}
    publish_decoded(decoded, plan_to(decoded, 2, partitions=1), more)
    assert Counter(rows_in_postgresql(output.path, "city")) == {(None,): ROWS, ("Bern",): ROWS}
    directory, published = stage_decoded(decoded, plan_to(decoded, 3), {"id": pa.array([1] * ROWS, pa.int64())})
    with pytest.raises(ColumnsChangedError, match=r"(?s)column id: expected bigint, found int.*no offset was moved"):
        decoded.sink.publisher.can_take(directory, published.receipt)
    assert list(decoded.sink.publisher.misfits({"id": "bigint", "more": "string", "ctid": "string"})) == [
        "column id: expected bigint, found integer",
        "column ctid: expected another name, as PostgreSQL has a column of its own under this one",
    ]


@pytest.mark.parametrize(
    ("made_as", "problem"),
    [
        (RAW.replace("kafka_offset bigint", "kafka_offset int"), "column kafka_offset: expected bigint, found integer"),
        (RAW + ", note text NOT NULL", "column note: it is NOT NULL without a default, and nothing would be"),
        (RAW.replace("key bytea", "key bytea NOT NULL"), "column key: expected one that allows nulls, found NOT NULL"),
        (RAW.replace(", kafka_headers jsonb", ""), "column kafka_headers: expected jsonb, found none"),
        (
            RAW.replace("_partition int", "_partition int GENERATED ALWAYS AS IDENTITY"),
            "kafka_partition: it is generated",
        ),
        (RAW.replace("kafka_batch uuid", "kafka_batch text"), "column kafka_batch: expected uuid, found text"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_a_plan(
    output: PostgresqlOutput, made_as: LiteralString, problem: str
) -> None:
    execute(output.path, "CREATE TABLE {} (" + made_as + ")")
    with pytest.raises(OutputNotUsableError, match=problem):
        output.sink.publisher.examine()


def test_a_table_with_wider_columns_and_others_is_used_as_it_is(output: PostgresqlOutput) -> None:
    wider = RAW.replace("kafka_partition int", "kafka_partition numeric").replace("topic text", "topic varchar")
    execute(output.path, "CREATE TABLE {} (" + wider + ", note text, number int NOT NULL DEFAULT 7)")
    published = publish(output, plan_to(output, 1))
    assert output.seen() == rows_of(published)
    assert Counter(rows_in_postgresql(output.path, "note, number")) == {(None, 7): 2 * ROWS}


@pytest.mark.parametrize("choice", [OnNewColumns.ADD, OnNewColumns.IGNORE])
def test_a_table_that_lacks_a_column_gets_it_or_is_written_without_as_the_feed_says(
    output: PostgresqlOutput, choice: OnNewColumns
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW.replace(", kafka_headers jsonb", "") + ")")
    chosen = PostgresqlOutput(output.path, TableOptions(on_new_columns=choice))
    directory, published = written(chosen, plan_to(output, 1))
    needs = chosen.sink.publisher.data_needs(directory)
    assert needs.without == (("kafka_headers",) if choice is OnNewColumns.IGNORE else ())
    if needs.without:
        return
    chosen.sink.publisher.publish(directory, published)
    assert column_types(output)["kafka_headers"] == "jsonb"
    assert output.seen() == rows_of(published)


def test_names_that_sql_has_a_use_for_are_names_of_columns(output: PostgresqlOutput) -> None:
    with connect() as connection:
        words = [word for (word,) in connection.execute("SELECT word FROM pg_get_keywords() WHERE catcode <> 'U'")]
    names = [*words, 'a"b', "a'b", "100%", "%(x)s", ":x", "a\nb", "a;--", "Ä" * 31, "A", "a"]
    decoded = PostgresqlOutput(output.path, DECODED)
    publish_decoded(decoded, plan_to(decoded, 1), {name: pa.array([name] * ROWS) for name in names})
    selected = psycopg.sql.SQL(", ").join(map(psycopg.sql.Identifier, names))
    assert execute(output.path, "SELECT DISTINCT {selected} FROM {}", selected=selected) == [tuple(names)]


def test_texts_stay_as_they_are_whatever_encoding_the_role_or_the_database_has(
    output: PostgresqlOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = PostgresqlOutput(output.path, DECODED)
    with monkeypatch.context() as patched:
        patched.setenv("PGCLIENTENCODING", "LATIN1")
        publish_decoded(decoded, plan_to(decoded, 1), {"note": pa.array(["Zürich €"] * ROWS)})
    assert set(rows_in_postgresql(output.path, "note")) == {("Zürich €",)}


@pytest.mark.parametrize("options", ["", "-c role=quoting -c quote_all_identifiers=on"])
def test_a_role_that_has_all_names_quoted_can_publish(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer, options: str
) -> None:
    new_role("quoting")
    execute(output.path, "ALTER ROLE quoting SET quote_all_identifiers = on")
    execute(output.path, "GRANT ALL ON SCHEMA {schema} TO quoting")
    url = postgresql_server.url("postgres")
    url = url.update_query_dict({"options": options}) if options else url.set(username="quoting")
    output.sink = sink_of(postgresql_at(output.path), to(url))
    published = [publish(output, plan_to(output, number)) for number in (1, 2)]
    assert output.seen() == rows_of(published[0]) + rows_of(published[1])
    execute(output.path, "REASSIGN OWNED BY quoting TO CURRENT_USER")
    execute(output.path, "DROP OWNED BY quoting")


def test_behind_a_pooler_that_takes_no_options_it_is_said_how_names_are_not_quoted(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgresql_server.url("postgres")
    output.sink = sink_of(
        postgresql_at(output.path), to(url.update_query_dict({"options": "-c quote_all_identifiers=on"}))
    )
    refused = DatabaseSettings(CONN_ID, url.update_query_dict({"options": "-c no_such=1"}))
    monkeypatch.setattr(DatabaseSettings, "without_quotes", lambda _: refused)
    with pytest.raises(
        OutputUnavailableError, match=r"ALTER ROLE \w+ IN DATABASE postgres SET quote_all_identifiers = off"
    ):
        taken(output, 1)


# ── What a batch is refused for ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array(["a"] * 4 + ["b\0"] + ["c"] * 5), "a NUL character in column note.*select"),
        (pa.array([["a"]] * 4 + [["b\0"]] + [None] * 5), "a NUL character in column note.*where"),
        (
            pa.array([b"a"] * 4 + [b"\xff"] * 6, pa.binary()).view(pa.string()),
            "invalid byte sequence .* in column note",
        ),
        (pa.array([0] * 4 + [-(2**63)] * 6, pa.timestamp("us", "UTC")), "a time before 4713 BC in column note"),
        (pa.array([0] * 4 + [2**31 - 1] * 6, pa.date32()), "date out of range in column note"),
    ],
    ids=["text", "jsonb", "no UTF-8", "time", "day"],
)
def test_a_value_that_no_column_can_hold_is_refused_before_the_batch_is_committing_with_its_offset(
    output: PostgresqlOutput, column: "pa.Array[Any]", found: str
) -> None:
    decoded = PostgresqlOutput(output.path, DECODED)
    directory, published = stage_decoded(decoded, plan_to(decoded, 1), {"note": column})
    with pytest.raises(ColumnsChangedError, match=rf"^orders-0@4: .* found {found}"):
        decoded.sink.publisher.can_take(directory, published.receipt)
    assert not any(name.startswith("kafka_ingest_") for name in tables(output))


@pytest.mark.parametrize(
    ("columns", "error", "found"),
    [
        (1_100, ColumnsChangedError, "found row is too big: .*Let select put fields together in a struct"),
        (1_600, OutputNotUsableError, "tables can have at most 1600 columns. No offset was moved; let select"),
    ],
)
def test_more_columns_than_a_row_or_a_table_can_have_are_refused_before_the_batch_is_committing(
    output: PostgresqlOutput, columns: int, error: type[Exception], found: str
) -> None:
    wide = {f"c{number}": pa.array([number] * ROWS, pa.int64()) for number in range(columns)}
    decoded = PostgresqlOutput(output.path, DECODED)
    directory, published = stage_decoded(decoded, plan_to(decoded, 1), wide)
    with pytest.raises(error, match=found):
        decoded.sink.publisher.can_take(directory, published.receipt)


def test_a_file_whose_pages_are_damaged_is_found_before_the_batch_is_committing(output: PostgresqlOutput) -> None:
    directory, published = written(output, plan_to(output, 1))
    path = directory / "data" / "part-00001.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:4] + b"\xff" * 200 + content[204:])
    with pytest.raises(StagedOutputUnusableError, match=r"part-00001\.parquet cannot be read"):
        output.sink.publisher.can_take(directory, published.receipt)


def test_a_row_that_a_constraint_refuses_stops_the_commit_with_its_offset_and_nothing_is_there(
    output: PostgresqlOutput,
) -> None:
    few: LiteralString = ", CONSTRAINT few CHECK (kafka_partition = 0 OR kafka_offset < 7))"
    execute(output.path, "CREATE TABLE {} (" + RAW + few)
    directory, published = taken(output, 1)
    with pytest.raises(OutputConflictError, match=r'refuses orders-1@7: .*check constraint "few".*no offset was moved'):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()
    execute(output.path, "ALTER TABLE {} DROP CONSTRAINT few")
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


@pytest.mark.parametrize(
    "constraint",
    [
        "UNIQUE (kafka_offset)",
        "UNIQUE (kafka_offset) DEFERRABLE INITIALLY DEFERRED",
        "FOREIGN KEY (kafka_partition) REFERENCES {schema}.partitions DEFERRABLE INITIALLY DEFERRED",
    ],
)
def test_a_row_that_is_refused_beside_another_or_at_the_end_alone_stops_the_commit_with_its_offset(
    output: PostgresqlOutput, constraint: LiteralString
) -> None:
    execute(output.path, "CREATE TABLE {schema}.partitions AS SELECT 0 AS number")
    execute(output.path, "ALTER TABLE {schema}.partitions ADD PRIMARY KEY (number)")
    execute(output.path, "CREATE TABLE {} (" + RAW + ", " + constraint + ")")
    directory, published = taken(output, 1)
    with pytest.raises(OutputConflictError, match=r"refuses orders-1@0: .* constraint .*no offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_a_row_that_a_trigger_refuses_stops_the_commit_with_its_offset(output: PostgresqlOutput) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(
        output.path,
        "CREATE FUNCTION {schema}.few() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.kafka_partition = 1 AND new.kafka_offset >= 7 THEN RAISE EXCEPTION 'too many'; END IF; "
        "RETURN new; END $$",
    )
    execute(output.path, "CREATE TRIGGER few BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {schema}.few()")
    directory, published = taken(output, 1)
    with pytest.raises(OutputConflictError, match=r"refuses orders-1@7: too many\..*no offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_a_full_disk_is_named_with_what_to_do(output: PostgresqlOutput) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(
        output.path,
        "CREATE FUNCTION {schema}.no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$",
    )
    execute(
        output.path, "CREATE TRIGGER full_disk BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION {schema}.no_space()"
    )
    directory, published = taken(output, 1)
    with pytest.raises(
        OutputUnavailableError, match=r"extend file\. No offset was moved; free space on the server, then"
    ):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_a_mark_that_a_trigger_keeps_out_is_missed_and_nothing_is_published(output: PostgresqlOutput) -> None:
    first = publish(output, plan_to(output, 1))
    execute(
        output.path,
        "CREATE FUNCTION {schema}.none() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    )
    execute(
        output.path,
        "CREATE TRIGGER none BEFORE INSERT ON {schema}.orders_kafka_batches FOR EACH ROW "
        "EXECUTE FUNCTION {schema}.none()",
    )
    directory, published = taken(output, 2)
    with pytest.raises(OutputConflictError, match=r"in orders_kafka_batches, found that none was added"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first)


def test_a_record_that_is_there_by_another_batch_is_not_added_again(output: PostgresqlOutput) -> None:
    first = publish(output, plan_to(output, 1))
    execute(output.path, "UPDATE {} SET kafka_topic_id = {topic}", topic=psycopg.sql.Literal(str(batch_id_of(2))))
    directory, published = taken(output, 2)
    with pytest.raises(OutputConflictError, match=r'refuses orders-0@0: .*unique constraint "orders_positions"'):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first)


@pytest.mark.parametrize(
    ("trigger", "does", "found"),
    [
        ("TRIGGER moved BEFORE INSERT", "", "to add 20 rows, found that 18 were added"),
        ("TRIGGER moved AFTER INSERT", "DELETE FROM {}", "20 rows of batch .* triggers and rules of orders, found 18"),
        (
            "CONSTRAINT TRIGGER moved AFTER INSERT",
            "DELETE FROM {}",
            "20 rows of batch .* triggers and rules of orders, found 18",
        ),
    ],
)
def test_rows_that_a_trigger_keeps_out_are_missed_and_nothing_is_published(
    output: PostgresqlOutput, trigger: LiteralString, does: LiteralString, found: str
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ") PARTITION BY LIST (kafka_partition)")
    execute(output.path, "CREATE TABLE {schema}.orders_rest PARTITION OF {} DEFAULT")
    moves = does + " WHERE kafka_offset = 3 AND kafka_partition = new.kafka_partition;" if does else ""
    execute(
        output.path,
        "CREATE FUNCTION {schema}.moved() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF new.kafka_offset = 3 THEN "
        + moves
        + " RETURN NULL; END IF; RETURN new; END $$",
    )
    deferred = " DEFERRABLE INITIALLY DEFERRED" if trigger.startswith("CONSTRAINT") else ""
    create = "CREATE " + trigger + " ON {schema}.orders_rest" + deferred
    execute(output.path, create + " FOR EACH ROW EXECUTE FUNCTION {schema}.moved()")
    directory, published = taken(output, 1)
    with pytest.raises(OutputConflictError, match=found):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()
    execute(output.path, "ALTER TABLE {schema}.orders_rest DISABLE TRIGGER moved")
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


@pytest.mark.parametrize(
    ("kind", "of", "found"), [(PostgresqlOutput, "orders", 18), (PostgresqlBeside, "orders_late", 9)]
)
def test_rows_that_a_rule_takes_away_again_are_missed_and_nothing_is_published(
    request: pytest.FixtureRequest, tmp_path: Path, kind: type[PostgresqlOutput], of: str, found: int
) -> None:
    output: Any = made(kind, tmp_path / "orders", request)
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(output.path, "CREATE TABLE {schema}.orders_late (LIKE {}, kafka_late boolean NOT NULL DEFAULT true)")
    rule: LiteralString = "RULE gone AS ON INSERT TO {of} DO ALSO DELETE FROM {of} WHERE kafka_offset = 3"
    execute(output.path, "CREATE " + rule, of=psycopg.sql.Identifier(schema_of(output.path), of))
    directory, published = taken(output, 1)
    with pytest.raises(OutputConflictError, match=f"rows of batch .* triggers and rules of {of}, found {found}"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()


def test_a_table_with_a_rule_that_moves_rows_elsewhere_is_refused_before_the_batch_is_committing(
    output: PostgresqlOutput,
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(output.path, "CREATE TABLE {schema}.others (LIKE {})")
    execute(output.path, "CREATE RULE kept AS ON DELETE TO {} DO INSTEAD NOTHING")
    taken(output, 1)
    execute(output.path, "CREATE RULE moved AS ON INSERT TO {} DO INSTEAD INSERT INTO {schema}.others SELECT new.*")
    with pytest.raises(OutputNotUsableError, match="found rule moved, which does something else INSTEAD"):
        taken(output, 1)


def test_a_role_without_rights_is_refused_by_a_plan_with_the_rights_that_it_lacks(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer
) -> None:
    publish(output, plan_to(output, 1))
    new_role("reader")
    execute(output.path, "GRANT USAGE ON SCHEMA {schema} TO reader")
    execute(output.path, "GRANT SELECT ON {} TO reader")
    url = postgresql_server.url("postgres").set(username="reader")
    reader = sink_of(postgresql_at(output.path), to(url)).publisher
    missing = "no right CREATE of the schema, no right INSERT of the table, no right SELECT of orders_kafka_batches, no"
    with pytest.raises(OutputNotUsableError, match=missing):
        reader.examine()
    execute(output.path, "REVOKE ALL ON SCHEMA {schema} FROM reader")
    with pytest.raises(OutputNotUsableError, match="no right USAGE of the schema, no right CREATE of the schema"):
        reader.examine()
    execute(output.path, "REVOKE ALL ON {} FROM reader")


def to(url: URL) -> SinkConnections:
    return SinkConnections(database=lambda conn_id: DatabaseSettings(conn_id, url))


def test_a_view_by_the_name_of_the_table_of_late_rows_is_refused_there_and_no_part_of_the_output(
    output: PostgresqlOutput,
) -> None:
    published = publish(output, plan_to(output, 1))
    execute(output.path, "CREATE VIEW {schema}.orders_late AS SELECT *, true AS kafka_late FROM {}")

    look = output.sink.inspector.look_at(published.plan.batch_id, closely=True)

    assert sum(count.rows for count in look.counts) == published.receipt.rows
    assert output.sink.check_late is not None
    with pytest.raises(OutputNotUsableError, match="a view, or something else that is no table"):
        output.sink.check_late()


@pytest.mark.parametrize("of", ["orders", "orders_late"])
def test_a_table_that_another_process_makes_while_a_plan_looks_for_it_is_no_stranger(
    output: PostgresqlOutput, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    publish(output, plan_to(output, 1))
    execute(output.path, "CREATE TABLE {schema}.orders_late (LIKE {}, kafka_late boolean NOT NULL DEFAULT true)")
    execute(output.path, "CREATE INDEX orders_late_batches ON {schema}.orders_late (kafka_batch)")
    name = psycopg.sql.Identifier(schema_of(output.path), of)
    execute(output.path, "ALTER TABLE {name} SET SCHEMA public", name=name)
    there = NamedTable._taken_in

    def made_meanwhile(table: NamedTable, connection: Connection) -> list[str]:
        execute(output.path, "ALTER TABLE public.{name} SET SCHEMA {schema}", name=psycopg.sql.Identifier(of))
        monkeypatch.setattr(NamedTable, "_taken_in", there)
        return there(table, connection)

    monkeypatch.setattr(NamedTable, "_taken_in", made_meanwhile)
    assert output.sink.check_late is not None
    (output.sink.publisher.examine if of == "orders" else output.sink.check_late)()


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["CREATE UNLOGGED TABLE {} (" + RAW + ")"], r"\.orders UNLOGGED, which a crash"),
        (
            [
                "CREATE TABLE {} (" + RAW + ") PARTITION BY LIST (kafka_partition)",
                "CREATE UNLOGGED TABLE {schema}.rest PARTITION OF {} DEFAULT",
            ],
            r"\.rest UNLOGGED, which a crash",
        ),
        (
            [
                "CREATE TABLE {} (" + RAW + ") PARTITION BY LIST (kafka_partition)",
                "CREATE FOREIGN DATA WRAPPER other",
                "CREATE SERVER other FOREIGN DATA WRAPPER other",
                "CREATE FOREIGN TABLE {schema}.rest PARTITION OF {} DEFAULT SERVER other",
            ],
            r"\.rest in another server, whose transactions end by themselves\. Nothing",
        ),
    ],
    ids=["table", "partition", "partition elsewhere"],
)
def test_a_table_that_a_crash_of_the_server_would_empty_or_that_is_in_another_one_is_refused_by_a_plan(
    output: PostgresqlOutput, statements: list[LiteralString], found: str
) -> None:
    for statement in statements:
        execute(output.path, statement)
    with pytest.raises(OutputNotUsableError, match=r"found of_\w+" + found):
        output.sink.publisher.examine()
    execute(output.path, "DROP FOREIGN DATA WRAPPER IF EXISTS other CASCADE")


def test_a_server_that_takes_no_changes_is_refused_by_a_plan(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer
) -> None:
    url = postgresql_server.url("postgres").update_query_dict({"options": "-c default_transaction_read_only=on"})
    refused = sink_of(postgresql_at(output.path), to(url))
    with pytest.raises(OutputNotUsableError, match="found transactions that only read: a standby, or"):
        refused.publisher.examine()


def test_a_limit_of_time_that_ends_a_statement_is_to_be_raised(postgresql_server: PostgresqlServer) -> None:
    # Not 1 ms: where it is over just as a statement ends, PostgreSQL calls it the user's request.
    url = postgresql_server.url("postgres").update_query_dict({"options": "-c statement_timeout=300"})
    limited = database.Database(DatabaseSettings(CONN_ID, url))
    with (
        pytest.raises(
            OutputUnavailableError,
            match=r"due to statement timeout\. No offset was moved; where a limit has ended it, raise",
        ),
        limited.named_transaction("orders") as connection,
    ):
        connection.execute(text("SELECT pg_sleep(60)"))


def test_a_path_with_another_outputs_files_is_refused(output: PostgresqlOutput) -> None:
    (output.path / f"kafka_batch={batch_id_of(1)}").mkdir()
    with pytest.raises(OutputNotUsableError, match=r"found kafka_batch=.*: another output is there"):
        output.sink.publisher.examine()


def test_a_schema_that_is_missing_is_named(output: PostgresqlOutput) -> None:
    execute(output.path, "DROP SCHEMA {schema} CASCADE")
    with pytest.raises(OutputNotUsableError, match=f"found none of that name through connection '{CONN_ID}'"):
        output.sink.publisher.examine()


def test_no_message_holds_the_password() -> None:
    url = make_url("postgresql+psycopg://ingest:hush-hush@127.0.0.1:1/shop?options=-c%20x.key%3Dhidden")
    settings = DatabaseSettings(CONN_ID, url)
    with pytest.raises(OutputUnavailableError, match=r"127\.0\.0\.1.*No offset was moved") as failed:
        sink_of(postgresql_at(Path("/data/orders")), to(url)).publisher.known_batches()
    said = f"{failed.value!r} {settings!r} {settings.without_secrets('FATAL: hush-hush -c x.key=hidden')}"
    assert not any(secret in said for secret in ("hush-hush", "hidden"))
    assert failed.value.__suppress_context__


def test_a_commit_is_on_the_disk_also_where_the_servers_default_is_another(postgresql_server: PostgresqlServer) -> None:
    assert "synchronous_commit = off" in postgresql_server.SETTINGS
    settings = DatabaseSettings(CONN_ID, postgresql_server.url("postgres"))
    with database.Database(settings).transaction() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == "on"


# ── While it is committed ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_long_lock_ends_the_step_and_the_next_one_succeeds(
    output: PostgresqlOutput, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = publish(output, plan_to(output, 1))
    directory, published = taken(output, 2)
    monkeypatch.setattr(database, "LOCK_TIMEOUT_S", 0.1)
    with connect() as other, other.transaction():
        table = psycopg.sql.Identifier(schema_of(output.path), "orders")
        other.execute(psycopg.sql.SQL("LOCK TABLE {} IN SHARE MODE").format(table))
        with pytest.raises(OutputUnavailableError, match=r"Another session has held a lock for more than 0\.1 s"):
            output.sink.publisher.publish(directory, published)
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(first) + rows_of(published)


def test_a_server_process_that_dies_in_the_transaction_leaves_nothing_and_the_next_try_publishes(
    output: PostgresqlOutput,
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    execute(
        output.path,
        "CREATE FUNCTION {schema}.die() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$",
    )
    execute(output.path, "CREATE TRIGGER dies AFTER INSERT ON {} EXECUTE FUNCTION {schema}.die()")
    directory, published = taken(output, 1)
    with pytest.raises(OutputUnavailableError, match=r"terminating connection.*No offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == Counter()
    execute(output.path, "DROP TRIGGER dies ON {}")
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_copied_rows_that_a_crash_of_the_server_has_emptied_are_copied_again(output: PostgresqlOutput) -> None:
    directory, published = taken(output, 1)
    [copied] = [name for name in tables(output) if name.startswith("kafka_ingest_")]
    execute(output.path, "TRUNCATE {schema}.{copied}", copied=psycopg.sql.Identifier(copied))
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert tables(output) == ["orders", "orders_kafka_batches"]


def test_what_was_copied_goes_with_the_attempt_or_when_its_batch_is_revoked(output: PostgresqlOutput) -> None:
    directory, _ = taken(output, 1)
    output.sink.staging.remove(directory)
    assert tables(output) == ["orders"]
    directory, published = taken(output, 2)
    output.sink.publisher.revoke(directory, batch_id_of(2))
    assert tables(output) == ["orders", "orders_kafka_batches"]
    with pytest.raises(BatchRevokedError):
        output.sink.publisher.publish(directory, published)


@contextmanager
def losing_the_commit(server: PostgresqlServer, batch: bytes, *, lands: bool) -> Iterator[URL]:
    """Yield where a proxy is that ends the connection at the COMMIT of a batch's transaction, sent on or not."""
    real = Path(str(server.url("postgres").query["host"])) / ".s.PGSQL.5432"
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-proxy-") as folder:

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            from_server, to_server = await asyncio.open_unix_connection(real)

            async def answers() -> None:
                while answer := await from_server.read(65_536):
                    writer.write(answer)
                writer.close()

            answering, said = asyncio.create_task(answers()), b""
            while request := await reader.read(65_536):
                said += request
                if b"COMMIT\0" in request and batch in said and b"INSERT" in said:
                    answering.cancel()
                    await asyncio.wait([answering])
                    if lands:
                        to_server.write(request)
                        await from_server.read(65_536)
                    writer.transport.abort()
                    break
                to_server.write(request)
            to_server.close()

        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, daemon=True).start()
        started = asyncio.start_unix_server(serve, Path(folder) / ".s.PGSQL.5432")
        proxy = asyncio.run_coroutine_threadsafe(started, loop).result()
        try:
            yield server.url("postgres").update_query_dict({"host": folder})
        finally:
            loop.call_soon_threadsafe(proxy.close)
            loop.call_soon_threadsafe(loop.stop)


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not landed"])
def test_a_connection_that_is_lost_at_the_commit_is_asked_about_by_the_mark(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer, *, lands: bool
) -> None:
    directory, published = taken(output, 1)
    fingerprint = published.plan.fingerprint.encode()
    with losing_the_commit(postgresql_server, fingerprint, lands=lands) as url:
        publisher = sink_of(postgresql_at(output.path), to(url)).publisher
        if lands:
            publisher.publish(directory, published)
        else:
            with pytest.raises(OutputUnavailableError, match=r"No offset was moved; run this again"):
                publisher.publish(directory, published)
    assert output.seen() == (rows_of(published) if lands else Counter())
    output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


# ── Which table it is ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_without_the_newest_batchs_mark_is_not_the_output_until_an_operator_marks_it(
    output: PostgresqlOutput,
) -> None:
    plan = publish(output, plan_to(output, 1)).plan
    newest = {BatchKind.LIVE: PublishedBatch(plan.batch_id, plan.output)}
    control: Any = SimpleNamespace(newest_of_kinds=lambda _: newest)

    def check(table: str) -> None:
        target = replace(plan.output, options=(("conn_id", CONN_ID), ("table", f"{schema_of(output.path)}.{table}")))
        check_output_there(plan.feed_id, target, control, lambda found: sink_of(found, connections_to_postgresql()))

    check("orders")
    with pytest.raises(
        OutputUnavailableError, match=r"\.other in PostgreSQL, reached through connection 'warehouse', has"
    ):
        check("other")
    execute(output.path, "TRUNCATE {schema}.orders_kafka_batches")
    with pytest.raises(OutputUnavailableError, match="has no mark of it") as lost:
        check("orders")
    [statement] = re.findall(r"INSERT INTO .*''\)", str(lost.value))
    with connect() as connection:
        connection.execute(statement)
    check("orders")
    newest[BatchKind.BACKFILL] = PublishedBatch(batch_id_of(2), plan.output)
    with pytest.raises(OutputUnavailableError, match="its receipt is not beside it"):
        check("orders")


# ── Afterwards ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_are_replaced_and_expired_in_one_transaction_each(output: PostgresqlOutput) -> None:
    first = publish(output, plan_to(output, 1))
    replaced = (ReplacedRange(first.plan.ranges[0], first.plan.batch_id),)
    second = publish(output, replace(plan_to(output, 2, partitions=1), kind=BatchKind.REPLACE, replaces=replaced))
    assert output.seen() == rows_of(second) + Counter({row: 1 for row in rows_of(first) if row[1] == 1})
    for published in (first, second):
        removal = Removal(published.plan.batch_id, RemovalCause.EXPIRED, datetime.now(UTC), "ops", "old")
        output.sink.archive.note_removal(removal)
        output.sink.remover.hide(published.plan.batch_id)
    assert output.seen() == Counter()
    assert output.sink.remover.unfinished() == []


def test_rows_that_a_policy_hides_from_the_role_are_not_taken_for_deleted(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer
) -> None:
    first = publish(output, plan_to(output, 1))
    new_role("walker")
    execute(output.path, "GRANT ALL ON SCHEMA {schema} TO walker")
    execute(output.path, "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO walker")
    execute(output.path, "ALTER TABLE {} ENABLE ROW LEVEL SECURITY")
    execute(output.path, "CREATE POLICY part ON {} USING (kafka_partition = 0) WITH CHECK (true)")
    to_walker = to(postgresql_server.url("postgres").set(username="walker"))
    walker = sink_of(postgresql_at(output.path), to_walker)
    assert walker.remover is not None
    assert walker.replacer is not None
    batch_id = first.plan.batch_id
    replaced = tuple(ReplacedRange(each, batch_id) for each in first.plan.ranges)
    second = written(output, replace(plan_to(output, 2), kind=BatchKind.REPLACE, replaces=replaced))
    commits = PostgresqlTable(postgresql_at(output.path), to_walker.database).commits
    for refuse in (
        walker.remover.check_can_remove,  # before anything is noted
        walker.replacer.check_can_replace,
        lambda: commits.delete_rows(batch_id),
        lambda: walker.publisher.publish(*second),
    ):
        with pytest.raises(
            OutputNotUsableError,
            match=r"role walker sees all .* \(part\).*ALTER ROLE walker BYPASSRLS.*owner, postgres",
        ):
            refuse()
    assert output.seen() == rows_of(first)
    execute(output.path, "ALTER ROLE walker BYPASSRLS")
    walker.archive.note_removal(Removal(batch_id, RemovalCause.EXPIRED, datetime.now(UTC), "ops", "old"))
    walker.remover.hide(batch_id)
    assert output.seen() == Counter()
    execute(output.path, "DROP OWNED BY walker")


def test_a_strangers_table_by_the_name_of_that_of_late_rows_may_hide_rows(
    output: PostgresqlOutput, postgresql_server: PostgresqlServer
) -> None:
    publish(output, plan_to(output, 1))
    new_role("walker")
    execute(output.path, "CREATE TABLE {schema}.orders_late (note text)")
    execute(output.path, "ALTER TABLE {schema}.orders_late ENABLE ROW LEVEL SECURITY")
    execute(output.path, "GRANT ALL ON SCHEMA {schema} TO walker")
    execute(output.path, "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO walker")
    walker = sink_of(postgresql_at(output.path), to(postgresql_server.url("postgres").set(username="walker")))
    assert walker.remover is not None
    walker.remover.check_can_remove()
    execute(output.path, "DROP OWNED BY walker")


@pytest.mark.parametrize(
    "keeps",
    [
        "RULE kept AS ON DELETE TO {} DO INSTEAD UPDATE {} SET key = NULL WHERE kafka_offset = old.kafka_offset",
        "TRIGGER kept BEFORE DELETE ON {} FOR EACH ROW EXECUTE FUNCTION {schema}.kept()",
        "CONSTRAINT TRIGGER kept AFTER DELETE ON {} INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.kept()",
    ],
)
def test_rows_that_stay_although_they_were_deleted_are_not_there_twice_and_do_not_pass_for_gone(
    output: PostgresqlOutput, keeps: LiteralString
) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    first = publish(output, plan_to(output, 1))
    execute(
        output.path,
        "CREATE FUNCTION {schema}.kept() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF TG_WHEN = 'AFTER' THEN "
        "INSERT INTO {} SELECT old.*; END IF; RETURN NULL; END $$",
    )
    execute(output.path, "CREATE " + keeps.replace("{}", "{schema}.orders"))
    replaced = tuple(ReplacedRange(each, first.plan.batch_id) for each in first.plan.ranges)
    second = written(output, replace(plan_to(output, 2), kind=BatchKind.REPLACE, replaces=replaced))
    commits = PostgresqlTable(postgresql_at(output.path), connections_to_postgresql().database).commits
    for delete in (lambda: output.sink.publisher.publish(*second), lambda: commits.delete_rows(first.plan.batch_id)):
        with pytest.raises(OutputNotUsableError, match=r"found that some stay\. A rule or a trigger of DELETE keeps"):
            delete()
    assert output.seen() == rows_of(first)


def test_rows_that_a_trigger_of_those_that_they_replace_takes_away_are_missed(output: PostgresqlOutput) -> None:
    execute(output.path, "CREATE TABLE {} (" + RAW + ")")
    first = publish(output, plan_to(output, 1))
    deletes: LiteralString = "DELETE FROM {} WHERE kafka_offset = old.kafka_offset; RETURN NULL;"
    execute(
        output.path,
        "CREATE FUNCTION {schema}.others() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + deletes + " END $$",
    )
    execute(
        output.path,
        "CREATE CONSTRAINT TRIGGER others AFTER DELETE ON {} INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION "
        "{schema}.others()",
    )
    replaced = tuple(ReplacedRange(each, first.plan.batch_id) for each in first.plan.ranges)
    second = written(output, replace(plan_to(output, 2), kind=BatchKind.REPLACE, replaces=replaced))
    with pytest.raises(OutputConflictError, match=r"20 rows of batch .* triggers and rules of orders, found 0"):
        output.sink.publisher.publish(*second)
    assert output.seen() == rows_of(first)


def test_rows_that_another_table_refers_to_are_replaced_where_it_looks_at_the_commit_only(
    output: PostgresqlOutput,
) -> None:
    first = publish(output, plan_to(output, 1))
    execute(output.path, "ALTER TABLE {} ADD UNIQUE (kafka_partition, kafka_offset)")
    execute(
        output.path,
        "CREATE TABLE {schema}.notes (part int, place bigint, FOREIGN KEY (part, place) REFERENCES {} "
        "(kafka_partition, kafka_offset) INITIALLY DEFERRED)",
    )
    execute(output.path, "INSERT INTO {schema}.notes VALUES (0, 3)")
    replaced = tuple(ReplacedRange(each, first.plan.batch_id) for each in first.plan.ranges)
    second = publish(output, replace(plan_to(output, 2), kind=BatchKind.REPLACE, replaces=replaced))
    assert output.seen() == rows_of(second)


def test_a_statement_about_many_ranges_has_few_parameters() -> None:
    span = OffsetRange(TopicPartition("orders", 0), 0, 1)
    names = ("kafka_batch", "kafka_topic", "kafka_partition")
    table = Table("orders", MetaData(), *(Column(name) for name in names))
    many = of_ranges(table, [ReplacedRange(span, batch_id_of(number)) for number in range(1, 30)])
    assert len(many.compile(dialect=postgresql.dialect()).params) == 3


def test_the_table_alone_shows_which_offsets_it_holds_by_the_proofs_beside_its_marks(output: PostgresqlOutput) -> None:
    plan = replace(plan_to(output, 1), topic_ids={"orders": str(batch_id_of(1))})
    publish(output, plan)
    found = format_found(str(output.path), dict(postgresql_at(output.path).options), connections_to_postgresql())
    contents = sink_of(found, connections_to_postgresql()).contents
    assert contents is not None
    account = account_of(contents.evidence(), *contents.held(contents.evidence()))
    assert (account.is_sound, [each.held.rows for each in account.partitions]) == (True, [ROWS, ROWS])
    assert [proof.rows for proof in account.proofs.values()] == [2 * ROWS]
    execute(output.path, "DELETE FROM {} WHERE kafka_offset = 3")
    account = account_of(contents.evidence(), *contents.held(contents.evidence()))
    assert (account.is_sound, [each.unaccounted for each in account.partitions]) == (False, [1, 1])
