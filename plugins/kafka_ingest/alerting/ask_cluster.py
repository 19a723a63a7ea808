"""Feeds whose files ask for alerts, and what their cluster is asked: a few requests for all of one connection."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from kafka_ingest.model.alert import AlertKind, AlertRules, Notifier
from kafka_ingest.model.offsets import Isolation, Retention, Unavailable
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs, known_rows
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
