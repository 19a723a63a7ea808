"""Which topics are meant: whether offsets still mean the records they were counted in, and what a pattern selects.

Python's ``re`` tries all ways of a pattern such as ``(a+)+b``: a topic of 40 letters would take it years, and nothing
ends it. ``regex`` decides most of these at once, and has a time limit. It reads the same expressions, but for ``{e}``,
which is "with any errors" to it, and ``[:alpha:]``: :func:`why_not_the_same` says what no feed may have.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from kafka_ingest.errors import InvalidFeedError, TopicGoneError, TopicRecreatedError, WrongClusterError
from kafka_ingest.model.offsets import TopicDescription

if TYPE_CHECKING:
    import regex


def check_cluster(known: str | None, found: str, feed_name: str) -> None:
    """Raise WrongClusterError where the brokers are not those the feed's offsets belong to."""
    if known is not None and known != found:
        raise WrongClusterError(
            f"feed {feed_name}: its stored offsets belong to Kafka cluster {known}, but the connection leads to "
            f"cluster {found}. Offsets of one cluster mean nothing in another. Nothing was moved: point the connection "
            f"back, or, if the feed is to read the other cluster from now on: `kafka-ingest topic-changed {feed_name}` "
            "shows the choices."
        )


def known_topic_id(found: object) -> str | None:
    """Return a topic's id as a broker answers it, None where it has none (before KIP-516): a zero id."""
    return None if str(found) == "AAAAAAAAAAAAAAAAAAAAAA" else str(found)


def is_other_topic(expected: str | None, found: str | None) -> bool:
    """Whether two topic ids are both known and differ; an unknown one proves nothing (brokers before KIP-516)."""
    return expected is not None and found is not None and expected != found


def check_topic_id(topic: str, expected: str | None, found: str | None, feed_name: str) -> None:
    """Raise TopicRecreatedError where a topic is not the one that is expected."""
    if is_other_topic(expected, found):
        raise TopicRecreatedError(
            f"topic {topic!r} was deleted and created again: expected topic id {expected}, found {found}. Its offsets "
            "start over, so the stored ones point into other records. The feed stays stopped until an operator "
            "decides, or only this topic where the feed says on_topic_changed: hold: `kafka-ingest topic-changed "
            f"{feed_name}` shows what can be done."
        )


def check_topic_ids(expected: Mapping[str, str | None], found: Mapping[str, TopicDescription], feed_name: str) -> None:
    """Raise TopicGoneError or TopicRecreatedError unless all the expected topics are there and are the same."""
    for topic, topic_id in sorted(expected.items()):
        if topic not in found:
            raise TopicGoneError(
                f"topic {topic!r} (topic id {topic_id}) does not exist any more, so it is unknown which records a read "
                f"of it saw. Nothing was moved or deleted; `kafka-ingest topic-changed {feed_name}` shows what can be "
                "done."
            )
        check_topic_id(topic, topic_id, found[topic].topic_id, feed_name)


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


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The last plan of a file: when it asked Kafka which topics there are, and by which pattern.

    ``file`` is the path below the folder of feed files.
    """

    file: str
    planned_at: datetime
    pattern: str


@dataclass(frozen=True, slots=True)
class SeenTopic:
    """A topic that a plan of a file found; ``feed`` is None where it is left out, or was stopped before its first plan.

    ``found_after`` is the plan before, which would have found it and did not: it was made since, or became visible.
    None where no plan says anything of its age.
    """

    file: str
    topic: str
    conn_id: str
    topic_id: str | None
    feed: str | None
    found_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class TopicMemory:
    """What the control tables know that matters to files for many topics.

    ``planned`` are all feeds' names, each with the topics of its last plan.
    """

    plans: tuple[FilePlan, ...] = ()
    seen: tuple[SeenTopic, ...] = ()
    planned: tuple[tuple[str, frozenset[str]], ...] = ()
