"""Paths of values in a schema: what a feed says of those that have no column of their own, and which it requires.

Such a value is read as text or bytes, or left out. A path names it as the columns do: ``before.amount``. ``[]`` stands
for the elements of a list, ``{}`` for the values of a map: ``items[].price``, ``prices{}.amount``. A name with other
signs than letters, digits, ``_`` and ``-`` stands between backticks.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kafka_ingest.model.record_schema import RecordType, Struct, WrongSchemaError, quoted

ELEMENTS: Final = "[]"
MAP_VALUES: Final = "{}"
NAME: Final = re.compile(r"[\w-]+")
STEP: Final = re.compile(r"(?P<inside>\[\]|\{\})|(?P<dot>\.)?(?:(?P<name>[\w-]+)|(?P<quoted>`(?:[^`]|``)+`))")
MOST_PATHS: Final = 1_000
LONGEST_PATH: Final = 1_000


class ReadAs(StrEnum):
    """What a value becomes."""

    STRING = "string"
    """Text: the digits of a number, the text of bytes in UTF-8, JSON of all that holds other values."""

    BINARY = "binary"
    """The bytes of a text, or of a number of any size."""

    SKIP = "skip"
    """Nothing: the field is left out."""


def field_path(above: str, name: str) -> str:
    """Return the path of a field of the value at ``above``; an empty one is the record's own."""
    step = name if NAME.fullmatch(name) else quoted(name)
    return f"{above}.{step}" if above else step


def checked_path(path: str) -> str:
    """Return a path as :func:`field_path` writes it; raises ValueError."""
    at, found = 0, ""
    while at < len(path):
        step = STEP.match(path, at)
        if step is None or (step["inside"] is None and (step["dot"] is None) != (found == "")):
            break
        if step["inside"]:
            found += step["inside"]
        else:
            found = field_path(found, step["name"] or step["quoted"][1:-1].replace("``", "`"))
        at = step.end()
    if not path or at < len(path) or len(path) > LONGEST_PATH:
        raise ValueError(
            "expected the path of a field, such as before.amount, items[].price, prices{}.amount or `a.b`.c, "
            f"found {path[:100]!r}"
        )
    return found


class Paths:
    """What is said of the values of one schema. Each that is found there is noted, so that a mistyped one shows."""

    def __init__(self, read_as: Mapping[str, ReadAs]) -> None:
        self._read_as = read_as
        self._found: set[str] = set()

    def at(self, path: str) -> ReadAs | None:
        said = self._read_as.get(path)
        if said is not None:
            self._found.add(path)
        return said

    def is_about(self, path: str) -> bool:
        """Whether something is said of the value at a path, or of one inside of it."""
        return any(
            each.startswith(path) and (not path or each[len(path) :][:1] in {"", ".", "[", "{"})
            for each in self._read_as
        )

    def __bool__(self) -> bool:
        return bool(self._read_as)

    def check(self) -> None:
        """Raise WrongSchemaError where a path has led to nothing."""
        if missing := [path for path in self._read_as if path not in self._found]:
            raise WrongSchemaError(
                f"expected under as paths of the schema, found {', '.join(missing[:10])}, which it has not, or not "
                "outside of what is read as text or left out: correct the path, or take it out"
            )


def required_path(path: str) -> str:
    """Return a path of fields of objects as :func:`~kafka_ingest.model.read_as.field_path` writes it.

    Raises ValueError where it is none, or leads into arrays or maps.
    """
    if "[]" in (found := checked_path(path)) or "{}" in found:
        raise ValueError(f"expected the path of a field that is in no array and no map, found {path[:100]!r}")
    return found


def names_of(path: str) -> tuple[str, ...]:
    return tuple(step["name"] or step["quoted"][1:-1].replace("``", "`") for step in STEP.finditer(path))


def not_in(schema: RecordType, paths: Iterable[str]) -> list[str]:

    def has(kind: RecordType, names: tuple[str, ...]) -> bool:
        if not names:
            return True
        fields = kind.fields if isinstance(kind, Struct) else ()
        return any(field.name == names[0] and has(field.type, names[1:]) for field in fields)

    return [path for path in paths if not has(schema, names_of(path))]
