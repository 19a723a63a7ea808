"""Rows that a table in PostgreSQL refuses, on real parts: dead letters, counted, shown and replayed."""

import json
from collections.abc import Callable
from typing import Any, LiteralString
from unittest.mock import patch

import pytest
from tests.integration.test_operator_commands import journal
from tests.kafka_faults import Record, produce
from tests.killing import ending_all, kill_a_run_that_spark_wrote_for
from tests.quick_project import QuickProject
from tests.table_kinds import Postgresql

from kafka_ingest.assembly import FeedParts

TABLE = Postgresql()
SINK = TABLE.sink | {"on_refused": "dead_letter"}
AS_COLUMNS = {"value": {"format": "json", "schema": "id int, city string"}, "columns": "flatten", "key": "string"}


@pytest.fixture
def shop(quick: QuickProject) -> QuickProject:
    TABLE.connect(quick)
    return quick


def order(number: int, city: str = "Rom") -> Record:
    return Record(json.dumps({"id": number, "city": city}).encode())


def ids(shop: QuickProject) -> list[tuple[int, int]]:
    return [(row["kafka_offset"], row["id"]) for row in TABLE.rows(shop)]


def letters_of(shop: QuickProject, batch_id: str, name: str = "orders") -> list[tuple[int, int, str, str]]:
    rows = TABLE._run(shop, "SELECT * FROM {} ORDER BY kafka_partition, kafka_offset", f"{name}_dead_letters")
    return [
        (row["kafka_partition"], row["kafka_offset"], row["error_part"], row["error_class"])
        for row in rows
        if str(row["kafka_batch"]) == batch_id
    ]


def sql(shop: QuickProject, statement: LiteralString, table: str = "orders") -> None:
    TABLE._run(shop, statement, table)


def make_table(shop: QuickProject, name: str, constraint: LiteralString) -> None:
    """Make a table for raw records."""
    columns: LiteralString = (
        "kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamptz, key bytea, value "
        "bytea, kafka_headers jsonb, kafka_topic_id text, kafka_timestamp_ms bigint, kafka_batch uuid, "
    )
    sql(shop, "CREATE TABLE {} (" + columns + constraint + ")", name)


def test_refused_rows_become_dead_letters_that_are_counted_verified_and_replayed_once_the_table_takes_them(
    shop: QuickProject, servers: str, orders: str
) -> None:
    start = {"offsets": {orders: {0: 10, 1: 5, 2: 0}}, "otherwise": "latest"}
    shop.write_feed(orders, sink=SINK, start=start, **AS_COLUMNS)
    produce(servers, orders, 2, [order(1), order(2)])
    with shop.submitting(spark_is_real=True):
        [first] = shop.run()
        sql(shop, "CREATE UNIQUE INDEX once ON shop.orders (id)")
        sql(shop, "ALTER TABLE shop.orders ADD CONSTRAINT known CHECK (city <> 'Ulm')")
        produce(servers, orders, 2, [order(3), order(2), Record(b"no"), order(3), order(4, "Ulm"), order(5)])
        [second] = shop.run()
        assert (first["rows"], second["rows"]) == (2, 2)
        assert ids(shop) == [(0, 1), (1, 2), (2, 3), (7, 5)]
        assert letters_of(shop, second["batch_id"]) == [
            (2, 3, "row", "REFUSED_BY_OUTPUT"),
            (2, 4, "value", "NOT_JSON"),
            (2, 5, "row", "REFUSED_BY_OUTPUT"),
            (2, 6, "row", "REFUSED_BY_OUTPUT"),
        ]
        found = shop.answer("dead-letters", "orders", "--samples", "3")
        [refused] = [each for each in found["causes"] if each["error_class"] == "REFUSED_BY_OUTPUT"]
        assert {each["offset"]: each["error"].partition("refuses it: ")[2] for each in refused["samples"]} == {
            3: "UniqueViolation, constraint once",
            5: "UniqueViolation, constraint once",
            6: "CheckViolation, constraint known",
        }
        check_accounts(shop, orders, rows=4, dead=4)

        # Refused again, a replayed record is a dead letter of the replay; then the table takes it.
        replaying = ("replay", "orders", "--error", "REFUSED_BY_OUTPUT")
        [again] = shop.answer(*replaying)["chunks"]
        assert (again["state"], again["rows"]) == ("COMMITTED", 0)
        assert [offset for _, offset, *_ in letters_of(shop, again["batch_id"])] == [3, 5, 6]
        sql(shop, "DROP INDEX shop.once")
        [taken] = shop.answer(*replaying)["chunks"]
        assert (taken["state"], taken["rows"]) == ("COMMITTED", 2)
        assert ids(shop) == [(0, 1), (1, 2), (2, 3), (3, 2), (5, 3), (7, 5)]
        check_accounts(shop, orders, rows=6, dead=2)
    reasons = [detail["reason"] for _, detail in journal(shop, "attempts_discarded")]
    assert [reason.partition(",")[0] for reason in reasons] == [
        "the output refuses 3 rows",
        "the output refuses 3 rows",
        "the output refuses 1 row",
    ]


def check_accounts(shop: QuickProject, topic: str, *, rows: int, dead: int) -> None:
    """Compare what control tables, table and letters say."""
    coverage = shop.answer("coverage", "orders", "--verify")
    assert (coverage["accounted"], coverage["verified"]["differences"]) == (True, [])
    [sums] = [each for each in coverage["verified"]["counts"] if each["partition"] == 2]
    assert (sums["topic"], sums["rows"], sums["dead_letters"]) == (topic, rows, dead)


def before_the_commit(happening: Callable[[], object]) -> Any:
    """Let something happen between write and commit."""
    commit = FeedParts.commit

    def later(parts: FeedParts, batch_id: Any, *, actor: str) -> Any:
        happening()
        return commit(parts, batch_id, actor=actor)

    return patch.object(FeedParts, "commit", later)


def test_a_row_that_another_writer_puts_in_the_way_of_a_commit_stops_it_and_is_a_dead_letter_after_an_abandon(
    shop: QuickProject, orders: str
) -> None:
    shop.write_feed(orders, sink=SINK)
    make_table(shop, "orders", "CONSTRAINT once UNIQUE (kafka_partition, kafka_offset)")

    def rival() -> None:
        sql(shop, "INSERT INTO shop.orders (kafka_partition, kafka_offset) VALUES (0, 7)")

    with before_the_commit(rival):
        code, error, message = shop.refusal("run", "orders")
    assert (code, error) == (3, "OUTPUT_CONFLICT")
    assert f'refuses {orders}-0@7: duplicate key value violates unique constraint "once"' in message
    stopped = shop.status()["open_batch"]
    assert stopped["state"] == "COMMITTING"
    assert shop.refusal("run", "orders")[:2] == (3, "OUTPUT_CONFLICT")
    shop.answer("abandon", stopped["batch_id"], "--reason", "another writer has the row")
    [batch] = shop.run()
    assert (batch["rows"], letters_of(shop, batch["batch_id"])) == (14, [(0, 7, "row", "REFUSED_BY_OUTPUT")])
    assert shop.stored_offsets()[0] == 10


TRIAL = "kafka_ingest.sinks.postgresql.commits:PostgresqlCommits.refused"
PART = "kafka_ingest.sinks.postgresql.refused_rows:refused_rows"
TAKEN_BACK = "kafka_ingest.control.batch_life:BatchLife.discard_written"


@pytest.mark.parametrize("killed_at", [f"before:{PART}", f"after:{TRIAL}", f"after:{TAKEN_BACK}"])
def test_a_run_that_is_killed_while_rows_are_tried_or_taken_back_leaves_nothing_and_the_next_one_continues(
    shop: QuickProject, orders: str, killed_at: str
) -> None:
    shop.write_feed(orders, sink=SINK)
    make_table(shop, "orders", "CONSTRAINT few CHECK (kafka_offset <> 3)")
    with ending_all(shop) as processes:
        kill_a_run_that_spark_wrote_for(shop, processes, killed_at)
    assert TABLE.rows(shop) == []
    [batch] = shop.run()
    letters = [(partition, 3, "row", "REFUSED_BY_OUTPUT") for partition in range(2)]
    assert (batch["rows"], letters_of(shop, batch["batch_id"])) == (13, letters)
    assert len(TABLE.rows(shop)) == 13
    assert shop.answer("coverage", "orders", "--verify")["verified"]["differences"] == []


def test_feeds_that_run_together_and_a_backfill_have_dead_letters_of_refused_rows_too(
    shop: QuickProject, orders: str
) -> None:
    for name in ("one", "two"):
        start = {"offsets": {orders: {0: 5}}, "otherwise": "earliest"}
        shop.write_feed(orders, name=name, sink=SINK | {"path": name, "table": f"shop.{name}"}, start=start)
        make_table(shop, name, "CONSTRAINT few CHECK (kafka_offset <> 3)")
    answer = shop.kafka_ingest("run", "one", "two", "--json")
    assert answer.exit_code == 0, answer.stderr
    for name in ("one", "two"):
        [batch] = shop.batches(name)
        assert [(each["partition"], each["rows"], each["dead_letters"]) for each in batch["ranges"]] == [
            (0, 5, 0),
            (1, 4, 1),
        ]
        assert letters_of(shop, batch["batch_id"], name) == [(1, 3, "row", "REFUSED_BY_OUTPUT")]
    [chunk] = shop.answer("backfill", "one", f"{orders}:0=0-5")["chunks"]
    assert (chunk["state"], chunk["rows"]) == ("COMMITTED", 4)
    assert letters_of(shop, chunk["batch_id"], "one") == [(0, 3, "row", "REFUSED_BY_OUTPUT")]
    assert shop.answer("coverage", "one", "--verify")["verified"]["differences"] == []


def test_a_replacement_is_not_taken_back_its_refused_rows_stop_the_commit(shop: QuickProject, orders: str) -> None:
    shop.write_feed(orders, sink=SINK)
    [batch] = shop.run()
    sql(shop, "ALTER TABLE shop.orders ADD CONSTRAINT few CHECK (kafka_offset <> 3) NOT VALID")
    replacing = ("backfill", "orders", f"batch={batch['batch_id']}", "--when", "overlap=replace")
    answer = shop.kafka_ingest(*replacing, "--json")
    [chunk] = answer.document["chunks"]
    assert (answer.exit_code, chunk["error"]["code"]) == (3, "OUTPUT_CONFLICT")
    assert len(TABLE.rows(shop)) == 15
