"""Which feeds are due by the records that wait: a few questions in bulk for all feeds of one connection.

Nothing is consumed, and no group is joined: Kafka's ListOffsets says where logs end, and whether a record is older
than a time, as its topic's timestamps go. A topic or a partition that no plan has seen yet waits for the next one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from kafka_ingest.model.hold import HoldCause
from kafka_ingest.model.offsets import LogBounds, StoredOffset
from kafka_ingest.model.start_when import AwaitedFeed, Due, Standing, is_due, position_of, why_not_now
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs, known_rows
from kafka_ingest.observing.record_ages import OlderThan, is_read, one_time_each, waiting
from kafka_ingest.ports.cluster import KafkaCluster

MAY_BE_READ = frozenset({HoldCause.OPEN_TRANSACTION, HoldCause.NO_ANSWER})
"""Holds that the next plan ends by itself, or that leave records to be read."""

NEVER_PLANNED = Due(is_due=False, why="it was never planned: its schedule, or a run by hand, starts it first")


def due_feeds(
    kafka: KafkaCluster, feeds: Mapping[AwaitedFeed, FeedOverview | None], now: datetime
) -> dict[AwaitedFeed, Due]:
    """Return which of these feeds are due, and why, apart from whether a run is active.

    Raises KafkaUnavailableError and what else keeps Kafka from answering; it is not asked about feeds that cannot be
    due, whatever it says.
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
    logs = ask_logs(kafka, {partition for overview, _ in open_questions.values() for partition in overview.stored})
    standings: dict[AwaitedFeed, Standing] = {}
    asked: list[OlderThan] = []
    for feed, (overview, standing) in open_questions.items():
        held = {(hold.topic, hold.partition) for hold in overview.holds if hold.cause not in MAY_BE_READ}
        known, others = known_rows(overview, logs)
        rows = [row for row in known if not held & places(row)]
        gone = [topic for topic in others if (topic, None) not in held]
        places_to_read = waiting(rows, logs.bounds, feed.isolation)
        standings[feed] = replace(
            standing, waiting=sum(lag for _, lag in places_to_read.values()), stop=stop_of(overview, rows, gone, logs)
        )
        if feed.rule.or_older_than is not None and not is_due(feed.rule, standings[feed], now).is_due:
            time = now - feed.rule.or_older_than
            asked += [OlderThan(feed.name, tp, offset, lag, time) for tp, (offset, lag) in places_to_read.items()]
    with_older = older_groups(kafka, asked)
    return found | {
        feed: is_due(feed.rule, replace(standing, has_older=feed.name in with_older), now)
        for feed, standing in standings.items()
    }


def standing_of(overview: FeedOverview) -> Standing:
    """Return where a feed stands as the control tables know it."""
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


def stop_of(overview: FeedOverview, rows: Sequence[StoredOffset], gone: Sequence[str], logs: ClusterLogs) -> str | None:
    """Return what the next plan has to decide, by the feed's settings or an operator, which is the schedule's work."""
    if logs.cluster_id != overview.cluster_id:
        return f"its connection leads to cluster {logs.cluster_id}, and its stored offsets belong to another"
    if gone:
        return f"topic {gone[0]} is gone, or is another one than its stored offsets belong to"
    for row in rows:
        log = logs.bounds.get(row.topic_partition)
        if row.next_offset is None or not isinstance(log, LogBounds):
            continue
        if not log.log_start_offset <= row.next_offset <= log.high_watermark:
            return f"{row.topic_partition}: its stored offset {row.next_offset:,} is outside the log"
    return None


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
