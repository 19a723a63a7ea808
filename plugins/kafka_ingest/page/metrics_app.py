"""The metrics of all feeds, for who scrapes them: one route, which needs a token and no Airflow user.

Without the token each address and method answers alike, the route's own included.
"""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import PlainTextResponse, Response

from kafka_ingest.errors import KafkaIngestError, MissingConnectionError
from kafka_ingest.page.exposition import CONTENT_TYPE, exposition, scraped_feeds
from kafka_ingest.page.kept_answers import Answer, KeptAnswers
from kafka_ingest.page.sources import Sources, sources_of_server
from kafka_ingest.page.turns import Turns
from kafka_ingest.settings.connections import FindConnection

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
        """Answer as the route above does without its token."""
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
