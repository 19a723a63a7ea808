"""Answers that take a while: asked for beside the page, kept for some seconds, shown as soon as they are there."""

import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from fastapi import HTTPException, status

from kafka_ingest.errors import KafkaIngestError

T = TypeVar("T")

FRESH_S = 15.0
"""For how long an answer is shown before it is asked for again."""
MOST_KEPT = 1_000
FORGOTTEN_S = 300.0
"""What was not asked for so long is dropped: each batch of a feed is a new question, of up to 10,000 partitions."""
AT_ONCE = 4
SLOW_S = 20.0
"""After so long without an answer a view says so, and is not made again every moment."""
REFRESH_S, REFRESH_PENDING_S = 30, 2
"""After how long a view is asked for again, and while an answer is under way."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What is known now: the newest value, how old it is, the error of the newest try, whether one is under way."""

    value: T | None = None
    age_s: float | None = None
    error: str | None = None
    is_pending: bool = False


@dataclass(slots=True)
class Entry:
    """One question: its newest value and error, and the try under way."""

    value: object = None
    value_at: float | None = None
    error: str | None = None
    ended_at: float | None = None
    trying: Future[None] | None = None
    tried_at: float = 0.0
    asked_at: float = 0.0


class KeptAnswers:
    """The newest answer of each question. Many viewers of a page ask once."""

    def __init__(self, *, fresh_s: float = FRESH_S, forgotten_s: float = FORGOTTEN_S, slow_s: float = SLOW_S) -> None:
        self._fresh_s = fresh_s
        self._forgotten_s = forgotten_s
        self._slow_s = slow_s
        self._entries: dict[Hashable, Entry] = {}
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="kafka-offsets-page")

    def answer(self, question: Hashable, ask: Callable[[], T], *, wait_s: float) -> Answer[T]:
        """Return what is known, after a moment for what is under way. A failure says what failed, and no secret."""
        now = time.monotonic()
        with self._lock:
            entry = self._entries.setdefault(question, Entry())
            entry.asked_at = now
            is_fresh = entry.ended_at is not None and now - entry.ended_at < self._fresh_s
            if entry.trying is None and not is_fresh:
                entry.trying, entry.tried_at = self._threads.submit(self._try, entry, ask), now
            trying = entry.trying
            self._forget(now)
        if trying is not None:
            wait([trying], wait_s)
        with self._lock:
            age_s = None if entry.value_at is None else time.monotonic() - entry.value_at
            took_s = time.monotonic() - entry.tried_at
            is_slow = entry.trying is not None and took_s > self._slow_s
            error = f"no answer for {took_s:.0f} s; it is still being asked" if is_slow else entry.error
            return Answer(cast("T | None", entry.value), age_s, error, entry.trying is not None and not is_slow)

    def _try(self, entry: Entry, ask: Callable[[], object]) -> None:
        value, error = None, None
        try:
            value = ask()
        except (KafkaIngestError, OSError) as refused:
            error = str(refused)
        except BaseException:  # a SystemExit, too, is an answer: otherwise it would be waited for for ever
            log.exception("a question of the page Kafka offsets failed")
            error = "an unexpected error; the API server's log says which"
        with self._lock:
            entry.trying, entry.ended_at, entry.error = None, time.monotonic(), error
            if error is None:
                entry.value, entry.value_at = value, entry.ended_at

    def _forget(self, now: float) -> None:
        for key in [key for key, entry in self._entries.items() if now - entry.asked_at > self._forgotten_s]:
            del self._entries[key]
        if len(self._entries) > MOST_KEPT:
            ended = [(entry.ended_at, key) for key, entry in self._entries.items() if entry.ended_at is not None]
            for _, key in sorted(ended, key=lambda each: each[0])[: MOST_KEPT // 2]:
                del self._entries[key]


TURNS_AT_ONCE: Final = 8
"""Airflow's API server has 40 threads for all that waits. A database that hangs holds each for up to 30 s."""


class Turns:
    """Lets so many requests in; who comes then is sent away at once, and the page asks again."""

    def __init__(self, at_once: int = TURNS_AT_ONCE) -> None:
        self._left = at_once

    async def __call__(self) -> AsyncIterator[None]:
        # Only the event loop comes here, so nothing is counted twice.
        if not self._left:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1
