"""Patterns of topics: which topics one selects. A producer names topics, so no name may keep a plan at work for ever.

Python's ``re`` tries all ways of a pattern such as ``(a+)+b``: a topic of 40 letters would take it years, and nothing
ends it. ``regex`` reads the same expressions, finds most of these at once, and has a time limit.
"""

from typing import TYPE_CHECKING, Final

from kafka_ingest.errors import InvalidFeedError

if TYPE_CHECKING:
    import regex

KAFKAS_PREFIX: Final = "__"
MARKS_SUFFIX: Final = ".kafka_ingest"
"""How the names of topics begin that are Kafka's own, and end that have the marks of Kafka as output."""

MATCHED_WITHIN_S: Final = 1.0


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
    except TimeoutError as error:
        raise InvalidFeedError(
            f"expected to find out within {MATCHED_WITHIN_S:g} s whether pattern {pattern!r} matches topic {topic!r}, "
            "and did not: it tries too many ways. Write repetitions within repetitions, such as (a+)+, as one"
        ) from error
