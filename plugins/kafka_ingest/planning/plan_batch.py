"""The plan task: hand an open batch on, or ask Kafka, decide, and record what was decided."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

import uuid6

from kafka_ingest.batch import Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.boundaries import ControlTables, FeedSnapshot, KafkaCluster, NewFeed, Sink, Sinks
from kafka_ingest.errors import BatchStateError, FeedChangedError, KafkaUnavailableError, OutputUnknownError
from kafka_ingest.identity import check_identity
from kafka_ingest.offsets import listing
from kafka_ingest.planning.decide import KafkaAnswers, PlanDecision, decide, ranges_outside_log
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.submitting.pin_receipt import pin_first_valid_receipt

log = logging.getLogger(__name__)

TRIES = 5


class PlanResult(StrEnum):
    """What the plan task came to."""

    PLANNED = "planned"
    RESUMED = "resumed"
    NOTHING_NEW = "nothing_new"


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """The batch to work on, None where nothing is new; the decision, None where an open batch was handed on."""

    result: PlanResult
    batch: BatchPlan | None
    decision: PlanDecision | None


def plan_batch(
    settings: FeedPlanSettings, control: ControlTables, kafka: KafkaCluster, sinks: Sinks, *, who: str
) -> PlanOutcome:
    """Return the feed's open batch, a new one that is durable now, or nothing new.

    No transaction is open while Kafka or the sink is asked: what was read is checked again under the feed's lock, and the
    whole step starts over, a few times, where somebody else wrote meanwhile.
    """
    for _ in range(TRIES):
        feed = control.feed(settings.name)
        if feed is not None and feed.open_batch is not None:
            if hand_on(feed.open_batch, control, kafka, sinks, who=who):
                return PlanOutcome(PlanResult.RESUMED, feed.open_batch.plan, None)
            continue
        answers = ask(kafka, settings.topics)
        decision = decide(feed.cluster_id if feed else None, feed.stored if feed else {}, answers, settings)
        check_something_answered(decision)
        # Only now is anything made: a plan that is refused above leaves no trace.
        sink = sinks(settings)
        sink.prepare()
        target = feed or new_feed(settings, sink)
        plan = plan_of(decision, target.feed_id, settings) if decision.ranges else None
        try:
            control.record_plan(
                target,
                cluster_id=decision.cluster_id,
                topics=settings.topics,
                seeds=decision.seeds,
                plan=plan,
                who=who,
            )
        except FeedChangedError as error:
            log.info("%s", error)
            continue
        return PlanOutcome(PlanResult.PLANNED if plan else PlanResult.NOTHING_NEW, plan, decision)
    raise FeedChangedError(
        f"feed {settings.name}: somebody else wrote to it {TRIES} times while it was planned; try again"
    )


def check_something_answered(decision: PlanDecision) -> None:
    """Raise KafkaUnavailableError where Kafka could answer for no partition at all: that is not "nothing new"."""
    if decision.left_out and not decision.answered:
        reasons = listing(f"{tp}: {reason}" for tp, reason in sorted(decision.left_out.items()))
        raise KafkaUnavailableError(
            f"Kafka could answer for none of the feed's {len(decision.left_out):,} partitions: {reasons}. Nothing was planned; "
            "look at the brokers."
        )


def dry_run(settings: FeedPlanSettings, stored: FeedSnapshot | None, kafka: KafkaCluster) -> PlanDecision:
    """Return what the next plan would be if no batch is open; nothing is written."""
    answers = ask(kafka, settings.topics)
    return decide(stored.cluster_id if stored else None, stored.stored if stored else {}, answers, settings)


def ask(kafka: KafkaCluster, topics: Iterable[str]) -> KafkaAnswers:
    """Ask Kafka all that a decision needs, in bulk."""
    descriptions = kafka.describe_topics(list(topics))
    partitions = [tp for description in descriptions.values() for tp in description.topic_partitions()]
    return KafkaAnswers(cluster_id=kafka.cluster_id(), topics=descriptions, bounds=kafka.log_bounds(partitions))


def hand_on(batch: Batch, control: ControlTables, kafka: KafkaCluster, sinks: Sinks, *, who: str) -> bool:
    """Return whether an open batch can go on as it is; where it no longer fits the log, abandon it and return False.

    WRITTEN and COMMITTING go on without asking anybody. A PLANNED batch whose records are written already is pinned; only
    one that is not is held against the log, since its ranges will be read (again).
    """
    if batch.state is not BatchState.PLANNED:
        return True
    if pin_first_valid_receipt(batch, control, kafka, sinks, who=who):
        return True
    check_identity(batch.plan, kafka)
    partitions = [offset_range.topic_partition for offset_range in batch.plan.ranges]
    answers = KafkaAnswers(batch.plan.cluster_id, {}, kafka.log_bounds(partitions))
    if problems := ranges_outside_log(batch.plan.ranges, answers, batch.plan.isolation):
        reason = f"its ranges no longer fit the log: {listing(problems)}"
        # A Spark that ended while Kafka was asked may have written what the log has lost: look once more.
        if pin_first_valid_receipt(batch, control, kafka, sinks, who=who):
            return True
        try:
            control.abandon(batch.batch_id, only_from={BatchState.PLANNED}, reason=reason, who=who)
        except BatchStateError as error:
            log.info("%s", error)
        else:
            log.warning("batch %s is abandoned: %s", batch.batch_id, reason)
        return False
    # Kafka took its time: an operator may have abandoned the batch meanwhile.
    return control.batch(batch.batch_id).state.is_open


def new_feed(settings: FeedPlanSettings, sink: Sink) -> NewFeed:
    """Return the feed's new identity; raises OutputUnknownError where its output holds batches that nobody knows."""
    if known := sink.known_batches():
        raise OutputUnknownError(
            f"feed {settings.name} is new to the control tables, but its output {settings.output_path} already holds "
            f"{len(known):,} published batches (the newest is {known[-1]}). Reading again would write their records twice. "
            "Is this the right control database? Otherwise give the feed another sink.path."
        )
    return NewFeed(uuid6.uuid7(), settings.name)


def plan_of(decision: PlanDecision, feed_id: UUID, settings: FeedPlanSettings) -> BatchPlan:
    """Return the plan of a decision, with its time-ordered id."""
    topics = {offset_range.topic for offset_range in decision.ranges}
    partitions = {offset_range.topic_partition for offset_range in decision.ranges}
    return BatchPlan(
        batch_id=uuid6.uuid7(),
        kind=BatchKind.LIVE,
        feed_id=feed_id,
        feed_name=settings.name,
        cluster_id=decision.cluster_id,
        topic_ids={topic: decision.topic_ids[topic] for topic in sorted(topics)},
        ranges=decision.ranges,
        isolation=settings.isolation,
        offsets_policy=settings.offsets_policy,
        sink_format=settings.sink_format,
        output_path=settings.output_path,
        planned_at=datetime.now(UTC),
        capped=decision.capped,
        leader_epochs={tp: epoch for tp, epoch in decision.leader_epochs.items() if tp in partitions},
    )
