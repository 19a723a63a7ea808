"""The plan task: resume an open batch, or ask Kafka, decide, and record the decision."""

import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

import uuid6

from kafka_ingest.batches.ask_kafka import ask_about_batch, ask_about_plan, ask_kafka
from kafka_ingest.batches.known_output import check_newest_known, check_output_there, check_same_root, new_feed
from kafka_ingest.batches.pin_receipt import pin_first_valid_receipt
from kafka_ingest.errors import BatchStateError, FeedChangedError, KafkaUnavailableError, StartUndecidedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.batch import BELOW_TIMESTAMP, Batch, BatchKind, BatchPlan, BatchState, milliseconds_of
from kafka_ingest.model.control_rows import NEVER_PLANNED, FeedSnapshot, NewFeed, PlanRecord
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import listing
from kafka_ingest.planning.decide import PlanDecision, decide
from kafka_ingest.planning.limits import with_default_limit, within
from kafka_ingest.planning.open_batch import decide_open_batch, held_topics
from kafka_ingest.planning.positions import newly_beyond_log
from kafka_ingest.planning.settings import EndPositions, FeedPlanSettings
from kafka_ingest.planning.topics import KafkaAnswers
from kafka_ingest.ports.control import ControlTables
from kafka_ingest.ports.parts import Parts

log = logging.getLogger(__name__)

TRIES = 5


def resume_open_batch(
    feed: FeedSnapshot, batch: Batch, settings: FeedPlanSettings, parts: Parts, *, actor: str | None
) -> bool:
    """Return whether an open batch can be resumed; where it cannot be read any more, abandon it and return False.

    WRITTEN and COMMITTING batches are resumed without a question to Kafka. A PLANNED batch with a valid receipt is
    pinned; without one it is compared with the log, because its ranges will be read (again).
    Without an actor nothing is written: raises what stops the feed at this batch until an operator decides.
    """
    if batch.state is not BatchState.PLANNED:
        return True
    if actor is None:
        held_topics(batch, ask_about_plan(batch.plan, parts.kafka), settings)
        return True
    if pin_first_valid_receipt(batch, parts, actor=actor):
        return True
    decision = decide_open_batch(feed, batch, ask_about_batch(feed, batch.plan, settings, parts.kafka), settings)
    if not decision.problems:
        if decision.lost:
            log.warning("batch %s is resumed without what was deleted: %s", batch.batch_id, listing(decision.lost))
        # Kafka may take long to answer: an operator may have abandoned the batch in the meantime.
        return parts.control.batch(batch.batch_id).state.is_open
    # A Spark that ended while Kafka was asked may have written what the log has lost: check once more.
    if pin_first_valid_receipt(batch, parts, actor=actor):
        return True
    reason, only_from = f"its ranges can no longer be read: {listing(decision.problems)}", {BatchState.PLANNED}
    try:
        parts.control.abandon(batch.batch_id, only_from=only_from, reason=reason, actor=actor, jumps=decision.jumps)
    except BatchStateError as error:
        log.info("%s", error)
    else:
        log.warning("batch %s is abandoned: %s", batch.batch_id, reason)
        for gap in (gap for jump in decision.jumps for gap in jump.gaps):
            log.warning("gap %s (%s): %s", gap.offset_range, gap.cause, gap.reason)
    return False


class PlanResult(StrEnum):
    """The result of the plan task."""

    PLANNED = "planned"
    RESUMED = "resumed"
    NOTHING_NEW = "nothing_new"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The batch to work on, None where nothing is new; the decision, None where an open batch was resumed.

    ``moved``: stored offsets moved over gaps, so the consumer group is behind them until it is set again.
    """

    result: PlanResult
    batch: BatchPlan | None
    decision: PlanDecision | None
    moved: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan would ask first, asked together with that of others; ``nothing``: its decision, which is noted."""

    feed: FeedSnapshot | None
    answers: KafkaAnswers
    asked_at: datetime
    nothing: PlanDecision | None = None


@without_garbage_collection()
def plan_batch(
    settings: FeedPlanSettings,
    parts: Parts,
    *,
    actor: str | None,
    end: EndPositions = None,
    asked: Asked | None = None,
) -> PlanOutcome:
    """Return the feed's open batch, a new one that is durable now, or nothing new.

    Without an actor nothing is written: a dry run decides, and is refused, as the plan itself is. What was ``asked``
    before is not asked again, unless another process wrote in the meantime.

    No transaction is open while Kafka or the sink is asked: what was read is checked again under the feed's lock, and
    the whole step is retried a few times where another process wrote in the meantime.
    """
    if asked is not None and asked.nothing is not None:
        return PlanOutcome(PlanResult.NOTHING_NEW, None, asked.nothing)
    control, sinks = parts.control, parts.sinks
    at_first: FeedSnapshot | None = None
    for _ in range(TRIES):
        known = control.feed(settings.name) if asked is None else asked.feed
        at_first = at_first or known
        if known is not None:
            check_newest_known(known, settings, control, sinks, actor=actor)
            if known.open_batch is not None:
                if resume_open_batch(known, known.open_batch, settings, parts, actor=actor):
                    return PlanOutcome(PlanResult.RESUMED, known.open_batch.plan, None)
                continue
            # An open batch keeps its output; a new one must not split the feed's.
            check_same_root(known, settings.output, settings.relative_path, control, sinks)
        feed = known or never_planned(settings)
        asked_at = datetime.now(UTC) if asked is None else asked.asked_at
        answers = ask_kafka(feed, settings, parts.kafka, end) if asked is None else asked.answers
        asked, now = None, datetime.now(UTC)
        if beyond := newly_beyond_log(feed, answers, now):
            if actor is not None:
                # Recorded first, so that it still stops the feed once the log has grown past the stored offset again.
                note_holds(feed, beyond, control)
                continue
            feed = replace(feed, holds=[*feed.holds, *beyond])
        decision = decide(feed, answers, limited(settings, feed, parts), now=now, end=end)
        try:
            target = target_of(decision, known, settings, parts)
            if actor is None:
                check_something_answered(decision)
                return PlanOutcome(result_of(decision), None, decision)
            # Nothing is created before this point: a first plan that is refused above leaves no trace.
            sinks(settings.output).publisher.prepare()
            batch_id = next_batch_id(feed.newest_batch)
            plan = plan_of(decision, batch_id, target.feed_id, settings) if decision.ranges else None
            control.record_plan(target, record_of(decision, settings, plan, feed, asked_at), actor=actor)
        except FeedChangedError as error:
            log.info("%s", error)
            continue
        # After recording, so that status shows since when Kafka does not answer.
        check_something_answered(decision)
        # An abandoned batch may have left gaps, too.
        moved = bool(decision.jumps) or (at_first is not None and at_first.stored != feed.stored)
        return PlanOutcome(result_of(decision), plan, decision, moved)
    raise FeedChangedError(
        f"feed {settings.name}: another process wrote to it {TRIES} times while it was planned; try again"
    )


def never_planned(settings: FeedPlanSettings) -> FeedSnapshot:
    """Return a feed that has no rows yet; one that a file for many topics found later was not there at the plan before.

    As if the feed had a pattern, which that plan did not find its topics by.
    """
    if settings.found_after is None:
        return NEVER_PLANNED
    pattern = "|".join(map(re.escape, settings.start_rules))
    return replace(NEVER_PLANNED, planned_at=settings.found_after, topic_pattern=pattern)


def target_of(
    decision: PlanDecision, feed: FeedSnapshot | None, settings: FeedPlanSettings, parts: Parts
) -> FeedSnapshot | NewFeed:
    """Return the feed that a decision is recorded of; raises what forbids that, of a first plan and of later ones."""
    if feed is not None:
        check_output_there(feed.feed_id, settings.output, parts.control, parts.sinks, is_planned=True)
        return feed
    with suppress(StartUndecidedError):  # recorded all the same: the operator decides about what is noted
        check_something_answered(decision)
    return new_feed(settings, parts.control, parts.sinks(settings.output))


def note_holds(feed: FeedSnapshot, holds: Sequence[Hold], control: ControlTables) -> None:
    """Record what stops the feed; where another process has changed it, the next plan checks again."""
    try:
        control.note_holds(feed, holds)
    except FeedChangedError as error:
        log.info("%s", error)


def result_of(decision: PlanDecision) -> PlanResult:
    if decision.ranges:
        return PlanResult.PLANNED
    return PlanResult.WAITING if decision.waiting_records else PlanResult.NOTHING_NEW


def why_nothing(decision: PlanDecision | None) -> str:
    """Return why there is no batch, in a few words."""
    if decision is None or decision.waiting_since is None or not decision.waiting_records:
        return "nothing new"
    since = f"{decision.waiting_since:%Y-%m-%d %H:%M:%S} UTC"
    return f"{counted(decision.waiting_records, 'record')} waiting for min_records, since {since}"


def record_of(
    decision: PlanDecision, settings: FeedPlanSettings, plan: BatchPlan | None, feed: FeedSnapshot, asked_at: datetime
) -> PlanRecord:
    jumped = {jump.topic_partition for jump in decision.jumps}
    return PlanRecord(
        cluster_id=decision.cluster_id,
        topics=decision.topics,
        topic_pattern=settings.topic_pattern,
        seeds=decision.seeds,
        jumps=decision.jumps,
        holds=decision.holds,
        waiting_since=decision.waiting_since,
        plan=plan,
        leader_epochs={
            tp: epoch
            for tp, epoch in decision.leader_epochs.items()
            if tp in jumped or (tp in feed.stored and feed.stored[tp].leader_epoch != epoch)
        },
        planned_at=asked_at,
        lag=decision.lag,
    )


def check_something_answered(decision: PlanDecision) -> None:
    """Raise KafkaUnavailableError where Kafka could answer for no partition: that is not "nothing new".

    Raises StartUndecidedError where all partitions wait for an operator to decide where they begin.
    """
    if decision.left_out and not decision.answered:
        if undecided := [hold for hold in decision.holds if hold.cause is HoldCause.NEW_OR_OLDER]:
            raise StartUndecidedError(f"nothing else of the feed can be read: {listing(undecided)}")
        reasons = listing(f"{tp}: {reason}" for tp, reason in sorted(decision.left_out.items()))
        raise KafkaUnavailableError(
            f"Kafka could answer for none of the feed's {counted(len(decision.left_out), 'partition')}: "
            f"{reasons}. Nothing was "
            "planned; check the brokers."
        )


def limited(settings: FeedPlanSettings, feed: FeedSnapshot, parts: Parts) -> FeedPlanSettings:
    """Return the settings with the next batch's limit, also where it follows measured speed, or its output's."""
    if settings.limit_follows_speed:
        settings = with_default_limit(settings, parts.control.speeds(feed.feed_id))
    most_rows = parts.sinks(settings.output).most_rows
    return replace(settings, max_records=within(settings.max_records, most_rows() if most_rows is not None else None))


def next_batch_id(newest: UUID | None) -> UUID:
    """Return a time-ordered id (RFC 9562, version 7) above the feed's newest, even if this machine's clock is behind.

    When lost control tables are rebuilt from the output, a feed's batches are ordered by their ids.
    """
    made: UUID = uuid6.uuid7()
    if newest is None or made > newest:
        return made
    milliseconds = milliseconds_of(newest) + 1
    return UUID(int=milliseconds << BELOW_TIMESTAMP | made.int & ((1 << BELOW_TIMESTAMP) - 1))


def plan_of(decision: PlanDecision, batch_id: UUID, feed_id: UUID, settings: FeedPlanSettings) -> BatchPlan:
    topics = {offset_range.topic for offset_range in decision.ranges}
    partitions = {offset_range.topic_partition for offset_range in decision.ranges}
    return BatchPlan(
        batch_id=batch_id,
        kind=BatchKind.LIVE,
        feed_id=feed_id,
        feed_name=settings.name,
        cluster_id=decision.cluster_id,
        topic_ids={topic: decision.topic_ids[topic] for topic in sorted(topics)},
        ranges=decision.ranges,
        isolation=settings.isolation,
        offsets_policy=settings.offsets_policy,
        output=settings.output,
        planned_at=datetime.now(UTC),
        capped=decision.capped,
        leader_epochs={tp: epoch for tp, epoch in decision.leader_epochs.items() if tp in partitions},
    )
