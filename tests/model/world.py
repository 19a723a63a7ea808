"""A feed in memory and the actors that work on it, as the search sees them: a state, and steps that can be taken."""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from pathlib import Path, PosixPath
from types import NoneType
from typing import Any, Protocol
from uuid import UUID

from greenlet import GreenletExit, getcurrent
from tests.fakes import ControlState, FeedInMemory
from tests.model.actor import Actor, Crashed
from tests.model.explore import CRASH, State

from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.published_output import PublishedReceipt

PLAIN = frozenset({NoneType, str, int, bool, UUID, PosixPath, bytes, datetime})
"""The types whose values stand for themselves, of which nearly all is made."""


@cache
def names_of_fields(kind: type) -> tuple[str, ...]:
    """Return the names of a dataclass's fields; none of another type."""
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()


@dataclass(frozen=True)
class Moment:
    """The stores between two steps, as the invariants compare them."""

    control: ControlState
    published: Mapping[UUID, PublishedReceipt]


class Checks(Protocol):
    """What is looked at after every step, and at the end; all raise ViolationError.

    ``memory`` is what they remember.
    """

    memory: Hashable

    def after_step(self, actor: str, before: Moment, after: Moment) -> None:
        """Look at what a step changed."""

    def of_outcome(self, actor: str, error: KafkaIngestError | None) -> None:
        """Look at how an actor ended."""

    def at_the_end(self, world: "World") -> None:
        """Look at what is left when all have ended."""


@dataclass(frozen=True)
class Bounds:
    """What may go wrong in a world.

    How many processes die, whether Airflow tries a killed task again, whether Spark dies, too.

    Without a ``group`` nothing is mirrored, which is a third of all steps.
    """

    crashes: int = 0
    killed_tasks_are_tried_again: bool = False
    spark_may_die: bool = False
    group: str | None = None


class World:
    """Stores, actors, and how many crashes may still happen."""

    def __init__(self, feed: FeedInMemory, checks: Checks, *, bounds: Bounds) -> None:
        self.feed = feed
        self.checks = checks
        self.crashes = bounds.crashes
        self.nobody_crashed = True
        self.killed_tasks_are_tried_again = bounds.killed_tasks_are_tried_again
        self.spark_may_die = bounds.spark_may_die
        self.group = bounds.group
        self.hub = getcurrent()
        self.actors: dict[str, Actor] = {}
        self._lines: list[str] = []
        self._tokens: dict[int, tuple[object, int]] = {}
        self._control_token: tuple[object, Hashable] = (None, None)

    def add(self, name: str, work: Callable[[Actor], str], *, can_crash: bool = True) -> Actor:
        """Let an actor begin: up to its first step."""
        actor = self.actors[name] = Actor(self, name, len(self.actors) + 1, work, can_crash=can_crash)
        actor.switch()
        actor.parent = self.hub  # from now on it is the search that it stops for
        return actor

    # What the search asks.

    def take(self, choice: str) -> None:
        actor = self.actors[choice.removeprefix(CRASH)]
        before = self.moment()
        self._lines.append(f"{actor.name}: {'crashes before ' if choice.startswith(CRASH) else ''}{actor.next_call}")
        if choice.startswith(CRASH):
            self.crashes -= 1
            self.nobody_crashed = False
            actor.throw(Crashed())
        else:
            actor.switch()
        if actor.outcome is not None:
            self.note(f"{actor.name} ends: {actor.outcome}")
        self.checks.after_step(actor.name, before, self.moment())
        if actor.outcome is not None:
            self.checks.of_outcome(actor.name, actor.error)

    def state(self) -> State:
        actors = sorted((name, actor.standing()) for name, actor in self.actors.items())
        return State(self.stores_state(), tuple(actors), self.crashes)

    def stores_state(self) -> Hashable:
        """Return a digest of what is stored."""
        control = self.feed.control.state
        if self._control_token[0] is not control:
            rows = {each.name: getattr(control, each.name) for each in fields(control)}
            self._control_token = (control, hash(self.token(rows)))
        sink = self.feed.sink
        return hash(
            (
                self._control_token[1],
                frozenset(sink.receipts),
                frozenset(sink.staged),
                frozenset((batch_id, kept.receipt.attempt) for batch_id, kept in sink.published.items()),
                frozenset(sink.documents),
                frozenset(sink.revoked),
                self.token(self.feed.kafka.groups),
                self.checks.memory,
            )
        )

    def finish(self) -> None:
        self.checks.at_the_end(self)

    def story(self) -> list[str]:
        return self._lines

    def close(self) -> None:
        for actor in self.actors.values():
            if not actor.dead and actor:
                actor.throw(GreenletExit)

    # What actors and invariants need.

    def moment(self) -> Moment:
        """Return the stores as they are now."""
        return Moment(self.feed.control.state, dict(self.feed.sink.published))

    def note(self, what: str) -> None:
        """Say more of the present step."""
        if self._lines:
            self._lines[-1] += f"  → {what}"

    def add_line(self, what: str) -> None:
        """Add a line to the story."""
        self._lines.append(what)

    def token(self, value: Any) -> Hashable:
        """Return something hashable that is equal for equal values."""
        kind = type(value)
        if kind in PLAIN:
            return value
        names = names_of_fields(kind)
        return self._token_of(value, names) if names else self._other_token(value)

    def _token_of(self, value: Any, names: tuple[str, ...]) -> Hashable:
        known = self._tokens.get(id(value))
        if known is None:
            # The value is kept, so that its identity is not given to another one.
            known = (value, hash(tuple([self.token(getattr(value, name)) for name in names])))
            self._tokens[id(value)] = known
        return known[1]

    def _other_token(self, value: Any) -> Hashable:
        if isinstance(value, str | int | Enum | UUID | Path | bytes | datetime):
            return value
        if isinstance(value, Mapping):
            return frozenset([(self.token(key), self.token(each)) for key, each in value.items()])
        if isinstance(value, set | frozenset):
            return frozenset([self.token(each) for each in value])
        if isinstance(value, list | tuple):
            return tuple([self.token(each) for each in value])
        return repr(value)
