"""Which partitions a reset covers, and the offset that its target resolves to in each."""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from kafka_ingest.batches.ask_kafka import counted, cut_off_at
from kafka_ingest.errors import (
    BatchStateError,
    InvalidRangeError,
    KafkaUnavailableError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    WrongUseError,
)
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.identity import check_cluster, check_topic_ids
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable, listing
from kafka_ingest.planning.held_partitions import held_beyond_log
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.verbs.reset_target import (
    NewPosition,
    Place,
    ResetTarget,
    ToBatch,
    ToGroup,
    ToOffsets,
    ToTimestamp,
    cut_to_log,
)

Answer = TypeVar("Answer")


def partitions_meant(
    feed: FeedSnapshot, named: Mapping[str, Collection[int]], target: ResetTarget, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return the stored offsets that a reset is about: those named, or all of the topics that the feed selects now.

    Raises InvalidRangeError where a topic or partition has none.
    """
    named = target.partitions if isinstance(target, ToOffsets) else named
    of_topic: dict[str, dict[int, StoredOffset]] = {}
    for tp, row in feed.stored.items():
        of_topic.setdefault(tp.topic, {})[tp.partition] = row
    topics = sorted(named or (topic for topic in of_topic if settings.selects(topic)))
    unknown = [topic for topic in topics if topic not in of_topic]
    if unknown or not topics:
        raise InvalidRangeError(
            f"feed {feed.name}: expected topics with stored offsets, which are "
            f"{listing(sorted(of_topic)) or 'none yet'}; found "
            f"{listing(unknown) or 'that the feed file selects none of them'}. Nothing was changed."
        )
    for topic in topics:
        if missing := sorted(set(named.get(topic, ())) - of_topic[topic].keys()):
            raise InvalidRangeError(
                f"feed {feed.name}: expected partitions of topic {topic!r} with stored offsets, which are "
                f"{listing(sorted(of_topic[topic]), limit=20)}; found {listing(missing)}. Nothing was changed."
            )
    return [of_topic[topic][number] for topic in topics for number in sorted(named.get(topic) or of_topic[topic])]


def new_positions(
    target: ResetTarget,
    meant: Sequence[StoredOffset],
    feed: FeedSnapshot,
    isolation: Isolation,
    control: ControlReader,
    kafka: KafkaCluster,
) -> dict[TopicPartition, NewPosition]:
    """Return where each partition would go; nothing is written.

    The group is read before the logs, so that a group that advances in between is not beyond them, and the offsets at a
    time after them, so that a record that arrives in between is read, not skipped.
    """
    rows = {row.topic_partition: row.next_offset for row in meant if row.next_offset is not None}
    check_identity([row for row in meant if not row.is_pending], feed, kafka)
    batch_starts = starts_of_batch(target, feed, control) if isinstance(target, ToBatch) else {}
    group_offsets = kafka.group_offsets(target.group, rows.keys()) if isinstance(target, ToGroup) else {}
    bounds = bounds_of(rows, feed, kafka)
    at_time = dict.fromkeys(rows, target.timestamp) if isinstance(target, ToTimestamp) else {}
    offsets_at = all_answered(kafka.offsets_at(at_time)) if at_time else {}
    places = {
        tp: Place(
            topic_partition=tp,
            stored_offset=stored_offset,
            log_start_offset=bounds[tp].log_start_offset,
            # A stored offset may be above an open transaction, where no reader can see: latest never means back.
            end_offset=max(bounds[tp].readable_end(isolation), stored_offset),
            offset_at=offsets_at.get(tp),
            group_offset=group_offsets.get(tp),
            batch_start=batch_starts.get(tp),
        )
        for tp, stored_offset in rows.items()
    }
    check_places(target, places)
    pending = {
        row.topic_partition: NewPosition(None, f"start pending: {row.seeded_by}") for row in meant if row.is_pending
    }
    return pending | {tp: cut_to_log(target.resolve(place), place) for tp, place in places.items()}


def check_identity(rows: Collection[StoredOffset], feed: FeedSnapshot, kafka: KafkaCluster) -> None:
    """Raise where offsets do not mean the records any more that they were counted in."""
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    topic_ids = {row.topic_partition.topic: row.topic_id for row in rows}
    described = kafka.describe_topics(topic_ids.keys())
    check_topic_ids(topic_ids, described, feed.name)
    there = {tp for description in described.values() for tp in description.topic_partitions()}
    if gone := [row.topic_partition for row in rows if row.topic_partition not in there]:
        raise TopicGoneError(
            f"feed {feed.name}: partitions {listing(gone)} do not exist any more. Nothing was changed; `kafka-ingest "
            f"topic-changed {feed.name}` shows what can be done."
        )


def bounds_of(
    rows: Mapping[TopicPartition, int], feed: FeedSnapshot, kafka: KafkaCluster
) -> dict[TopicPartition, LogBounds]:
    """Return the logs' bounds; raises where Kafka has none for a partition, or a stored offset is beyond its log."""
    bounds = all_answered(kafka.log_bounds(rows.keys()))
    cut_off = all_answered(cut_off_at(counted(feed.stored[tp] for tp in rows), bounds, kafka))
    held = held_beyond_log(feed).keys() | cut_off.keys()
    beyond = [
        f"{tp}: stored offset {stored_offset:,}, log end {bounds[tp].high_watermark:,}"
        for tp, stored_offset in rows.items()
        if tp in held or stored_offset > bounds[tp].high_watermark
    ]
    if beyond:
        raise StoredOffsetBeyondLogError(
            f"feed {feed.name}: logs ended below their stored offsets, so they hold other records there now: "
            f"{listing(beyond)}. A reset cannot decide that; `kafka-ingest topic-changed {feed.name}` shows what can "
            "be done. Nothing was changed."
        )
    return bounds


def all_answered(answers: Mapping[TopicPartition, Answer | Unavailable]) -> dict[TopicPartition, Answer]:
    """Return Kafka's answers; raises KafkaUnavailableError where it cannot answer for a partition now."""
    found = {tp: answer for tp, answer in answers.items() if not isinstance(answer, Unavailable)}
    if len(found) < len(answers):
        silent = [
            f"{tp} ({answer.reason})" for tp, answer in sorted(answers.items()) if isinstance(answer, Unavailable)
        ]
        raise KafkaUnavailableError(
            f"Kafka cannot answer now for {listing(silent)}. Nothing was changed: try again, or name the other "
            "partitions."
        )
    return found


def starts_of_batch(target: ToBatch, feed: FeedSnapshot, control: ControlReader) -> dict[TopicPartition, int]:
    """Return where a batch and those after it began; raises where it is not a committed live batch of the feed."""
    batch = control.batch(target.batch_id)
    if batch.plan.feed_id != feed.feed_id or batch.plan.kind is not BatchKind.LIVE:
        raise WrongUseError(
            f"expected a live batch of feed {feed.name}, found {target.batch_id}, a {batch.plan.kind} batch of feed "
            f"{batch.feed_name}; `kafka-ingest batches {feed.name}` lists them. Nothing was changed."
        )
    if batch.state is not BatchState.COMMITTED:
        raise BatchStateError(
            f"expected a COMMITTED batch to go back to, found {target.batch_id}, which is {batch.state}: it moved no "
            f"stored offset. `kafka-ingest batches {feed.name}` lists others. Nothing was changed."
        )
    return control.starts_since(target.batch_id)


def check_places(target: ResetTarget, places: Mapping[TopicPartition, Place]) -> None:
    if isinstance(target, ToGroup) and (silent := [tp for tp, place in places.items() if place.group_offset is None]):
        raise InvalidRangeError(
            f"expected consumer group {target.group!r} to have offsets of all partitions that are reset, found none of "
            f"{listing(silent)}. Name the other topics or partitions. Nothing was changed."
        )
    if not isinstance(target, ToOffsets):
        return
    outside = [
        f"{tp}: expected {place.log_start_offset:,} to {place.end_offset:,}, found {target.offsets[tp]:,}"
        for tp, place in places.items()
        if not place.log_start_offset <= target.offsets[tp] <= place.end_offset
    ]
    if outside:
        raise InvalidRangeError(f"expected offsets that can be read, found {listing(outside)}. Nothing was changed.")
