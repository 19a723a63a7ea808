"""``skip``: jump over an interval of offsets, and file it as a gap."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import BatchStateError, InvalidRangeError, KafkaUnavailableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.gap import DECIDED, Gap, GapCause, NewGap
from kafka_ingest.model.offsets import OffsetRange, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.read_again import overlap
from kafka_ingest.model.topics import check_cluster, check_topic_ids
from kafka_ingest.planning.settings import NewOrOlder, NewPartition
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.settings.run_request import OFFSET_RANGE, InForm, Text, range_named
from kafka_ingest.verbs.answer import Answer, Line, mirror_lines
from kafka_ingest.verbs.request import Argument, Call, Deciding, Needed, Request


class Skip(Request):
    """Jump over an interval of offsets and file it as a gap. FROM above the stored offset: read up to it, then jump."""

    verb = command = "skip"
    does = "jumps over offsets, and files them as a gap; or acknowledges an open gap"
    deciding = Deciding.REASON

    offset_range: Annotated[
        Text,
        InForm(
            "Offsets to skip",
            "TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1210. FROM is skipped, TO is the next to read.",
            "skip",
            {"pattern": OFFSET_RANGE},
        ),
        Needed("an offset range, such as orders:0=1200-1210,"),
    ] = None
    topic: Annotated[str, Argument(metavar="TOPIC")] = ""
    partition: Annotated[int, Field(ge=0), Argument(metavar="PARTITION")] = 0
    interval: Annotated[str, Argument("FROM is skipped, TO is the next to read.", "FROM-TO")] = ""

    def answer(self, call: Call) -> Answer:
        interval, parts, decided = self.interval_meant(), call.parts, call.decided
        parts.check_output_known()
        name = parts.feed.name
        reason = call.reason
        decision = decide_skip(name, interval, reason, parts.control, parts.kafka)
        gap_id, mirror_failure = None, None
        if decided is not None:
            gap_id = str(skip(decision, parts.control, actor=decided.actor).gap_id)
            mirror_failure = parts.mirror(actor=decided.actor).failure if decision.moves_stored_offset else None
        document = {
            "feed": name,
            "gap_id": gap_id,
            **interval.as_document(),
            "acknowledges_gap": decision.acknowledged is not None,
            "moves_stored_offset_now": decision.moves_stored_offset,
            "executed": decided is not None,
            "mirror_failure": mirror_failure,
        }
        lines = [Line(sentence(interval, decision, executed=decided is not None)), *mirror_lines(mirror_failure)]
        return Answer(document, lines, only_shown=decided is None)

    def interval_meant(self) -> OffsetRange:
        if self.offset_range is not None:
            return range_named(self.offset_range)
        return interval_of(TopicPartition(self.topic, self.partition), self.interval)


@dataclass(frozen=True, slots=True)
class SkipDecision:
    """The gap to file, and the row of a partition that no plan could seed because its first records were deleted.

    ``acknowledged``: the open gap that has these offsets already, and stays.
    """

    feed: FeedSnapshot
    gap: NewGap
    seed: StoredOffset | None
    acknowledged: Gap | None = None

    @property
    def moves_stored_offset(self) -> bool:
        """Whether the stored offset is moved now; otherwise the plan that gets there moves it."""
        if self.acknowledged is not None:
            return False
        return self.seed is not None or self.stored.next_offset == self.gap.offset_range.start_offset

    @property
    def stored(self) -> StoredOffset:
        return self.seed or self.feed.stored[self.gap.offset_range.topic_partition]


def decide_skip(
    feed_name: str, offset_range: OffsetRange, reason: str, control: OperatorTables, kafka: KafkaCluster
) -> SkipDecision:
    """Return the result of skipping an interval; nothing is written.

    Raises InvalidRangeError where the interval cannot be skipped any more, BatchStateError where an open batch reads
    it, and what planning raises where the cluster or the topic id has changed.
    """
    feed = known_feed(control, feed_name)
    topic_partition, start, end = offset_range.topic_partition, offset_range.start_offset, offset_range.end_offset
    if not offset_range.span:
        raise InvalidRangeError(f"expected FROM-TO with FROM below TO, found {start}-{end}")
    rows = {row.topic_partition: row for row in feed.stored.values() if row.topic_partition.topic == offset_range.topic}
    if not rows:
        raise InvalidRangeError(f"feed {feed_name} has no stored offsets of topic {offset_range.topic!r}")
    topic_id = next(iter(rows.values())).topic_id
    for gap in control.gaps(feed.feed_id):
        if gap.is_open and gap.cause not in DECIDED and gap.offset_range == offset_range:
            return SkipDecision(feed, NewGap(offset_range, GapCause.SKIPPED, reason), None, acknowledged=gap)

    check_cluster(feed.cluster_id, kafka.cluster_id(), feed_name)
    described = kafka.describe_topics([offset_range.topic])
    check_topic_ids({offset_range.topic: topic_id}, described, feed_name)
    if topic_partition.partition not in described[offset_range.topic].partitions:
        raise InvalidRangeError(
            f"topic {offset_range.topic!r} has "
            f"{counted(len(described[offset_range.topic].partitions), 'partition')}, found "
            f"number {topic_partition.partition}. Nothing was changed."
        )
    bounds = kafka.log_bounds([topic_partition])[topic_partition]
    if isinstance(bounds, Unavailable):
        raise KafkaUnavailableError(
            f"{topic_partition}: Kafka cannot report now where its log ends ({bounds.reason}), so it is unknown "
            f"whether {start}-{end} is inside. Nothing was changed."
        )
    if end > bounds.high_watermark:
        raise InvalidRangeError(
            f"{topic_partition}: expected TO up to the log's end {bounds.high_watermark:,}, found {end:,}: records "
            "that were never written cannot be skipped. Nothing was changed."
        )

    row = rows.get(topic_partition)
    is_new = row is None or (row.is_pending and row.seeded_by == str(NewPartition()))
    seed = StoredOffset(topic_partition, topic_id, 0, 0, str(NewPartition())) if is_new else None
    stored = seed or rows[topic_partition]
    if stored.next_offset is None:
        is_undecided = NewOrOlder.noted(stored.seeded_by) is not None
        decide = (
            f"`kafka-ingest topic-changed {feed_name} --topic {topic_partition.topic}` decides it"
            if is_undecided
            else ""
        )
        raise InvalidRangeError(
            f"{topic_partition}: its start is not decided yet ({stored.seeded_by}); {decide or 'plan the feed first'}"
        )
    if start < stored.next_offset or (seed is not None and start):
        why = ", where a new partition begins" if seed else ": offsets below it were read or skipped already"
        raise InvalidRangeError(
            f"{topic_partition}: expected FROM at or above the stored offset {stored.next_offset:,}{why}, found "
            f"{start:,}. Nothing was changed."
        )
    check_free(feed, offset_range)
    return SkipDecision(feed, NewGap(offset_range, GapCause.SKIPPED, reason), seed)


def check_free(feed: FeedSnapshot, wanted: OffsetRange) -> None:
    batch = feed.open_batch
    for planned in batch.plan.ranges if batch is not None else ():
        if planned.topic_partition == wanted.topic_partition and overlap(planned, wanted):
            raise BatchStateError(
                f"{wanted} overlaps {planned} of open batch {batch.batch_id if batch else ''}. Finish that batch (run "
                "the feed), or abandon it, then skip. Nothing was changed."
            )
    for gap in feed.gaps_ahead:
        if gap.offset_range.topic_partition == wanted.topic_partition and overlap(gap.offset_range, wanted):
            raise InvalidRangeError(
                f"{wanted} overlaps {gap.offset_range}, which is a gap already ({gap.reason}). Nothing was changed."
            )


def skip(decision: SkipDecision, control: OperatorTables, *, actor: str) -> Gap:
    """File the gap, or acknowledge it; raises FeedChangedError where the feed changed since it was decided."""
    if decision.acknowledged is not None:
        control.acknowledge_gap(decision.feed, decision.acknowledged, decision.gap.reason, actor=actor)
        return decision.acknowledged
    return control.file_gap(decision.feed, decision.gap, seed=decision.seed, actor=actor)


def interval_of(topic_partition: TopicPartition, text: str) -> OffsetRange:
    start, dash, end = text.replace(",", "").replace("_", "").partition("-")
    if not (text.isascii() and dash and start.isdecimal() and end.isdecimal() and int(start) < int(end)):
        raise InvalidRangeError(f"expected FROM-TO with FROM below TO, such as 1200-1210, found {text!r}")
    return OffsetRange(topic_partition, int(start), int(end))


def sentence(interval: OffsetRange, decision: SkipDecision, *, executed: bool) -> str:
    if decision.acknowledged is not None:
        did = "acknowledged" if executed else "would acknowledge"
        why = f"{decision.acknowledged.cause.value}: {decision.acknowledged.reason}"
        return (
            f"{did} gap {interval}, {counted(interval.span, 'offset')} ({why}); it stays, and a backfill can "
            f"still read it"
        )
    if not decision.moves_stored_offset:
        moved = f"reading continues up to {interval.start_offset:,}, then jumps"
    elif executed:
        moved = f"the stored offset is now {interval.end_offset:,}"
    else:
        moved = f"the stored offset would move to {interval.end_offset:,}"
    return f"{'filed' if executed else 'would file'} gap {interval}, {counted(interval.span, 'offset')}; {moved}"
