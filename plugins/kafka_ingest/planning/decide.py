"""Decide: stored offsets, Kafka's answers and the feed's settings in; seeds and ranges out, or a named error. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_ingest.errors import (
    OffsetsLostError,
    StartOutsideLogError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    UnknownTopicError,
)
from kafka_ingest.identity import check_cluster, check_topic_id
from kafka_ingest.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
    listing,
)
from kafka_ingest.planning.limits import share_fairly
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import AtOffsets, NewPartition, StartRule, rule_of_note


@dataclass(frozen=True, slots=True)
class KafkaAnswers:
    """What Kafka said when it was asked for this plan. A topic it does not have is not in ``topics``."""

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]


@dataclass(frozen=True, slots=True)
class PlanDecision:
    """What to write down: seeds of partitions without a stored offset, and the ranges of the batch, none if nothing is new.

    ``left_out`` says why a partition takes no part although it should: Kafka cannot answer for it now.
    ``answered`` counts the partitions it did answer for. ``capped`` says whether a limit left records behind that could be
    read at once.
    """

    cluster_id: str
    topic_ids: Mapping[str, str | None]
    seeds: tuple[StoredOffset, ...]
    ranges: tuple[OffsetRange, ...]
    leader_epochs: Mapping[TopicPartition, int]
    capped: bool
    answered: int
    left_out: Mapping[TopicPartition, str] = field(default_factory=dict)


def decide(
    known_cluster_id: str | None,
    stored: Mapping[TopicPartition, StoredOffset],
    answers: KafkaAnswers,
    settings: FeedPlanSettings,
) -> PlanDecision:
    """Return the seeds and ranges of the feed's next batch.

    Stored offsets always win; the start rule counts only where there is none. ``stored`` may hold partitions of topics
    that the feed no longer names: they keep their rows and take no part.
    """
    check_cluster(known_cluster_id, answers.cluster_id, settings.name)
    check_topics(stored, answers, settings)

    left_out: dict[TopicPartition, str] = {}
    seeds: list[StoredOffset] = []
    positions: dict[TopicPartition, tuple[int, LogBounds]] = {}
    # A topic keeps the identity its first row was stored with, also where that is "not known": the commit compares it.
    known_ids = {topic_partition.topic: row.topic_id for topic_partition, row in stored.items()}
    topic_ids = {topic: known_ids.get(topic, answers.topics[topic].topic_id) for topic in settings.topics}
    for topic in settings.topics:
        description = answers.topics[topic]
        first_rule = NewPartition() if topic in known_ids else settings.start_rules[topic]
        for topic_partition in description.topic_partitions():
            row = stored.get(topic_partition)
            bounds = answers.bounds[topic_partition]
            if isinstance(bounds, Unavailable):
                left_out[topic_partition] = bounds.reason
                if row is None:
                    seeds.append(pending_seed(topic_partition, topic_ids[topic], first_rule))
                continue
            if row is None or row.next_offset is None:
                rule = first_rule if row is None else rule_of_note(row.seeded_by)
                offset = rule.resolve(topic_partition, bounds, settings.isolation)
                seeds.append(
                    StoredOffset(
                        topic_partition,
                        topic_ids[topic],
                        offset,
                        offset,
                        rule.note(topic_partition),
                        bounds.leader_epoch,
                    )
                )
            else:
                offset = row.next_offset
            positions[topic_partition] = (offset, bounds)

    check_positions(positions, answers.cluster_id)
    ranges, capped = cut_ranges(positions, settings)
    return PlanDecision(
        cluster_id=answers.cluster_id,
        topic_ids=topic_ids,
        seeds=tuple(seeds),
        ranges=ranges,
        leader_epochs={
            topic_partition: bounds.leader_epoch
            for topic_partition, (_, bounds) in positions.items()
            if bounds.leader_epoch is not None
        },
        capped=capped,
        answered=len(positions),
        left_out=left_out,
    )


def check_topics(
    stored: Mapping[TopicPartition, StoredOffset], answers: KafkaAnswers, settings: FeedPlanSettings
) -> None:
    """Raise where a topic or partition is not there, or is not the one the stored offsets were counted in."""
    for topic in settings.topics:
        rows = [row for topic_partition, row in stored.items() if topic_partition.topic == topic]
        description = answers.topics.get(topic)
        if description is None and not rows:
            raise UnknownTopicError(
                f"feed {settings.name}: topic {topic!r} does not exist on cluster {answers.cluster_id}. "
                "Create it, or correct kafka.topics in the feed file."
            )
        if description is None:
            raise TopicGoneError(
                f"feed {settings.name}: topic {topic!r} has stored offsets for {len(rows):,} partitions, but cluster "
                f"{answers.cluster_id} has no such topic any more. Create it again only if its records may start over; "
                "otherwise take it out of kafka.topics."
            )
        if not rows:
            check_named_partitions(settings.start_rules[topic], description)
        for row in rows:
            check_topic_id(topic, row.topic_id, description.topic_id)
        partitions = set(description.partitions)
        gone = sorted(row.topic_partition for row in rows if row.topic_partition.partition not in partitions)
        if gone:
            raise TopicGoneError(
                f"feed {settings.name}: {listing(gone)} have stored offsets, but topic {topic!r} has only "
                f"{len(partitions):,} partitions now. Partitions never go away while a topic lives: it was made again."
            )


def check_named_partitions(rule: StartRule, description: TopicDescription) -> None:
    """Raise where a start rule names a partition that its topic does not have."""
    if isinstance(rule, AtOffsets) and (unknown := sorted(rule.offsets.keys() - set(description.partitions))):
        raise StartOutsideLogError(
            f"the feed's start names {listing(TopicPartition(description.topic, number) for number in unknown)}, but topic "
            f"{description.topic!r} has partitions 0 to {len(description.partitions) - 1}. Correct the feed's start.offsets."
        )


def check_positions(positions: Mapping[TopicPartition, tuple[int, LogBounds]], cluster_id: str) -> None:
    """Raise where a position lies outside its log, naming every such partition with both numbers."""
    lost = [
        f"{topic_partition}: stored offset {offset:,}, log start {bounds.log_start_offset:,} "
        f"({bounds.log_start_offset - offset:,} records gone)"
        for topic_partition, (offset, bounds) in sorted(positions.items())
        if offset < bounds.log_start_offset
    ]
    if lost:
        raise OffsetsLostError(
            f"records were deleted by retention before they were read (cluster {cluster_id}): {listing(lost)}. "
            "Nothing was planned and no offset moved (on_data_loss: fail)."
        )
    beyond = [
        f"{topic_partition}: stored offset {offset:,}, log end {bounds.high_watermark:,}"
        for topic_partition, (offset, bounds) in sorted(positions.items())
        if offset > bounds.high_watermark
    ]
    if beyond:
        raise StoredOffsetBeyondLogError(
            f"stored offsets lie beyond the end of the log (cluster {cluster_id}): {listing(beyond)}. The log was truncated, "
            "or this is not the cluster they were read from. Nothing was planned; offsets are never rewound silently."
        )


def cut_ranges(
    positions: Mapping[TopicPartition, tuple[int, LogBounds]], settings: FeedPlanSettings
) -> tuple[tuple[OffsetRange, ...], bool]:
    """Return the non-empty ranges within the feed's limits, sorted, and whether the limits left records behind."""
    # A stored offset above the LSO (an open transaction, a feed that changed its isolation) has nothing to read yet.
    lags = {
        topic_partition: max(0, bounds.readable_end(settings.isolation) - offset)
        for topic_partition, (offset, bounds) in positions.items()
    }
    headroom = {
        topic_partition: offset - bounds.log_start_offset for topic_partition, (offset, bounds) in positions.items()
    }
    shares = share_fairly(lags, headroom, settings.max_records, settings.max_records_per_partition)
    ranges = tuple(
        OffsetRange(topic_partition, positions[topic_partition][0], positions[topic_partition][0] + share)
        for topic_partition, share in sorted(shares.items())
    )
    return ranges, sum(shares.values()) < sum(lags.values())


def ranges_outside_log(ranges: tuple[OffsetRange, ...], answers: KafkaAnswers, isolation: Isolation) -> list[str]:
    """Return which of a plan's ranges can no longer be read, and why; partitions Kafka cannot answer for are not judged."""
    problems: list[str] = []
    for offset_range in ranges:
        bounds = answers.bounds[offset_range.topic_partition]
        if isinstance(bounds, Unavailable):
            continue
        if offset_range.start_offset < bounds.log_start_offset:
            problems.append(f"{offset_range} begins below the log start {bounds.log_start_offset:,}")
        elif offset_range.end_offset > bounds.readable_end(isolation):
            problems.append(f"{offset_range} ends above the log end {bounds.readable_end(isolation):,}")
    return problems


def pending_seed(topic_partition: TopicPartition, topic_id: str | None, rule: StartRule | NewPartition) -> StoredOffset:
    """Return the row of a partition whose start Kafka cannot say yet; it counts as known from now on."""
    return StoredOffset(topic_partition, topic_id, None, None, rule.note(topic_partition))
