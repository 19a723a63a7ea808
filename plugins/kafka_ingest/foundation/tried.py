"""A step for each of several things, of which one's error leaves the others alone."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 8
"""Most of a step is waiting: for Kafka, a database, a disk or a store."""


@dataclass(slots=True)
class Tried(Generic[Result]):
    """What a step returned, or the error that it raised; an interruption of the process passes through."""

    result: Result | None = None
    error: Exception | None = None

    def __enter__(self) -> "Tried[Result]":
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: TracebackType | None) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


def tried(step: Callable[[Item], Result], item: Item) -> Tried[Result]:
    found: Tried[Result] = Tried()
    try:
        with found:
            found.result = step(item)
        return found
    finally:
        # Else an error's traceback leads back to it: a circle, which holds what the step does until it is collected.
        del found


def each_tried(step: Callable[[Item], Result], items: Sequence[Item]) -> list[Tried[Result]]:
    """Take a step for each item, several at a time; one alone in this thread."""
    if len(items) <= 1:
        return [tried(step, each) for each in items]
    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(partial(tried, step), items))
