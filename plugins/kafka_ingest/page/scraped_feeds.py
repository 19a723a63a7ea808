"""What is scraped of all feeds: control tables answer at once, Kafka within its time limit, or not this time."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs
from kafka_ingest.observing.feed_measures import FeedMeasures, measures_among_all
from kafka_ingest.page.feed_questions import by_connection
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.sources import KAFKA_TIMEOUT_S, Sources, isolation_of, settings_of
from kafka_ingest.settings.feed_file import FeedFile

OLDEST_S: Final = 120.0
"""An older answer of Kafka's is not scraped: Prometheus takes each value for one of now."""


@dataclass(frozen=True, slots=True)
class ScrapedFeed:
    """One feed: what is stored of it, and its measures."""

    overview: FeedOverview
    measures: FeedMeasures


def scraped_feeds(sources: Sources) -> list[ScrapedFeed]:
    """Return all feeds that were ever planned, by name, after at most the time that one question to Kafka may take."""
    deadline = time.monotonic() + KAFKA_TIMEOUT_S
    overviews = {each.name: each for each in sources.control().feed_overviews()}
    files = sources.feed_files(wait_s=KAFKA_TIMEOUT_S).value or {}
    looks = looks_until(deadline, sources, by_connection(overviews, files))
    return [scraped_feed(overview, files.get(name), looks) for name, overview in overviews.items()]


def looks_until(
    deadline: float, sources: Sources, feeds: Mapping[str, list[FeedOverview]]
) -> dict[str, Answer[ClusterLogs]]:
    """Ask Kafka over all connections at once, and return what it has answered by then."""
    for conn_id, of_connection in feeds.items():
        sources.logs(conn_id, of_connection, wait_s=0)
    return {
        conn_id: sources.logs(conn_id, of_connection, wait_s=max(0.0, deadline - time.monotonic()))
        for conn_id, of_connection in feeds.items()
    }


def scraped_feed(
    overview: FeedOverview, file: FeedFile | None, looks: Mapping[str, Answer[ClusterLogs]]
) -> ScrapedFeed:
    """Return one feed, with numbers of Kafka's only where they are of now."""
    feed = settings_of(file)
    look = looks.get(feed.kafka.conn_id) if feed is not None else None
    logs, why_not = (None, "its feed file is not known") if look is None else (value_of_now(look), look.error)
    return ScrapedFeed(overview, measures_among_all(overview, logs, isolation_of(feed), why_not=why_not))


def value_of_now(look: Answer[ClusterLogs]) -> ClusterLogs | None:
    """Return an answer, unless a newer try has failed or it is too old."""
    is_of_now = look.error is None and look.age_s is not None and look.age_s <= OLDEST_S
    return look.value if is_of_now else None
