"""The audited way out when a feed stopped because its stored offsets mean other records: another cluster, topic or log."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kafka_ingest.batch import AttemptState, Batch, BatchState, sha256
from kafka_ingest.boundaries import FeedSnapshot, KafkaCluster, OperatorTables, Sinks, StartOver
from kafka_ingest.errors import BatchStateError, InvalidReceiptError, WrongUseError
from kafka_ingest.offsets import LogBounds, StoredOffset, TopicDescription, TopicPartition, listing
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.planning.held_partitions import held_beyond_log
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import rule_of_partition
from kafka_ingest.submitting.pin_receipt import valid_receipt


class Choice(StrEnum):
    """What an operator can say of a topic that changed."""

    START_OVER = "start-over"
    """Other records: read a topic that was made again from its first offset, a log that was truncated from where it ended;
    after a change of cluster by the feed's start rule."""

    SAME_RECORDS = "same-records"
    """The same records, under another id or in a log that ended below the stored offset: keep the stored offsets."""

    FORGET = "forget"
    """The topic is gone for good: its stored offsets end."""


class ReadAcross(StrEnum):
    """What becomes of an open batch that was read while its topic changed."""

    ACCEPT = "accept"
    """What was written is all of the old topic: commit it."""

    DISCARD = "discard"
    """Nobody can tell: give it up, its files stay invisible."""


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One topic that is not what the stored offsets were counted in. ``found`` is None where it is gone.

    ``log_ends`` says where logs were seen to end below their stored offset, ``ends_now`` where logs end now.
    """

    topic: str
    stored: tuple[StoredOffset, ...]
    found: TopicDescription | None
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends_now: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def known_id(self) -> str | None:
        """The topic id that the offsets were stored with."""
        return self.stored[0].topic_id

    @property
    def found_id(self) -> str | None:
        """The topic id that Kafka names now."""
        return self.found.topic_id if self.found is not None else None


@dataclass(frozen=True, slots=True)
class Changes:
    """All that changed under a feed. ``affected`` is its open batch where it was planned on what changed."""

    feed: FeedSnapshot
    cluster_id: str
    topics: tuple[TopicChange, ...]
    affected: Batch | None

    @property
    def is_other_cluster(self) -> bool:
        """Whether the connection leads to another cluster than the stored offsets'."""
        return self.cluster_id != self.feed.cluster_id


def changes_of(
    feed_name: str, named: Collection[str], settings: FeedPlanSettings, control: OperatorTables, kafka: KafkaCluster
) -> Changes:
    """Return which topics changed: of the feed, or of those that are named; nothing is written."""
    feed = known_feed(control, feed_name)
    rows_of: dict[str, list[StoredOffset]] = {}
    for row in feed.stored.values():
        rows_of.setdefault(row.topic_partition.topic, []).append(row)
    if unknown := sorted(set(named) - rows_of.keys()):
        raise WrongUseError(
            f"expected topics with stored offsets in feed {feed_name}: {', '.join(sorted(rows_of))}; found {', '.join(unknown)}"
        )
    cluster_id = kafka.cluster_id()
    if named and cluster_id != feed.cluster_id:
        raise WrongUseError(
            f"feed {feed_name}: the connection leads to cluster {cluster_id}, not {feed.cluster_id}, so every topic changed. "
            "Leave --topic out: they change together."
        )
    # Another cluster changes every row, also those of topics that the feed file names no more.
    asked = sorted(named or (topic for topic in rows_of if settings.selects(topic) or cluster_id != feed.cluster_id))
    described = kafka.describe_topics(asked)
    log_ends = {tp: hold.at_offset for tp, hold in held_beyond_log(feed).items() if hold.at_offset is not None}
    found = [
        TopicChange(
            topic,
            tuple(rows_of[topic]),
            described.get(topic),
            {tp: end for tp, end in log_ends.items() if tp.topic == topic},
        )
        for topic in asked
    ]
    changed = tuple(
        change for change in found if change.topic in named or cluster_id != feed.cluster_id or is_changed(change)
    )
    bounds = kafka.log_bounds(
        [
            row.topic_partition
            for change in changed
            for row in change.stored
            if change.found is not None and row.topic_partition.partition in change.found.partitions
        ]
    )
    ends_now = {tp: found.high_watermark for tp, found in bounds.items() if isinstance(found, LogBounds)}
    changed = tuple(
        replace(change, ends_now={tp: end for tp, end in ends_now.items() if tp.topic == change.topic})
        for change in changed
    )
    batch, names = feed.open_batch, {change.topic for change in changed}
    affected = batch is not None and (batch.plan.cluster_id != cluster_id or not names.isdisjoint(batch.plan.topic_ids))
    return Changes(feed, cluster_id, changed, batch if affected else None)


def is_changed(change: TopicChange) -> bool:
    """Whether a topic is gone, has another id, fewer partitions, or a log that ended below its stored offset."""
    if change.found is None:
        return True
    differs = None not in {change.known_id, change.found_id} and change.known_id != change.found_id
    fewer = not {row.topic_partition.partition for row in change.stored} <= set(change.found.partitions)
    return differs or fewer or bool(change.log_ends)


def rows_after(changes: Changes, choice: Choice, settings: FeedPlanSettings) -> list[StartOver]:
    """Return the stored offsets as they would be; raises WrongUseError where the choice does not fit what was found."""
    if not changes.topics:
        raise WrongUseError(
            f"feed {changes.feed.name}: expected a topic or cluster that changed, found none. Nothing was changed."
        )
    after = [(change, rows_of_topic(change, choice, changes, settings)) for change in changes.topics]
    return [
        StartOver(
            change.topic, change.found_id, rows, same_records=choice is Choice.SAME_RECORDS and change.found is not None
        )
        for change, rows in after
    ]


def rows_of_topic(
    change: TopicChange, choice: Choice, changes: Changes, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return one topic's stored offsets as they would be."""
    same_topic = change.found is not None and change.known_id is not None and change.found_id == change.known_id
    is_read = settings.selects(change.topic)
    nobody_reads_it = change.found is None and not is_read
    if changes.is_other_cluster and (
        nobody_reads_it or (choice is Choice.START_OVER and (change.found is None or not is_read))
    ):
        return []
    if (choice is Choice.FORGET) != (change.found is None):
        expected = (
            "forget, because it is gone" if change.found is None else "start-over or same-records, because it exists"
        )
        raise WrongUseError(
            f"topic {change.topic!r}: expected --choice {expected}. Where several topics changed, --topic names those meant. "
            "Nothing was changed."
        )
    if change.found is None:
        return []
    if choice is Choice.SAME_RECORDS:
        missing = [
            str(row.topic_partition)
            for row in change.stored
            if row.topic_partition.partition not in change.found.partitions
        ]
        if missing:
            raise WrongUseError(
                f"topic {change.topic!r}: expected all partitions that have stored offsets, missing: {listing(missing)}. It does "
                "not hold the same records."
            )
        beyond = [
            f"{row.topic_partition}: stored offset {row.next_offset:,}, log end {end:,}"
            for row in change.stored
            if row.next_offset is not None and (end := change.ends_now.get(row.topic_partition)) is not None
            if row.next_offset > end
        ]
        if beyond:
            raise WrongUseError(
                f"topic {change.topic!r}: expected logs that reach the stored offsets, found {listing(beyond)}. They do not hold "
                "the same records. Nothing was changed."
            )
        return [replace(row, topic_id=change.found_id) for row in change.stored]
    if same_topic and change.log_ends and not changes.is_other_cluster:
        return [rewound(row, change.log_ends.get(row.topic_partition)) for row in change.stored]
    if same_topic and not changes.is_other_cluster:
        raise WrongUseError(
            f"topic {change.topic!r} is the one its offsets were stored with (topic id {change.known_id}): starting over would "
            "read its records a second time. Nothing was changed."
        )
    partitions = change.found.topic_partitions()
    if changes.is_other_cluster:
        # Not made since the last plan: the feed's start rule says where to begin, and the next plan asks Kafka for it.
        rule = settings.start_rule(change.topic)
        return [StoredOffset(tp, change.found_id, None, None, str(rule_of_partition(rule, tp))) for tp in partitions]
    return [StoredOffset(tp, change.found_id, 0, 0, "topic made again") for tp in partitions]


def rewound(row: StoredOffset, log_end: int | None) -> StoredOffset:
    """Return a stored offset where its log was seen to end; what was ever produced from there on is read."""
    if log_end is None or row.next_offset is None or row.first_offset is None:
        return row
    return replace(row, next_offset=min(row.next_offset, log_end), first_offset=min(row.first_offset, log_end))


def apply_choice(
    changes: Changes,
    after: list[StartOver],
    control: OperatorTables,
    *,
    discard_batch: bool,
    reason: str,
    who: str,
) -> None:
    """Write the stored offsets as they were shown; an open batch that read one of the topics stands in the way.

    Raises BatchStateError where it is WRITTEN or COMMITTING, which commit without asking Kafka, or PLANNED and not to be
    discarded.
    """
    feed = changes.feed
    if (batch := changes.affected) is not None:
        if batch.state is not BatchState.PLANNED:
            raise BatchStateError(
                f"batch {batch.batch_id} is {batch.state}: its records were read from the topic as it was, and it commits "
                f"without asking Kafka. Commit it first: `kafka-ingest run {feed.name}`. Nothing was changed."
            )
        if not discard_batch:
            raise BatchStateError(
                f"batch {batch.batch_id} is PLANNED over a topic that changed. Say what becomes of it: `--batch discard` gives "
                "it up; `--batch accept` commits what it wrote, if all of it was read from the topic as it was."
            )
    abandoned = batch.batch_id if batch is not None else None
    control.start_over(feed, changes.cluster_id, after, reason=reason, who=who, abandoned=abandoned)


def accept_batch(changes: Changes, control: OperatorTables, sinks: Sinks, *, reason: str, who: str) -> Batch:
    """Pin what a PLANNED batch wrote although its topic changed meanwhile: an operator says that the read was clean.

    Raises BatchStateError where there is no such batch, WrongUseError where it wrote nothing that can be used.
    """
    batch = changes.affected
    if batch is None or batch.state is not BatchState.PLANNED:
        found = "none" if batch is None else f"batch {batch.batch_id}, which is {batch.state}"
        raise BatchStateError(
            f"expected a PLANNED batch over a topic that changed, found {found}. Nothing was changed."
        )
    refused: list[str] = []
    for attempt in control.attempts(batch.batch_id):
        content = sinks(batch.plan).read_receipt(attempt.directory)
        if attempt.state is not AttemptState.OPEN or content is None:
            continue
        try:
            receipt = valid_receipt(batch.plan, attempt, content)
        except InvalidReceiptError as error:
            refused.append(str(error))
            continue
        control.pin(batch.batch_id, attempt.attempt, receipt, sha256(content), receipt.range_counts(batch.plan))
        detail = {"attempt": attempt.attempt, "reason": reason}
        control.record_event(batch.plan.feed_id, "receipt_accepted", who=who, batch_id=batch.batch_id, detail=detail)
        return control.batch(batch.batch_id)
    raise WrongUseError(
        f"batch {batch.batch_id}: expected an attempt that finished writing, found none that can be used"
        f"{': ' + '; '.join(refused) if refused else ''}. Its records are gone with the topic: `--batch discard`."
    )
