"""The audited way out when a feed stopped because its cluster or a topic is not the one its offsets were counted in."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

from kafka_ingest.batch import AttemptState, Batch, BatchState, sha256
from kafka_ingest.boundaries import FeedSnapshot, KafkaCluster, OperatorTables, Sinks, StartOver
from kafka_ingest.errors import BatchStateError, InvalidReceiptError, WrongUseError
from kafka_ingest.offsets import StoredOffset, TopicDescription, listing
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.planning.start_rules import rule_of_partition
from kafka_ingest.submitting.pin_receipt import valid_receipt


class Choice(StrEnum):
    """What an operator can say of a topic that changed."""

    START_OVER = "start-over"
    """Other records: read the topic from its first offset; after a change of cluster by the feed's start rule."""

    SAME_RECORDS = "same-records"
    """The same records under another id: keep the stored offsets."""

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
    """One topic that is not what the stored offsets were counted in. ``found`` is None where it is gone."""

    topic: str
    stored: tuple[StoredOffset, ...]
    found: TopicDescription | None

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
    """All that changed under a feed. ``affected`` is its open batch where it reads one of the topics."""

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
    asked = sorted(named or (topic for topic in rows_of if settings.selects(topic)))
    described = kafka.describe_topics(asked)
    changed = tuple(
        TopicChange(topic, tuple(rows_of[topic]), described.get(topic))
        for topic in asked
        if topic in named or cluster_id != feed.cluster_id or is_changed(rows_of[topic], described.get(topic))
    )
    batch, names = feed.open_batch, {change.topic for change in changed}
    affected = batch if batch is not None and names.intersection(batch.plan.topic_ids) else None
    return Changes(feed, cluster_id, changed, affected)


def is_changed(rows: Collection[StoredOffset], found: TopicDescription | None) -> bool:
    """Whether a topic is gone, has another id, or fewer partitions."""
    if found is None:
        return True
    known = next(iter(rows)).topic_id
    differs = known is not None and found.topic_id is not None and known != found.topic_id
    return differs or not {row.topic_partition.partition for row in rows} <= set(found.partitions)


def rows_after(changes: Changes, choice: Choice, settings: FeedPlanSettings) -> list[StartOver]:
    """Return the stored offsets as they would be; raises WrongUseError where the choice does not fit what was found."""
    if not changes.topics:
        raise WrongUseError(
            f"feed {changes.feed.name}: expected a topic or cluster that changed, found none. Nothing was changed."
        )
    same = choice is Choice.SAME_RECORDS
    return [
        StartOver(change.topic, change.found_id, rows_of_topic(change, choice, changes, settings), same_records=same)
        for change in changes.topics
    ]


def rows_of_topic(
    change: TopicChange, choice: Choice, changes: Changes, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return one topic's stored offsets as they would be."""
    same_topic = change.found is not None and change.known_id is not None and change.found_id == change.known_id
    if change.found is None and changes.is_other_cluster and choice is Choice.START_OVER:
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
        return [replace(row, topic_id=change.found_id) for row in change.stored]
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
        control.abandon(batch.batch_id, reason=reason, who=who, only_from={BatchState.PLANNED})
        feed = control.feed_of_id(feed.feed_id) or feed
    control.start_over(feed, changes.cluster_id, after, reason=reason, who=who)


def accept_batch(changes: Changes, control: OperatorTables, sinks: Sinks, *, reason: str, who: str) -> Batch:
    """Pin what a PLANNED batch wrote although its topic changed meanwhile: an operator says that the read was clean.

    Raises BatchStateError where there is no such batch, InvalidReceiptError where it wrote nothing that can be used.
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
        detail = {"attempt": attempt.attempt, "reason": reason}
        control.record_event(batch.plan.feed_id, "receipt_accepted", who=who, batch_id=batch.batch_id, detail=detail)
        control.pin(batch.batch_id, attempt.attempt, receipt, sha256(content), receipt.range_counts(batch.plan))
        return control.batch(batch.batch_id)
    raise InvalidReceiptError(
        f"batch {batch.batch_id}: expected an attempt that finished writing, found none that can be used"
        f"{': ' + '; '.join(refused) if refused else ''}. Its records are gone with the topic: `--batch discard`."
    )
