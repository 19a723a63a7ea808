"""The measures of feeds in Prometheus' text format: docs/metrics.md has the table of their names."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka_ingest.observing.feed_lines import Distances
from kafka_ingest.page.scraped_feeds import ScrapedFeed

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

TOTAL: Final = "_total"
"""Ends the name of a counter, and of no other."""


@dataclass(frozen=True, slots=True)
class Scraped:
    """One metric, with the label ``feed``. ``value`` returns None where there is none now: then no sample is shown."""

    name: str
    text: str
    value: Callable[[ScrapedFeed], float | None]

    @property
    def kind(self) -> str:
        """What it is to Prometheus."""
        return "counter" if self.name.endswith(TOTAL) else "gauge"

    def family(self) -> Metric:
        """Return the metric without samples."""
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix(TOTAL), self.text, labels=["feed"])
        return GaugeMetricFamily(self.name, self.text, labels=["feed"])


def of_logs(value: Callable[[Distances], int | None]) -> Callable[[ScrapedFeed], float | None]:
    """Return a measure that needs Kafka's answer."""
    return lambda feed: None if feed.measures.logs is None else value(feed.measures.logs)


def seconds(time: datetime | None) -> float | None:
    """Return a time as Prometheus has it."""
    return None if time is None else time.timestamp()


SCRAPED: Final = (
    Scraped("kafka_ingest_lag", "Offsets that can be read now.", of_logs(lambda logs: logs.lag)),
    Scraped(
        "kafka_ingest_headroom",
        "The fewest offsets between a log's start and the stored offset, of partitions with something to read.",
        of_logs(lambda logs: logs.headroom),
    ),
    Scraped(
        "kafka_ingest_low_headroom_partitions",
        "Partitions that retention is about to reach before they are read.",
        lambda feed: feed.measures.low_headroom,
    ),
    Scraped(
        "kafka_ingest_lost_offsets",
        "Offsets that Kafka deleted before they were read, and that are not decided about.",
        of_logs(lambda logs: logs.lost),
    ),
    Scraped(
        "kafka_ingest_silent_partitions",
        "Partitions that Kafka did not answer about, or whose topic is another one now.",
        of_logs(lambda logs: logs.silent),
    ),
    Scraped(
        "kafka_ingest_holds",
        "Partitions and topics that take no part in batches, and open transactions.",
        lambda feed: feed.measures.holds,
    ),
    Scraped("kafka_ingest_open_gaps", "Gaps that no backfill has closed.", lambda feed: feed.measures.open_gaps),
    Scraped("kafka_ingest_gap_offsets", "The offsets in these gaps.", lambda feed: feed.measures.gap_offsets),
    Scraped(
        "kafka_ingest_rows_total",
        "Rows of committed batches in the feed's output.",
        lambda feed: feed.overview.rows_committed,
    ),
    Scraped(
        "kafka_ingest_filtered_total",
        "Records that where or transform left out, of the feed's partitions as they are now.",
        lambda feed: feed.overview.not_rows.filtered,
    ),
    Scraped(
        "kafka_ingest_filtered_percent",
        "How many of a hundred records of the newest committed batch were filtered.",
        lambda feed: feed.overview.not_rows.newest.filtered_percent,
    ),
    Scraped(
        "kafka_ingest_dead_letters_left",
        "Records that could not be decoded, and are neither replayed nor given up.",
        lambda feed: feed.overview.not_rows.dead_letters,
    ),
    Scraped(
        "kafka_ingest_kafka_answers",
        "1 where Kafka has answered about the feed, 0 where its lag is not known.",
        lambda feed: float(feed.measures.logs is not None),
    ),
    Scraped(
        "kafka_ingest_planned_timestamp_seconds",
        "When the feed was last planned.",
        lambda feed: seconds(feed.overview.planned_at),
    ),
    Scraped(
        "kafka_ingest_committed_timestamp_seconds",
        "When the feed's newest batch was committed.",
        lambda feed: seconds(feed.overview.last_committed_at),
    ),
    Scraped(
        "kafka_ingest_open_batch_timestamp_seconds",
        "Since when the feed's open batch has been in its state.",
        lambda feed: seconds(feed.overview.open_since),
    ),
)
"""All of them, in the order of their table."""


class FeedsCollector(Collector):
    """Feeds as Prometheus' library collects them."""

    def __init__(self, feeds: Iterable[ScrapedFeed]) -> None:
        self._feeds = list(feeds)

    def collect(self) -> Iterator[Metric]:
        """Yield each metric with a sample for each feed."""
        for each in SCRAPED:
            family = each.family()
            for feed in self._feeds:
                if (value := each.value(feed)) is not None:
                    family.add_sample(each.name, {"feed": feed.overview.name}, value)
            yield family


def exposition(feeds: Iterable[ScrapedFeed]) -> bytes:
    """Return the text; the library escapes the names of feeds."""
    return generate_latest(FeedsCollector(feeds))
