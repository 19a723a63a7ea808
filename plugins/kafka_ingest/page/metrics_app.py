"""The metrics of all feeds in Prometheus' text format (docs/metrics.md): one route, with a token and no Airflow user.

Without the token each address and method answers alike, the route's own included. Control tables answer at once, Kafka
within its time limit, or not this time.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import PlainTextResponse, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from kafka_ingest.errors import KafkaIngestError, MissingConnectionError
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, Distances, FeedMeasures, measures_of
from kafka_ingest.page.all_feeds import by_connection
from kafka_ingest.page.kept_answers import Answer, KeptAnswers, Turns
from kafka_ingest.page.sources import KAFKA_TIMEOUT_S, Sources, isolation_of, settings_of, sources_of_server
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed_file import FeedFile

CONN_ID: Final = "kafka_ingest_metrics"
SHORTEST: Final = 16
"""A shorter token could be guessed: it counts as none."""
WAIT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05
WAITING_AT_ONCE: Final = 8


def token_of(find_connection: FindConnection) -> str | None:
    """Return the token, None where there is none that can be used; then the log says why."""
    try:
        token = find_connection(CONN_ID).password or ""
    except MissingConnectionError:
        return None
    except KafkaIngestError as error:
        log.warning("metrics are not served: %s", error)
        return None
    if len(token) < SHORTEST:
        log.warning(
            "metrics are not served: expected a token of at least %d characters as the password of connection %s, "
            "found a shorter one, or none",
            SHORTEST,
            CONN_ID,
        )
        return None
    return token


def bearer_of(header: str) -> str:
    """Return the token in an ``Authorization`` header, empty where there is none."""
    scheme, _, token = header.partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def token_needed(find_connection: FindConnection, kept: KeptAnswers) -> Callable[[Request], Awaitable[None]]:
    """Return what refuses a request without the token: the answer does not show whether there is one.

    The connection is looked up every few seconds at most. Who waits for that holds no thread, and is one of a few: a
    request without anything that could be a token, and one too many, is refused at once. A token counts for as long
    as its look-up does; where that failed, none is known.
    """
    waiting = asyncio.Semaphore(WAITING_AT_ONCE)

    async def check(request: Request) -> None:
        # As bytes: a text that is no ASCII is refused by the comparison. Headers are read as ISO 8859-1.
        given = bearer_of(request.headers.get("authorization", "")).encode("latin-1")
        if len(given) < SHORTEST:
            raise HTTPException(status.HTTP_404_NOT_FOUND)
        expected = await known_token(find_connection, kept, waiting)
        if expected is None or not secrets.compare_digest(given, expected.encode()):
            raise HTTPException(status.HTTP_404_NOT_FOUND)

    return check


async def known_token(find_connection: FindConnection, kept: KeptAnswers, waiting: asyncio.Semaphore) -> str | None:
    """Return the token as it was looked up just now; None where it is not known in time."""

    def look() -> Answer[str | None]:
        return kept.answer(CONN_ID, lambda: token_of(find_connection), wait_s=0)

    answer = look()
    if answer.is_pending and not waiting.locked():
        async with waiting:
            for _ in range(round(WAIT_S / LOOK_EVERY_S)):
                await asyncio.sleep(LOOK_EVERY_S)
                if not (answer := look()).is_pending:
                    break
    return None if answer.is_pending or answer.error is not None else answer.value


METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
AT_ONCE: Final = 2
"""So many scrapes are answered at a time: each may wait for Kafka, and asks for all feeds."""

log = logging.getLogger(__name__)


def build_app(sources: Sources | None = None) -> FastAPI:
    sources = sources or sources_of_server()
    with_token = Depends(token_needed(sources.find_connection, KeptAnswers()))
    app = FastAPI(title="Metrics of Kafka feeds", openapi_url=None, docs_url=None, redoc_url=None)
    add_errors(app)

    @app.get("/metrics", dependencies=[with_token, Depends(Turns(AT_ONCE))])
    def metrics() -> Response:
        return Response(exposition(scraped_feeds(sources)), media_type=CONTENT_TYPE)

    @app.api_route("/{path:path}", methods=METHODS)
    def nothing() -> Response:
        raise HTTPException(status.HTTP_404_NOT_FOUND)

    return app


def add_errors(app: FastAPI) -> None:
    """Answer errors with named ones' own words, which hold no secret, and of others nothing."""

    @app.exception_handler(HTTPException)
    def refused(_request: Request, error: HTTPException) -> Response:
        return Response(status_code=error.status_code)

    @app.exception_handler(KafkaIngestError)
    def named(_request: Request, error: KafkaIngestError) -> Response:
        return PlainTextResponse(f"{error.code}: {error}\n", status.HTTP_503_SERVICE_UNAVAILABLE)

    @app.exception_handler(Exception)
    def unexpected(_request: Request, error: Exception) -> Response:
        log.error("the metrics of Kafka feeds failed", exc_info=error)
        return Response(status_code=status.HTTP_500_INTERNAL_SERVER_ERROR)


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
    feed = settings_of(file)
    look = looks.get(feed.kafka.conn_id) if feed is not None else None
    logs, why_not = (None, "its feed file is not known") if look is None else (look.value, look.error)
    if look is not None and (look.error is not None or look.age_s is None or look.age_s > OLDEST_S):
        logs = None
    measures = measures_of(overview, overview.open_gaps, logs, isolation_of(feed), why_not=why_not)
    return ScrapedFeed(overview, measures)


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
        return "counter" if self.name.endswith(TOTAL) else "gauge"

    def family(self) -> Metric:
        if self.kind == "counter":
            return CounterMetricFamily(self.name.removesuffix(TOTAL), self.text, labels=["feed"])
        return GaugeMetricFamily(self.name, self.text, labels=["feed"])


def of_logs(value: Callable[[Distances], int | None]) -> Callable[[ScrapedFeed], float | None]:
    return lambda feed: None if feed.measures.logs is None else value(feed.measures.logs)


def seconds(time: datetime | None) -> float | None:
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
        "Dead letters that are neither replayed nor given up.",
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
        for each in SCRAPED:
            family = each.family()
            for feed in self._feeds:
                if (value := each.value(feed)) is not None:
                    family.add_sample(each.name, {"feed": feed.overview.name}, value)
            yield family


def exposition(feeds: Iterable[ScrapedFeed]) -> bytes:
    return generate_latest(FeedsCollector(feeds))
