"""A table in PostgreSQL of the newest state of each key: which event of a key wins, in whatever order batches come."""

import contextlib
import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString, NamedTuple

import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import make_url
from tests.contract.builders import NOON, TOPIC_ID, attempt_of, batch_id_of, plan_of
from tests.contract.sink_outputs import Died, Fault, PostgresqlOutput, made, opened
from tests.postgresql_tables import (
    URL_VARIABLE,
    connect,
    connections_to_postgresql,
    execute,
    new_role,
    postgresql_at,
    rows_in_postgresql,
    schema_of,
)

from kafka_ingest.errors import ColumnsChangedError, NotADataFileError, OutputConflictError, OutputNotUsableError
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile, WrittenPartition
from kafka_ingest.model.table_options import CurrentState, TableOptions
from kafka_ingest.observing.account_of_output import account_of
from kafka_ingest.sinks.choose import SinkConnections, format_found, sink_of
from kafka_ingest.sinks.dead_letter_files import TYPES
from kafka_ingest.sinks.postgresql.database import DatabaseSettings

pytestmark = pytest.mark.usefixtures("postgresql_server")

HIDDEN = "__debezium_unavailable_value"
ROW = pa.struct([("id", pa.int64()), ("city", pa.string()), ("note", pa.string())])
ENVELOPE = pa.struct([("before", ROW), ("after", ROW), ("op", pa.string())])
HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
KEY = pa.struct([("id", pa.int64())])


class Event(NamedTuple):
    """A record of Debezium; an ``op`` of None is a tombstone."""

    offset: int
    op: str | None
    key: int | None = 1
    city: str | None = None
    note: str | None = None
    topic: str = "orders"
    partition: int = 0
    topic_id: str | None = TOPIC_ID


def values_of(events: Iterable[Event]) -> "pa.Array[Any]":
    """Return the envelopes of events."""
    found: list[Any] = []
    for each in events:
        row = {"id": each.key, "city": each.city, "note": each.note}
        after = row if each.op in {"c", "u", "r"} else None
        found.append(None if each.op is None else {"before": None, "after": after, "op": each.op})
    return pa.array(found, ENVELOPE)


class CurrentOutput(PostgresqlOutput):
    """A table of the newest state of each key."""

    def __init__(self, path: Path, state: CurrentState | None = None) -> None:
        self.state = state or CurrentState()
        self.options = TableOptions(decoded=True, current=self.state)
        super().__init__(path, self.options)
        self._numbers = iter(range(1, 1_000))

    def stage(  # type: ignore[override]
        self, events: list[Event], values: "pa.Array[Any] | None" = None, key: "pa.Array[Any] | None" = None
    ) -> tuple[Path, PublishedReceipt]:
        """Stage a batch with these events, in one file, and its receipt."""
        logs: dict[TopicPartition, list[int]] = defaultdict(list)
        for each in events:
            logs[TopicPartition(each.topic, each.partition)].append(each.offset)
        ranges = [(log, min(offsets), max(offsets) + 1) for log, offsets in sorted(logs.items())]
        plan = plan_of(*ranges, number=next(self._numbers), output=self.path)
        location = postgresql_at(self.path, self.options)
        plan = replace(plan, output=location)
        directory = opened(self, plan)
        (directory / "data").mkdir(parents=True)
        path = directory / "data" / "part-00000.parquet"
        keys = [None if each.key is None else {"id": each.key} for each in events]
        columns = {
            "kafka_topic": pa.array([each.topic for each in events]),
            "kafka_partition": pa.array([each.partition for each in events], pa.int32()),
            "kafka_offset": pa.array([each.offset for each in events], pa.int64()),
            "kafka_timestamp": pa.array([NOON] * len(events), pa.timestamp("us", "UTC")),
            "key": key if key is not None else pa.array(keys, KEY),
            "value": values if values is not None else values_of(events),
            "kafka_headers": pa.nulls(len(events), pa.list_(HEADER)),
            "kafka_topic_id": pa.array([each.topic_id for each in events], pa.string()),
            "kafka_timestamp_ms": pa.nulls(len(events), pa.int64()),
        }
        pyarrow.parquet.write_table(pa.table(columns), path)
        held = [WrittenPartition(log, len(offs), min(offs), max(offs)) for log, offs in sorted(logs.items())]
        files = (WrittenFile(path.name, path.stat().st_size, tuple(held)),)
        document = attempt_of(plan, 1).document_sha256
        receipt = Receipt(plan.batch_id, 1, plan.fingerprint, document, len(events), files, NOON, "spark local-1")
        self.write_receipt(directory, receipt.as_bytes())
        return directory, PublishedReceipt(plan, receipt, ())

    def take(self, *events: Event, **columns: "pa.Array[Any]") -> PublishedReceipt:
        """Stage a batch, ask, and publish it."""
        directory, published = self.stage(list(events), **columns)
        self.sink.publisher.can_take(directory, published.receipt)
        self.sink.publisher.publish(directory, published)
        return published

    def changes(self, number: int) -> dict[str, Any]:
        """Return what the mark of a batch says that it did."""
        query: LiteralString = "SELECT changes FROM {schema}.orders_kafka_batches WHERE batch_id = {batch}"
        [(found,)] = execute(self.path, query, batch=psycopg.sql.Literal(str(batch_id_of(number))))
        return {name: number for name, number in found.items() if number}

    def rows(self) -> list[Any]:
        """Return keys, their states, and the offsets they are from; a deleted key's with a cross."""
        of: LiteralString = "id, city, kafka_offset::text || CASE WHEN kafka_deleted THEN '†' ELSE '' END"
        return sorted(rows_in_postgresql(self.path, of))


@pytest.fixture
def output(request: pytest.FixtureRequest, tmp_path: Path) -> CurrentOutput:
    found = made(CurrentOutput, tmp_path / "orders", request)
    assert isinstance(found, CurrentOutput)
    return found


# ── One key ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_row_of_a_key_is_its_newest_event_and_the_mark_says_what_a_batch_did(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"), Event(1, "c", 2, "Basel"), Event(2, "u", 1, "Zürich"))
    assert output.rows() == [(1, "Zürich", "2"), (2, "Basel", "1")]
    output.take(Event(3, "u", 2, "Genf"), Event(4, "c", 3, "Chur"), Event(5, "d", 1), Event(6, None, 1))
    assert output.rows() == [(1, None, "6†"), (2, "Genf", "3"), (3, "Chur", "4")]
    assert output.changes(1) == {"records": 3, "inserted": 2, "ignored": 1}
    assert output.changes(2) == {"records": 4, "inserted": 1, "updated": 1, "deleted": 1, "ignored": 1}


@pytest.mark.parametrize("alone", [False, True])
def test_records_that_are_no_events_are_rows_of_the_table_of_dead_letters_in_the_transaction_of_the_states(
    output: CurrentOutput, *, alone: bool
) -> None:
    directory, published = output.stage([Event(0, "c", 1, "Bern"), Event(2, "u", 1, "Chur")])
    folder = staged_dead_letters(directory) / "data"
    folder.mkdir(parents=True)
    letter = {"kafka_topic": "orders", "kafka_partition": 0, "kafka_offset": 1, "error_class": "EXPRESSION"}
    columns = {name: pa.array([letter.get(name)], kind) for name, kind in TYPES.items()}
    pyarrow.parquet.write_table(pa.table(columns), folder / "part-0.parquet")
    size = (folder / "part-0.parquet").stat().st_size
    letters = (WrittenFile.of_one("part-0.parquet", size, 1, TopicPartition("orders", 0), 1, 1),)
    receipt = replace(published.receipt, rows_read=3, dead_letters=letters)
    if alone:
        (directory / "data" / receipt.files[0].name).unlink()
        receipt = replace(receipt, rows_read=1, files=())
    output.sink.publisher.can_take(directory, receipt)
    output.sink.publisher.publish(directory, replace(published, receipt=receipt))
    assert output.rows() == ([] if alone else [(1, "Chur", "2")])
    query: LiteralString = "SELECT kafka_offset, error_class FROM {schema}.orders_dead_letters"
    assert execute(output.path, query) == [(1, "EXPRESSION")]


def test_events_that_were_read_before_change_nothing_newer(output: CurrentOutput) -> None:
    newer = [Event(7, "d", 1), Event(8, "u", 2, "Genf")]
    output.take(*newer)
    output.take(Event(5, "u", 1, "Bern"), Event(6, "u", 2, "Basel"), *newer)
    assert output.rows() == [(1, None, "7†"), (2, "Genf", "8")]
    assert output.changes(2) == {"records": 4, "ignored": 4}


def test_a_deleted_key_that_is_written_again_has_a_row_again(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"), Event(1, "d", 1))
    output.take(Event(2, "c", 1, "Chur"))
    assert output.rows() == [(1, "Chur", "2")]


def test_a_snapshot_never_wins_over_a_change(output: CurrentOutput) -> None:
    output.take(Event(0, "r", 1, "Bern"), Event(1, "u", 2, "Basel"), Event(2, "r", 2, "old"), Event(3, "d", 3))
    output.take(Event(4, "r", 1, "Chur"), Event(5, "r", 2, "old"), Event(6, "r", 3, "old"), Event(7, "r", 4, "Sion"))
    assert output.rows() == [(1, "Chur", "4"), (2, "Basel", "1"), (3, None, "3†"), (4, "Sion", "7")]


def test_deleted_keys_leave_the_table_where_the_feed_says_so(output: CurrentOutput) -> None:
    removing = CurrentOutput(output.path, CurrentState(removes=True))
    removing.take(Event(0, "c", 1, "Bern"), Event(1, "c", 2, "Basel"))
    removing.take(Event(2, "d", 1), Event(3, "d", 9))
    assert removing.rows() == [(2, "Basel", "1")]
    assert removing.changes(2) == {"records": 2, "deleted": 1, "ignored": 1}


def test_a_deletion_empties_columns_too_that_records_have_no_more(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern", "private"), Event(1, "c", 2, "Basel", "theirs"))
    execute(output.path, "ALTER TABLE {} ADD COLUMN size int GENERATED ALWAYS AS (length(note)) STORED")
    execute(output.path, "ALTER TABLE {} ADD COLUMN since date NOT NULL DEFAULT '2026-01-01'")
    without_note = pa.struct([("after", pa.struct([("city", pa.string())])), ("op", pa.string())])
    values: list[Any] = [{"after": {"city": "Chur"}, "op": "u"}, {"after": None, "op": "d"}]
    output.take(Event(2, "u", 2), Event(3, "d", 1), values=pa.array(values, without_note))
    found = sorted(rows_in_postgresql(output.path, "id, city, note, size"))
    assert found == [(1, None, None, None), (2, "Chur", "theirs", 6)]


def test_a_value_that_debezium_does_not_have_stays_the_rows_own(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern", "long"), Event(1, "c", 2, "Basel", "long too"))
    output.take(
        Event(2, "u", 1, "Chur", HIDDEN),
        Event(3, "u", 2, "Sion", "new"),
        Event(4, "u", 2, "Genf", HIDDEN),
        Event(5, "u", 3, "Olten", HIDDEN),
    )
    found = sorted(rows_in_postgresql(output.path, "id, city, note"))
    assert found == [(1, "Chur", "long"), (2, "Genf", "new"), (3, "Olten", None)]
    assert output.changes(2)["unknown"] == 1


# ── What stops a feed ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (Event(3, "c", None), "expected a key that is not null"),
        (Event(3, "t", None), "expected no truncation .*on_truncate: apply"),
        (Event(3, "x", 1), "expected one of op c, u, r, d, t, m"),
    ],
)
def test_a_record_that_is_no_event_of_a_key_stops_the_feed_before_the_batch_is_committing(
    output: CurrentOutput, event: Event, found: str
) -> None:
    directory, published = output.stage([Event(0, "c", 1), event])
    with pytest.raises(ColumnsChangedError, match=rf"(?s)^orders-0@3: {found}.*no offset was moved"):
        output.sink.publisher.can_take(directory, published.receipt)


@pytest.mark.parametrize(
    "other",
    [Event(9, "u", 1, partition=1), Event(2, "u", 1, topic="refunds"), Event(9, "u", 1, topic_id="second")],
    ids=["partition", "topic, with a smaller offset", "topic id"],
)
def test_a_key_that_is_in_another_log_than_before_stops_the_feed(output: CurrentOutput, other: Event) -> None:
    output.take(Event(5, "c", 1, "Bern"))
    directory, published = output.stage([other])
    place = f"{other.topic}-{other.partition}@{other.offset} of topic id {other.topic_id}"
    with pytest.raises(
        OutputConflictError, match=f"at {place} a key whose row is from orders-0@5 of topic id {TOPIC_ID}"
    ):
        output.sink.publisher.can_take(directory, published.receipt)
    with pytest.raises(OutputConflictError, match="no offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.rows() == [(1, "Bern", "5")]
    execute(output.path, "DELETE FROM {}")
    output.sink.publisher.publish(directory, published)
    assert output.rows() == [(1, None, str(other.offset))]


def test_a_key_in_two_partitions_of_one_batch_stops_the_feed(output: CurrentOutput) -> None:
    directory, published = output.stage([Event(0, "c", 1), Event(5, "u", 1, partition=1)])
    with pytest.raises(OutputConflictError, match="in another partition or topic, too, at offset 5"):
        output.sink.publisher.can_take(directory, published.receipt)


def test_a_row_that_a_constraint_refuses_stops_the_commit_with_its_offset(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    execute(output.path, "ALTER TABLE {} ADD CHECK (city <> 'none')")
    directory, published = output.stage([Event(1, "u", 1, "none"), Event(2, "u", 1, "Chur"), Event(3, "c", 2, "none")])
    output.sink.publisher.can_take(directory, published.receipt)
    with pytest.raises(OutputConflictError, match=r"refuses orders-0@3: .*no offset was moved"):
        output.sink.publisher.publish(directory, published)
    assert output.rows() == [(1, "Bern", "0")]


def test_rows_that_a_trigger_takes_away_after_an_update_are_missed_and_nothing_is_published(
    output: CurrentOutput,
) -> None:
    output.take(Event(0, "c", 1, "Bern"), Event(1, "c", 2, "Basel"))
    does: LiteralString = "$$ BEGIN DELETE FROM {} WHERE id = 2; RETURN NULL; END $$"
    execute(output.path, "CREATE FUNCTION {schema}.gone() RETURNS trigger LANGUAGE plpgsql AS " + does)
    execute(output.path, "CREATE TRIGGER gone AFTER UPDATE ON {} EXECUTE FUNCTION {schema}.gone()")
    with pytest.raises(OutputConflictError, match=r"2 rows of batch .* triggers and rules of orders, found 1"):
        output.take(Event(2, "u", 1, "Chur"), Event(3, "u", 2, "Genf"))
    assert output.rows() == [(1, "Bern", "0"), (2, "Basel", "1")]


def test_a_table_of_records_is_no_table_of_states_nor_the_other_way_round(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    with pytest.raises(OutputNotUsableError, match=r"for a feed with sink\.mode: current"):
        PostgresqlOutput(output.path, TableOptions(decoded=True)).sink.publisher.examine()
    execute(output.path, "ALTER TABLE {} DROP COLUMN kafka_deleted")
    with pytest.raises(OutputNotUsableError, match="column kafka_deleted: expected boolean, found none"):
        output.sink.publisher.examine()


def test_the_marks_of_a_table_of_records_that_is_gone_are_those_of_states_from_then_on(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    execute(output.path, "DROP TABLE {}")
    execute(output.path, "ALTER TABLE {schema}.orders_kafka_batches DROP COLUMN changes CASCADE")
    output.take(Event(1, "c", 1, "Chur"))
    assert output.rows() == [(1, "Chur", "1")]
    assert output.changes(2) == {"records": 1, "inserted": 1}
    query: LiteralString = "SELECT count(*) FROM pg_indexes WHERE schemaname || '.' || tablename = {name}"
    name = psycopg.sql.Literal(f"{schema_of(output.path)}.orders_kafka_batches")
    assert execute(output.path, query, name=name) == [(2,)]


def test_a_table_that_may_have_several_rows_of_a_key_is_refused(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    execute(output.path, "ALTER TABLE {} DROP CONSTRAINT orders_pkey")
    with pytest.raises(OutputNotUsableError, match="a unique index of the columns of records' keys, id"):
        output.take(Event(1, "c", 1, "Bern"))
    execute(output.path, "CREATE UNIQUE INDEX ON {} (id)")
    output.take(Event(1, "c", 1, "Chur"))
    assert output.rows() == [(1, "Chur", "1")]


@pytest.mark.parametrize(("event", "made"), [("INSERT", "ENABLE"), ("UPDATE", "ENABLE"), ("UPDATE", "DISABLE")])
def test_a_table_with_a_rule_beside_which_the_server_takes_no_upsert_is_refused(
    output: CurrentOutput, event: LiteralString, made: LiteralString
) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    execute(output.path, "CREATE RULE told AS ON DELETE TO {} DO ALSO NOTIFY orders")
    execute(output.path, "CREATE RULE off AS ON INSERT TO {} DO ALSO NOTIFY orders")
    execute(output.path, "ALTER TABLE {} DISABLE RULE off")
    output.take(Event(1, "u", 1, "Chur"))
    rule: LiteralString = "CREATE RULE noted AS ON " + event + " TO {} DO ALSO NOTIFY orders"
    execute(output.path, rule)
    execute(output.path, "ALTER TABLE {} " + made + " RULE noted")
    with pytest.raises(OutputNotUsableError, match=r"found rule noted, with which the server takes no INSERT … ON CON"):
        output.take(Event(2, "u", 1, "Genf"))


@pytest.mark.parametrize(
    "unique",
    [
        ["ALTER TABLE {} ALTER key TYPE text COLLATE {schema}.no_case"],
        [
            "ALTER TABLE {} DROP CONSTRAINT orders_pkey",
            "CREATE UNIQUE INDEX ON {} (key COLLATE {schema}.no_case)",
        ],
    ],
    ids=["column", "index"],
)
def test_a_table_to_which_different_keys_are_equal_is_refused(
    output: CurrentOutput, unique: list[LiteralString]
) -> None:
    key = pa.array(["A"])
    output.take(Event(0, "c", 1, "Bern"), key=key)
    # Which only collations of ICU can be, that this server is built without.
    execute(output.path, 'CREATE COLLATION {schema}.no_case FROM "C"')
    changed: LiteralString = (
        "UPDATE pg_collation SET collisdeterministic = false WHERE collnamespace = {}::regnamespace"
    )
    with connect() as connection:
        connection.execute(psycopg.sql.SQL(changed).format(schema_of(output.path)))
    for statement in unique:
        execute(output.path, statement)
    with pytest.raises(OutputNotUsableError, match="whose collations tell all texts apart"):
        output.take(Event(1, "c", 1, "Bern"), key=key)


def test_rows_of_keys_cannot_be_expired_or_replaced_by_batch(output: CurrentOutput) -> None:
    sink = output.sink
    assert sink.remover is not None
    assert sink.replacer is not None
    with pytest.raises(OutputNotUsableError, match="cannot be expired batch by batch"):
        sink.remover.check_can_remove()
    with pytest.raises(OutputNotUsableError, match="cannot be replaced batch by batch"):
        sink.replacer.check_can_replace()


@pytest.mark.parametrize("fault", [Fault.ANSWER_LOST, Fault.DIES_AFTER])
def test_a_batch_whose_commit_was_not_answered_changes_rows_once(
    output: CurrentOutput, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    directory, published = output.stage([Event(1, "u", 1, "Chur"), Event(2, "d", 2)])
    with monkeypatch.context() as patched, contextlib.suppress(Died):
        output.with_fault(patched, fault)
        output.sink.publisher.publish(directory, published)
    output.sink.publisher.publish(directory, published)
    assert output.rows() == [(1, "Chur", "1"), (2, None, "2†")]
    assert output.changes(2) == {"records": 2, "updated": 1, "deleted": 1}


def test_batches_that_change_the_same_keys_at_once_wait_for_each_other(output: CurrentOutput) -> None:
    """Without an order among them two transactions would take rows in opposite orders, and one would fail."""
    output.take(*(Event(key, "c", key) for key in range(200)))
    staged = [
        output.stage([Event(1_000 * number + at, "u", key, f"c{number}") for at, key in enumerate(keys)])
        for number, keys in ((1, range(200)), (2, range(199, -1, -1)), (3, range(200)))
    ]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda each: output.sink.publisher.publish(*each), staged))
    assert {city for _, city, _ in output.rows()} == {"c3"}


def test_a_key_that_no_index_can_hold_stops_the_commit_with_its_offset(output: CurrentOutput) -> None:
    key = pa.array([b"a", random.Random(1).randbytes(9_000)], pa.binary())  # noqa: S311 - no secret
    directory, published = output.stage([Event(0, ""), Event(1, "")], values=key, key=key)
    with pytest.raises(OutputConflictError, match="refuses orders-0@1: index row requires 9016 bytes"):
        output.sink.publisher.publish(directory, published)


def test_a_table_that_has_lost_batches_says_that_a_reset_reads_them_again(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"))
    lacks = output.sink.lacks
    assert lacks is not None
    assert lacks(batch_id_of(1)) == ""
    execute(output.path, "DELETE FROM {schema}.orders_kafka_batches")
    assert "`reset FEED` back to the first of their offsets" in lacks(batch_id_of(1))
    assert "replace" not in lacks(batch_id_of(1))


# ── Truncations ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_truncation_removes_what_is_older_and_nothing_older_comes_back(output: CurrentOutput) -> None:
    applying = CurrentOutput(output.path, CurrentState(truncates=True))
    applying.take(Event(5, "c", 1, "Bern"), Event(6, "c", 2, "Basel"))
    applying.take(Event(7, "c", 3, "Chur"), Event(8, "t", None), Event(9, "c", 2, "Genf"))
    applying.take(Event(3, "c", 4, "Sion"), Event(4, "c", 1, "Olten"))
    assert applying.rows() == [(2, "Genf", "9")]
    assert applying.changes(2) == {
        "records": 3,
        "inserted": 1,
        "truncated": 2,
        "ignored": 1,
        "truncations": [["orders", TOPIC_ID, 0, 8]],
    }
    with pytest.raises(OutputConflictError, match="a truncation of topic orders, which has the partitions 0 and 1"):
        applying.take(Event(0, "c", 7, partition=1))


def test_a_truncation_that_a_policy_would_let_rows_survive_stops_the_feed(output: CurrentOutput) -> None:
    applying = CurrentOutput(output.path, CurrentState(truncates=True))
    applying.take(Event(5, "c", 1, "Bern"), Event(6, "c", 2, "Basel"))
    new_role("walker")
    execute(output.path, "GRANT ALL ON SCHEMA {schema} TO walker")
    execute(output.path, "GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO walker")
    execute(output.path, "ALTER TABLE {} ENABLE ROW LEVEL SECURITY")
    execute(output.path, "CREATE POLICY part ON {} USING (id = 1) WITH CHECK (true)")
    url = make_url(os.environ[URL_VARIABLE]).set(username="walker")
    applying.sink = sink_of(
        postgresql_at(output.path, applying.options),
        SinkConnections(database=lambda conn_id: DatabaseSettings(conn_id, url)),
    )
    applying.take(Event(7, "c", 1, "Chur"))
    directory, published = applying.stage([Event(8, "t", None)])
    with pytest.raises(OutputNotUsableError, match=r"found row level security of orders \(part\)"):
        applying.sink.publisher.can_take(directory, published.receipt)
    with pytest.raises(OutputNotUsableError, match=r"found row level security of orders \(part\)"):
        applying.sink.publisher.publish(directory, published)
    assert applying.rows() == [(1, "Chur", "7"), (2, "Basel", "6")]
    execute(output.path, "DROP OWNED BY walker")


# ── Forms of events ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_unwrapped_events_and_plain_states_delete_by_their_mark_or_by_a_tombstone(output: CurrentOutput) -> None:
    kind = pa.struct([("id", pa.int64()), ("city", pa.string()), ("__deleted", pa.string()), ("__op", pa.string())])
    rows: list[Any] = [
        {"id": 1, "city": "Bern", "__deleted": "false", "__op": "c"},
        {"id": 2, "city": "Basel", "__deleted": "true", "__op": "d"},
        None,
        {"id": 1, "city": "old", "__deleted": "false", "__op": "r"},
    ]
    events = [Event(0, "", 1), Event(1, "", 2), Event(2, "", 3), Event(3, "", 1)]
    output.take(*events, values=pa.array(rows, kind))
    assert output.rows() == [(1, "Bern", "0"), (2, None, "1†"), (3, None, "2†")]


def test_envelopes_of_connects_json_converter_are_looked_into(output: CurrentOutput) -> None:
    values = pa.array([{"payload": each} for each in values_of([Event(0, "c", 1, "Bern")]).to_pylist()] + [None])
    key = pa.array([{"payload": {"id": each}} for each in (1, 2)])
    output.take(Event(0, "c"), Event(1, None), values=values.cast(pa.struct([("payload", ENVELOPE)])), key=key)
    assert output.rows() == [(1, "Bern", "0"), (2, None, "1†")]


def test_a_value_without_its_payload_is_no_deletion_but_stops_the_feed(output: CurrentOutput) -> None:
    of_connect = pa.struct([("payload", ENVELOPE)])
    output.take(Event(0, "c"), values=pa.array([{"payload": {"after": {"city": "Bern"}, "op": "c"}}], of_connect))
    directory, published = output.stage([Event(1, None)], pa.array([{"payload": None}], of_connect))
    with pytest.raises(ColumnsChangedError, match=r"orders-0@1: expected one of op .* in value\.payload"):
        output.sink.publisher.can_take(directory, published.receipt)
    assert output.rows() == [(1, "Bern", "0")]


def test_raw_keys_and_values_are_states_too(output: CurrentOutput) -> None:
    values, key = pa.array([b"\x00", b"new", None], pa.binary()), pa.array([b"a", b"a", b"b"], pa.binary())
    output.take(Event(0, ""), Event(1, ""), Event(2, ""), values=values, key=key)
    found = sorted(rows_in_postgresql(output.path, 'key, "value", kafka_deleted'))
    assert found == [(b"a", b"new", False), (b"b", None, True)]


# ── Any order ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def newest(events: Iterable[Event]) -> dict[int, tuple[Any, ...]]:
    """Return the state of each key by all events of a topic: the newest change, or else the newest snapshot."""
    events = sorted(events)
    after = max((each.offset for each in events if each.op == "t"), default=-1)
    found: dict[int, tuple[Any, ...]] = {}
    rank: dict[int, tuple[bool, int]] = {}
    for each in events:
        if each.key is None or each.op == "m" or each.offset < after:
            continue
        place = (each.op != "r", each.offset)
        if place > rank.get(each.key, (False, -1)):
            rank[each.key] = place
            deleted = each.op in {"d", None}
            note = each.note if each.note != HIDDEN else found.get(each.key, (None, None, None))[1]
            found[each.key] = (None, None, each.offset, True) if deleted else (each.city, note, each.offset, False)
    return found


def some_events(chance: random.Random, topic: str, *, hides: bool) -> list[Event]:
    """Return the events of one topic: a snapshot first where values are hidden, else anywhere, or truncations."""
    found = []
    truncates = chance.random() < 0.3
    for offset in range(chance.randint(1, 25)):
        reads, truncations = ["r"] * (offset < 5 if hides else not truncates), ["t"] * truncates
        op = chance.choice(["c", "u", "u", "d", None, "m", *reads, *truncations])
        key = None if op in {"t", "m"} else chance.randint(1, 3)
        note = HIDDEN if hides and chance.random() < 0.5 else f"n{offset}"
        found.append(Event(2 * offset, op, key, f"c{offset}", note, topic))
    return found


def batches_in_order(chance: random.Random, events: list[Event], number: int) -> list[list[Event]]:
    """Divide events into batches; some are read again later."""
    ends = sorted(chance.randint(0, len(events)) for _ in range(number - 1))
    found = [events[start:end] for start, end in zip([0, *ends], [*ends, len(events)], strict=True)]
    for place in range(1, number):
        if chance.random() < 0.4:
            before = events[: sum(map(len, found[:place]))]
            found[place] = [*before[chance.randint(0, len(before)) :], *found[place]]
    return found


def in_any_order(chance: random.Random, events: list[Event], number: int) -> list[list[Event]]:
    """Return the same batches in another order."""
    found = batches_in_order(chance, events, number)
    chance.shuffle(found)
    return found


def test_any_division_into_batches_replays_and_any_order_lead_to_the_newest_state_of_each_key(
    output: CurrentOutput,
) -> None:
    """Of 300 topics at once, each with batches of its own; values that Debezium hides come in order.

    Not so in any order are a snapshot's reads that lost against what a truncation, read later, has removed.
    """
    chance = random.Random(20261127)  # noqa: S311 - cases, no secrets
    applying = CurrentOutput(output.path, CurrentState(truncates=True))
    number = 6
    worlds: dict[str, list[Event]] = {}
    batches: list[list[Event]] = [[] for _ in range(number)]
    for world in range(300):
        topic, hides = f"orders-{world}", world % 2 == 0
        own = some_events(chance, topic, hides=hides)
        # Keys are of one topic each.
        worlds[topic] = [each._replace(key=each.key and 10 * world + each.key) for each in own]
        divide = batches_in_order if hides else in_any_order
        for batch, events in zip(batches, divide(chance, worlds[topic], number), strict=True):
            chance.shuffle(events)
            batch.extend(events)
    for batch in batches:
        applying.take(*unique(batch))
    expected: Mapping[int, Any] = {key: row for events in worlds.values() for key, row in newest(events).items()}
    found = rows_in_postgresql(output.path, "id, city, note, kafka_offset, kafka_deleted")
    assert {key: tuple(rest) for key, *rest in found} == expected
    assert len(expected) > 500


def unique(events: list[Event]) -> list[Event]:
    """Return events without those that are there twice, in their order."""
    return list(dict.fromkeys(events))


# ── Proofs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_are_accounted_for_by_marks_where_rows_have_left(output: CurrentOutput) -> None:
    output.take(Event(0, "c", 1, "Bern"), Event(1, "c", 2, "Basel"))
    output.take(Event(2, "u", 1, "Chur"), Event(3, "u", 2, "Sion"))
    [first, second] = output.sink.publisher.published_receipts()
    assert (first.files.state, second.files.state) == (FilesState.INTACT, FilesState.INTACT)
    address = dict(postgresql_at(output.path).options)
    found = format_found(str(output.path), address, connections_to_postgresql())
    contents = sink_of(found, connections_to_postgresql()).contents
    assert contents is not None
    evidence = contents.evidence()
    account = account_of(evidence, *contents.held(evidence))
    assert (account.is_sound, [each.held.rows for each in account.partitions]) == (True, [2])
    inspector, file = output.sink.inspector, first.receipt.files[0]
    assert inspector is not None
    assert [(each.rows, each.offsets) for each in inspector.look_at(batch_id_of(1)).counts] == [(2, 2)]
    assert inspector.holds(batch_id_of(2), file, TopicPartition("orders", 0), 2)
    with pytest.raises(NotADataFileError, match="a newer one has the row"):
        inspector.holds(batch_id_of(1), file, TopicPartition("orders", 0), 0)
    execute(output.path, "DELETE FROM {schema}.orders_kafka_batches WHERE changes->>'updated' = '2'")
    [first, second] = output.sink.publisher.published_receipts()
    assert (first.files.state, second.files.state) == (FilesState.INTACT, FilesState.STAGED)
    assert inspector.look_at(batch_id_of(2)).counts == ()
