"""Old live batches become sums in a database: what it answers stays the same."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.contract.builders import (
    CLUSTER,
    ORDERS_FEED,
    as_adopted,
    at_once,
    attempt_of,
    batch_id_of,
    commit,
    gap,
    orders,
    pin,
    plan_first,
    plan_next,
    plan_of,
    seed,
    snapshot_of,
    stored,
    write,
)
from tests.contract.conftest import SqlStore

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.row_sums import count_again
from kafka_ingest.errors import BatchFoldedError, BatchStateError
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import BackfillRecord, ResetMove, StartOver
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.folded import Foldable, FoldCut, Folded, FoldedRange
from kafka_ingest.model.gap import GapCause, LostRange, NewGap
from kafka_ingest.model.offsets import OffsetRange, intersect, union
from kafka_ingest.model.published_output import Adoption
from kafka_ingest.ports.control import OperatorTables

pytestmark = pytest.mark.sqlite_is_enough

LATER = datetime.now(UTC) + timedelta(days=1)
ALL = FoldCut(LATER, newest_stay=0)


@pytest.fixture
def control(database: SqlStore) -> OperatorTables:
    """Control tables in a database: those in memory fold nothing."""
    return database.connect()


def fold_all(control: OperatorTables, cut: FoldCut = ALL) -> Folded:
    """Fold all that may be, after what was staged is removed; return what was folded together."""
    clean(control)
    found: list[Folded] = []
    while not (folded := control.fold(ORDERS_FEED, cut)).is_nothing:
        found.append(folded)
    return Folded(*(sum(getattr(each, name) for each in found) for name in ("batches", "ranges", "attempts", "events")))


def clean(control: OperatorTables) -> None:
    for attempt in control.ended_attempts(ORDERS_FEED, ended_before=LATER):
        control.note_cleaned(attempt)


def read(
    control: OperatorTables, number: int, *ranges: tuple[int, int, int], actor: str = "run", **values: Any
) -> BatchPlan:
    """Commit a live batch of ranges of ``orders``."""
    plan = plan_of(*((orders(partition), start, end) for partition, start, end in ranges), number=number, **values)
    plan_next(control, plan)
    commit(control, plan, actor=actor)
    return plan


def three_batches(control: OperatorTables) -> None:
    """Commit [0, 100), [100, 120) and [120, 150) of partition 0, and [40, 50) and [50, 60) of partition 1."""
    first = plan_first(control, plan_of((orders(0), 0, 100), (orders(1), 40, 50), number=1))
    assert first is not None
    control.open_attempt(attempt_of(first, 1))
    pin(control, first, 1, {orders(0): 93, orders(1): 10})
    control.begin_commit(first.batch_id, 1)
    control.complete_commit(first.batch_id, actor="run")
    read(control, 2, (0, 100, 120))
    read(control, 3, (0, 120, 150), (1, 50, 60))


def reset(control: OperatorTables, partition: int, start: int, to: int) -> None:
    control.reset_offsets(snapshot_of(control), [ResetMove(orders(partition), start, to)], reason="again", actor="ops")


def answers(control: OperatorTables, *asked: OffsetRange) -> dict[str, Any]:
    """Return what is asked of control tables whose batches may be folded."""
    rows = control.coverage("orders")
    assert rows is not None
    coverage = coverage_of(rows)
    return {
        "feed": rows.feed,
        "coverage": {
            tp: (each.live, each.committed, each.backfilled, each.expired, each.open_gaps, each.problems)
            for tp, each in coverage.items()
        },
        "states": control.batch_states(ORDERS_FEED),
        "ahead": union(control.committed_ahead(ORDERS_FEED)),
        "within": [control.committed_within(ORDERS_FEED, [each]) for each in asked],
        "ledger": control.ledger_of_feed(ORDERS_FEED),
        "published": control.newest_of_kinds(ORDERS_FEED),
    }


def chains(control: OperatorTables) -> list[tuple[OffsetRange, str | None, int, int, int]]:
    """Return what is folded: range, topic id, rows, invisible, batches."""
    return [
        (each.offset_range, each.topic_id, each.rows, each.invisible, each.batches)
        for each in control.folded(ORDERS_FEED).ranges
    ]


# ── What becomes of the rows ──────────────────────────────────────────────────────────────────────────────────────────


def test_the_ranges_of_old_batches_become_one_row_a_partition_and_their_attempts_go(control: OperatorTables) -> None:
    three_batches(control)

    assert fold_all(control) == Folded(batches=3, ranges=5, attempts=3, events=0)

    assert chains(control) == [
        (OffsetRange(orders(0), 0, 150), "orders-topic-id", 143, 7, 3),
        (OffsetRange(orders(1), 40, 60), "orders-topic-id", 20, 0, 2),
    ]
    assert control.folded(ORDERS_FEED).batches == {batch_id_of(number) for number in (1, 2, 3)}
    assert control.range_counts(batch_id_of(1)) == []
    assert control.attempts(batch_id_of(1)) == []


def test_a_folded_batch_stays_known_with_its_sums_and_its_plans_fingerprint(control: OperatorTables) -> None:
    three_batches(control)
    was = control.batch(batch_id_of(2))

    fold_all(control)

    now = control.batch(batch_id_of(2))
    assert (now.state, now.rows, now.committed_by) == (BatchState.COMMITTED, was.rows, "run")
    assert now.plan == was.plan.without_ranges()
    assert now.plan.fingerprint == was.plan.fingerprint
    assert control.complete_commit(batch_id_of(2), actor="a cleared task") == now


@pytest.mark.postgresql_too
def test_nothing_that_is_asked_of_the_tables_has_another_answer(control: OperatorTables) -> None:
    three_batches(control)
    control.file_gap(snapshot_of(control), gap(orders(0), 150, 160), seed=None, actor="ops")
    fill = plan_of((orders(0), 152, 156), number=4, kind=BatchKind.BACKFILL)
    control.record_backfill(snapshot_of(control), BackfillRecord([fill], [], {}), actor="backfill")
    commit(control, fill)
    read(control, 5, (0, 160, 170))
    reset(control, 0, 170, 110)
    read(control, 6, (0, 110, 130))
    abandoned = plan_of((orders(0), 130, 145), number=7)
    plan_next(control, abandoned)
    control.abandon(abandoned.batch_id, reason="-", actor="ops")
    asked = [OffsetRange(orders(0), 0, 200), OffsetRange(orders(0), 125, 155), OffsetRange(orders(1), 45, 55)]
    before, of_abandoned = answers(control, *asked), union(control.committed_ranges(abandoned.batch_id))

    assert fold_all(control).batches == 5

    assert answers(control, *asked) == before
    assert union(control.committed_ranges(abandoned.batch_id)) != []
    assert within_mine(control.committed_ranges(abandoned.batch_id), abandoned) == within_mine(of_abandoned, abandoned)
    assert [each[0] for each in chains(control) if each[0].partition == 0] == [
        OffsetRange(orders(0), 0, 150),
        OffsetRange(orders(0), 110, 130),
        OffsetRange(orders(0), 160, 170),
    ]


def within_mine(found: list[OffsetRange], plan: BatchPlan) -> list[OffsetRange]:
    """Return what is held of a plan's ranges."""
    return intersect(plan.ranges, found)


@pytest.mark.postgresql_too
@pytest.mark.parametrize("same_records", [True, False])
def test_a_topic_that_was_made_again_has_chains_of_its_own(control: OperatorTables, *, same_records: bool) -> None:
    three_batches(control)
    row = snapshot_of(control).stored[orders(0)]
    next_offset = row.next_offset if same_records else 0
    new = seed(orders(0), 0, topic_id="moved", rule="moved")
    new = type(new)(orders(0), "moved", 0, next_offset, "moved")
    topics = [StartOver("orders", "moved", [new], same_records=same_records)]
    control.start_over(snapshot_of(control), CLUSTER, topics, reason="moved", actor="ops")
    assert next_offset is not None
    read(control, 4, (0, next_offset, next_offset + 5), topic_id="moved")
    asked = [OffsetRange(orders(0), 0, 200)]
    before = answers(control, *asked)

    fold_all(control)

    assert answers(control, *asked) == before
    assert [each[1] for each in chains(control) if each[0].partition == 0] == (
        ["orders-topic-id", "moved"] if same_records else ["moved", "orders-topic-id"]
    )


def test_folding_leaves_the_feeds_revision_so_that_a_decision_at_that_moment_stands(control: OperatorTables) -> None:
    three_batches(control)
    seen = snapshot_of(control)

    fold_all(control)

    assert control.feed("orders") == seen
    control.file_gap(seen, gap(orders(0), 150, 160), seed=None, actor="ops")
    assert stored(control)[orders(0)] == 160


# ── What stays ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_newest_batches_and_younger_ones_stay(control: OperatorTables) -> None:
    three_batches(control)
    clean(control)

    assert control.fold(ORDERS_FEED, FoldCut(datetime(2020, 1, 1, tzinfo=UTC), newest_stay=0)).is_nothing
    assert control.fold(ORDERS_FEED, FoldCut(LATER)).is_nothing, "there are fewer than those whose speed counts"
    assert control.fold(ORDERS_FEED, FoldCut(LATER, newest_stay=2)).batches == 1
    assert control.folded(ORDERS_FEED).batches == {batch_id_of(1)}


@pytest.mark.postgresql_too
def test_a_batch_whose_asset_event_may_be_lost_stays_until_it_is_announced(control: OperatorTables) -> None:
    three_batches(control)
    plan = read(control, 4, (0, 150, 160), actor="airflow:orders/scheduled__1")
    clean(control)

    assert control.foldable(ORDERS_FEED, ALL) == Foldable(batches=3, events=0, to_announce=1)
    assert fold_all(control).batches == 3
    assert [count.offset_range for count in control.range_counts(plan.batch_id)] == list(plan.ranges)
    control.note_announced(ORDERS_FEED, [plan.batch_id])
    assert fold_all(control).batches == 1
    assert chains(control)[0][0] == OffsetRange(orders(0), 0, 160)


def test_a_batch_whose_staged_output_is_not_removed_stays_and_its_neighbours_join_it_later(
    control: OperatorTables,
) -> None:
    three_batches(control)
    (second,) = control.attempts(batch_id_of(2))
    for attempt in control.ended_attempts(ORDERS_FEED, ended_before=LATER):
        if attempt != second:
            control.note_cleaned(attempt)

    assert control.foldable(ORDERS_FEED, ALL) == Foldable(batches=2, events=0, staged=1)
    assert control.fold(ORDERS_FEED, ALL).batches == 2
    assert [each[0] for each in chains(control) if each[0].partition == 0] == [
        OffsetRange(orders(0), 0, 100),
        OffsetRange(orders(0), 120, 150),
    ]
    control.note_cleaned(second)
    assert control.fold(ORDERS_FEED, ALL).batches == 1
    assert chains(control)[0] == (OffsetRange(orders(0), 0, 150), "orders-topic-id", 143, 7, 3)


def test_backfills_copies_and_what_was_abandoned_or_is_open_stay(control: OperatorTables) -> None:
    plan_first(control, None, seed(orders(0), 0))
    control.file_gap(snapshot_of(control), gap(orders(0), 0, 20), seed=None, actor="ops")
    fill = plan_of((orders(0), 5, 10), number=2, kind=BatchKind.BACKFILL)
    copied = plan_of((orders(0), 0, 10), number=3, kind=BatchKind.COPY)
    for plan in (fill, copied):
        control.record_backfill(snapshot_of(control), BackfillRecord([plan], [], {}), actor="backfill")
        commit(control, plan)
    abandoned, still_open = (plan_of((orders(0), 20, 30), number=number) for number in (4, 5))
    plan_next(control, abandoned)
    control.abandon(abandoned.batch_id, reason="-", actor="ops")
    plan_next(control, still_open)
    write(control, still_open)

    assert fold_all(control) == Folded()
    assert all(control.batch(batch_id_of(number)).plan.ranges for number in (2, 3, 4, 5))


# ── What machines wrote into the journal ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_old_lines_that_machines_wrote_go_and_all_others_stay(database: SqlStore) -> None:
    control = database.connect()
    three_batches(control)
    kinds = ("mirror_failed", "no_dates", "attempts_discarded", "receipt_refused")
    for kind in (*kinds, "mirror_failed", "restored", "cleaned", "expired"):
        control.record_event(ORDERS_FEED, kind, actor="-", batch_id=None, detail={})
    reset(control, 0, 150, 120)

    assert control.fold(ORDERS_FEED, FoldCut(datetime(2020, 1, 1, tzinfo=UTC))).events == 0
    assert control.fold(ORDERS_FEED, FoldCut(LATER, events_at_once=2)) == Folded(events=2)
    assert fold_all(control, FoldCut(LATER)).events == 3
    assert not any(database.events(kind) for kind in kinds)
    assert all(database.events(kind) for kind in ("seeded", "reset", "restored", "cleaned", "expired"))


def test_events_that_follow_folded_ones_have_numbers_of_their_own(control: OperatorTables) -> None:
    three_batches(control)
    for _ in range(3):
        control.record_event(ORDERS_FEED, "mirror_failed", actor="-", batch_id=None, detail={})
    fold_all(control)
    reset(control, 0, 150, 120)

    numbers = [event.event_id for event in control.ledger_of_feed(ORDERS_FEED)]
    assert len(set(numbers)) == len(numbers)


# ── Bounded, and safe to end at any moment ────────────────────────────────────────────────────────────────────────────


def test_one_transaction_takes_a_few_batches_and_what_comes_of_many_is_the_same(control: OperatorTables) -> None:
    three_batches(control)
    before = answers(control, OffsetRange(orders(0), 0, 200))
    clean(control)
    few = FoldCut(LATER, newest_stay=0, batches_at_once=1)
    found: list[Folded] = []
    while not (folded := control.fold(ORDERS_FEED, few)).is_nothing:
        found.append(folded)
        assert answers(control, OffsetRange(orders(0), 0, 200)) == before

    assert found == [Folded(1, 2, 1), Folded(1, 1, 1), Folded(1, 2, 1)]
    assert chains(control) == [
        (OffsetRange(orders(0), 0, 150), "orders-topic-id", 143, 7, 3),
        (OffsetRange(orders(1), 40, 60), "orders-topic-id", 20, 0, 2),
    ]


def test_a_feed_of_many_partitions_folds_fewer_batches_at_once(control: OperatorTables) -> None:
    three_batches(control)
    clean(control)

    assert control.fold(ORDERS_FEED, FoldCut(LATER, newest_stay=0, ranges_at_once=4)).batches == 2
    assert control.fold(ORDERS_FEED, FoldCut(LATER, newest_stay=0, ranges_at_once=1)).batches == 1


def test_two_that_fold_at_once_fold_each_batch_once(database: SqlStore) -> None:
    control, rival = database.connect(), database.connect()
    three_batches(control)
    clean(control)
    cut = FoldCut(LATER, newest_stay=0, batches_at_once=1)

    def fold(tables: OperatorTables) -> int:
        return sum(tables.fold(ORDERS_FEED, cut).batches for _ in range(3))

    assert sum(at_once(lambda: fold(control), lambda: fold(rival))) == 3
    assert [each[2:] for each in chains(control)] == [(143, 7, 3), (20, 0, 2)]


def test_a_transaction_that_ends_before_its_commit_leaves_all_as_it_was(
    database: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = database.connect()
    three_batches(control)
    clean(control)
    before = database.dump()

    def killed(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kafka_ingest.control.folding_store.fold_events", killed)
    with pytest.raises(KeyboardInterrupt):
        control.fold(ORDERS_FEED, ALL)

    assert database.dump() == before


# ── What was lost of folded batches ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_what_a_folded_batch_lost_is_not_held_unless_another_has_read_it_too(control: OperatorTables) -> None:
    three_batches(control)
    reset(control, 0, 150, 110)
    read(control, 4, (0, 110, 130))
    lost = LostRange(batch_id_of(2), "part-0", OffsetRange(orders(0), 105, 115), "orders-topic-id", 10)
    new = NewGap(OffsetRange(orders(0), 105, 110), GapCause.OUTPUT_LOST, "disk")
    asked = OffsetRange(orders(0), 90, 140)

    fold_all(control)
    assert control.committed_within(ORDERS_FEED, [lost.offset_range], apart_from=batch_id_of(2)) == [
        OffsetRange(orders(0), 110, 115)
    ]
    control.record_lost(snapshot_of(control), [lost], [new], reason="disk", actor="ops")

    assert control.committed_within(ORDERS_FEED, [asked]) == [
        OffsetRange(orders(0), 90, 105),
        OffsetRange(orders(0), 110, 140),
    ]
    assert all(not each[-1] for each in answers(control)["coverage"].values()), "it is accounted for"


def test_what_was_lost_before_its_batch_was_folded_stays_lost(control: OperatorTables) -> None:
    three_batches(control)
    reset(control, 0, 150, 110)
    read(control, 4, (0, 110, 130))
    lost = LostRange(batch_id_of(2), "part-0", OffsetRange(orders(0), 105, 115), "orders-topic-id", 10)
    new = NewGap(OffsetRange(orders(0), 105, 110), GapCause.OUTPUT_LOST, "disk")
    control.record_lost(snapshot_of(control), [lost], [new], reason="disk", actor="ops")
    before = answers(control, OffsetRange(orders(0), 90, 140))

    fold_all(control)

    assert answers(control, OffsetRange(orders(0), 90, 140)) == before


# ── What needs a batch's own ranges ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.postgresql_too
def test_a_reset_to_a_folded_batch_is_refused_by_name(control: OperatorTables) -> None:
    three_batches(control)
    assert control.starts_since(batch_id_of(2)) == {orders(0): 100, orders(1): 50}

    fold_all(control, FoldCut(LATER, newest_stay=1))

    with pytest.raises(BatchFoldedError, match="folded"):
        control.starts_since(batch_id_of(2))
    assert control.starts_since(batch_id_of(3)) == {orders(0): 120, orders(1): 50}


def test_a_folded_batch_takes_no_step_any_more(control: OperatorTables) -> None:
    three_batches(control)
    fold_all(control)

    with pytest.raises(BatchStateError):
        control.open_attempt(attempt_of(plan_of((orders(0), 0, 100), number=1), 2))
    with pytest.raises(BatchStateError):
        control.abandon(batch_id_of(1), reason="-", actor="ops")
    with pytest.raises(BatchStateError):
        control.begin_commit(batch_id_of(1), 1)


@pytest.mark.postgresql_too
def test_adopting_leaves_folded_batches_as_they_are(control: OperatorTables) -> None:
    three_batches(control)
    fold_all(control)
    before, known = chains(control), control.batch(batch_id_of(1))
    later = plan_of((orders(0), 150, 155), number=4)
    row = snapshot_of(control).stored[orders(0)]
    rows = [type(row)(orders(0), row.topic_id, row.first_offset, 155, row.seeded_by, batch_id=later.batch_id)]
    adoption = Adoption(CLUSTER, ["orders"], rows, [as_adopted(later)], [], [])

    control.adopt(snapshot_of(control), adoption, reason="a backup", actor="ops")

    assert chains(control) == before
    assert control.batch(batch_id_of(1)) == known
    assert fold_all(control).batches == 1
    assert chains(control)[0][0] == OffsetRange(orders(0), 0, 155)


@pytest.mark.postgresql_too
def test_sums_that_are_counted_again_hold_what_is_folded(database: SqlStore) -> None:
    sql_control = database.connect()
    three_batches(sql_control)
    rows = sql_control.rows_by_partition(ORDERS_FEED)
    assert sum(rows.values()) == 163
    fold_all(sql_control)
    summaries = sql_control.feed_summaries()
    assert [each.rows_committed for each in summaries] == [163]

    with database.by_hand() as connection:
        count_again(connection, ORDERS_FEED)

    assert sql_control.rows_by_partition(ORDERS_FEED) == rows
    assert sql_control.feed_summaries() == summaries


def test_a_listed_batch_says_that_it_is_folded_and_keeps_its_sums(sql_control: SqlControlTables) -> None:
    three_batches(sql_control)
    fold_all(sql_control, FoldCut(LATER, newest_stay=1))

    found = sql_control.batch_summaries("orders")
    assert [(each.folded, len(each.ranges), each.rows) for each in found] == [
        (False, 2, 40),
        (True, 0, 20),
        (True, 0, 103),
    ]


@pytest.mark.postgresql_too
def test_a_batch_with_dead_letters_stays(database: SqlStore) -> None:
    control = database.connect()
    three_batches(control)
    database.execute(
        "UPDATE batch_range SET dead_letters = 1, rows = rows - 1 WHERE end_offset = 120 AND start_offset = 100"
    )
    clean(control)

    assert control.foldable(ORDERS_FEED, ALL) == Foldable(batches=2, events=0, dead_letters=1)
    assert fold_all(control).batches == 2
    rows = control.coverage("orders")
    assert rows is not None
    assert [each.count for each in rows.dead_letters] == [1]


def test_a_folded_range_is_read_back_as_it_was_written(control: OperatorTables) -> None:
    three_batches(control)
    fold_all(control)

    first = control.folded(ORDERS_FEED).ranges[0]
    assert first == FoldedRange(
        OffsetRange(orders(0), 0, 150), "orders-topic-id", 143, 0, 0, 7, 3, first.oldest, first.newest
    )
    assert first.oldest <= first.newest <= datetime.now(UTC)
