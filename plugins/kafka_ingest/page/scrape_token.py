"""The token of who scrapes metrics: the password of the Airflow connection ``kafka_ingest_metrics``."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import HTTPException, Request, status

from kafka_ingest.errors import KafkaIngestError, MissingConnectionError
from kafka_ingest.page.kept_answers import Answer, KeptAnswers
from kafka_ingest.settings.connections import FindConnection

CONN_ID: Final = "kafka_ingest_metrics"
SHORTEST: Final = 16
"""A shorter token could be guessed: it counts as none."""
WAIT_S: Final = 5.0
LOOK_EVERY_S: Final = 0.05
WAITING_AT_ONCE: Final = 8

log = logging.getLogger(__name__)


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
    """Return what refuses a request without the token: nobody learns from the answer whether there is one.

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
