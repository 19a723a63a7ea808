"""What a page asks of the control tables: all feeds at once, and lists of batches without their ranges."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy.event import listen
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    TOPIC_ID,
    attempt_of,
    batch_id_of,
    commit,
    gap,
    hold,
    jump,
    orders,
    plan_first,
    plan_next,
    plan_of,
    receipt_of,
    record,
    seed,
    snapshot_of,
    write,
)
from tests.contract.conftest import SqlStore

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import FeedChangedError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState, sha256
from kafka_ingest.model.control_rows import PlanRecord
from kafka_ingest.model.gap import GapCause
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.receipt import Filtered, WrittenFile
from kafka_ingest.model.summaries import NotRows, ReadCounts

REFUNDS_FEED = UUID("01890000-0000-7000-8000-00000000beef")
REFUNDS = plan_of((TopicPartition("refunds", 0), 0, 100), number=9, feed_id=REFUNDS_FEED, feed_name="refunds")


def test_all_feeds_are_seen_at_once_with_their_offsets_open_batches_holds_and_gaps(
    sql_control: SqlControlTables,
) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    sql_control.file_gap(snapshot_of(sql_control), gap(orders(0), 100, 130), seed=None, actor="ops")
    sql_control.file_gap(snapshot_of(sql_control), gap(orders(1), 50, 52), seed=None, actor="ops")
    sql_control.hold(ORDERS_FEED, hold(1))
    plan_first(sql_control, REFUNDS)
    write(sql_control, REFUNDS)

    of_orders, of_refunds = sql_control.feed_overviews()
    known = snapshot_of(sql_control)
    assert (of_orders.name, of_orders.feed_id, of_orders.cluster_id) == ("orders", ORDERS_FEED, CLUSTER)
    assert of_orders.stored == known.stored
    assert (of_orders.topics, of_orders.planned_at) == (known.topics, known.planned_at)
    assert of_orders.holds == (hold(1),)
    assert (of_orders.open_gaps.gaps, of_orders.open_gaps.offsets) == (2, 32)
    assert of_orders.open_batch is of_orders.open_batch_state is of_orders.open_since is None
    assert of_orders.last_committed_at == sql_control.batch(FIRST_PLAN.batch_id).committed_at
    assert of_orders.rows_committed == sql_control.batch(FIRST_PLAN.batch_id).rows
    assert (of_refunds.name, of_refunds.last_committed_at, of_refunds.rows_committed) == ("refunds", None, 0)
    assert (of_refunds.open_batch, of_refunds.open_batch_state) == (REFUNDS.batch_id, BatchState.WRITTEN)
    assert of_refunds.open_since == sql_control.batch(REFUNDS.batch_id).updated_at
    assert (of_refunds.open_gaps.gaps, of_refunds.holds) == (0, ())


def test_a_gap_that_an_operator_filed_or_acknowledged_is_decided(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)

    def undecided() -> tuple[int, int]:
        [overview] = sql_control.feed_overviews()
        return overview.open_gaps.gaps, overview.open_gaps.undecided

    sql_control.file_gap(snapshot_of(sql_control), gap(orders(0), 100, 130), seed=None, actor="ops")
    assert undecided() == (1, 0)
    lost = [gap(orders(1), 50, 60, GapCause.RETENTION), gap(orders(0), 130, 131, GapCause.BEHIND)]
    for each in lost:
        sql_control.file_gap(snapshot_of(sql_control), each, seed=None, actor="plan")
    assert undecided() == (3, 2)
    [first] = [each for each in sql_control.gaps(ORDERS_FEED) if each.cause is GapCause.RETENTION]
    before = snapshot_of(sql_control)
    sql_control.acknowledge_gap(before, first, "the owner has them elsewhere", actor="ops")
    assert undecided() == (3, 1)
    # What was acknowledged is no alert any more; an operator's own skip is one for the others.
    causes = [each.cause for each in sql_control.gap_decisions()[ORDERS_FEED]]
    assert sorted(causes) == [GapCause.BEHIND, GapCause.SKIPPED]
    [event] = sql_control.journal(ORDERS_FEED, kinds=["gap_acknowledged"], limit=1)
    assert (event.actor, event.detail["reason"]) == ("ops", "the owner has them elsewhere")
    with pytest.raises(FeedChangedError):
        sql_control.acknowledge_gap(before, first, "twice", actor="ops")


def committed(control: SqlControlTables, plan: BatchPlan, filtered: int, dead: int) -> None:
    """Commit a planned batch whose records are all filtered or dead."""
    [planned] = plan.ranges
    tp = planned.topic_partition
    letters = WrittenFile.of_one("d.parquet", 1, dead, tp, planned.start_offset, planned.end_offset - 1)
    left_out = (Filtered(tp, filtered),) if filtered else ()
    found = {"filtered": left_out, "dead_letters": (letters,), "rows_read": filtered + dead}
    receipt = replace(receipt_of(plan, 1, rows={tp: 0}), **found)
    control.open_attempt(attempt_of(plan, 1))
    control.pin(plan.batch_id, 1, receipt, sha256(receipt.as_bytes()), receipt.range_counts(plan))
    control.begin_commit(plan.batch_id, 1)
    control.complete_commit(plan.batch_id, actor="committer")


def test_what_became_no_row_is_summed_up_and_told_of_the_newest_batch(sql_control: SqlControlTables) -> None:
    """Of the dead letters those that are left: neither replayed nor given up."""
    first, second = plan_of((orders(0), 0, 100), number=1), plan_of((orders(0), 100, 150), number=2)
    plan_first(sql_control, first)
    assert sql_control.committed_counts(ORDERS_FEED, first.output, 20) == ReadCounts()
    committed(sql_control, first, filtered=90, dead=7)
    plan_next(sql_control, second)
    committed(sql_control, second, filtered=30, dead=5)

    [found] = sql_control.feed_overviews()
    newest = ReadCounts(rows=0, filtered=30, dead_letters=5)
    assert found.not_rows == sql_control.not_rows(ORDERS_FEED) == NotRows(filtered=120, dead_letters=12, newest=newest)
    assert [each.not_rows for each in sql_control.feed_summaries()] == [found.not_rows]
    sql_control.record_event(
        ORDERS_FEED, "dead_letters_given_up", actor="ops", batch_id=first.batch_id, detail={"reason": "old"}
    )
    assert sql_control.not_rows(ORDERS_FEED).dead_letters == 5

    together = ReadCounts(filtered=120, dead_letters=12)
    assert sql_control.committed_counts(ORDERS_FEED, first.output, 200) == together
    assert sql_control.committed_counts(ORDERS_FEED, first.output, 1).filtered in {90, 30}
    elsewhere = OutputLocation.local("parquet", Path("/elsewhere"))
    assert sql_control.committed_counts(ORDERS_FEED, elsewhere, 1) == ReadCounts()
    assert sql_control.committed_counts(REFUNDS_FEED, first.output, 1) == ReadCounts()


def test_dead_letters_of_batches_with_nothing_else_count_where_few_were_decoded(
    sql_control: SqlControlTables,
) -> None:
    first, second = plan_of((orders(0), 0, 100), number=1), plan_of((orders(0), 100, 150), number=2)
    plan_first(sql_control, first)
    committed(sql_control, first, filtered=0, dead=50)
    plan_next(sql_control, second)
    committed(sql_control, second, filtered=20, dead=5)

    assert sql_control.committed_counts(ORDERS_FEED, first.output, 20) == ReadCounts(filtered=20, dead_letters=5)
    assert sql_control.committed_counts(ORDERS_FEED, first.output, 21) == ReadCounts(filtered=20, dead_letters=55)


def test_a_gap_that_was_read_after_all_is_not_counted(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    sql_control.record_plan(
        snapshot_of(sql_control),
        PlanRecord(cluster_id=CLUSTER, topics=["orders"], jumps=[jump(orders(0), 100, 130)]),
        actor="planner",
    )
    again = plan_of((orders(0), 100, 110), number=2, kind=BatchKind.BACKFILL)
    plan_next(sql_control, again)
    commit(sql_control, again)

    [found] = sql_control.feed_overviews()
    assert (found.open_gaps.gaps, found.open_gaps.offsets) == (1, 20)


@pytest.mark.sqlite_is_enough
def test_the_number_of_statements_does_not_grow_with_the_feeds(database: SqlStore) -> None:
    engine = database.open()
    control = SqlControlTables(engine)
    statements: list[str] = []
    listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))

    plan_first(control)
    statements.clear()
    assert len(control.feed_overviews()) == 1
    of_one = len(statements)
    for number in range(20):
        topic = TopicPartition(f"t{number}", 0)
        feed_id = UUID(int=ORDERS_FEED.int + 1 + number)
        plan_first(control, plan_of((topic, 0, 9), number=20 + number, feed_id=feed_id, feed_name=topic.topic))
    statements.clear()
    assert len(control.feed_overviews()) == 21
    assert len(statements) == of_one


def test_batches_are_listed_newest_first_and_a_page_continues_another_one(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    for number in (2, 3):
        plan = plan_of((orders(0), 100 * number - 100, 100 * number), number=number)
        plan_next(sql_control, plan)
        commit(sql_control, plan)
    plan_next(sql_control, plan_of((orders(0), 300, 400), number=4))
    sql_control.abandon(batch_id_of(4), reason="no", actor="ops")
    plan_first(sql_control, REFUNDS)

    newest = sql_control.batch_lines(ORDERS_FEED, limit=2)
    assert [line.batch_id for line in newest] == [batch_id_of(4), batch_id_of(3)]
    older = sql_control.batch_lines(ORDERS_FEED, before=newest[-1].batch_id, limit=2)
    assert [line.batch_id for line in older] == [batch_id_of(2), batch_id_of(1)]
    assert sql_control.batch_lines(ORDERS_FEED, before=batch_id_of(1), limit=2) == []

    abandoned, committed = newest
    assert (abandoned.state, abandoned.reason, abandoned.abandoned_by) == (BatchState.ABANDONED, "no", "ops")
    batch = sql_control.batch(committed.batch_id)
    assert (committed.state, committed.kind, committed.folded) == (BatchState.COMMITTED, "live", False)
    assert (committed.rows, committed.size_bytes, committed.attempt) == (batch.rows, batch.size_bytes, 1)
    assert (committed.planned_at, committed.planned_by) == (batch.plan.planned_at, batch.planned_by)
    assert (committed.committed_at, committed.committed_by) == (batch.committed_at, batch.committed_by)
    assert committed.updated_at == batch.updated_at


def test_the_lag_that_a_plan_found_is_kept_with_its_batch_and_the_largest_one_of_each_hour_is_shown(
    sql_control: SqlControlTables,
) -> None:
    plan_first(sql_control, None, seed(orders(0), 0))
    for number, (minutes, lag) in enumerate(((0, 700), (59, 900), (60, 5), (61, None)), 1):
        planned_at = NOON + timedelta(minutes=minutes)
        plan = plan_of((orders(0), 100 * number - 100, 100 * number), number=number, planned_at=planned_at)
        record(sql_control, plan=plan, lag=lag)
        commit(sql_control, plan)

    assert [line.lag for line in sql_control.batch_lines(ORDERS_FEED, limit=9)] == [None, 5, 900, 700]
    found = sql_control.lag_by_hour([ORDERS_FEED, REFUNDS_FEED], NOON)
    assert found == {ORDERS_FEED: {NOON: 900, NOON + timedelta(hours=1): 5}}
    assert sql_control.lag_by_hour([ORDERS_FEED], NOON + timedelta(minutes=60)) == {
        ORDERS_FEED: {NOON + timedelta(hours=1): 5}
    }


def test_rows_are_summed_by_the_hour_of_their_commit_without_older_batches(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control, None, seed(orders(0), 0))
    for number in (1, 2, 3, 4):
        plan = plan_of((orders(0), 100 * number - 100, 100 * number), number=number, planned_at=NOON)
        plan_next(control, plan)
        commit(control, plan)

    def date(statement: str, number: int, minutes: float) -> None:
        at, batch_id = NOON + timedelta(minutes=minutes), batch_id_of(number)
        is_sqlite = database.settings.sqlite_file is not None
        stored = f"{at:%Y-%m-%d %H:%M:%S.%f}" if is_sqlite else at
        assert database.execute(statement, at=stored, id=batch_id.hex if is_sqlite else batch_id) == 1

    for number, minutes in ((1, 1), (2, 59.999), (3, 60), (4, 200)):
        date("UPDATE batch SET committed_at = :at WHERE batch_id = :id", number, minutes)
    rows = {number: control.batch(batch_id_of(number)).rows or 0 for number in (1, 2, 3, 4)}

    found = control.rows_by_hour([ORDERS_FEED, REFUNDS_FEED], NOON)
    hour = timedelta(hours=1)
    assert found == {ORDERS_FEED: {NOON: rows[1] + rows[2], NOON + hour: rows[3], NOON + 3 * hour: rows[4]}}
    date("UPDATE batch SET planned_at = :at WHERE batch_id = :id", 1, -1)
    assert control.rows_by_hour([ORDERS_FEED], NOON)[ORDERS_FEED][NOON] == rows[2]
    assert control.rows_by_hour([REFUNDS_FEED], NOON) == control.rows_by_hour([], NOON) == {}


def test_the_journal_continues_below_an_event(sql_control: SqlControlTables) -> None:
    plan_first(sql_control)
    for kind in ("cleaned", "renamed", "reset"):
        sql_control.record_event(ORDERS_FEED, kind, actor="ops", batch_id=None, detail={})

    newest = sql_control.journal(ORDERS_FEED, limit=2)
    assert [event.kind for event in newest] == ["reset", "renamed"]
    older = sql_control.journal(ORDERS_FEED, before=newest[-1].event_id, limit=2)
    assert [event.kind for event in older] == ["cleaned", "seeded"]
    assert TOPIC_ID in str(older[-1].detail)
