"""A file for many topics, ``for_each_topic``: a pattern, the feed that each topic becomes, and what is else with some.

Which topics there are is asked by plans; reading the file asks nothing.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.model.topics import selection
from kafka_ingest.settings.defaults import FOR_EACH, Document, Place, merged, says
from kafka_ingest.settings.feed import Feed, a_pattern
from kafka_ingest.settings.setting_types import describe, is_topic_name

if TYPE_CHECKING:
    import regex

KEYS: Final = frozenset({FOR_EACH, "fleet", "schedule", "feed", "overrides"})
PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_]\w*)\}")
"""What stands in a text for the topic's name or a group of the pattern; ``{2}`` in an expression is none."""

OF_THE_FILE: Final[tuple[Place, ...]] = (("fleet",), ("schedule",), ("kafka", "topics"), ("kafka", "topic_pattern"))
"""What the file decides for all of its feeds: neither ``feed`` nor an override says it."""
OF_THE_FEED: Final[tuple[Place, ...]] = (("kafka", "conn_id"),)
"""What ``feed`` decides for all: topics are found over this connection."""


@dataclass(frozen=True, slots=True)
class TopicsFile:
    """What a file for many topics says. ``document`` is a feed's, over the defaults, before placeholders are filled.

    ``specimen`` is the feed of a topic called ``topic``: what is the same in all feeds is known by it.
    """

    pattern: str
    document: Document
    overrides: Mapping[str, Document | None]
    specimen: Feed

    def match(self, topic: str) -> "regex.Match[str] | None":
        """Return how a topic matches the pattern as a whole; Kafka's own topics and marks never do."""
        return selection(topic, self.pattern)

    def feed_of(self, topic: str) -> Feed:
        """Return the feed of a topic that matches; raises InvalidFeedError."""
        found = self.match(topic)
        if found is None:
            raise InvalidFeedError(
                f"expected a topic that {FOR_EACH} {self.pattern!r} matches as a whole, found {topic!r}"
            )
        document = merged(self.document, self.overrides.get(topic) or {})
        return feed_of_document(document, topic, {"topic": topic, **found.groupdict()})

    def filled(self, value: Any, topic: str) -> Any:  # noqa: ANN401 - whatever a document holds
        """Return a value of the file as it is in the feed of a topic, which matches."""
        found = self.match(topic)
        return fill(value, {"topic": topic, **(found.groupdict() if found is not None else {})})


def read_topics_file(own: Document, below: Document | None) -> TopicsFile:
    if unknown := [str(key) for key in own if key not in KEYS]:
        raise InvalidFeedError(
            f"{unknown[0]}: unknown key; beside {FOR_EACH} expected {', '.join(sorted(KEYS - {FOR_EACH}))}: what each "
            "feed is stands under feed"
        )
    pattern, template = own[FOR_EACH], own.get("feed")
    if not isinstance(pattern, str):
        raise InvalidFeedError(f"{FOR_EACH}: expected a regular expression, found {type(pattern).__name__}")
    try:
        a_pattern(pattern)
    except ValueError as error:
        raise InvalidFeedError(f"{FOR_EACH}: {error}") from error
    if not isinstance(template, dict):
        raise InvalidFeedError("feed: expected a mapping of what each topic's feed is, such as name and sink")
    refuse(template, OF_THE_FILE, "feed")
    shared = {key: own[key] for key in ("fleet", "schedule") if key in own}
    document = merged(below or {}, {**template, **shared})
    overrides = overrides_of(own.get("overrides"))
    groups = re.compile(pattern).groupindex
    check_placeholders([document, overrides], list(groups))
    for key in ("fleet", "schedule"):
        if PLACEHOLDER.search(str(document.get(key))):
            raise InvalidFeedError(
                f"{key}: expected it to be the same in all feeds of the file, found a placeholder in {document[key]!r}"
            )
    if not PLACEHOLDER.search(str(document.get("name"))):
        raise InvalidFeedError(
            f"feed.name: expected a placeholder in it, such as {{topic}}, found {document.get('name')!r}"
        )
    specimen = feed_of_document(document, "topic", {"topic": "topic", **dict.fromkeys(groups, "topic")})
    if specimen.fleet is None:
        raise InvalidFeedError(f"fleet: expected a fleet beside {FOR_EACH}, whose plans find the topics, found none")
    return TopicsFile(pattern, document, overrides, specimen)


def check_placeholders(document: object, groups: list[str]) -> None:
    if "topic" in groups:
        raise InvalidFeedError(
            f"{FOR_EACH}: expected groups with other names than topic, which is the topic's name itself"
        )
    for text in texts_in(document):
        for name in PLACEHOLDER.findall(text):
            if name not in {"topic", *groups}:
                known = ", ".join(f"{{{each}}}" for each in ["topic", *groups])
                raise InvalidFeedError(f"expected placeholders {known}, found {{{name}}} in {text[:200]!r}")


def overrides_of(found: object) -> dict[str, Document | None]:
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidFeedError(f"overrides: expected a mapping by topic, found {type(found).__name__}")
    for topic, override in found.items():
        if not isinstance(topic, str) or not is_topic_name(topic):
            raise InvalidFeedError(f"overrides: expected a topic's name, found {topic!r}")
        if not isinstance(override, dict | None):
            raise InvalidFeedError(
                f"overrides.{topic}: expected a mapping, or null for a topic without a feed, found {override!r}"
            )
        refuse(override or {}, OF_THE_FILE + OF_THE_FEED, f"overrides.{topic}")
    return found


def refuse(document: Document, places: tuple[Place, ...], where: str) -> None:
    for place in places:
        if says(document, place):
            raise InvalidFeedError(
                f"{where}.{'.'.join(map(str, place))}: expected it to be the same in all feeds of the file"
            )


def feed_of_document(document: Document, topic: str, values: Mapping[str, str | None]) -> Feed:
    """Return a topic's feed with its placeholders filled in; raises InvalidFeedError.

    Where it says no ``sink.path``, that is the feed's name.
    """
    filled = fill(document, values)
    kafka, sink = filled.get("kafka") or {}, filled.get("sink")
    if isinstance(kafka, dict):
        kafka = {**kafka, "topics": [topic]}
    if isinstance(sink, dict):
        sink = {"path": filled.get("name"), **sink}
    try:
        return Feed.model_validate({**filled, "kafka": kafka, "sink": sink})
    except ValidationError as error:
        raise InvalidFeedError("; ".join(describe(error, Feed))) from error


def fill(value: Any, values: Mapping[str, str | None]) -> Any:  # noqa: ANN401 - whatever a document holds
    """Return a document whose texts have values in place of placeholders; keys stay as they are."""
    if isinstance(value, dict):
        return {key: fill(each, values) for key, each in value.items()}
    if isinstance(value, list):
        return [fill(each, values) for each in value]
    return PLACEHOLDER.sub(lambda found: value_of(found[1], values), value) if isinstance(value, str) else value


def value_of(name: str, values: Mapping[str, str | None]) -> str:
    """Return what stands in a placeholder's place; raises InvalidFeedError on what would change a path by its dots."""
    value = values[name]
    if not (value or "").strip("."):
        found = "no part of the topic's name" if not value else repr(value)
        raise InvalidFeedError(f"expected {{{name}}} to be letters or digits of the topic's name, found {found}")
    return str(value)


def texts_in(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for each in inner for text in texts_in(each)]
