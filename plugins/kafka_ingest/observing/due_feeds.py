"""Which feeds are due by the records that wait: a few questions in bulk for all feeds of one connection.

Nothing is consumed, and no group is joined: Kafka's ListOffsets says where logs end, and whether a record is older
than a time, as its topic's timestamps go. A topic or a partition that no plan has seen yet waits for the next one.

Topics are described for feeds alone that are due by that. A triggerer asks for months, every few seconds, and
confluent-kafka 2.16 never frees the id of a topic that it has described: of 1,000 topics 2 GB a day.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from croniter import CroniterBadDateError, croniter

from kafka_ingest.errors import KafkaAccessDeniedError
from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import LogBounds, StoredOffset, TopicPartition, Unavailable
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.model.waiting import AwaitedFeed, Due, Standing, is_due, position_of, why_not_now
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs, known_rows
from kafka_ingest.observing.record_ages import OlderThan, is_read, one_time_each, waiting
from kafka_ingest.ports.cluster import KafkaCluster

MAY_BE_READ = frozenset({HoldCause.OPEN_TRANSACTION, HoldCause.NO_ANSWER})
"""Holds that the next plan ends by itself, or that leave records to be read."""

DENIED_FOR: Final = timedelta(minutes=10)

NEVER_PLANNED = Due(is_due=False, why="it was never planned: its schedule, or a run by hand, starts it first")


def due_feeds(
    kafka: KafkaCluster,
    feeds: Mapping[AwaitedFeed, FeedOverview | None],
    now: datetime,
    denied: "DeniedTopics | None" = None,
) -> dict[AwaitedFeed, Due]:
    """Return which of these feeds are due, and why, apart from whether a run is active.

    Raises KafkaUnavailableError and what else keeps Kafka from answering; it is not asked about feeds that cannot be
    due, whatever it says. ``denied`` is what earlier looks have found.
    """
    found = dict.fromkeys(feeds, NEVER_PLANNED)
    open_questions: dict[AwaitedFeed, tuple[FeedOverview, Standing]] = {}
    for feed, overview in feeds.items():
        if overview is None:
            continue
        standing = standing_of(overview)
        if why := why_not_now(standing, now):
            found[feed] = Due(is_due=False, why=why)
        else:
            open_questions[feed] = overview, standing
    if not open_questions:
        return found
    partitions = {partition for overview, _ in open_questions.values() for partition in overview.stored}
    bounds = bounds_of(kafka, partitions, now, denied or DeniedTopics())
    standings: dict[AwaitedFeed, Standing] = {}
    asked: list[OlderThan] = []
    for feed, (overview, standing) in open_questions.items():
        held = not_read(overview)
        of_feed = [row for row in overview.stored.values() if row.topic_partition.topic in overview.topics]
        rows = [row for row in of_feed if not held & places(row)]
        places_to_read = waiting(rows, bounds, feed.isolation)
        standings[feed] = replace(
            standing, waiting=sum(lag for _, lag in places_to_read.values()), stop=outside_the_log(rows, bounds)
        )
        if feed.rule.or_older_than is not None and not is_due(feed.rule, standings[feed], now).is_due:
            time = now - feed.rule.or_older_than
            asked += [OlderThan(feed.name, tp, offset, lag, time) for tp, (offset, lag) in places_to_read.items()]
    with_older = older_groups(kafka, asked)
    found |= {
        feed: is_due(feed.rule, replace(standing, has_older=feed.name in with_older), now)
        for feed, standing in standings.items()
    }
    return found | stopped(kafka, {feed: open_questions[feed][0] for feed in standings if found[feed].is_due})


@dataclass(slots=True)
class DeniedTopics:
    """Topics that may not be seen, which are left out for some minutes: each look would describe all others again."""

    topics: frozenset[str] = frozenset()
    found_at: datetime | None = None

    def at(self, now: datetime) -> frozenset[str]:
        return self.topics if self.found_at is not None and now - self.found_at < DENIED_FOR else frozenset()


def bounds_of(
    kafka: KafkaCluster, partitions: Collection[TopicPartition], now: datetime, denied: DeniedTopics
) -> Mapping[TopicPartition, LogBounds | Unavailable]:
    """Return the bounds of these logs; a topic that may not be seen keeps no other from its answer.

    Where no broker is known any more, each partition has an answer of the client's own, and none is an error. It may
    take minutes to find one again: the question for topics fails, and its error lets the caller make a new client.
    """
    left_out = denied.at(now)
    seen = [each for each in partitions if each.topic not in left_out]
    with contextlib.suppress(KafkaAccessDeniedError):
        bounds = kafka.log_bounds(seen)
        if any(isinstance(log, LogBounds) for log in bounds.values()) or not seen:
            return bounds
    logs = ask_logs(kafka, seen)
    denied.topics, denied.found_at = left_out | logs.denied.keys(), now
    return logs.bounds


def not_read(overview: FeedOverview) -> set[tuple[str, int | None]]:
    return {(hold.topic, hold.partition) for hold in overview.holds if hold.cause not in MAY_BE_READ}


def standing_of(overview: FeedOverview) -> Standing:
    return Standing(
        position_of(overview.stored.values()),
        overview.start_position,
        overview.start_asked_at,
        has_open_batch=overview.open_batch is not None,
    )


def places(row: StoredOffset) -> set[tuple[str, int | None]]:
    """Return how a hold names a partition: by itself, or by its topic."""
    tp = row.topic_partition
    return {(tp.topic, None), (tp.topic, tp.partition)}


def outside_the_log(
    rows: Sequence[StoredOffset], bounds: Mapping[TopicPartition, LogBounds | Unavailable]
) -> str | None:
    """Return which stored offset is none of its log: what to do is the next plan's to decide, by the schedule."""
    for row in rows:
        log = bounds.get(row.topic_partition)
        if row.next_offset is None or not isinstance(log, LogBounds):
            continue
        if not log.log_start_offset <= row.next_offset <= log.high_watermark:
            return f"{row.topic_partition}: its stored offset {row.next_offset:,} is outside the log"
    return None


def stopped(kafka: KafkaCluster, due: Mapping[AwaitedFeed, FeedOverview]) -> dict[AwaitedFeed, Due]:
    """Return which of these feeds the next plan has to decide about first: a cluster or topic is another, or gone."""
    if not due:
        return {}
    described, denied = kafka.visible_topics({row.topic for each in due.values() for row in each.stored})
    ids = {name: topic.topic_id for name, topic in described.items()}
    logs = ClusterLogs(kafka.cluster_id(), ids, {}, denied)
    reasons = {feed: why_stopped(overview, logs) for feed, overview in due.items()}
    return {feed: Due(is_due=False, why=why) for feed, why in reasons.items() if why is not None}


def why_stopped(overview: FeedOverview, logs: ClusterLogs) -> str | None:
    """Return what an operator or the feed's settings have to decide first."""
    if logs.cluster_id != overview.cluster_id:
        return f"its connection leads to cluster {logs.cluster_id}, and its stored offsets belong to another"
    held = not_read(overview)
    gone = [topic for topic in known_rows(overview, logs)[1] if (topic, None) not in held]
    return f"topic {gone[0]} is gone, or is another one than its stored offsets belong to" if gone else None


def older_groups(kafka: KafkaCluster, asked: list[OlderThan]) -> set[str]:
    """Return the groups with a record at a stored offset, or behind it, that is older than the time asked about.

    Where no record is as young as the time, all that wait are older, or carry no time.
    """
    found: set[str] = set()
    for some in one_time_each(asked):
        first = kafka.offsets_at({each.topic_partition: each.time for each in some})
        for each in some:
            answer = first[each.topic_partition]
            if answer is None or (isinstance(answer, int) and not is_read(answer, each)):
                found.add(each.group)
    return found


LEAST_GRACE: Final = timedelta(minutes=10)
MOST_GRACE: Final = timedelta(hours=6)
"""How long a run that is due may take: a quarter of the time between two, at least and at most this."""
WITHOUT_TIMES: Final = timedelta(days=1)
"""How old a waiting record may be where runs are due at no time: with ``schedule: null`` or ``@once``."""


def is_late(schedule: str | None, oldest: timedelta | None, planned_at: datetime | None, now: datetime) -> bool:
    """Whether the records that wait should have been read already.

    ``oldest``: the age of the oldest of them, in Kafka's time; where it is not known, the last plan decides.
    """
    now = now.replace(second=0, microsecond=0)
    limit, grace = longest_wait(schedule, now)
    if oldest is None:
        return planned_at is None or now - planned_at > limit
    # A record's time is its producer's, often somewhat before it was written.
    return oldest > limit + grace


@lru_cache(maxsize=1_000)  # of many feeds most share a few schedules
def longest_wait(schedule: str | None, now: datetime) -> tuple[timedelta, timedelta]:
    """Return how long ago the newest run was due that has had its time, and how much that was."""
    if schedule in {None, "@once"}:
        return WITHOUT_TIMES, timedelta(0)
    if schedule == "@continuous":
        return LEAST_GRACE, LEAST_GRACE
    cron = cron_of(schedule)
    try:
        due = croniter(cron, now)
        newest, before = due.get_prev(datetime), due.get_prev(datetime)
        grace = min(max(LEAST_GRACE, (newest - before) / 4), MOST_GRACE)
        return now - croniter(cron, now - grace).get_prev(datetime), grace
    except CroniterBadDateError:  # due in the future only
        return WITHOUT_TIMES, timedelta(0)


def cron_of(schedule: str) -> str:
    """Return a schedule as croniter knows it, which has not all of Airflow's presets."""
    return "0 0 1 */3 *" if schedule == "@quarterly" else schedule


def due_times(schedule: str | None, now: datetime) -> Iterator[datetime]:
    """Yield when runs were due that have had their time, the newest first; none where runs are due at no time."""
    if schedule in {None, "@once", "@continuous"}:
        return
    now = now.replace(second=0, microsecond=0)
    wait, _ = longest_wait(schedule, now)
    due = croniter(cron_of(schedule), now - wait + timedelta(seconds=1))
    try:
        while True:
            yield due.get_prev(datetime)
    except CroniterBadDateError:
        return
