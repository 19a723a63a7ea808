"""The worlds that are explored: where they start, who acts in them, and what may go wrong."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from tests.fakes import FeedInMemory, feed_settings, log, partition, span, topic, watched
from tests.model.determinism import deterministic
from tests.model.explore import Explored, explore
from tests.model.invariants import OPERATOR, RUDE
from tests.model.recovery import Recovers
from tests.model.roles import (
    Work,
    abandons,
    dag_run,
    moves_an_offset_by_hand,
    one_commit,
    one_plan,
    plans_a_backfill,
    skips,
    spark_job,
    spark_name,
    starts_over,
)
from tests.model.world import Bounds, World

from kafka_ingest.errors import BatchRevokedError, InvalidRangeError, KafkaIngestError, OffsetsMovedError
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.gap import Gap
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.verbs.skip import decide_skip, skip

BACKFILL = UUID("01990000-0000-7000-8000-0000000bacf1")

HALF = 75
"""The largest batch: the 150 records of the two logs are two batches."""


# ── Where it starts ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Start:
    """A feed at the start, its open batch, and the attempts whose Spark has lost its driver and continues."""

    feed: FeedInMemory
    batch: BatchPlan | None = None
    backfill: BatchPlan | None = None
    zombies: list[Attempt] = field(default_factory=list)


def nothing_planned() -> Start:
    """Kafka holds records, and nobody ever looked."""
    return Start(FeedInMemory(settings=feed_settings(max_records=HALF)))


def one_committed() -> Start:
    """A first batch is through, the second is not planned yet."""
    start = nothing_planned()
    start.feed.committed()
    return start


def planned() -> Start:
    """The second batch is PLANNED, and an attempt is open whose Spark is a zombie."""
    start = one_committed()
    plan = start.feed.planned()
    return replace(start, batch=plan, zombies=[start.feed.open_attempt(plan.batch_id)])


def planned_and_lost() -> Start:
    """The same, and retention took the beginning of one of its ranges since the zombie read it."""
    start = planned()
    lost, _ = start.batch.ranges
    start.feed.settings = replace(start.feed.settings, on_data_loss=OnDataLoss.RECORD_GAP)
    start.feed.kafka.topics["orders"] = topic(log(lost.start_offset + 3, 100), log(0, 50))
    return start


def written() -> Start:
    """The second batch is WRITTEN."""
    start = one_committed()
    return replace(start, batch=start.feed.written())


def written_and_damaged() -> Start:
    """The second batch is WRITTEN by its second attempt, whose files are damaged.

    The Spark of the first is a zombie.
    """
    start = planned()
    feed = start.feed
    attempt = feed.open_attempt(start.zombies[0].batch_id)
    feed.spark_writes(attempt)
    feed.pin(attempt)
    feed.sink.damaged.add(attempt.directory)
    return start


def planned_and_damaged() -> Start:
    """The second batch is PLANNED; what the zombie writes is damaged."""
    start = planned()
    start.feed.sink.damaged.add(start.zombies[0].directory)
    return start


def written_beside_a_backfill() -> Start:
    """The second batch is WRITTEN; a backfill over a gap before it is WRITTEN, too, and will close that gap."""
    start = one_committed()
    feed = start.feed
    gap = skip_ten(feed)
    live = feed.written()
    backfill = replace(live, batch_id=BACKFILL, kind=BatchKind.BACKFILL, ranges=(gap.offset_range,))
    with feed.control.transaction() as state:
        state.batches[BACKFILL] = Batch("orders", backfill, BatchState.PLANNED, "backfill", backfill.planned_at)
        state.gaps[gap.gap_id] = (live.feed_id, replace(gap, closed_by_batch=BACKFILL))
    feed.write(BACKFILL)
    return replace(start, batch=live, backfill=backfill)


def with_a_hole() -> Start:
    """A first batch is through, and the ten records after it were skipped."""
    start = one_committed()
    skip_ten(start.feed)
    return start


def written_beside_a_hole() -> Start:
    """The second batch is WRITTEN, after ten records that were skipped."""
    start = with_a_hole()
    return replace(start, batch=start.feed.written())


def skip_ten(feed: FeedInMemory) -> Gap:
    """Skip the next ten records of partition 0."""
    begin = feed.stored_offsets()[partition(0)]
    decision = decide_skip("orders", span(0, begin, begin + 10), "poisoned", feed.control, feed.kafka)
    return skip(decision, feed.control, actor=OPERATOR)


def committing() -> Start:
    """The second batch is COMMITTING, its committer died before it published."""
    return stopped_before("publish", one_committed())


def published() -> Start:
    """The second batch is COMMITTING and visible, its committer died before the offsets moved."""
    return stopped_before("complete_commit", one_committed())


def first_published() -> Start:
    """The same of the first batch: there is more to read."""
    return stopped_before("complete_commit", nothing_planned())


class Stopped(BaseException):
    """The committer is gone."""


def stopped_before(call: str, start: Start) -> Start:
    """Write the next batch, and let its commit end before a call."""
    plan = start.feed.written()

    def stop(name: str) -> None:
        if name == call:
            raise Stopped

    try:
        watched(start.feed, stop).commit(plan.batch_id)
    except Stopped:
        return replace(start, batch=plan)
    raise AssertionError(f"{call} was never called")


# ── The scenario ──────────────────────────────────────────────────────────────────────────────────────────────────────


NOBODY_DIES = Bounds()


@dataclass(frozen=True)
class Scenario:
    """Who meets where.

    ``expected`` are the errors by which an actor may be refused here, apart from those that are harmless.
    """

    start: Callable[[], Start]
    actors: Mapping[str, Callable[[Start], Work]]
    expected: tuple[type[KafkaIngestError], ...] = ()
    bounds: Bounds = NOBODY_DIES

    def new_world(self, start: Start) -> World:
        """Return the scenario's world at its beginning."""
        start = replace(start, feed=start.feed.copied())
        world = World(start.feed, Recovers(*self.expected), bounds=self.bounds)
        for attempt in start.zombies:
            world.add(spark_name(attempt), spark_job(attempt), can_crash=self.bounds.spark_may_die)
        for name, work_on in self.actors.items():
            world.add(name, work_on(start), can_crash=name != RUDE)
        return world

    def explored(self) -> Explored:
        """Explore all its schedules."""
        with deterministic():
            start = self.start()
            return explore(lambda: self.new_world(start))


# ── All of them ───────────────────────────────────────────────────────────────────────────────────────────────────────


def same(work: Work) -> Callable[[Start], Work]:
    """Return work that does not depend on where it starts."""
    return lambda _: work


def commit(start: Start) -> Work:
    """A commit task alone, of the batch that is open at the start."""
    return one_commit(start.batch.batch_id)


def commit_of_the_backfill(start: Start) -> Work:
    """A commit task of the backfill."""
    return one_commit(start.backfill.batch_id)


def commit_of_the_first(start: Start) -> Work:
    """A commit task of a batch that was committed before: it looks after the group."""
    return one_commit(min(start.feed.control.state.batches))


RUN_A = {"run A": same(dag_run)}
A_RUN_AND_A_PLAN = {**RUN_A, "plan B": same(one_plan)}
TWO_RUNS = {**RUN_A, "run B": same(dag_run)}
TWO_PLANS = {"plan A": same(one_plan), "plan B": same(one_plan)}
TWO_BACKFILLS = {"backfill A": same(plans_a_backfill), "backfill B": same(plans_a_backfill)}
PLAN_A = {"plan A": same(one_plan)}
COMMIT_A = {"commit A": commit}
TWO_COMMITS = {"commit A": commit, "commit B": commit}
ABANDONS = {OPERATOR: same(abandons)}
ONE = Bounds(crashes=1)
MIRRORED = Bounds(crashes=1, group="orders-ingest")
NO_CRASH_MIRRORED = replace(MIRRORED, crashes=0)
ALL_MAY_DIE = Bounds(crashes=2, killed_tasks_are_tried_again=True, spark_may_die=True)
REVOKED = (BatchRevokedError,)

SCENARIOS = {
    "two first plans at once": Scenario(nothing_planned, TWO_PLANS, bounds=ONE),
    "two later plans at once": Scenario(one_committed, TWO_PLANS, bounds=ONE),
    "one run from nothing": Scenario(nothing_planned, RUN_A, bounds=replace(ALL_MAY_DIE, group="orders-ingest")),
    "a run and a plan, PLANNED": Scenario(planned, A_RUN_AND_A_PLAN),
    "one run, PLANNED": Scenario(planned, RUN_A, bounds=ALL_MAY_DIE),
    "a run and a plan, PLANNED, a range lost its beginning": Scenario(planned_and_lost, A_RUN_AND_A_PLAN),
    "one run, PLANNED, a range lost its beginning": Scenario(planned_and_lost, RUN_A, bounds=ALL_MAY_DIE),
    "two runs, WRITTEN": Scenario(written, TWO_RUNS, bounds=MIRRORED),
    "two runs, damaged": Scenario(written_and_damaged, TWO_RUNS, bounds=ONE),
    "two runs, COMMITTING": Scenario(committing, TWO_RUNS, bounds=MIRRORED),
    "two runs, published": Scenario(published, TWO_RUNS, bounds=MIRRORED),
    "two runs, published, more to read": Scenario(first_published, TWO_RUNS, bounds=ONE),
    "two runs, published, more to read, mirrored": Scenario(first_published, TWO_RUNS, bounds=NO_CRASH_MIRRORED),
    "two commits, WRITTEN": Scenario(written, TWO_COMMITS, bounds=MIRRORED),
    "two commits, damaged": Scenario(written_and_damaged, TWO_COMMITS, bounds=ONE),
    "two commits, COMMITTING": Scenario(committing, TWO_COMMITS, bounds=MIRRORED),
    "two commits, published": Scenario(published, TWO_COMMITS, bounds=MIRRORED),
    "a commit and one of the batch before": Scenario(
        written, {"commit A": commit_of_the_first, "commit B": commit}, bounds=NO_CRASH_MIRRORED
    ),
    "a run and a backfill's commit": Scenario(
        written_beside_a_backfill, RUN_A | {"backfill": commit_of_the_backfill}, bounds=NO_CRASH_MIRRORED
    ),
    "two backfills of one hole": Scenario(with_a_hole, TWO_BACKFILLS, bounds=ONE),
    "a plan and two backfills of one hole": Scenario(with_a_hole, PLAN_A | TWO_BACKFILLS, bounds=ONE),
    "a commit and two backfills of one hole": Scenario(written_beside_a_hole, COMMIT_A | TWO_BACKFILLS, bounds=ONE),
    "a run and an abandon, PLANNED": Scenario(planned, RUN_A | ABANDONS, REVOKED, ONE),
    "a run and an abandon, WRITTEN": Scenario(written, RUN_A | ABANDONS, REVOKED, ONE),
    "a run and an abandon, damaged": Scenario(written_and_damaged, RUN_A | ABANDONS, REVOKED, ONE),
    "a run and an abandon, COMMITTING": Scenario(committing, RUN_A | ABANDONS, REVOKED, ONE),
    "two commits and an abandon, WRITTEN": Scenario(written, TWO_COMMITS | ABANDONS, REVOKED, ONE),
    "two commits and an abandon, COMMITTING": Scenario(committing, TWO_COMMITS | ABANDONS, REVOKED, ONE),
    "a run and a reset": Scenario(one_committed, RUN_A | {OPERATOR: same(starts_over)}),
    "a run and a skip": Scenario(one_committed, RUN_A | {OPERATOR: same(skips)}, (InvalidRangeError,), ONE),
    "a run and a skip, mirrored": Scenario(
        one_committed, RUN_A | {OPERATOR: same(skips)}, (InvalidRangeError,), NO_CRASH_MIRRORED
    ),
    "a run and a rude operator": Scenario(
        one_committed, RUN_A | {RUDE: same(moves_an_offset_by_hand)}, (OffsetsMovedError,), ONE
    ),
}
"""What is explored with every run of the tests."""

DEEP = {
    "two runs from nothing, tried again": Scenario(nothing_planned, TWO_RUNS, bounds=replace(ALL_MAY_DIE, crashes=1)),
    "two runs, PLANNED, one crash": Scenario(planned, TWO_RUNS, bounds=ONE),
    "two runs, PLANNED, a range lost its beginning": Scenario(planned_and_lost, TWO_RUNS),
    "three runs, WRITTEN": Scenario(written, {**TWO_RUNS, "run C": same(dag_run)}, bounds=ONE),
    "two runs and an abandon, COMMITTING": Scenario(committing, TWO_RUNS | ABANDONS, REVOKED, ONE),
    "two runs and an abandon, WRITTEN": Scenario(written, TWO_RUNS | ABANDONS, REVOKED, ONE),
    "two runs, a zombie and an abandon, PLANNED": Scenario(planned, TWO_RUNS | ABANDONS, REVOKED, ONE),
    "two runs and a reset": Scenario(one_committed, TWO_RUNS | {OPERATOR: same(starts_over)}),
    "a run and a reset, mirrored": Scenario(one_committed, RUN_A | {OPERATOR: same(starts_over)}, bounds=MIRRORED),
}
"""What takes minutes."""
