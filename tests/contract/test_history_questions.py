"""The questions about what was.

The audit journal, which batches and gaps hold an offset, batches of some kinds and states.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.event import listen
from tests.contract.builders import (
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    OUTPUT,
    TOPIC_ID,
    batch_id_of,
    commit,
    gap,
    orders,
    plan_first,
    plan_next,
    plan_of,
    snapshot_of,
    write,
)
from tests.contract.conftest import SqlStore
from tests.outputs import parquet_at

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.coverage_store import batches_of_offset
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import StartOver
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition

pytestmark = pytest.mark.sqlite_is_enough

REFUNDS_FEED = UUID("01890000-0000-7000-8000-00000000beef")
REFUNDS = plan_of((TopicPartition("refunds", 0), 0, 100), number=9, feed_id=REFUNDS_FEED, feed_name="refunds")


def note(control: SqlControlTables, kind: str, **detail: object) -> None:
    control.record_event(ORDERS_FEED, kind, actor="ops", batch_id=None, detail=detail)


def date_events(database: SqlStore, *times: datetime) -> None:
    """Let the events have happened then, oldest first."""
    is_sqlite = database.settings.sqlite_file is not None
    for number, at in enumerate(times, 1):
        stored = f"{at:%Y-%m-%d %H:%M:%S.%f}" if is_sqlite else at
        database.execute("UPDATE event SET at = :at WHERE event_id = :number", at=stored, number=number)


# ── The journal ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_journal_is_listed_newest_first_with_all_that_an_event_holds(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    sql_control.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops")

    abandoned, seeded = sql_control.journal(ORDERS_FEED)
    assert (abandoned.kind, abandoned.actor, abandoned.batch_id) == ("abandoned", "ops", FIRST_PLAN.batch_id)
    assert abandoned.detail == {"reason": "wrong topic", "was": "PLANNED"}
    assert (seeded.kind, seeded.actor, seeded.batch_id) == ("seeded", "planner", None)
    assert seeded.at <= abandoned.at
    assert seeded.at.tzinfo is UTC


@pytest.mark.postgresql_too
def test_the_journal_is_one_feeds_and_of_the_named_kinds(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    plan_first(sql_control, REFUNDS)
    note(sql_control, "renamed", was="a", **{"is": "b"})
    note(sql_control, "cleaned", reason="why")

    assert [event.kind for event in sql_control.journal(ORDERS_FEED)] == ["cleaned", "renamed", "seeded"]
    assert [event.kind for event in sql_control.journal(ORDERS_FEED, kinds=["seeded", "cleaned"])] == [
        "cleaned",
        "seeded",
    ]
    assert sql_control.journal(ORDERS_FEED, kinds=["reset"]) == []


def test_a_line_names_so_many_and_says_how_many_more_there_were_unless_tables_are_rebuilt_from_it(
    sql_control: SqlControlTables,
) -> None:
    plan_first(sql_control)
    many = [{"partition": number} for number in range(10_000)]
    note(sql_control, "adopted", batches=["a"] * 100, partitions=many, removed=[])
    note(sql_control, "reset", partitions=many)

    reset, adopted, _ = sql_control.journal(ORDERS_FEED)
    assert reset.detail == {"partitions": many}
    assert adopted.detail == {
        "batches": ["a"] * 100,
        "partitions": many[:100],
        "removed": [],
        "left_out": {"partitions": 9_900},
    }


@pytest.mark.postgresql_too
def test_the_journal_is_limited_to_the_newest_and_begins_at_an_instant_that_is_in_it(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control)
    note(control, "cleaned")
    note(control, "renamed")
    date_events(database, NOON, NOON + timedelta(hours=1), NOON + timedelta(hours=2))

    assert [event.kind for event in control.journal(ORDERS_FEED, limit=2)] == ["renamed", "cleaned"]
    assert [event.kind for event in control.journal(ORDERS_FEED, since=NOON + timedelta(hours=1))] == [
        "renamed",
        "cleaned",
    ]
    assert control.journal(ORDERS_FEED, since=NOON + timedelta(hours=2, microseconds=1)) == []


# ── Which batches hold an offset ──────────────────────────────────────────────────────────────────────────────────────


def test_an_offset_is_in_the_batches_whose_range_holds_it_newest_first(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    elsewhere = OUTPUT.with_name("copies")
    copy = plan_of((orders(0), 20, 30), number=2, kind=BatchKind.COPY, output=elsewhere)
    plan_next(sql_control, copy)
    write(sql_control, copy)

    found = sql_control.offset_rows("orders", orders(0), 25)
    assert found is not None
    first, second = found.batches
    assert (first.batch_id, first.kind, first.state) == (copy.batch_id, BatchKind.COPY, BatchState.WRITTEN)
    assert first.output == parquet_at(elsewhere)
    assert (first.offset_range, first.topic_id) == (OffsetRange(orders(0), 20, 30), TOPIC_ID)
    assert (first.planned_by, first.committed_by, first.committed_at) == ("planner", None, None)
    assert (first.dead_letters, first.filtered) == (0, 0)
    assert (second.batch_id, second.kind, second.state) == (FIRST_PLAN.batch_id, BatchKind.LIVE, BatchState.COMMITTED)
    assert (second.committed_by, second.output) == ("committer", parquet_at(OUTPUT))
    assert second.committed_at == sql_control.batch(FIRST_PLAN.batch_id).committed_at


@pytest.mark.parametrize(
    ("partition", "offset", "number"),
    [(0, 0, 1), (0, 99, 1), (0, 100, 2), (0, 129, 2), (0, 130, None), (1, 39, None), (1, 40, 1), (2, 0, None)],
)
def test_a_range_holds_its_start_and_not_its_end(
    sql_control: SqlControlTables, partition: int, offset: int, number: int | None
) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    later = plan_of((orders(0), 100, 130), number=2)
    plan_next(sql_control, later)
    sql_control.abandon(later.batch_id, reason="not wanted", actor="ops")

    found = sql_control.offset_rows("orders", orders(partition), offset)
    assert found is not None
    assert [batch.batch_id for batch in found.batches] == ([batch_id_of(number)] if number else [])
    assert [batch.reason for batch in found.batches] == (["not wanted"] if number == 2 else [None] if number else [])


@pytest.mark.postgresql_too
def test_an_offset_is_not_looked_for_in_other_feeds(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    other = plan_of((orders(0), 0, 100), number=9, feed_id=REFUNDS_FEED, feed_name="refunds")
    plan_first(sql_control, other)

    found = sql_control.offset_rows("refunds", orders(0), 5)
    assert found is not None
    assert [batch.batch_id for batch in found.batches] == [other.batch_id]
    assert sql_control.offset_rows("nobody", orders(0), 5) is None


def test_beside_the_batches_the_stored_offset_the_partitions_gaps_and_resets_are_returned(
    sql_control: SqlControlTables,
) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    ahead = sql_control.file_gap(snapshot_of(sql_control), gap(orders(0), 110, 120), seed=None, actor="ops")
    row = StoredOffset(orders(1), "another id", 40, 50, "earliest")
    sql_control.start_over(
        snapshot_of(sql_control),
        "cluster-a",
        [
            StartOver(
                "orders",
                "another id",
                [row, StoredOffset(orders(0), "another id", 0, 100, "earliest")],
                same_records=True,
            )
        ],
        reason="restored",
        actor="ops",
    )

    found = sql_control.offset_rows("orders", orders(0), 119)
    assert found is not None
    assert [held.gap_id for held in found.gaps] == [ahead.gap_id]
    assert found.batches == []
    assert found.stored == snapshot_of(sql_control).stored[orders(0)]
    assert found.largest_partitions == {"orders": 1}
    assert found.topics == ("orders",)
    assert [(event.kind, event.detail["reason"]) for event in found.resets] == [("reset", "restored")]
    for partition, offset in ((0, 109), (0, 120), (1, 119)):
        beside = sql_control.offset_rows("orders", orders(partition), offset)
        assert beside is not None
        assert beside.gaps == []


def test_an_index_of_the_feeds_batches_leads_to_their_ranges_and_no_other_range_or_batch_is_read(
    sqlite: SqlStore,
) -> None:
    query = batches_of_offset(ORDERS_FEED, orders(0), 4711).compile(
        dialect=sqlite_dialect.dialect(), compile_kwargs={"literal_binds": True}
    )
    sqlite.connect()
    with sqlite.by_hand() as connection:
        steps = [row.detail for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}")]

    assert not [step for step in steps if "SCAN" in step]
    found = steps.index("SEARCH batch USING COVERING INDEX ix_batch_ids (feed_id=?)")
    assert "SEARCH batch_range" in steps[found + 1]
    assert "(batch_id=? AND topic=? AND partition=?)" in steps[found + 1]
    assert not [step for step in steps if "SEARCH batch USING INDEX" in step and "(batch_id=?)" not in step]


YEARS_OF_ONE_FEED = [
    ("ix_batch_to_fold", "1000000 1000000 1"),
    ("ix_batch_feed", "1000000 1000000 1"),
    ("ix_batch_sums", "1000000 1000000 1000000 1000000 1 1"),
    ("ix_batch_published", "1000000 1000000 1000000 1000000 1"),
    ("ix_batch_ids", "1000000 1000000 1"),
    ("ix_batch_planned", "1000000 1"),
    ("sqlite_autoindex_batch_1", "1000000 1"),
]
"""What ANALYZE notes of a million committed batches."""


QUESTIONS: Mapping[str, tuple[Callable[[SqlControlTables], object], str]] = {
    "a feed": (lambda control: control.feed("orders"), "ix_batch_not_committed"),
    "all feeds": (lambda control: control.feed_summaries(), "ix_batch_not_committed"),
    "the page of all feeds": (lambda control: control.feed_overviews(), "ix_batch_not_committed"),
    "its coverage": (lambda control: control.coverage("orders"), "ix_batch_not_live"),
}


@pytest.mark.parametrize(("ask", "index"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_no_question_reads_years_of_committed_live_batches_also_where_the_database_was_analysed(
    sqlite: SqlStore, ask: Callable[[SqlControlTables], object], index: str
) -> None:
    plan_first(sqlite.connect())
    with sqlite.by_hand() as connection:
        connection.exec_driver_sql("ANALYZE")
        connection.exec_driver_sql("DELETE FROM sqlite_stat1 WHERE tbl = 'batch'")
        for name, numbers in YEARS_OF_ONE_FEED:
            connection.exec_driver_sql("INSERT INTO sqlite_stat1 VALUES ('batch', ?, ?)", (name, numbers))
    asked: list[tuple[str, Any]] = []
    engine = sqlite.open()
    control = SqlControlTables(engine)
    listen(engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))

    ask(control)

    with engine.connect() as connection:
        steps = [
            step.detail
            for statement, values in list(asked)
            if "batch" in statement
            for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)
        ]
    assert f"SEARCH batch USING INDEX {index} (feed_id=?)" in steps
    assert not [step for step in steps if step.startswith("SCAN batch ") or step == "SCAN batch"]


# ── Batches of some kinds and states ──────────────────────────────────────────────────────────────────────────────────

ONLY: Mapping[str, tuple[dict[str, Any], list[int]]] = {
    "all": ({}, [4, 3, 2, 1]),
    "backfills": ({"kinds": [BatchKind.BACKFILL]}, [3]),
    "backfills and copies": ({"kinds": [BatchKind.COPY, BatchKind.BACKFILL]}, [4, 3]),
    "committed": ({"states": [BatchState.COMMITTED]}, [1]),
    "open": ({"states": [BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING]}, [4, 3]),
    "live ones that were abandoned": ({"kinds": [BatchKind.LIVE], "states": [BatchState.ABANDONED]}, [2]),
    "the newest that is not live": ({"kinds": [BatchKind.COPY, BatchKind.BACKFILL], "limit": 1}, [4]),
}


@pytest.mark.postgresql_too
@pytest.mark.parametrize(("only", "numbers"), ONLY.values(), ids=ONLY.keys())
def test_batches_are_listed_by_kind_and_state(
    sql_control: SqlControlTables, only: dict[str, Any], numbers: list[int]
) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    plan_next(sql_control, plan_of((orders(0), 100, 130), number=2))
    sql_control.abandon(batch_id_of(2), reason="not wanted", actor="ops")
    plan_next(sql_control, plan_of((orders(0), 0, 10), number=3, kind=BatchKind.BACKFILL))
    plan_next(sql_control, plan_of((orders(0), 0, 10), number=4, kind=BatchKind.COPY))

    found = sql_control.batch_summaries("orders", **only)
    assert [line.batch_id for line in found] == [batch_id_of(number) for number in numbers]
