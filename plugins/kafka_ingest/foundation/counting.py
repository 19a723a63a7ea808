"""Numbers with their nouns, for messages, and values by their keys."""

from collections.abc import Iterable
from typing import TypeVar


def counted(number: int | None, noun: str) -> str:
    """Return a number, or a dash where none is known, with its noun."""
    if number == 1:
        return f"1 {noun}"
    ending = "es" if noun.endswith("ch") else "s"
    plural = f"{noun.removesuffix('y')}ies" if noun.endswith("ry") else noun + ending
    return f"{'-' if number is None else f'{number:,}'} {plural}"


def are(number: int) -> str:
    return "is" if number == 1 else "are"


def were(number: int) -> str:
    return "was" if number == 1 else "were"


K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key; keys and values are in the order in which they come."""
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return found
