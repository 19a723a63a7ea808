"""What makes an execution repeatable, and two ways to the same knowledge the same.

Ids, times, and what is forgotten.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from datetime import datetime, tzinfo
from typing import Any
from uuid import UUID

import pytest
import tests.fakes
import uuid6
from greenlet import getcurrent
from tests.fakes import SOME_DAY
from tests.model.actor import Actor

import kafka_ingest.batches.commit_batch as commit_module
import kafka_ingest.batches.open_attempt as open_attempt_module
import kafka_ingest.batches.plan_backfill as backfill_module
import kafka_ingest.batches.plan_batch
import kafka_ingest.batches.plan_batch as plan_module
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.batch import AttemptDocument
from kafka_ingest.model.receipt import Receipt

MOST_KNOWN = 1_000
FIRST_ID = UUID("01990000-0000-7000-8000-000000000000").int


class StandingClock(datetime):
    """A clock that stands still: no rule of the protocol asks what time it is."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # noqa: ARG003 - datetime's signature
        return SOME_DAY


def next_id() -> UUID:
    """Return an id that depends on who asks, and not on who else was faster."""
    current = getcurrent()
    if not isinstance(current, Actor):
        return UUID(int=FIRST_ID)
    current.ids += 1
    return UUID(int=FIRST_ID + current.number * 1_000 + current.ids)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    """Let every execution make the same ids at the same time."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (tests.fakes, plan_module, backfill_module, open_attempt_module):
            patch.setattr(module, "datetime", StandingClock)
        for module, name in FORGETFUL:
            patch.setattr(module, name, forgetful(getattr(module, name)))
        patch.setattr(uuid6, "uuid7", next_id)
        patch.setattr(Receipt, "as_bytes", once_each(Receipt.as_bytes))
        patch.setattr(AttemptDocument, "from_bytes", functools.lru_cache(MOST_KNOWN)(AttemptDocument.from_bytes))
        yield


def once_each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let a method of values that never change compute its answer once for each: invariants ask after every step."""
    known: dict[int, tuple[object, Any]] = {}

    @functools.wraps(function)
    def call(value: Any) -> Any:
        if id(value) not in known:
            if len(known) == MOST_KNOWN:
                known.clear()
            known[id(value)] = (value, function(value))
        return known[id(value)][1]

    return call


def forgetful(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let an actor forget all that a function learned when it returns, but for what it returns.

    The functions of the protocol keep nothing elsewhere; two ways through one that come to the same result are then the
    same.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        actor = getcurrent()
        if not isinstance(actor, Actor):
            return function(*arguments, **named)
        before = actor.known
        actor.learn(function.__name__)
        try:
            answer = function(*arguments, **named)
        except KafkaIngestError as error:
            actor.known = before
            actor.learn((type(error), str(error)))
            raise
        actor.known = before
        actor.learn(actor.world.token(answer))
        return answer

    return call


FORGETFUL = (
    (plan_module, "check_newest_known"),
    (plan_module, "new_feed"),
    (backfill_module, "decide_backfill"),
    (plan_module, "resume_open_batch"),
    (kafka_ingest.batches.plan_batch, "pin_first_valid_receipt"),
    (tests.fakes, "open_attempt"),
    (open_attempt_module, "pin_first_valid_receipt"),
    (open_attempt_module, "attempt_and_document"),
    (tests.fakes, "pin_attempt"),
    (commit_module, "pinned_attempt"),
    (commit_module, "verified_receipt"),
    (commit_module, "mirror_group"),
)
"""Where the functions of the protocol are called from."""
