"""The metrics of feeds: each one's name, and how they are sent through Airflow's own (docs/metrics.md)."""

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final
from uuid import UUID

from airflow.providers.common.compat.sdk import Stats, conf

from kafka_ingest.batches.ask_together import as_asked
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.plan_batch import Asked
from kafka_ingest.observing.feed_lines import FeedMeasures, feed_measures

if TYPE_CHECKING:
    from kafka_ingest.assembly import FeedParts

log = logging.getLogger(__name__)

KAFKA_TIMEOUT_S: Final = 5.0
"""How long each question to Kafka may take that is asked for the sake of metrics alone."""

SWITCHES: Final = ("statsd_on", "statsd_datadog_enabled", "otel_on")
"""The settings of Airflow's section ``metrics`` that switch them on."""


class MetricKind(StrEnum):
    """What a metric is to StatsD; OpenTelemetry has histograms for timers."""

    COUNTER = "counter"
    GAUGE = "gauge"
    TIMER = "timer"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Every one has the tag ``feed``; ``more_tags`` are its others.

    Plain StatsD has no tags, so Airflow gives its older metrics a second name with the tags' values in it
    (``metrics.legacy_names_on``). Here it is the name with the values of ``in_name`` at its end.
    """

    name: str
    kind: MetricKind
    more_tags: tuple[str, ...] = ()
    in_name: tuple[str, ...] = ("feed",)

    def named(self, tags: Mapping[str, str]) -> tuple[str, dict[str, str]]:
        """Return the second name, and the tags that are not in it; dots in values do not separate parts of the name."""
        values = [tags[tag].replace(".", "__") for tag in self.in_name]
        return ".".join([self.name, *values]), {tag: value for tag, value in tags.items() if tag not in self.in_name}

    def send(self, value: float | timedelta, **tags: str) -> None:
        """Send it, under both names where Airflow does so; may raise whatever the library behind Airflow raises."""
        names: list[tuple[str, dict[str, str]]] = [(self.name, dict(tags))]
        if conf.getboolean("metrics", "legacy_names_on"):
            names.append(self.named(tags))
        for name, of_name in names:
            if self.kind is MetricKind.TIMER:
                Stats.timing(name, value, tags=of_name)
            elif isinstance(value, timedelta):
                raise TypeError(f"{name}: expected a number, found a duration")
            elif self.kind is MetricKind.GAUGE:
                Stats.gauge(name, value, tags=of_name)
            else:
                Stats.incr(name, int(value), tags=of_name)


LAG = Metric("kafka_ingest.lag", MetricKind.GAUGE)
HEADROOM = Metric("kafka_ingest.headroom", MetricKind.GAUGE)
LOW_HEADROOM = Metric("kafka_ingest.low_headroom_partitions", MetricKind.GAUGE)
LOST_OFFSETS = Metric("kafka_ingest.lost_offsets", MetricKind.GAUGE)
SILENT_PARTITIONS = Metric("kafka_ingest.silent_partitions", MetricKind.GAUGE)
FRESHNESS = Metric("kafka_ingest.freshness", MetricKind.GAUGE)
HOLDS = Metric("kafka_ingest.holds", MetricKind.GAUGE)
OPEN_GAPS = Metric("kafka_ingest.open_gaps", MetricKind.GAUGE)
GAP_OFFSETS = Metric("kafka_ingest.gap_offsets", MetricKind.GAUGE)
BATCHES = Metric("kafka_ingest.batches", MetricKind.COUNTER, ("kind",))
ROWS = Metric("kafka_ingest.rows", MetricKind.COUNTER, ("kind",))
BYTES = Metric("kafka_ingest.bytes", MetricKind.COUNTER, ("kind",))
DEAD_LETTERS = Metric("kafka_ingest.dead_letters", MetricKind.COUNTER, ("kind",))
FILTERED = Metric("kafka_ingest.filtered", MetricKind.COUNTER, ("kind",))
NEVER_FOUND = Metric("kafka_ingest.never_found_fields", MetricKind.COUNTER, ("kind",))
BATCH_DURATION = Metric("kafka_ingest.batch_duration", MetricKind.TIMER, ("kind",))
STEP_DURATION = Metric("kafka_ingest.step_duration", MetricKind.TIMER, ("step",), ("feed", "step"))
ATTEMPTS = Metric("kafka_ingest.attempts", MetricKind.COUNTER)
FAILED_ATTEMPTS = Metric("kafka_ingest.failed_attempts", MetricKind.COUNTER)
MIRROR_FAILURES = Metric("kafka_ingest.mirror_failures", MetricKind.COUNTER)

METRICS: Final = tuple(each for each in list(vars().values()) if isinstance(each, Metric))
"""All of them, in the order of their table."""


@contextlib.contextmanager
def sending() -> Iterator[None]:
    """Let a task send metrics: where that fails, it is logged, and the task neither fails nor is retried for it."""
    try:
        yield
    except Exception:
        log.warning("some metrics were not sent; the task continues without them", exc_info=True)


def are_sent() -> bool:
    """Whether Airflow sends metrics anywhere: otherwise nothing is asked or read for them."""
    return any(conf.getboolean("metrics", switch, fallback=False) for switch in SWITCHES)


@contextlib.contextmanager
def step_duration(feed: str, step: str) -> Iterator[None]:
    began = time.monotonic()
    yield
    with sending():
        STEP_DURATION.send(timedelta(seconds=time.monotonic() - began), feed=feed, step=step)


def send_count(metric: Metric, feed: str) -> None:
    with sending():
        metric.send(1, feed=feed)


def send_standing(parts: "FeedParts", asked: Asked | None = None) -> None:
    """Send where a feed stands now, asking its control tables and Kafka; without Kafka's answer what is stored.

    Of a feed that its plan has not changed, what was ``asked`` for that is not asked again.
    """
    with sending():
        if not are_sent():
            return
        unchanged = asked if asked is not None and asked.nothing is not None else None
        from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster  # noqa: PLC0415 - not to read a DAG file

        snapshot = unchanged.feed if unchanged is not None else parts.control.feed(parts.feed.name)
        if snapshot is None:
            return
        # With a shorter time limit than the feed's own client: a batch that is written already can do without Kafka.
        kafka = (
            as_asked(unchanged.answers)
            if unchanged is not None
            else ConfluentKafkaCluster(lambda: parts.kafka_client, at_most_s=KAFKA_TIMEOUT_S)
        )
        measures = feed_measures(snapshot, parts.control, kafka, parts.feed.kafka.isolation)
        if measures.kafka_error is not None:
            log.info("metrics that need Kafka's answer are not sent: %s", measures.kafka_error)
        for metric, value in gauges(measures):
            metric.send(value, feed=parts.feed.name)


def gauges(measures: FeedMeasures) -> Iterator[tuple[Metric, int]]:
    yield HOLDS, measures.holds
    yield OPEN_GAPS, measures.open_gaps
    yield GAP_OFFSETS, measures.gap_offsets
    if measures.low_headroom is not None:
        yield LOW_HEADROOM, measures.low_headroom
    if measures.freshness is not None:
        yield FRESHNESS, measures.freshness // timedelta(seconds=1)
    if (logs := measures.logs) is not None:
        yield LOST_OFFSETS, logs.lost
        yield SILENT_PARTITIONS, logs.silent
        if logs.lag is not None:
            yield LAG, logs.lag
        if logs.headroom is not None:
            yield HEADROOM, logs.headroom


def send_committed(committed: Committed, parts: "FeedParts", began: datetime) -> None:
    """Send what a commit did that began then. What an earlier try committed was counted by that one."""
    feed, plan = parts.feed.name, committed.batch.plan
    if committed.mirrored.failure is not None:
        send_count(MIRROR_FAILURES, feed)
    with sending():
        if not committed.by_us or not are_sent():
            return
        # The batch before the next id is this one.
        [line] = parts.control.batch_lines(plan.feed_id, before=UUID(int=plan.batch_id.int + 1), limit=1)
        if line.batch_id != plan.batch_id or line.committed_at is None or line.committed_at < began:
            return
        tags = {"feed": feed, "kind": plan.kind.value}
        BATCHES.send(1, **tags)
        ROWS.send(sum(count.rows for count in committed.counts), **tags)
        BYTES.send(line.size_bytes or 0, **tags)
        DEAD_LETTERS.send(sum(count.dead_letters for count in committed.counts), **tags)
        FILTERED.send(sum(count.filtered for count in committed.counts), **tags)
        NEVER_FOUND.send(committed.never_found, **tags)
        BATCH_DURATION.send(line.committed_at - line.planned_at, **tags)
