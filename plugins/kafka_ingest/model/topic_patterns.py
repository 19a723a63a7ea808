"""Patterns of topics: which topics one selects. A producer names topics, so no name may keep a plan at work for ever.

Python's ``re`` tries all ways of a pattern such as ``(a+)+b``: a topic of 40 letters would take it years, and nothing
ends it. ``regex`` decides most of these at once, and has a time limit. It reads the same expressions, but for ``{e}``,
which is "with any errors" to it, and ``[:alpha:]``: :func:`why_not_the_same` says what no feed may have.
"""

import re
from typing import TYPE_CHECKING, Final

from kafka_ingest.errors import InvalidFeedError

if TYPE_CHECKING:
    import regex

KAFKAS_PREFIX: Final = "__"
MARKS_SUFFIX: Final = ".kafka_ingest"
"""How the names of topics begin that are Kafka's own, and end that have the marks of Kafka as output."""

MATCHED_WITHIN_S: Final = 1.0

BRACE: Final = re.compile(r"(?<!\\)(?:\\\\)*\{(?!(?:\d+(?:,\d*)?|,\d+)\})|\[:")
"""What Python's own expressions take for plain characters, such as in ``orders-{eu}``: no topic's name has these."""


def why_not_the_same(pattern: str) -> str | None:
    """Return why a pattern that Python's own expressions know is none here; None where it is the same."""
    import regex  # noqa: PLC0415 - only feeds with a pattern need it

    if found := BRACE.search(pattern):
        return f"{found[0]!r} begins no number of repetitions, and no topic's name has it"
    try:
        regex.compile(pattern)
    except regex.error as error:
        return str(error)
    return None


def is_selected(topic: str, pattern: str) -> bool:
    """Whether a pattern selects a topic; raises as :func:`match_whole`."""
    return selection(topic, pattern) is not None


def selection(topic: str, pattern: str) -> "regex.Match[str] | None":
    """Return how a pattern matches a topic that may hold records which somebody means to read."""
    is_data = not topic.startswith(KAFKAS_PREFIX) and not topic.endswith(MARKS_SUFFIX)
    return match_whole(pattern, topic) if is_data else None


def match_whole(pattern: str, topic: str) -> "regex.Match[str] | None":
    """Return how a pattern matches a topic as a whole; raises InvalidFeedError where that is not found out in time."""
    import regex  # noqa: PLC0415 - only feeds with a pattern need it

    try:
        return regex.fullmatch(pattern, topic, timeout=MATCHED_WITHIN_S)
    except regex.error as error:
        raise InvalidFeedError(f"expected a regular expression for topics, found {pattern!r}: {error}") from error
    except TimeoutError as error:
        raise InvalidFeedError(
            f"expected to find out within {MATCHED_WITHIN_S:g} s whether pattern {pattern!r} matches topic {topic!r}, "
            "and did not: it tries too many ways. Write repetitions within repetitions, such as (a+)+, as one"
        ) from error
