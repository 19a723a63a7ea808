"""Fields that the forms of several DAGs have: texts and lines that may be left empty, and offset ranges."""

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import BeforeValidator

from kafka_ingest.errors import InvalidRangeError, WrongUseError
from kafka_ingest.model.offsets import OffsetRange, TopicPartition

TOPIC: Final = "[A-Za-z0-9._-]+"
PARTITION: Final = "[0-9]{1,10}"
OFFSET: Final = "[0-9](?:_?[0-9]){0,18}"
OFFSET_RANGE: Final = rf"^({TOPIC}):({PARTITION})=({OFFSET})-({OFFSET})$"
"""``orders:0=1200-1300``: topic orders, partition 0, offset 1200 is read, 1300 is not. Also a JSON schema's pattern."""

RECORD: Final = rf"^({TOPIC}):({PARTITION})=({OFFSET})$"
"""``orders:0=1200``: the record at offset 1200 of partition 0 of topic orders. Also a JSON schema's pattern."""

EXAMPLE: Final = "2026-01-31T00:00:00Z"
LARGEST_PARTITION: Final = 2**31 - 1
LARGEST_OFFSET: Final = 2**63 - 1


def blank_is_none(value: object) -> object:
    """Treat an empty field of a form as left out, and strip blanks around a text."""
    return (value.strip() or None) if isinstance(value, str) else value


def none_is_empty(value: object) -> object:
    """Treat a list that was left out as empty, and skip empty lines of a form."""
    if value is None:
        return []
    if isinstance(value, list):
        lines = [line.strip() if isinstance(line, str) else line for line in value]
        return [line for line in lines if line not in ("", None)]
    return value


Text = Annotated[str | None, BeforeValidator(blank_is_none)]
Lines = Annotated[list[str], BeforeValidator(none_is_empty)]


def range_named(text: str) -> OffsetRange:
    """Return the range that ``TOPIC:PARTITION=FROM-TO`` names; raises InvalidRangeError."""
    found = re.fullmatch(OFFSET_RANGE, text)
    numbers = [int(number) for number in found.groups()[1:]] if found is not None else []
    if found is None or max(numbers) > LARGEST_OFFSET:
        raise InvalidRangeError(f"expected TOPIC:PARTITION=FROM-TO, such as orders:0=1200-1300, found {text!r}")
    partition, start, end = numbers
    if start >= end:
        raise InvalidRangeError(f"expected FROM below TO, since FROM is read and TO is not, found {text!r}")
    return OffsetRange(TopicPartition(found[1], partition), start, end)


def record_named(text: str, option: str = "") -> tuple[TopicPartition, int]:
    """Return the partition and the offset that ``TOPIC:PARTITION=OFFSET`` names.

    Raises InvalidRangeError, or WrongUseError with the option that it is for.
    """
    found = re.fullmatch(RECORD, text)
    if found is None or int(found[2]) > LARGEST_PARTITION or int(found[3]) > LARGEST_OFFSET:
        kind = WrongUseError if option else InvalidRangeError
        raise kind(f"expected {option}TOPIC:PARTITION=OFFSET, such as orders:0=1200, found {text!r}")
    return TopicPartition(found[1], int(found[2])), int(found[3])


def time_with_zone(text: str, named: str, expected: str = f"a time such as {EXAMPLE}") -> datetime:
    """Return a time; raises WrongUseError, with what it is ``named``, where it cannot be read or has no zone."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # the year 1 or 9999, which is no year in UTC
        raise WrongUseError(f"{named}: expected {expected}, found {text!r}") from error
    raise WrongUseError(f"{named}: expected a time with a zone, such as {found.isoformat()}Z, found {text!r}")
