"""A feed's status: stored offsets next to Kafka's answers. With the broker down, the stored offsets are still shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_ingest.errors import OperatorDecisionError, RetryableError, WrongClusterError, WrongUseError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import AttemptState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.hold import OF_WHOLE_TOPICS, Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, TopicPartition, Unavailable, listing
from kafka_ingest.model.summaries import NONE_LEFT_OUT, NotRows
from kafka_ingest.model.topics import check_cluster, check_topic_ids, is_other_topic
from kafka_ingest.model.waiting import LowHeadroom, in_danger
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlObserver


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition: offsets are None where Kafka did not answer, ``unavailable`` then says why.

    ``holds`` are what the last plan found, with since when; ``gaps`` are those that are not closed. ``is_read``: the
    last plan took its topic for the feed's.
    """

    stored: StoredOffset
    rows: int
    bounds: LogBounds | None
    unavailable: str | None
    group_offset: int | None
    isolation: Isolation
    holds: tuple[Hold, ...] = ()
    gaps: tuple[Gap, ...] = ()
    is_read: bool = True

    @property
    def open_transaction(self) -> int | None:
        if self.bounds is None or self.isolation is not Isolation.READ_COMMITTED:
            return None
        return self.bounds.high_watermark - self.bounds.last_stable_offset or None

    @property
    def drift(self) -> int | None:
        """How far the consumer group stands ahead of the stored offset; negative behind it."""
        if self.group_offset is None or self.stored.next_offset is None:
            return None
        return self.group_offset - self.stored.next_offset

    @property
    def gap_offsets(self) -> int:
        return sum(gap.offset_range.span for gap in self.gaps)

    def held_since(self, cause: HoldCause, at_offset: int | None = None) -> str | None:
        """Return since when a plan knows of a hold; None where no plan has come across it yet."""
        for hold in self.holds:
            if hold.cause is cause and at_offset in {None, hold.at_offset}:
                return hold.since.isoformat()
        return None

    @property
    def lag(self) -> int | None:
        """How many offsets can be read now; None where no plan reads the partition."""
        if self.bounds is None or self.stored.next_offset is None or not self.is_read:
            return None
        begin = max(self.stored.next_offset, self.bounds.log_start_offset)
        return max(0, self.bounds.readable_end(self.isolation) - begin)

    @property
    def lost(self) -> int | None:
        return None if self.headroom is None else max(0, -self.headroom)

    @property
    def is_beyond_log(self) -> bool:
        return (
            self.bounds is not None
            and self.stored.next_offset is not None
            and self.stored.next_offset > self.bounds.high_watermark
        )

    @property
    def headroom(self) -> int | None:
        """How many offsets are between the log start and the stored offset: how far retention is away."""
        if self.bounds is None or self.stored.next_offset is None:
            return None
        return self.stored.next_offset - self.bounds.log_start_offset

    def as_document(self) -> dict[str, Any]:
        bounds = self.bounds
        ends = ("log_start_offset", "last_stable_offset", "high_watermark")
        own = ("lag", "headroom", "lost", "is_read", "group_offset", "rows", "gaps")
        return {
            **document_of(self.stored, "topic_partition", "topic_id", "first_offset", "seeded_by"),
            "stored_offset": self.stored.next_offset,
            **(document_of(bounds, *ends) if bounds else dict.fromkeys(ends)),
            **document_of(self, *own),
            "group_drift": self.drift,
            "unavailable": self._unavailable(),
            "open_transaction": self._open_transaction(),
            "unreadable": self._held(HoldCause.UNREADABLE),
            "beyond_log": self._held(HoldCause.BEYOND_LOG),
            "offsets_lost": self._held(HoldCause.OFFSETS_LOST),
        }

    def _held(self, cause: HoldCause) -> dict[str, Any] | None:
        for hold in self.holds:
            if hold.cause is cause:
                return document_of(hold, "at_offset", "reason", "since")
        return None

    def _unavailable(self) -> dict[str, Any] | None:
        if self.unavailable is not None:
            return {"reason": self.unavailable, "since": self.held_since(HoldCause.NO_ANSWER)}
        # The log answers now; what its start rule asked for may still have no answer.
        for hold in self.holds if self.stored.is_pending else ():
            if hold.cause in {HoldCause.NO_ANSWER, HoldCause.NEW_OR_OLDER}:
                return document_of(hold, "reason", "since")
        return None

    def _open_transaction(self) -> dict[str, Any] | None:
        if self.bounds is None or self.open_transaction is None:
            return None
        at_offset = self.bounds.last_stable_offset
        since = self.held_since(HoldCause.OPEN_TRANSACTION, at_offset)
        return {"at_offset": at_offset, "offsets_behind_it": self.open_transaction, "since": since}


@dataclass(frozen=True, slots=True)
class TopicProblem:
    """A topic that is missing, or not the one that the stored offsets belong to: its numbers would mislead."""

    topic: str
    reason: str
    hold: Hold | None = None

    def as_document(self) -> dict[str, Any]:
        hold = self.hold
        held = ("cause", "since")
        return document_of(self, "topic", "reason") | (document_of(hold, *held) if hold else dict.fromkeys(held))


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """One feed: its partitions and its open batch. ``kafka_error`` says why Kafka's columns are empty."""

    feed: str
    cluster_id: str | None
    group: str | None
    open_batch: Mapping[str, Any] | None
    partitions: tuple[PartitionStatus, ...]
    kafka_error: str | None
    topic_problems: tuple[TopicProblem, ...] = ()
    waiting_since: datetime | None = None
    holds: tuple[Hold, ...] = ()
    not_rows: NotRows = NONE_LEFT_OUT

    def as_document(self) -> dict[str, Any]:
        document = document_of(self)
        error, topics = document.pop("kafka_error"), document.pop("topic_problems")
        return {**document, "kafka": {"error": error} if error else None, "topics": topics}


def feed_status(
    name: str, control: ControlObserver, kafka: KafkaCluster, *, group: str | None, isolation: Isolation
) -> FeedStatus:
    snapshot = control.feed(name)
    if snapshot is None:
        return FeedStatus(name, None, group, None, (), None)
    return status_of(snapshot, control, ask(snapshot, kafka, group), group=group, isolation=isolation)


def status_of(
    snapshot: FeedSnapshot, control: ControlObserver, answers: "Answers", *, group: str | None, isolation: Isolation
) -> FeedStatus:
    """Return the status of a feed that was planned, with Kafka's answers about the same control rows."""
    rows = control.rows_by_partition(snapshot.feed_id)
    not_closed = (gap for gap in control.gaps(snapshot.feed_id) if gap.closed_by_batch is None)
    gaps = grouped((gap.offset_range.topic_partition, gap) for gap in not_closed)
    holds = grouped((hold.topic_partition, hold) for hold in snapshot.holds)
    return FeedStatus(
        feed=snapshot.name,
        cluster_id=snapshot.cluster_id,
        group=group,
        open_batch=open_batch(snapshot, control),
        partitions=tuple(
            PartitionStatus(
                stored=stored,
                rows=rows.get(topic_partition, 0),
                bounds=found if isinstance(found, LogBounds) else None,
                unavailable=found.reason if isinstance(found, Unavailable) else None,
                group_offset=answers.group_offsets.get(topic_partition),
                isolation=isolation,
                holds=tuple(holds.get(topic_partition, ())),
                is_read=topic_partition.topic in snapshot.topics,
                gaps=tuple(gap for gap in gaps.get(topic_partition, ()) if gap.topic_id in {None, stored.topic_id}),
            )
            for topic_partition, stored in snapshot.stored.items()
            for found in [answers.bounds.get(topic_partition)]
        ),
        kafka_error=answers.error,
        topic_problems=tuple(answers.topic_problems),
        waiting_since=snapshot.waiting_since,
        holds=tuple(snapshot.holds),
        not_rows=control.not_rows(snapshot.feed_id),
    )


@dataclass(slots=True)
class Answers:
    """Kafka's answers, or the error that says why there are none; which cluster, and which topics, they are about."""

    cluster_id: str | None = None
    topic_ids: dict[str, str | None] = field(default_factory=dict)
    bounds: dict[TopicPartition, LogBounds | Unavailable] = field(default_factory=dict)
    group_offsets: dict[TopicPartition, int | None] = field(default_factory=dict)
    topic_problems: list[TopicProblem] = field(default_factory=list)
    error: str | None = None


def ask(snapshot: FeedSnapshot, kafka: KafkaCluster, group: str | None) -> Answers:
    """Return Kafka's answers; those about a recreated topic are left out, since they would mislead."""
    answers = Answers()
    ids = {topic_partition.topic: row.topic_id for topic_partition, row in snapshot.stored.items()}
    held = {hold.topic: hold for hold in snapshot.holds if hold.cause in OF_WHOLE_TOPICS}
    try:
        answers.cluster_id = kafka.cluster_id()
        check_cluster(snapshot.cluster_id, answers.cluster_id, snapshot.name)
        described = kafka.describe_topics(ids.keys())
        answers.topic_ids = {name: topic.topic_id for name, topic in described.items()}
        for topic, topic_id in sorted(ids.items()):
            try:
                check_topic_ids({topic: topic_id}, described, snapshot.name)
                new = set(described[topic].topic_partitions()) - snapshot.stored.keys()
                if new and topic in snapshot.topics:
                    reason = f"{listing(sorted(new))} came after the last plan; the next one begins there at offset 0"
                    answers.topic_problems.append(TopicProblem(topic, reason))
            except OperatorDecisionError as error:
                answers.topic_problems.append(TopicProblem(topic, str(error), held.get(topic)))
                partitions = [tp for tp in snapshot.stored if tp.topic == topic]
                answers.bounds |= dict.fromkeys(partitions, Unavailable(f"{error.code}: see its topic"))
        answers.topic_problems += [
            TopicProblem(hold.topic, hold.reason, hold) for hold in held.values() if hold.topic not in ids
        ]
        asked = [topic_partition for topic_partition in snapshot.stored if topic_partition not in answers.bounds]
        answers.bounds |= kafka.log_bounds(asked)
        if group is not None:
            answers.group_offsets = kafka.group_offsets(group, snapshot.stored.keys())
    except (RetryableError, WrongUseError, WrongClusterError) as error:
        answers.error = str(error)
    return answers


def open_batch(snapshot: FeedSnapshot, control: ControlObserver) -> dict[str, Any] | None:
    """Return the feed's open batch as it is shown; its attempt is the pinned one, or the newest.

    ``discarded`` says why what that attempt had written is not used: the batch is to be written again.
    """
    batch = snapshot.open_batch
    if batch is None:
        return None
    attempts = control.attempts(batch.batch_id)
    is_discarded = bool(attempts) and attempts[-1].state is AttemptState.DISCARDED
    return {
        "batch_id": str(batch.batch_id),
        "state": batch.state.value,
        "attempt": batch.pinned_attempt or (attempts[-1].attempt if attempts else None),
        "since": batch.updated_at.isoformat(),
        "discarded": attempts[-1].reason if is_discarded else None,
    }


def low_headroom(feed: FeedSnapshot, kafka: KafkaCluster, isolation: Isolation) -> list[LowHeadroom]:
    """Ask Kafka; return the partitions in danger: none where nothing was ever deleted, or there is nothing to read.

    A recreated topic is left out: its offsets mean other records. A quiet topic whose log was emptied by retention is
    reported once it has new records. Raises WrongClusterError, KafkaUnavailableError.
    """
    check_cluster(feed.cluster_id, kafka.cluster_id(), feed.name)
    described = kafka.describe_topics(feed.topics)
    asked = [
        row
        for tp, row in feed.stored.items()
        if not row.is_pending
        and tp.topic in described
        and not is_other_topic(row.topic_id, described[tp.topic].topic_id)
    ]
    return in_danger(asked, kafka.log_bounds([row.topic_partition for row in asked]), isolation)
