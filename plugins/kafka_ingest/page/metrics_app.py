"""The metrics of all feeds, for who scrapes them: one route, which needs a token and no Airflow user.

Without the token each address and method answers alike, the route's own included.
"""

import logging
from typing import Final

from fastapi import Depends, FastAPI, HTTPException, Request, status
from fastapi.responses import PlainTextResponse, Response

from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.page.exposition import CONTENT_TYPE, exposition
from kafka_ingest.page.kept_answers import KeptAnswers
from kafka_ingest.page.scrape_token import token_needed
from kafka_ingest.page.scraped_feeds import scraped_feeds
from kafka_ingest.page.sources import Sources, sources_of_server
from kafka_ingest.page.turns import Turns

METHODS: Final = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]
AT_ONCE: Final = 2
"""So many scrapes are answered at a time: each may wait for Kafka, and asks for all feeds."""

log = logging.getLogger(__name__)


def build_app(sources: Sources | None = None) -> FastAPI:
    """Return the application that Airflow's API server mounts."""
    sources = sources or sources_of_server()
    with_token = Depends(token_needed(sources.find_connection, KeptAnswers()))
    app = FastAPI(title="Metrics of Kafka feeds", openapi_url=None, docs_url=None, redoc_url=None)
    add_errors(app)

    @app.get("/metrics", dependencies=[with_token, Depends(Turns(AT_ONCE))])
    def metrics() -> Response:
        """Return the metrics of all feeds that were ever planned."""
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
