"""The audited decision for a feed whose stored offsets mean other records: another cluster, topic or log."""

import contextlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from kafka_ingest.batches.ask_kafka import cut_off_at, reached
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import BatchStateError, InvalidReceiptError, WrongUseError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import Attempt, AttemptState, Batch, BatchState, sha256
from kafka_ingest.model.control_rows import FeedSnapshot, StartOver
from kafka_ingest.model.offsets import LogBounds, StoredOffset, TopicDescription, TopicPartition, Unavailable, listing
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.topics import is_other_topic
from kafka_ingest.planning.positions import held_beyond_log
from kafka_ingest.planning.settings import FeedPlanSettings, NewOrOlder, NewPartition, rule_of_partition
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.verbs.found_offsets import Mirrored


class Choice(StrEnum):
    """What an operator can decide about a topic that changed."""

    START_OVER = "start-over"
    START_RULE = "start-rule"
    REWIND = "rewind"
    SAME_RECORDS = "same-records"
    BY_TIME = "by-time"
    FORGET = "forget"


CHOICE_IN_WORDS: Final = {
    Choice.START_OVER: "other records: read from the topic's beginning, on another cluster by the start rule",
    Choice.START_RULE: "a topic that appeared, and is not new: begin as the feed file's start says",
    Choice.REWIND: "the log was truncated: continue from where it ended",
    Choice.SAME_RECORDS: "the same records: keep the stored offsets",
    Choice.BY_TIME: "another cluster with copies of the records: continue at the first unread record's time",
    Choice.FORGET: "the topic is gone for good: its stored offsets end",
}


class BatchChoice(StrEnum):
    """What an operator can decide about an open batch that was read while its topic changed."""

    ACCEPT = "accept"
    DISCARD = "discard"


@dataclass(frozen=True, slots=True)
class TopicChange:
    """One topic that differs from the one of the stored offsets. ``found`` is None where it was deleted.

    ``log_ends`` is where logs ended below their stored offset, ``ends_now`` where logs end now.
    """

    topic: str
    stored: tuple[StoredOffset, ...]
    found: TopicDescription | None
    log_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends_now: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def known_id(self) -> str | None:
        return self.stored[0].topic_id

    @property
    def found_id(self) -> str | None:
        return self.found.topic_id if self.found is not None else None

    @property
    def undecided(self) -> tuple[StoredOffset, ...]:
        """The partitions that wait for an operator to decide where their newly appeared topic begins."""
        return tuple(row for row in self.stored if row.is_pending and NewOrOlder.noted(row.seeded_by) is not None)

    @property
    def has_fewer_partitions(self) -> bool:
        """Whether partitions that were read do not exist any more: then the topic was recreated."""
        there = self.found.partitions if self.found is not None else ()
        return not {row.topic_partition.partition for row in self.stored} <= set(there)

    @property
    def is_other_topic(self) -> bool:
        return is_other_topic(self.known_id, self.found_id)


@dataclass(frozen=True, slots=True)
class Changes:
    """Everything that changed under a feed. ``affected`` is its open batch if that was planned on what changed."""

    feed: FeedSnapshot
    cluster_id: str
    topics: tuple[TopicChange, ...]
    affected: Batch | None

    @property
    def is_other_cluster(self) -> bool:
        return self.cluster_id != self.feed.cluster_id


def changes_of(
    feed_name: str, named: Collection[str], settings: FeedPlanSettings, control: OperatorTables, kafka: KafkaCluster
) -> Changes:
    """Return which topics changed: of the feed, or of those that are named; nothing is written."""
    feed = known_feed(control, feed_name)
    rows_of = grouped((row.topic_partition.topic, row) for row in feed.stored.values())
    if unknown := sorted(set(named) - rows_of.keys()):
        raise WrongUseError(
            f"expected topics with stored offsets in feed {feed_name}: {', '.join(sorted(rows_of))}; found "
            f"{', '.join(unknown)}"
        )
    cluster_id = kafka.cluster_id()
    if named and cluster_id != feed.cluster_id:
        raise WrongUseError(
            f"feed {feed_name}: the connection leads to cluster {cluster_id}, not {feed.cluster_id}, so every topic "
            "changed. Name no topic: they change together."
        )
    # Another cluster changes every row, also those of topics that the feed file names no more.
    is_other_cluster = cluster_id != feed.cluster_id
    asked = sorted(named or (topic for topic in rows_of if settings.selects(topic) or is_other_cluster))
    described = kafka.describe_topics(asked)
    rows = [row for topic in asked for row in rows_of[topic]]
    bounds = bounds_now(rows, described, kafka)
    ends_now = {tp: found.high_watermark for tp, found in bounds.items() if isinstance(found, LogBounds)}
    seen = {tp: hold.at_offset for tp, hold in held_beyond_log(feed).items() if hold.at_offset is not None}
    if not is_other_cluster:
        seen = lower_ends(seen, rows, described, bounds, kafka)
    found = [topic_change(topic, rows_of[topic], described.get(topic), ends_now, seen) for topic in asked]
    changed = tuple(change for change in found if change.topic in named or is_other_cluster or is_changed(change))
    batch, names = feed.open_batch, {change.topic for change in changed}
    affected = batch is not None and (batch.plan.cluster_id != cluster_id or not names.isdisjoint(batch.plan.topic_ids))
    return Changes(feed, cluster_id, changed, batch if affected else None)


def bounds_now(
    rows: Collection[StoredOffset], described: Mapping[str, TopicDescription], kafka: KafkaCluster
) -> Mapping[TopicPartition, LogBounds | Unavailable]:
    there = [
        row.topic_partition
        for row in rows
        if (topic := described.get(row.topic_partition.topic)) is not None
        and row.topic_partition.partition in topic.partitions
    ]
    return kafka.log_bounds(there)


def lower_ends(
    seen: Mapping[TopicPartition, int],
    rows: Collection[StoredOffset],
    described: Mapping[str, TopicDescription],
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    kafka: KafkaCluster,
) -> dict[TopicPartition, int]:
    """Return where logs ended, also those that were truncated and have grown again before a plan saw it."""
    same = [
        row
        for row in rows
        if (topic := described.get(row.topic_partition.topic)) is not None
        and not is_other_topic(row.topic_id, topic.topic_id)
    ]
    lowest = dict(seen)
    for tp, end in cut_off_at(reached(same), bounds, kafka).items():
        if not isinstance(end, Unavailable):
            lowest[tp] = min(end, lowest.get(tp, end))
    return lowest


def topic_change(
    topic: str,
    rows: Collection[StoredOffset],
    found: TopicDescription | None,
    ends_now: Mapping[TopicPartition, int],
    seen: Mapping[TopicPartition, int],
) -> TopicChange:
    """Return one topic as it is now; a log that ends or ended below its stored offset counts with its lowest end."""
    ends = {row.topic_partition: ends_now[row.topic_partition] for row in rows if row.topic_partition in ends_now}
    below = {
        row.topic_partition: ends[row.topic_partition]
        for row in rows
        if row.next_offset is not None and row.next_offset > ends.get(row.topic_partition, row.next_offset)
    }
    of_topic = {tp: end for tp, end in seen.items() if tp.topic == topic}
    log_ends = {tp: min(end for end in (below.get(tp), of_topic.get(tp)) if end is not None) for tp in below | of_topic}
    return TopicChange(topic, tuple(rows), found, log_ends, ends)


def is_changed(change: TopicChange) -> bool:
    if change.found is None or change.undecided:
        return True
    return change.is_other_topic or change.has_fewer_partitions or bool(change.log_ends)


def rows_to_mirror(changes: Changes, settings: FeedPlanSettings) -> list[StoredOffset]:
    """Return the rows that continue at other offsets of another cluster; raises WrongUseError where it is the same."""
    if not changes.is_other_cluster:
        raise WrongUseError(
            f"feed {changes.feed.name}: the choice by-time is for another cluster, found {changes.cluster_id}, the one "
            "of the stored offsets. Let the feed's connection lead to the new one. Nothing was changed."
        )
    kept = [change for change in changes.topics if change.found is not None and settings.selects(change.topic)]
    if fewer := [change.topic for change in kept if change.has_fewer_partitions]:
        raise WrongUseError(
            f"feed {changes.feed.name}: expected as many partitions in cluster {changes.cluster_id} as have stored "
            f"offsets, found fewer of {listing(fewer)}. Choose start-over. Nothing was changed."
        )
    return [row for change in kept for row in change.stored if not row.is_pending]


def rows_after(
    changes: Changes, choice: Choice, settings: FeedPlanSettings, mirrored: Mapping[TopicPartition, Mirrored] = {}
) -> list[StartOver]:
    """Return the stored offsets as they would be; raises WrongUseError where the choice does not fit what was found."""
    if not changes.topics:
        raise WrongUseError(
            f"feed {changes.feed.name}: expected a topic or cluster that changed, found none. Nothing was changed."
        )
    after = [(change, rows_of_topic(change, choice, changes, settings, mirrored)) for change in changes.topics]
    return [
        StartOver(
            change.topic,
            change.found_id,
            [without_old_epoch(row, change, changes) for row in rows],
            same_records=choice is Choice.SAME_RECORDS and bool(rows),
            untouched=untouched(change, rows),
        )
        for change, rows in after
    ]


def choices_of(change: TopicChange, changes: Changes, settings: FeedPlanSettings) -> list[Choice]:
    fitting: list[Choice] = []
    for choice in Choice:
        with contextlib.suppress(WrongUseError):
            rows_of_topic(change, choice, changes, settings)
            fitting.append(choice)
    return fitting


def without_old_epoch(row: StoredOffset, change: TopicChange, changes: Changes) -> StoredOffset:
    """Return a row without the leader epoch of its former log; the next plan records the new one."""
    is_other_log = changes.is_other_cluster or change.is_other_topic or row.topic_partition in change.log_ends
    return replace(row, leader_epoch=None) if is_other_log else row


def untouched(change: TopicChange, rows: Collection[StoredOffset]) -> list[TopicPartition]:
    """Return the partitions whose offsets stay valid: of the same topic id, with a log that was not truncated."""
    return [row.topic_partition for row in rows if row in change.stored and row.topic_partition not in change.log_ends]


def rows_of_topic(
    change: TopicChange,
    choice: Choice,
    changes: Changes,
    settings: FeedPlanSettings,
    mirrored: Mapping[TopicPartition, Mirrored] = {},
) -> list[StoredOffset]:
    if changes.is_other_cluster and is_left_behind(change, choice, settings):
        return []
    if change.found is not None and change.undecided and not changes.is_other_cluster and not change.is_other_topic:
        return decided_rows(change, choice, settings)
    check_choice(change, choice, changes)
    if change.found is None:
        return []
    if choice is Choice.BY_TIME:
        rows_to_mirror(changes, settings)
        return [mirrored_row(row, change.found_id, mirrored.get(row.topic_partition)) for row in change.stored]
    return rows_by_offset(change, change.found, choice, changes, settings)


def rows_by_offset(
    change: TopicChange, found: TopicDescription, choice: Choice, changes: Changes, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return the rows of a topic that is there, by a choice that takes the stored offsets as they are, or none."""
    if choice is Choice.SAME_RECORDS:
        if problem := why_not_the_same(change):
            raise WrongUseError(
                f"topic {change.topic!r}: {problem}. It does not hold the same records. Nothing was changed."
            )
        return [replace(row, topic_id=change.found_id) for row in change.stored]
    if choice is Choice.REWIND:
        if changes.is_other_cluster or change.is_other_topic or change.has_fewer_partitions or not change.log_ends:
            is_other = not change.log_ends or change.is_other_topic
            instead = "another topic" if is_other else "another cluster, or fewer partitions"
            raise WrongUseError(
                f"topic {change.topic!r}: expected a log that was truncated to rewind to its end, found {instead}. "
                "Nothing was changed."
            )
        return [rewound(row, change.log_ends.get(row.topic_partition)) for row in change.stored]
    return started_over(change, found, changes, settings)


def mirrored_row(row: StoredOffset, topic_id: str | None, found: Mirrored | None) -> StoredOffset:
    """Return a row as it continues in the new cluster; one whose start is pending waits for that there."""
    if found is None:
        return replace(row, topic_id=topic_id)
    at = f", from {found.time.isoformat()} on" if found.time is not None else ""
    said = f"another cluster's offset {row.next_offset}{at}"
    return StoredOffset(row.topic_partition, topic_id, found.offset, found.offset, said)


def started_over(
    change: TopicChange, found: TopicDescription, changes: Changes, settings: FeedPlanSettings
) -> list[StoredOffset]:
    """Return the rows of a topic that holds other records: from offset 0, on another cluster by the start rule."""
    same_topic = change.known_id is not None and change.found_id == change.known_id
    if same_topic and not changes.is_other_cluster:
        raise WrongUseError(
            f"topic {change.topic!r} is the one its offsets were stored with (topic id {change.known_id}): starting "
            "over would read its records a second "
            f"time.{' A log that was truncated: choose rewind.' if change.log_ends else ''} Nothing was changed."
        )
    partitions = found.topic_partitions()
    if changes.is_other_cluster:
        # Not created since the last plan: the feed's start rule decides where to begin, and the next plan resolves it.
        rule = settings.start_rule(change.topic)
        return [StoredOffset(tp, change.found_id, None, None, str(rule_of_partition(rule, tp))) for tp in partitions]
    return [StoredOffset(tp, change.found_id, 0, 0, "topic made again") for tp in partitions]


def check_choice(change: TopicChange, choice: Choice, changes: Changes) -> None:
    """Raise WrongUseError where a choice does not fit: FORGET is for deleted topics only, and the only one for them."""
    if (choice is Choice.FORGET) != (change.found is None):
        expected = (
            "forget, because it was deleted"
            if change.found is None
            else "start-over, rewind or same-records, because it exists"
        )
        way_on = (
            f"It is not on cluster {changes.cluster_id}: take it out of the feed file first."
            if changes.is_other_cluster
            else "Where several topics changed, name those that are meant."
        )
        raise WrongUseError(f"topic {change.topic!r}: expected the choice {expected}. {way_on} Nothing was changed.")
    if choice is Choice.START_RULE:
        raise WrongUseError(
            f"topic {change.topic!r}: the choice start-rule is for a topic that appeared and may be new or older; "
            "found one whose start was decided. Nothing was changed."
        )


def decided_rows(change: TopicChange, choice: Choice, settings: FeedPlanSettings) -> list[StoredOffset]:
    """Return the rows of a newly appeared topic as an operator decided its start; the next plan resolves it."""
    if choice not in {Choice.START_OVER, Choice.START_RULE}:
        raise WrongUseError(
            f"topic {change.topic!r} appeared, and none of it was read: expected the choice start-over (from offset 0) "
            f"or start-rule (as the feed file's start says), found {choice.value}. Nothing was changed."
        )
    rule = settings.start_rule(change.topic)
    return [
        replace(
            row,
            seeded_by=str(
                NewPartition() if choice is Choice.START_OVER else rule_of_partition(rule, row.topic_partition)
            ),
        )
        if row in change.undecided
        else row
        for row in change.stored
    ]


def is_left_behind(change: TopicChange, choice: Choice, settings: FeedPlanSettings) -> bool:
    """Whether a topic's offsets end with the old cluster: it is not on the new one, or is unread and does not fit."""
    if change.found is None:
        return choice is Choice.START_OVER or not settings.selects(change.topic)
    if settings.selects(change.topic):
        return False
    return choice in {Choice.START_OVER, Choice.BY_TIME} or (
        choice is Choice.SAME_RECORDS and why_not_the_same(change) is not None
    )


def why_not_the_same(change: TopicChange) -> str | None:
    """Return why a topic cannot hold the records of its stored offsets, None where it can."""
    there = set(change.found.partitions) if change.found is not None else set()
    missing = [str(row.topic_partition) for row in change.stored if row.topic_partition.partition not in there]
    if missing:
        return f"expected all partitions that have stored offsets, missing: {listing(missing)}"
    beyond = [
        f"{row.topic_partition}: stored offset {row.next_offset:,}, log end {end:,}"
        for row in change.stored
        if row.next_offset is not None and (end := change.ends_now.get(row.topic_partition)) is not None
        if row.next_offset > end
    ]
    return f"expected logs that reach the stored offsets, found {listing(beyond)}" if beyond else None


def rewound(row: StoredOffset, log_end: int | None) -> StoredOffset:
    """Return a stored offset moved to its log's lowest end; every record written from there on is read."""
    if log_end is None or row.next_offset is None or row.first_offset is None:
        return row
    return replace(row, next_offset=min(row.next_offset, log_end), first_offset=min(row.first_offset, log_end))


def check_applicable(changes: Changes, *, discard_batch: bool) -> None:
    """Raise BatchStateError while an open batch reads one of the topics whose stored offsets are to change.

    Where it is WRITTEN or COMMITTING, which commit without asking Kafka, or PLANNED and not to be discarded.
    """
    feed = changes.feed
    if (batch := changes.affected) is not None:
        if batch.state is not BatchState.PLANNED:
            raise BatchStateError(
                f"batch {batch.batch_id} is {batch.state}: its records were read from the topic as it was, and it "
                f"commits without asking Kafka. Commit it first: `kafka-ingest run {feed.name}`. Nothing was changed."
            )
        if not discard_batch:
            raise BatchStateError(
                f"batch {batch.batch_id} is PLANNED over a topic that changed. Decide about it: the "
                "open batch's choice discard abandons it; accept commits what it wrote, if all of it was read from the "
                "topic as it was."
            )


def apply_choice(
    changes: Changes, after: list[StartOver], control: OperatorTables, *, discard_batch: bool, reason: str, actor: str
) -> None:
    """Write the stored offsets as they were shown; raises what :func:`check_applicable` raises."""
    check_applicable(changes, discard_batch=discard_batch)
    abandoned = changes.affected.batch_id if changes.affected is not None else None
    control.start_over(changes.feed, changes.cluster_id, after, reason=reason, actor=actor, abandoned=abandoned)


def accept_batch(changes: Changes, control: OperatorTables, sinks: Sinks, *, reason: str, actor: str) -> Batch:
    """Pin what a PLANNED batch wrote although its topic changed since: an operator confirms that the read was clean.

    Raises what :func:`acceptable` raises.
    """
    batch, attempt, content, receipt = acceptable(changes, control, sinks)
    control.pin(batch.batch_id, attempt.attempt, receipt, sha256(content), receipt.range_counts(batch.plan))
    detail = {"attempt": attempt.attempt, "reason": reason}
    control.record_event(batch.plan.feed_id, "receipt_accepted", actor=actor, batch_id=batch.batch_id, detail=detail)
    return control.batch(batch.batch_id)


def acceptable(changes: Changes, control: OperatorTables, sinks: Sinks) -> tuple[Batch, Attempt, bytes, Receipt]:
    """Return the attempt of a PLANNED batch that can be accepted, with its receipt, also as it was written.

    Raises BatchStateError where there is no such batch, WrongUseError where it wrote nothing usable.
    """
    batch = changes.affected
    if batch is None or batch.state is not BatchState.PLANNED:
        found = "none" if batch is None else f"batch {batch.batch_id}, which is {batch.state}"
        raise BatchStateError(
            f"expected a PLANNED batch over a topic that changed, found {found}. Nothing was changed."
        )
    refused: list[str] = []
    for attempt in control.attempts(batch.batch_id):
        content = sinks(batch.plan.output).staging.read_receipt(attempt.directory)
        if attempt.state is not AttemptState.OPEN or content is None:
            continue
        try:
            receipt = valid_receipt(batch.plan, attempt, content)
        except InvalidReceiptError as error:
            refused.append(str(error))
        else:
            return batch, attempt, content, receipt
    raise WrongUseError(
        f"batch {batch.batch_id}: expected an attempt that finished writing, found no usable "
        f"one{': ' + '; '.join(refused) if refused else ''}. Its records were deleted with the topic: the open "
        "batch's choice discard abandons it."
    )
