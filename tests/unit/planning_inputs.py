"""The inputs of the planning tests: Kafka's answers, a feed as it is stored, and the decision on both."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

from tests.fakes import CLUSTER, FEED_ID, SOME_DAY, TOPIC_ID, FakeTopic, feed_settings, partition

from kafka_ingest.model.control_rows import NEVER_PLANNED, FeedSnapshot
from kafka_ingest.model.gap import Gap, GapCause
from kafka_ingest.model.hold import Hold
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicDescription, TopicPartition, Unavailable
from kafka_ingest.planning.decide import PlanDecision, decide
from kafka_ingest.planning.settings import EndPositions
from kafka_ingest.planning.topics import KafkaAnswers

NO_LEADER = Unavailable("LEADER_NOT_AVAILABLE: no leader")
Stored = Mapping[TopicPartition, StoredOffset]


def answers(**topics: FakeTopic) -> KafkaAnswers:
    """Return what a cluster with these topics answers."""
    return answers_of(topics)


def answers_of(topics: Mapping[str, FakeTopic], *, cluster_id: str = CLUSTER, **asked: Any) -> KafkaAnswers:
    """Return what a cluster with these topics answers; ``asked`` is what it says beside its logs' bounds."""
    return KafkaAnswers(
        cluster_id=cluster_id,
        topics=described(**topics),
        bounds={
            TopicPartition(name, number): bounds
            for name, found in topics.items()
            for number, bounds in found.logs.items()
        },
        **asked,
    )


def described(**topics: FakeTopic) -> dict[str, TopicDescription]:
    """Return topics as Kafka describes them."""
    return {name: TopicDescription(name, found.topic_id, tuple(found.logs)) for name, found in topics.items()}


def stored(
    offsets: Mapping[int, int | None], *, of: str = "orders", **changes: Any
) -> dict[TopicPartition, StoredOffset]:
    """Return the stored offsets of a topic's partitions; None is a pending seed."""
    rows = [
        StoredOffset(partition(number, of), TOPIC_ID, None if offset is None else 0, offset, "earliest")
        for number, offset in offsets.items()
    ]
    return {row.topic_partition: replace(row, **changes) for row in rows}


def known_feed(rows: Stored, **changes: Any) -> FeedSnapshot:
    """Return a feed as its last plan left it: it read the topics that it has stored offsets of."""
    topics = sorted({topic_partition.topic for topic_partition in rows})
    return replace(FeedSnapshot(FEED_ID, "orders", CLUSTER, 1, topics, rows, None), **changes)


def ahead(*ranges: OffsetRange) -> list[Gap]:
    """Return gaps that an operator filed ahead of the stored offsets."""
    return [
        Gap(UUID(int=number), offset_range, TOPIC_ID, GapCause.SKIPPED, "poisoned", "operator", SOME_DAY, None)
        for number, offset_range in enumerate(ranges, start=1)
    ]


def decided(
    kafka: KafkaAnswers,
    rows: Stored | None = None,
    *,
    known_cluster_id: str | None = None,
    known: Mapping[str, Any] | None = None,
    now: datetime = SOME_DAY,
    end: EndPositions = None,
    **settings: Any,
) -> PlanDecision:
    """Decide for a feed of topic ``orders``, unless the settings say otherwise.

    ``known`` is what else is stored of it.
    """
    found = feed_settings(**settings)
    cluster_id = known_cluster_id or (CLUSTER if rows else None)
    feed = known_feed(rows or {}, cluster_id=cluster_id, **(known or {})) if cluster_id else NEVER_PLANNED
    return decide(feed, kafka, found, now=now, end=end)


def starting(rule: Any) -> dict[str, Any]:
    """Return the setting of a start rule for topic ``orders``."""
    return {"start_rules": {"orders": rule}}


def seeds_of(decision: PlanDecision) -> dict[TopicPartition, tuple[int | None, str]]:
    """Return where each new row begins, and by which rule."""
    return {seed.topic_partition: (seed.next_offset, seed.seeded_by) for seed in decision.seeds}


def rows_after(rows: Stored, decision: PlanDecision) -> dict[TopicPartition, StoredOffset]:
    """Return the stored offsets once the decision is recorded and its batch is committed."""
    after = dict(rows) | {seed.topic_partition: seed for seed in decision.seeds}
    moved = {jump.topic_partition: jump.to_offset for jump in decision.jumps}
    moved |= {planned.topic_partition: planned.end_offset for planned in decision.ranges}
    return after | {tp: replace(after[tp], next_offset=offset) for tp, offset in moved.items()}


def kinds_of(holds: Collection[Hold]) -> list[tuple[str, str, int | None]]:
    """Return what is held, why, and where."""
    return [(str(hold.topic_partition or hold.topic), hold.cause.value, hold.at_offset) for hold in holds]
