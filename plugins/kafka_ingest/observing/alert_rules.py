"""What clusters are asked for feeds with alerts, a few requests a connection; and which conditions hold: pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from kafka_ingest.foundation.counting import counted, grouped, were
from kafka_ingest.model.alert import NEED_KAFKA, AlertKind, AlertRules, Finding, Notifier
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import Isolation, Retention, Unavailable, listing
from kafka_ingest.model.omissions import LEAST_RECORDS
from kafka_ingest.model.summaries import FeedOverview, GapDecision
from kafka_ingest.model.waiting import in_danger
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs, distances, known_rows
from kafka_ingest.observing.record_ages import OlderThan, older_records, waiting
from kafka_ingest.ports.cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class WatchedFeed:
    """A feed that was planned, what it asks to be notified of, and by whom. ``error`` is that of its file."""

    overview: FeedOverview
    rules: AlertRules
    notifiers: tuple[Notifier, ...] = ()
    isolation: Isolation = Isolation.READ_COMMITTED
    conn_id: str = ""
    error: str | None = None

    @property
    def name(self) -> str:
        return self.overview.name

    @property
    def asks_kafka(self) -> bool:
        """Whether Kafka is asked about it; not where its file cannot be used, so that its connection is not known."""
        return self.rules.need_kafka and bool(self.conn_id)


@dataclass(frozen=True, slots=True)
class ClusterAnswers:
    """Kafka's answers about the feeds of one connection. ``ages``: None where a record is not as old as asked about."""

    logs: ClusterLogs
    retentions: Mapping[str, Retention | Unavailable] = field(default_factory=dict)
    ages: Mapping[OlderThan, timedelta | Unavailable | None] = field(default_factory=dict)


def ask_cluster(kafka: KafkaCluster, feeds: Collection[WatchedFeed], now: datetime) -> ClusterAnswers:
    """Ask for all that these feeds' rules need; raises KafkaUnavailableError and what else keeps Kafka from answering.

    The number of requests does not grow with the feeds.
    """
    logs = ask_logs(kafka, {partition for feed in feeds for partition in feed.overview.stored})
    here = [feed for feed in feeds if feed.overview.cluster_id == logs.cluster_id]
    topics = {topic for feed in here if feed.rules.headroom is not None for topic in feed.overview.topics}
    retentions = kafka.retentions(topics & logs.topic_ids.keys())
    asked = [each for feed in here for of_kind in questions(feed, logs, retentions, now).values() for each in of_kind]
    return ClusterAnswers(logs, retentions, older_records(kafka, asked, now))


def questions(
    feed: WatchedFeed, logs: ClusterLogs, retentions: Mapping[str, Retention | Unavailable], now: datetime
) -> dict[AlertKind, list[OlderThan]]:
    """Return which records' ages a feed's rules depend on.

    Retention by time reaches a record within ``headroom`` once it is as old as that leaves of the retention.
    """
    rows, _ = known_rows(feed.overview, logs)
    found: dict[AlertKind, list[OlderThan]] = {AlertKind.BEHIND: [], AlertKind.HEADROOM: []}
    for tp, (offset, lag) in waiting(rows, logs.bounds, feed.isolation).items():
        if (behind := feed.rules.behind) is not None:
            group = f"{AlertKind.BEHIND.value} {feed.name}"
            found[AlertKind.BEHIND].append(OlderThan(group, tp, offset, lag, now - behind))
        kept = retentions.get(tp.topic)
        if (headroom := feed.rules.headroom) is not None and isinstance(kept, Retention) and kept.time is not None:
            group = f"{AlertKind.HEADROOM.value} {feed.name}"
            may_be_old = max(timedelta(), kept.time - headroom)
            found[AlertKind.HEADROOM].append(OlderThan(group, tp, offset, lag, now - may_be_old))
    return found


LONGEST_TEXT: Final = 2_000
LONGEST_SUBJECT: Final = 500
"""In characters: PostgreSQL's index of alerts takes rows of at most 2,704 bytes."""
NUMBERS: Final = NEED_KAFKA - {AlertKind.STOPPED}
"""What cannot be said of a cluster that is another one."""


@dataclass(slots=True)
class Look:
    """What is the case, and of which kinds that is not known. ``notes`` say why something was judged by less."""

    found: list[Finding] = field(default_factory=list)
    unknown: set[AlertKind] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: AlertKind, text: str, subject: str = "") -> None:
        self.found.append(Finding(kind, cut(text), subject))


def look(feed: WatchedFeed, answers: ClusterAnswers | str | None, gaps: Sequence[GapDecision], now: datetime) -> Look:
    judging = Look()
    if feed.error is not None:
        judging.add(AlertKind.UNUSABLE, feed.error)
    judge_stored(feed, gaps, now, judging)
    if isinstance(answers, ClusterAnswers):
        judge_logs(feed, answers, now, judging)
    else:
        judging.unknown |= NEED_KAFKA
        if answers is not None:
            judging.add(AlertKind.UNREACHABLE, answers)
        else:
            judging.unknown.add(AlertKind.UNREACHABLE)
    judging.found = [each for each in judging.found if each.kind in feed.rules.kinds]
    return judging


def judge_stored(feed: WatchedFeed, gaps: Sequence[GapDecision], now: datetime, judging: Look) -> None:
    stored, limit = feed.overview, feed.rules.open_batch
    if limit is not None and stored.open_since is not None and now - stored.open_since > limit:
        state = stored.open_batch_state.value if stored.open_batch_state is not None else "open"
        since = spoken(now - stored.open_since)
        judging.add(
            AlertKind.OPEN_BATCH,
            f"batch {stored.open_batch} has been {state} for {since}, longer than {spoken(limit)}",
            str(stored.open_batch),
        )
    # An open transaction holds nothing up that could be read.
    held = (hold for hold in stored.holds if hold.cause is not HoldCause.OPEN_TRANSACTION)
    for subject, texts in grouped((f"{hold.topic} {hold.cause.value}", str(hold)) for hold in held).items():
        judging.add(AlertKind.HELD, f"held, {subject.rpartition(' ')[2]}: {listing(texts)}", subject)
    judge_records(feed, judging)
    for gap in gaps:
        judging.add(
            AlertKind.GAP,
            f"{counted(gap.offsets, 'offset')} in {counted(gap.partitions, 'partition')} {were(gap.offsets)} "
            f"passed over ({gap.cause.value}), "
            f"decided by {gap.decided_by}: {gap.reason}",
            f"{gap.cause.value} {gap.decided_at.isoformat()} {gap.decided_by}"[:LONGEST_SUBJECT],
        )


def judge_records(feed: WatchedFeed, judging: Look) -> None:
    """Judge what became no row; a batch of few records says nothing of what is filtered."""
    found, most_left, most = feed.overview.not_rows, feed.rules.dead_letters, feed.rules.filtered_percent
    if most_left is not None and found.dead_letters > most_left:
        text = f"{counted(found.dead_letters, 'dead letter')} neither replayed nor given up, more than {most_left:,}"
        judging.add(AlertKind.DEAD_LETTERS, text)
    if most is None:
        return
    newest = found.newest
    if newest.records < LEAST_RECORDS:
        judging.unknown.add(AlertKind.FILTERED_PERCENT)
    elif newest.filtered * 100 > most * newest.records:
        shown = f"{newest.filtered:,} of the {counted(newest.records, 'record')} of the newest batch"
        judging.add(AlertKind.FILTERED_PERCENT, f"{shown} were filtered, more than {most} %")


def judge_logs(feed: WatchedFeed, answers: ClusterAnswers, now: datetime, judging: Look) -> None:
    logs, stored = answers.logs, feed.overview
    if logs.cluster_id != stored.cluster_id:
        judging.add(
            AlertKind.STOPPED,
            f"connection {feed.conn_id} leads to cluster {logs.cluster_id}, and the stored offsets belong to "
            f"{stored.cluster_id}",
        )
        judging.unknown |= NUMBERS
        return
    rows, other = known_rows(stored, logs)
    found = distances(rows, logs.bounds, feed.isolation)
    judge_stops(feed, logs, other, found.lost, judging)
    if denied := [logs.denied[topic] for topic in stored.topics if topic in logs.denied]:
        judging.add(AlertKind.UNREACHABLE, "; ".join(denied[:3]))
    if found.silent:
        # Where it was stopped by records lost there, that a leader is gone now decides nothing.
        judging.unknown.add(AlertKind.STOPPED)
    if (limit := feed.rules.lag) is not None:
        if (found.lag or 0) > limit:
            judging.add(AlertKind.LAG, f"{counted(found.lag, 'offset')} can be read, more than {limit:,}")
        elif found.silent or other:
            judging.unknown.add(AlertKind.LAG)
    asked = questions(feed, logs, answers.retentions, now)
    behind = oldest_first(asked[AlertKind.BEHIND], answers.ages)
    if behind and feed.rules.behind is not None:
        limit_text, ages = (
            spoken(feed.rules.behind),
            listing(f"{each.topic_partition} ({spoken(age)} old)" for each, age in behind),
        )
        text = f"records wait that are older than {limit_text}, such as the next of {ages}"
        judging.add(AlertKind.BEHIND, text)
    elif found.silent or other or not all_known(asked[AlertKind.BEHIND], answers.ages):
        judging.unknown.add(AlertKind.BEHIND)
    judge_headroom(feed, answers, asked[AlertKind.HEADROOM], judging)
    if found.silent or other or not all_known(asked[AlertKind.HEADROOM], answers.ages):
        judging.unknown.add(AlertKind.HEADROOM)


def judge_stops(feed: WatchedFeed, logs: ClusterLogs, other: Sequence[str], lost: int, judging: Look) -> None:
    stops = feed.rules.stops
    missing = [topic for topic in other if logs.is_gone(topic)]
    changed = [topic for topic in other if not logs.is_gone(topic)]
    texts = []
    if missing and stops.on_missing_topic:
        texts.append(f"{listing(missing)}: no such topic any more")
    if changed and stops.on_changed_topic:
        texts.append(f"{listing(changed)}: deleted and created again, so the stored offsets mean other records")
    if lost and stops.on_loss:
        texts.append(f"{counted(lost, 'offset')} {were(lost)} deleted by Kafka before they were read")
    if texts:
        judging.add(AlertKind.STOPPED, f"the next plan stops until an operator decides: {'; '.join(texts)}")


def judge_headroom(feed: WatchedFeed, answers: ClusterAnswers, asked: Sequence[OlderThan], judging: Look) -> None:
    """Judge how near retention is: by time, and where it is by size, or not known, by the log's oldest tenth."""
    limit = feed.rules.headroom
    if limit is None:
        return
    rows, _ = known_rows(feed.overview, answers.logs)
    unsaid = {topic: kept for topic, kept in answers.retentions.items() if isinstance(kept, Unavailable)}
    judging.notes += [
        f"feed {feed.name}: the retention of {topic} is not known, so its headroom is judged by the oldest tenth of "
        f"the log: {kept.reason}"
        for topic, kept in sorted(unsaid.items())
        if topic in feed.overview.topics
    ]
    by_size = {topic for topic, kept in answers.retentions.items() if isinstance(kept, Retention) and kept.by_size}
    near = in_danger(rows, answers.logs.bounds, feed.isolation)
    texts = [
        str(each)
        for each in near
        if each.stored_offset < each.bounds.log_start_offset or each.topic_partition.topic in by_size | unsaid.keys()
    ]
    for each, age in oldest_first(asked, answers.ages):
        kept = answers.retentions[each.topic_partition.topic]
        if isinstance(kept, Retention) and kept.time is not None:
            texts.append(
                f"{each.topic_partition}: Kafka keeps records for {spoken(kept.time)}, and the next to be read is "
                f"{spoken(age)} old"
            )
    if texts:
        judging.add(AlertKind.HEADROOM, f"unread records are deleted within {spoken(limit)}: {listing(texts)}")


def oldest_first(
    asked: Sequence[OlderThan], ages: Mapping[OlderThan, timedelta | Unavailable | None]
) -> list[tuple[OlderThan, timedelta]]:
    found = [(each, age) for each in asked if isinstance(age := ages.get(each), timedelta)]
    return sorted(found, key=lambda pair: (-pair[1], pair[0]))


def all_known(asked: Sequence[OlderThan], ages: Mapping[OlderThan, timedelta | Unavailable | None]) -> bool:
    return not any(isinstance(ages[each], Unavailable) for each in asked)


def spoken(duration: timedelta) -> str:
    """Return a duration as a feed file would write it, in its largest unit that is not below two."""
    seconds = duration.total_seconds()
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length or seconds == length:
            return f"{seconds / length:,.0f}{unit}"
    return f"{seconds:,.0f}s"


def cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
