"""What may happen in the middle of a step: before or after any of its calls to control tables, Kafka or the sink."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tests.fakes import Watched

INCIDENTS = (
    *("crash", "another run", "an operator abandons", "an operator cleans", "an operator fills the gaps"),
    "Kafka goes down",
)


class Killed(BaseException):
    """A process that was killed: none of its own handlers runs."""


@dataclass(frozen=True)
class Interruption:
    """Something that happens before or after a step's n-th call, counted from 1."""

    moment: Literal["before", "after"]
    call: int
    incident: str


class Interrupter:
    """Counts the calls of a step and lets its interruption happen, once."""

    def __init__(self, happen: Callable[[str], None]) -> None:
        self._happen = happen
        self._planned: Interruption | None = None
        self._calls = 0
        self.happened: str | None = None

    @contextmanager
    def during_step(self, planned: Interruption | None) -> Iterator[None]:
        """Interrupt what is done inside; a step that makes fewer calls is not interrupted."""
        self._planned, self._calls, self.happened = planned, 0, None
        try:
            yield
        finally:
            self._planned = None

    def watch(self, part: object, returned: Callable[[str], object] = lambda _name: None) -> Watched:
        """Return a part whose calls are counted. ``returned`` is called before anything can happen after a call."""

        def after(name: str) -> None:
            returned(name)
            self._at("after")

        return Watched(part, lambda _name: self._before(), after)

    def _before(self) -> None:
        self._calls += 1
        self._at("before")

    def _at(self, moment: str) -> None:
        planned = self._planned
        if planned is None or (moment, self._calls) != (planned.moment, planned.call):
            return
        self._planned, self.happened = None, planned.incident
        self._happen(planned.incident)
