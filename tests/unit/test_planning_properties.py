"""What holds of every plan, whatever the feed, its logs and its settings."""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import CLUSTER, FEED_ID, SOME_DAY, TOPIC_ID, feed_settings, log
from tests.unit.planning_inputs import NO_LEADER, ahead, rows_after

from kafka_ingest.model.control_rows import NEVER_PLANNED, FeedSnapshot
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.planning.decide import PlanDecision, decide
from kafka_ingest.planning.settings import Earliest, FeedPlanSettings, Latest, OnDataLoss, ToOffsets, ToTimestamp
from kafka_ingest.planning.topics import KafkaAnswers


@dataclass
class World:
    """A feed and its cluster. The logs stay as they are while batch after batch is planned and committed."""

    settings: FeedPlanSettings
    bounds: dict[TopicPartition, LogBounds | Unavailable]
    rows: dict[TopicPartition, StoredOffset]
    gaps_ahead: list[Gap] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)

    @property
    def logs(self) -> dict[TopicPartition, LogBounds]:
        """The partitions that Kafka answers for."""
        return {tp: bounds for tp, bounds in self.bounds.items() if isinstance(bounds, LogBounds)}

    def feed(self) -> FeedSnapshot | None:
        """Return the feed as it is stored, None where it was never planned."""
        topics = sorted({tp.topic for tp in self.rows})
        return (
            FeedSnapshot(
                FEED_ID, "orders", CLUSTER, 1, topics, self.rows, None, gaps_ahead=self.gaps_ahead, holds=self.holds
            )
            if self.rows
            else None
        )

    def answers(self, **asked: Any) -> KafkaAnswers:
        """Return what Kafka says; an offset that could not be read once cannot be read now."""
        numbers: dict[str, list[int]] = {}
        for tp in self.bounds:
            numbers.setdefault(tp.topic, []).append(tp.partition)
        topics = {name: TopicDescription(name, TOPIC_ID, tuple(found)) for name, found in numbers.items()}
        unreadable = [hold.topic_partition for hold in self.holds if hold.topic_partition is not None]
        return KafkaAnswers(CLUSTER, topics, self.bounds, unreadable=unreadable, **asked)

    def decide(self, end: Any = None, **asked: Any) -> PlanDecision:
        """Plan."""
        return decide(self.feed() or NEVER_PLANNED, self.answers(**asked), self.settings, now=SOME_DAY, end=end)

    def after(self, decision: PlanDecision) -> "World":
        """Return the world once the plan is recorded and its batch is committed."""
        passed = {gap.gap_id for jump in decision.jumps for gap in jump.passed}
        return replace(
            self,
            rows=rows_after(self.rows, decision),
            gaps_ahead=[gap for gap in self.gaps_ahead if gap.gap_id not in passed],
            holds=[hold for hold in decision.holds if hold.cause is HoldCause.UNREADABLE],
        )

    def shuffled(self, random: Random) -> "World":
        """Return the same world with everything in another order."""
        rules = in_another_order(self.settings.start_rules.items(), random)
        return World(
            replace(self.settings, start_rules=dict(rules)),
            dict(in_another_order(self.bounds.items(), random)),
            dict(in_another_order(self.rows.items(), random)),
            in_another_order(self.gaps_ahead, random),
            in_another_order(self.holds, random),
        )


def in_another_order(items: Any, random: Random) -> list[Any]:
    """Return the items, shuffled."""
    found = list(items)
    random.shuffle(found)
    return found


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a feed of some topics whose stored offsets, where it has any, lie below the ends of their logs.

    Under ``on_data_loss: fail`` nothing is lost: that would be an error, and no plan.
    """
    policy = draw(st.sampled_from(OnDataLoss))
    topics = draw(st.lists(st.sampled_from(["orders", "refunds", "returns"]), min_size=1, unique=True))
    world = World(draw(settings_of(topics, policy)), {}, {})
    ranges: list[OffsetRange] = []
    for name in topics:
        is_known = draw(st.booleans())
        for number in range(draw(st.integers(1, 3))):
            tp = TopicPartition(name, number)
            kind = draw(st.sampled_from(["stored", "pending", "none"])) if is_known else "none"
            # The first partition of a known topic has a row: without any, the topic would not be known.
            kind = "stored" if is_known and number == 0 and kind == "none" else kind
            bounds, offset = draw(logs_with_an_offset(kind, policy, is_new=is_known and kind == "none"))
            world.bounds[tp] = NO_LEADER if draw(st.integers(0, 3)) == 3 else bounds
            if kind == "pending":
                world.rows[tp] = StoredOffset(tp, TOPIC_ID, None, None, draw(st.sampled_from(["earliest", "latest"])))
            elif kind == "stored":
                world.rows[tp] = StoredOffset(tp, TOPIC_ID, 0, offset, "earliest")
                ranges += draw(gaps_above(tp, offset, bounds.high_watermark))
                if draw(st.integers(0, 4)) == 0:
                    held_at = draw(st.integers(offset, offset + 30))
                    world.holds.append(Hold(name, number, HoldCause.UNREADABLE, "damaged", SOME_DAY, held_at))
    world.gaps_ahead = ahead(*ranges)
    return world


@st.composite
def settings_of(draw: st.DrawFn, topics: list[str], policy: OnDataLoss) -> FeedPlanSettings:
    """Draw a feed's settings."""
    return feed_settings(
        start_rules={name: draw(st.sampled_from([Earliest(), Latest()])) for name in topics},
        isolation=draw(st.sampled_from(Isolation)),
        on_data_loss=policy,
        max_records=draw(st.none() | st.integers(1, 60)),
        max_records_per_partition=draw(st.none() | st.integers(1, 25)),
        skip_to_latest_when_behind=draw(st.none() | st.integers(1, 40)),
    )


@st.composite
def logs_with_an_offset(draw: st.DrawFn, kind: str, policy: OnDataLoss, *, is_new: bool) -> tuple[LogBounds, int]:
    """Draw a log, and an offset up to its end; below its start only where that may be lost."""
    may_lose = policy is OnDataLoss.RECORD_GAP
    start = 0 if is_new and not may_lose else draw(st.integers(0, 30))
    stable, unstable = draw(st.integers(0, 40)), draw(st.sampled_from([0, 0, 1, 15]))
    bounds = log(start, start + stable + unstable, lso=start + stable)
    lowest = 0 if may_lose else start
    return bounds, draw(st.integers(lowest, bounds.high_watermark)) if kind == "stored" else 0


@st.composite
def gaps_above(draw: st.DrawFn, topic_partition: TopicPartition, offset: int, end: int) -> list[OffsetRange]:
    """Draw gaps ahead of an offset that do not overlap, some adjacent, none past the high watermark."""
    found: list[OffsetRange] = []
    for distance, length in draw(
        st.lists(st.tuples(st.sampled_from([0, 0, 1, 5, 12]), st.integers(1, 10)), max_size=3)
    ):
        start = offset + distance
        offset = start + length
        if offset > end:
            break
        found.append(OffsetRange(topic_partition, start, offset))
    return found


def starts_of(world: World, decision: PlanDecision) -> dict[TopicPartition, int]:
    """Return the next offset of each partition once the seeds are written, those that are still pending left out."""
    rows = [*world.rows.values(), *decision.seeds]
    return {row.topic_partition: row.next_offset for row in rows if row.next_offset is not None}


def pieces_of(decision: PlanDecision) -> dict[TopicPartition, list[tuple[int, int, str]]]:
    """Return what the plan makes of each partition's offsets, in order: gaps, and what is read."""
    found: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    for gap in decision.gaps:
        piece = (gap.offset_range.start_offset, gap.offset_range.end_offset, "gap")
        found.setdefault(gap.offset_range.topic_partition, []).append(piece)
    for planned in decision.ranges:
        piece = (planned.start_offset, planned.end_offset, "read")
        found.setdefault(planned.topic_partition, []).append(piece)
    return {tp: sorted(pieces) for tp, pieces in found.items()}


# ── One plan ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def ranges_and_gaps_follow_the_stored_offset_without_a_hole_or_an_overlap(world: World) -> None:
    decision = world.decide()
    starts = starts_of(world, decision)
    for tp, pieces in pieces_of(decision).items():
        reached = starts[tp]
        for start, end, _ in pieces:
            assert start == reached
            reached = end
    for jump in decision.jumps:
        assert jump.from_offset == starts[jump.topic_partition]


def each_partition_has_one_range_at_most_and_they_are_sorted_and_not_empty(world: World) -> None:
    ranges = world.decide().ranges
    partitions = [planned.topic_partition for planned in ranges]
    assert partitions == sorted(set(partitions))
    assert all(planned.span for planned in ranges)


def ranges_never_leave_what_can_be_read_of_their_logs(world: World) -> None:
    for planned in world.decide().ranges:
        bounds = world.logs[planned.topic_partition]
        assert bounds.log_start_offset <= planned.start_offset
        assert planned.end_offset <= bounds.readable_end(world.settings.isolation)


def nothing_that_was_to_be_passed_over_is_read(world: World) -> None:
    filed = [gap.offset_range for gap in world.gaps_ahead]
    held = [(hold.topic_partition, hold.at_offset or 0) for hold in world.holds]
    for planned in world.decide().ranges:
        same = [gap for gap in filed if gap.topic_partition == planned.topic_partition]
        assert all(gap.end_offset <= planned.start_offset or planned.end_offset <= gap.start_offset for gap in same)
        assert not any(
            tp == planned.topic_partition and planned.start_offset <= at < planned.end_offset for tp, at in held
        )


def every_limit_is_kept(world: World) -> None:
    decision = world.decide()
    ranges = decision.ranges
    assert sum(planned.span for planned in ranges) <= (world.settings.max_records or 10**9)
    assert all(planned.span <= (world.settings.max_records_per_partition or 10**9) for planned in ranges)
    # How far the feed is behind does not depend on them.
    without = replace(world.settings, max_records=None, max_records_per_partition=None)
    assert sum(planned.span for planned in ranges) <= decision.lag == replace(world, settings=without).decide().lag


def a_batch_that_is_not_capped_leaves_nothing_that_could_be_read_at_once(world: World) -> None:
    decision = world.decide()
    after = world.after(decision)
    if decision.ranges and not decision.capped:
        assert after.decide().ranges == ()


def there_is_a_batch_whenever_something_can_be_read(world: World) -> None:
    decision = world.decide()
    reached = starts_of(world, decision) | {jump.topic_partition: jump.to_offset for jump in decision.jumps}
    held = {hold.topic_partition: hold.at_offset for hold in world.holds}
    behind = [
        tp
        for tp, bounds in world.logs.items()
        if reached[tp] < bounds.readable_end(world.settings.isolation) and held.get(tp) != reached[tp]
    ]
    assert bool(decision.ranges) == bool(behind)


def after_a_plan_every_partition_is_known_and_every_one_with_an_answer_has_an_offset(world: World) -> None:
    after = world.after(world.decide())
    assert after.rows.keys() == world.bounds.keys()
    assert all(after.rows[tp].next_offset is not None for tp in world.logs)


def a_partition_takes_part_or_says_why_not(world: World) -> None:
    decision = world.decide()
    assert decision.answered == len(world.logs)
    assert decision.left_out.keys() >= world.bounds.keys() - world.logs.keys()


def a_stored_offset_is_never_seeded_again(world: World) -> None:
    settled = {tp for tp, row in world.rows.items() if not row.is_pending}
    assert not settled & {seed.topic_partition for seed in world.decide().seeds}


OF_EACH_PLAN = [
    ranges_and_gaps_follow_the_stored_offset_without_a_hole_or_an_overlap,
    each_partition_has_one_range_at_most_and_they_are_sorted_and_not_empty,
    ranges_never_leave_what_can_be_read_of_their_logs,
    nothing_that_was_to_be_passed_over_is_read,
    every_limit_is_kept,
    a_batch_that_is_not_capped_leaves_nothing_that_could_be_read_at_once,
    there_is_a_batch_whenever_something_can_be_read,
    after_a_plan_every_partition_is_known_and_every_one_with_an_answer_has_an_offset,
    a_partition_takes_part_or_says_why_not,
    a_stored_offset_is_never_seeded_again,
]


@given(worlds())
def test_of_each_plan_all_of_this_holds(world: World) -> None:
    for holds in OF_EACH_PLAN:
        holds(world)


@given(worlds(), st.randoms(use_true_random=False))
def test_the_order_in_which_answers_come_changes_nothing(world: World, random: Random) -> None:
    assert world.shuffled(random).decide() == world.decide()


# ── Where a manual run asks for an end ────────────────────────────────────────────────────────────────────────────────


@given(worlds(), st.data())
def test_a_run_up_to_a_time_is_the_start_of_the_run_without_one(world: World, data: st.DataObject) -> None:
    settings = replace(
        world.settings, max_records=None, max_records_per_partition=None, skip_to_latest_when_behind=None
    )
    whole = replace(world, settings=settings)
    ends = {tp: data.draw(st.none() | st.integers(0, 90)) for tp in world.bounds}
    decision = whole.decide(ToTimestamp(SOME_DAY), end_offsets_at=ends)
    full = {planned.topic_partition: planned for planned in whole.decide().ranges}
    for planned in decision.ranges:
        expected = full[planned.topic_partition]
        end = ends[planned.topic_partition]
        assert planned.start_offset == expected.start_offset
        assert planned.end_offset == min(expected.end_offset, expected.end_offset if end is None else end)


@given(worlds(), st.data())
def test_a_run_up_to_offsets_ends_there_or_before_and_reads_nothing_else(world: World, data: st.DataObject) -> None:
    starts = starts_of(world, world.decide())
    named = {}
    for tp, bounds in world.logs.items():
        readable = bounds.readable_end(world.settings.isolation)
        if starts[tp] <= readable and data.draw(st.booleans()):
            named[tp] = data.draw(st.integers(starts[tp], readable))
    for planned in world.decide(ToOffsets(named)).ranges:
        assert planned.end_offset <= named[planned.topic_partition]


# ── Plan after plan, until the log is worked off ──────────────────────────────────────────────────────────────────────


@given(worlds())
def test_a_fixed_log_is_worked_off_with_every_offset_read_once_or_in_one_gap(world: World) -> None:
    starts = starts_of(world, world.decide())
    accounted: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    most_steps = 1 + sum(bounds.high_watermark for bounds in world.logs.values())
    here = world
    for _ in range(most_steps):
        decision = here.decide()
        for tp, pieces in pieces_of(decision).items():
            accounted.setdefault(tp, []).extend(pieces)
        here = here.after(decision)
        if not decision.ranges and not decision.jumps:
            break
    assert not here.decide().ranges

    held = {hold.topic_partition: hold.at_offset for hold in world.holds}
    for tp, bounds in world.logs.items():
        seen = Counter(offset for start, end, _ in accounted.get(tp, []) for offset in range(start, end))
        reached = here.rows[tp].next_offset
        assert reached is not None
        assert seen == Counter(range(starts[tp], reached))
        readable = bounds.readable_end(world.settings.isolation)
        assert reached >= readable or reached == held[tp]
        assert reached <= bounds.high_watermark


@given(worlds())
def test_every_gap_that_was_filed_and_could_be_reached_is_passed_over_once(world: World) -> None:
    here, passed = world, []
    decision = here.decide()
    while decision.ranges or decision.jumps:
        passed += [gap.gap_id for jump in decision.jumps for gap in jump.passed]
        here = here.after(decision)
        decision = here.decide()
    assert len(passed) == len(set(passed))
    left = {gap.gap_id for gap in here.gaps_ahead}
    assert left.isdisjoint(passed)
    assert left | set(passed) == {gap.gap_id for gap in world.gaps_ahead}
    for gap in here.gaps_ahead:
        next_offset = here.rows[gap.offset_range.topic_partition].next_offset
        assert next_offset is not None
        assert next_offset < gap.offset_range.start_offset or gap.offset_range.topic_partition not in world.logs
