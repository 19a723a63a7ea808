"""One feed file: a feed, a feed for each topic, or the error that says why it cannot be used."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack
from zlib import crc32

from pydantic import ValidationError

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.settings.defaults import (
    DEFAULTS,
    FOR_EACH,
    MISNAMED,
    Place,
    defaults_of,
    merged,
    says,
    source_of,
)
from kafka_ingest.settings.feed import Feed, why_no_schedule
from kafka_ingest.settings.feed_sections import Alerts
from kafka_ingest.settings.plain_yaml import read_plain_yaml, text_of
from kafka_ingest.settings.setting_types import cut, describe

if TYPE_CHECKING:
    from kafka_ingest.settings.topics_file import TopicsFile

SUFFIXES: Final = (".yaml", ".yml")
FEED_ERROR: Final = "feed_error__"
"""How the ids of broken files' DAGs begin; no feed's name does."""

MAX_REASON: Final = 4_000
WITHOUT_TIMES: Final = frozenset({"@once", "@continuous"})
"""Schedules that would make a broken file red once, or without end."""


class DeclaredFields(TypedDict, total=False):
    """The fields that a file declares of its feed, whether it can be used or not."""

    name: str | None
    sink_path: str | None
    schedule: str
    alerts: Alerts | None
    alerts_are_read: bool


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A feed file and what is in it: a feed, or the error that says why it cannot be used.

    A feed that shares something with others, its ``rivals``, has an error that names them. It is ``contested`` where it
    may run all the same: if the control tables know it and none of these (:mod:`kafka_ingest.batches.output_places`).
    """

    path: Path
    feed: Feed | None
    error: InvalidFeedError | None = None
    name: str | None = None
    """The feed's name as the file declares it, also where the file cannot be used."""
    sink_path: str | None = None
    """The output's path as the file declares it, also where the file cannot be used."""
    schedule: str = "@hourly"
    """When an unusable file's error is due: on its own schedule, hourly where that cannot be read or has no times."""
    alerts: Alerts | None = None
    """What the file asks to be notified of, also where it cannot be used for another reason."""
    alerts_are_read: bool = False
    """Whether that is known: otherwise the file cannot be read, or what it asks for is itself wrong."""
    contested: Feed | None = None
    rivals: tuple[Feed, ...] = ()
    topics: "TopicsFile | None" = None
    """What the file says, where it is for many topics: then it is not one feed, and has no error."""
    topic: str | None = None
    """The topic of which a file for many made this feed: then ``path`` is that of the file, ``#`` and the topic."""
    fleet: str | None = None
    """Of a topic's feed, also where it cannot be used: the fleet whose DAG it has."""
    found_after: datetime | None = None
    """The last plan of that file before it found the topic, which would have found it."""


def read_feed_file(path: Path) -> FeedFile:
    """Return a feed file over its folder's defaults, with its error where it cannot be used, whatever is wrong."""
    try:
        own = read_plain_yaml(text_of(path))
    except (OSError, ValueError) as error:
        return unusable(path, f"cannot be read as YAML: {error}")
    if path.name == MISNAMED or not isinstance(own, dict):
        found = "an empty file" if own is None else type(own).__name__
        expected = f"expected defaults to be in a file {DEFAULTS}. Rename it"
        no_feed = f"expected a mapping with name, kafka and sink, found {found}"
        return unusable(path, expected if path.name == MISNAMED else no_feed)
    defaults = defaults_of(path.parent)
    document = own if defaults.document is None else merged(defaults.document, own)
    declared: DeclaredFields = {}
    try:
        declared = declared_fields(document)
        if defaults.error is not None:
            return unusable(path, defaults.error, **declared)
        topics = None
        if FOR_EACH in own:
            from kafka_ingest.settings.topics_file import read_topics_file  # noqa: PLC0415 - only some folders have one

            topics = read_topics_file(own, defaults.document)
        feed = Feed.model_validate(document) if topics is None else None
        return FeedFile(path, feed, topics=topics, **declared)
    except (ValidationError, InvalidFeedError) as error:

        def source(place: Place) -> Path | None:
            return None if says(own, place) else source_of(place, defaults.layers)

        reasons = describe(error, Feed, source) if isinstance(error, ValidationError) else [str(error)]
        return unusable(path, "; ".join(reasons), **declared)
    except Exception as error:  # noqa: BLE001 - an unforeseen error must not remove the other feeds
        return unusable(path, f"cannot be used: {type(error).__name__}: {error}", **declared)


def declared_fields(document: Mapping[object, object]) -> DeclaredFields:
    """Return the fields of a file that can be read, whether the rest of it can be used or not."""
    name, sink, schedule = document.get("name"), document.get("sink"), document.get("schedule")
    alerts = alerts_in(document)
    path = sink.get("path") if isinstance(sink, dict) else None
    has_times = isinstance(schedule, str) and schedule not in WITHOUT_TIMES and why_no_schedule(schedule) is None
    return {
        "name": name if isinstance(name, str) else None,
        "sink_path": path if isinstance(path, str) and path.isprintable() and path else None,
        "schedule": schedule if isinstance(schedule, str) and has_times else "@hourly",
        "alerts": alerts,
        "alerts_are_read": alerts is not None or document.get("alerts") is None,
    }


def alerts_in(document: Mapping[object, object]) -> Alerts | None:
    alerts = document.get("alerts")
    try:
        return None if alerts is None else Alerts.model_validate(alerts)
    except ValidationError:
        return None


def unusable(path: Path, reason: str, **declared: Unpack[DeclaredFields]) -> FeedFile:
    """Return a feed file with its error, whose text is bounded: it is stored, logged and shown in many places."""
    error = InvalidFeedError(f"{storable(str(path))}: {storable(cut(reason, MAX_REASON))}")
    return FeedFile(path, None, error, **declared)


def error_id(path: Path) -> str:
    """Return the id of the DAG, and of the maintenance's task, that is red for a broken file."""
    # Folders with defaults may have files of one name.
    name = f"{path.parent.name}/{path.name}" if os.path.lexists(path.parent / DEFAULTS) else path.name
    # Two file names may give the same readable id; the checksum keeps them apart.
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:150]
    exact = f"{FEED_ERROR}{readable}"
    return exact if readable == name else f"{exact}_{crc32(os.fsencode(name)):08x}"


def feed_of(file: FeedFile) -> Feed:
    """Return a file's feed; raises its error where it cannot be used."""
    if file.feed is not None:
        return file.feed
    raise file.error or InvalidFeedError(f"expected one feed in {file.path}, found a feed for each topic")
