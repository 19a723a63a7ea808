"""Which topics take part in a batch, and by which rule their partitions without a stored offset begin. Pure."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from kafka_ingest.errors import StartOutsideLogError, TopicGoneError, TopicRecreatedError, UnknownTopicError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import (
    FirstRecord,
    LogBounds,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
    listing,
)
from kafka_ingest.model.topics import check_topic_id, match_whole
from kafka_ingest.planning.settings import (
    AtOffsets,
    Earliest,
    FeedPlanSettings,
    NewOrOlder,
    NewPartition,
    OnDataLoss,
    OnMissingTopic,
    OnTopicChanged,
    PartitionRule,
    StartRule,
    rule_of_partition,
)

CLOCKS_DIFFER = timedelta(hours=1)
"""How far the broker's clock may be behind this machine's, before a time counts as proof."""


class Age(StrEnum):
    """What is known of a topic that appears."""

    NEW = "new"
    """Nothing speaks against it, or it does not matter: offset 0 is where the start rule leads, too."""

    OLDER = "older"
    """A broker wrote to it before the last plan."""

    UNDECIDED = "undecided"
    """Its start would be another, and nothing proves which."""


@dataclass(frozen=True, slots=True)
class TopicAge:
    """The age of one topic, compared with the last plan that did not find it, and why it is undecided."""

    age: Age
    last_plan: datetime
    why: str = ""


@dataclass(frozen=True, slots=True)
class KafkaAnswers:
    """What :mod:`~kafka_ingest.batches.ask_kafka` asks for a plan. A topic that does not exist is not in ``topics``.

    ``start_offsets_at`` and ``group_offsets`` are of partitions whose start rule asks for them, ``end_offsets_at`` is
    there where a manual run ends at a time. ``cut_off_at`` says where logs were cut off below their stored offsets,
    ``unreadable`` which held offsets still cannot be read, ``ages`` how old topics are that the last plan did not
    find.
    """

    cluster_id: str
    topics: Mapping[str, TopicDescription]
    bounds: Mapping[TopicPartition, LogBounds | Unavailable]
    start_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    group_offsets: Mapping[TopicPartition, int | None] = field(default_factory=dict)
    end_offsets_at: Mapping[TopicPartition, int | Unavailable | None] = field(default_factory=dict)
    cut_off_at: Mapping[TopicPartition, int] = field(default_factory=dict)
    unreadable: Collection[TopicPartition] = ()
    ages: Mapping[str, TopicAge] = field(default_factory=dict)


def begins_alike(logs: Collection[LogBounds | Unavailable], rule: StartRule) -> bool:
    """Whether a topic begins at offset 0 whether it is new or older, so that nothing has to be decided."""
    return all(
        isinstance(log, LogBounds) and log.log_start_offset == 0 and (isinstance(rule, Earliest) or log.is_empty)
        for log in logs
    )


def reads_alike(logs: Collection[LogBounds | Unavailable], rule: StartRule, on_data_loss: OnDataLoss) -> bool:
    """Whether a topic is read from its log start in both cases; taken for new, what is before it is a gap on record."""
    is_gap = on_data_loss is OnDataLoss.RECORD_GAP
    return is_gap and isinstance(rule, Earliest) and all(isinstance(log, LogBounds) for log in logs)


def age_of_topic(
    topic: str,
    logs: Mapping[TopicPartition, LogBounds | Unavailable],
    firsts: Mapping[TopicPartition, FirstRecord | Unavailable | None],
    last_plan: datetime,
    settings: FeedPlanSettings,
) -> TopicAge:
    """Return a topic's age; undecided counts as new where it would be read from the same offset in both cases."""
    age, rule = age_of(logs, firsts, last_plan), settings.start_rule(topic)
    is_alike = begins_alike(logs.values(), rule) or reads_alike(logs.values(), rule, settings.on_data_loss)
    return TopicAge(Age.NEW, last_plan) if age.age is Age.UNDECIDED and is_alike else age


def age_of(
    bounds: Mapping[TopicPartition, LogBounds | Unavailable],
    firsts: Mapping[TopicPartition, FirstRecord | Unavailable | None],
    last_plan: datetime,
) -> TopicAge:
    """Return what the logs of one topic and their first records say."""
    doubts: list[str] = []
    for tp, log in sorted(bounds.items()):
        first = firsts.get(tp)
        if isinstance(first, FirstRecord) and first.by_broker and is_before(first, last_plan - CLOCKS_DIFFER):
            return TopicAge(Age.OLDER, last_plan)
        if doubt := doubt_of(log, first, last_plan):
            doubts.append(f"{tp}: {doubt}")
    if not doubts:
        return TopicAge(Age.NEW, last_plan)
    return TopicAge(Age.UNDECIDED, last_plan, doubts[0])


def doubt_of(log: LogBounds | Unavailable, first: FirstRecord | Unavailable | None, last_plan: datetime) -> str | None:
    """Return why one partition may be older than the last plan, None where all speaks for its being new."""
    if isinstance(log, Unavailable):
        return log.reason
    if log.log_start_offset:
        return f"the log starts at {log.log_start_offset:,}"
    if log.is_empty:
        return None
    return doubt_of_record(first, last_plan)


def doubt_of_record(first: FirstRecord | Unavailable | None, last_plan: datetime) -> str | None:
    """Return why the first record of a log that begins at 0 may be older than the last plan."""
    if isinstance(first, Unavailable):
        return first.reason
    if first is None:
        return "no record is left in it"
    if first.timestamp_ms is None:
        return "its first record has no timestamp"
    if is_before(first, last_plan):
        clock = "a broker's clock" if first.by_broker else "its producer"
        return f"its first record is dated {first.timestamp_ms:,} (milliseconds since 1970) by {clock}"
    return None


def is_before(record: FirstRecord, when: datetime) -> bool:
    """Whether a record is dated before then; a producer can write any number, also one that no datetime holds."""
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return record.timestamp_ms is not None and record.timestamp_ms < (when - epoch) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a topic takes no part, and whether the feed stops for it."""

    error: TopicGoneError | UnknownTopicError | TopicRecreatedError
    cause: HoldCause
    stops: bool


@dataclass(frozen=True, slots=True)
class TopicsOfFeed:
    """The feed's topics now: those that take part, and holds on those that are missing or were made again."""

    names: Collection[str]
    present: Mapping[str, TopicDescription]
    holds: list[Hold] = field(default_factory=list)


def topics_wanted(feed: FeedSnapshot, settings: FeedPlanSettings, there: Iterable[str]) -> list[str]:
    """Return the topics that the feed reads: its list, or the existing and stored topics that its pattern matches."""
    if settings.topic_pattern is None:
        return sorted(settings.start_rules)
    known = {topic_partition.topic for topic_partition in feed.stored}
    return sorted(topic for topic in known.union(there) if settings.selects(topic))


def topics_of_feed(
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
    described: Mapping[str, TopicDescription],
    cluster_id: str,
    now: datetime,
) -> TopicsOfFeed:
    """Return the topics that take part.

    Raises UnknownTopicError, TopicGoneError or TopicRecreatedError where a topic or partition does not exist, or is not
    the one that the stored offsets belong to. Under ``on_missing_topic: hold`` a missing topic is held and the others
    continue, under ``on_topic_changed: hold`` a recreated one; not where no other is left: such a run would never read.
    """
    rows_of: dict[str, list[StoredOffset]] = {}
    for row in feed.stored.values():
        rows_of.setdefault(row.topic_partition.topic, []).append(row)

    wanted = topics_wanted(feed, settings, described)
    problems: dict[str, Problem] = {}
    present: dict[str, TopicDescription] = {}
    for topic in wanted:
        description, rows = described.get(topic), rows_of.get(topic, [])
        problem = problem_of(topic, description, rows, settings, cluster_id)
        if problem is not None:
            problems[topic] = problem
        elif description is not None:
            present[topic] = description
        if description is not None and not rows:
            check_named_partitions(settings.start_rule(topic), description)
    if not wanted:
        raise UnknownTopicError(
            f"feed {settings.name}: no topic on cluster {cluster_id} matches kafka.topic_pattern "
            f"{settings.topic_pattern!r} as a whole. Correct the pattern, or create a topic; topics that begin with "
            "'__' are Kafka's own, those that end with '.kafka_ingest' are marks: they never match."
        )
    for problem in problems.values():
        if problem.stops or not present:
            raise problem.error
    holds = [Hold(topic, None, problem.cause, str(problem.error), now) for topic, problem in problems.items()]
    return TopicsOfFeed(wanted, present, holds)


def problem_of(
    topic: str,
    description: TopicDescription | None,
    rows: Collection[StoredOffset],
    settings: FeedPlanSettings,
    cluster_id: str,
) -> Problem | None:
    """Return why a topic takes no part, None where it does; raises where it was made again and the feed is to stop."""
    if changed := why_changed(description, rows, settings):
        return Problem(changed, HoldCause.TOPIC_CHANGED, stops=False)
    missing = why_missing(topic, description, rows, settings.name, cluster_id)
    if missing is None:
        return None
    if description is not None and settings.on_topic_changed is OnTopicChanged.HOLD:
        # It has fewer partitions: it was made again, on brokers that do not know topic ids.
        return Problem(missing, HoldCause.TOPIC_CHANGED, stops=False)
    return Problem(missing, HoldCause.TOPIC_MISSING, stops=settings.on_missing_topic is OnMissingTopic.STOP)


def why_changed(
    description: TopicDescription | None, rows: Collection[StoredOffset], settings: FeedPlanSettings
) -> TopicRecreatedError | None:
    """Return the error where a topic was made again and is to be held; raises it where the feed is to stop."""
    if description is None or not rows:
        return None
    row = next(iter(rows))  # all rows of a topic carry one id
    try:
        check_topic_id(description.topic, row.topic_id, description.topic_id, settings.name)
    except TopicRecreatedError as error:
        if settings.on_topic_changed is OnTopicChanged.STOP:
            raise
        return error
    return None


def why_missing(
    topic: str, description: TopicDescription | None, rows: Collection[StoredOffset], feed_name: str, cluster_id: str
) -> TopicGoneError | UnknownTopicError | None:
    if description is None and not rows:
        return UnknownTopicError(
            f"feed {feed_name}: topic {topic!r} does not exist on cluster {cluster_id}. Create it, correct "
            "kafka.topics in the feed file, or let the feed's other topics continue without it (on_missing_topic: "
            "hold)."
        )
    if description is None:
        return TopicGoneError(
            f"feed {feed_name}: topic {topic!r} has stored offsets for {counted(len(rows), 'partition')}, but cluster "
            f"{cluster_id} has no such topic any more. Remove it from the feed file, let the feed's other topics "
            f"continue (on_missing_topic: hold), or end its offsets for good: `kafka-ingest topic-changed {feed_name} "
            f"--topic {topic} --choice forget`."
        )
    partitions = set(description.partitions)
    gone = sorted(row.topic_partition for row in rows if row.topic_partition.partition not in partitions)
    if gone:
        return TopicGoneError(
            f"feed {feed_name}: {listing(gone)} have stored offsets, but topic {topic!r} has only {len(partitions):,} "
            "partitions now. Partitions never go away while a topic lives: it was made again. Nothing was moved; if "
            f"it may start over: `kafka-ingest topic-changed {feed_name} --topic {topic} --choice start-over`."
        )
    return None


def rules_to_resolve(
    feed: FeedSnapshot,
    settings: FeedPlanSettings,
    present: Mapping[str, TopicDescription],
    ages: Mapping[str, TopicAge] = MappingProxyType({}),
) -> dict[TopicPartition, PartitionRule]:
    """Return the start rule of every partition that has no offset yet, also of those that were noted as pending.

    A new partition stays new. For the others the current feed file counts, since nothing was decided for them yet.
    ``ages`` says how old topics are that appeared; a topic without an entry is new.
    """
    known_topics = {topic_partition.topic for topic_partition in feed.stored}
    rules: dict[TopicPartition, PartitionRule] = {}
    for topic, description in present.items():
        appeared = topic not in known_topics and was_selected(feed, topic)
        rule: StartRule = settings.start_rule(topic)
        for topic_partition in description.topic_partitions():
            row = feed.stored.get(topic_partition)
            if row is not None and not row.is_pending:
                continue
            by_start_rule = rule_of_partition(rule, topic_partition)
            if appeared or (row is not None and NewOrOlder.noted(row.seeded_by) is not None):
                rules[topic_partition] = rule_by_age(ages.get(topic), by_start_rule)
            elif topic in known_topics if row is None else row.seeded_by == str(NewPartition()):
                rules[topic_partition] = NewPartition()
            else:
                rules[topic_partition] = by_start_rule
    return rules


def rule_by_age(age: TopicAge | None, by_start_rule: PartitionRule) -> PartitionRule:
    """Return where a partition begins of a topic that appeared since a plan."""
    if age is None or age.age is Age.NEW:
        return NewPartition()
    return by_start_rule if age.age is Age.OLDER else NewOrOlder(age.last_plan, age.why)


def was_selected(feed: FeedSnapshot, topic: str) -> bool:
    """Whether the last plan would have read the topic: then it was made since, or became visible."""
    return topic in feed.topics or (
        feed.topic_pattern is not None and match_whole(feed.topic_pattern, topic) is not None
    )


def appeared_since(feed: FeedSnapshot, present: Mapping[str, TopicDescription]) -> dict[str, datetime]:
    """Return the topics to judge, each with the last plan before it appeared; an undecided topic keeps that plan.

    Without a last plan (tables rebuilt from the output) every such topic counts as new, so that no record is skipped.
    Only a pattern can overlook a topic: when asked by name, Kafka reports whether a topic is missing or not allowed.
    """
    planned_at = feed.planned_at if feed.topic_pattern is not None else None
    rows_of: dict[str, list[str]] = {}
    for tp, row in feed.stored.items():
        rows_of.setdefault(tp.topic, []).append(row.seeded_by if row.is_pending else "")
    found: dict[str, datetime] = {}
    for topic in present:
        rules = [rule for noted in rows_of.get(topic, ()) if (rule := NewOrOlder.noted(noted)) is not None]
        if rules:
            found[topic] = rules[0].last_plan
        elif topic not in rows_of and planned_at is not None and was_selected(feed, topic):
            found[topic] = planned_at
    return found


def check_named_partitions(rule: StartRule, description: TopicDescription) -> None:
    """Raise where a start rule names a partition that its topic does not have."""
    if isinstance(rule, AtOffsets) and (unknown := sorted(rule.offsets.keys() - set(description.partitions))):
        raise StartOutsideLogError(
            f"the feed's start names {listing(TopicPartition(description.topic, number) for number in unknown)}, but "
            f"topic {description.topic!r} has partitions 0 to {len(description.partitions) - 1}. Correct the feed's "
            "start.offsets."
        )
