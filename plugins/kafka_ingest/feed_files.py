"""The folder of feed files: one YAML file, one feed. A broken file carries its error and harms no other."""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypedDict, Unpack
from zlib import crc32

from pydantic import ValidationError

from kafka_ingest.errors import InvalidBackfillError, InvalidFeedError, UnknownFeedError
from kafka_ingest.feed import DATA_VARIABLE, Feed, why_no_schedule
from kafka_ingest.output_places import is_taken
from kafka_ingest.plain_yaml import MAX_BYTES, read_plain_yaml
from kafka_ingest.storable_text import storable
from kafka_ingest.wrong_settings import cut, describe

FEEDS_VARIABLE = "KAFKA_INGEST_FEEDS"
MAX_REASON: Final = 4_000
WITHOUT_TIMES: Final = frozenset({"@once", "@continuous"})
"""Schedules that would make a broken file red once, or without end."""


class Said(TypedDict, total=False):
    """What a file says of its feed, whether it can be used or not."""

    name: str | None
    sink_path: str | None
    schedule: str


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A feed file and what is in it: a feed, or the error that says why it cannot be used.

    A feed that shares something with others is ``contested``: it has an error, and runs only where the control tables know
    it and none of its ``rivals`` (:mod:`kafka_ingest.planning.contested`).
    """

    path: Path
    feed: Feed | None
    error: InvalidFeedError | None = None
    name: str | None = None
    """What the file says its feed is called, also where it cannot be used."""
    sink_path: str | None = None
    """Where the file says its output lies, also where it cannot be used."""
    schedule: str = "@hourly"
    """When its error is due where it cannot be used: on its own schedule, hourly where that cannot be read or has no times."""
    contested: Feed | None = None
    rivals: tuple[Feed, ...] = ()


def feeds_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of feed files: KAFKA_INGEST_FEEDS, or ``dags/feeds`` beside ``plugins/``."""
    named = environment.get(FEEDS_VARIABLE)
    return Path(named) if named else Path(__file__).resolve().parents[2] / "dags" / "feeds"


def read_feed_files(directory: Path, environment: Mapping[str, str] = os.environ) -> list[FeedFile]:
    """Return all feed files of a folder, by file name.

    Two feeds may not share a name, an output or a consumer group; files alone cannot say which of them was there first.
    """
    if not directory.is_dir():
        raise InvalidFeedError(f"expected a folder of feed files, found none at {directory}. Set {FEEDS_VARIABLE}.")
    paths = sorted(path for path in directory.iterdir() if path.suffix in {".yaml", ".yml"})
    files = [read_feed_file(path) for path in paths]
    # One that was removed after it was listed is not there, rather than broken.
    return refuse_shared([file for file in files if file.feed is not None or os.path.lexists(file.path)], environment)


def read_feed_file(path: Path) -> FeedFile:
    """Return a feed file, with its error where it cannot be used, whatever is wrong with it."""
    try:
        document = read_plain_yaml(text_of(path))
    except (OSError, ValueError) as error:
        return unusable(path, f"cannot be read as YAML: {error}")
    if not isinstance(document, dict):
        found = "an empty file" if document is None else type(document).__name__
        return unusable(path, f"expected a mapping with name, kafka and sink, found {found}")
    said: Said = {}
    try:
        said = what_it_says(document)
        return FeedFile(path, Feed.model_validate(document), None, **said)
    except ValidationError as error:
        return unusable(path, "; ".join(describe(error, Feed)), **said)
    except Exception as error:  # noqa: BLE001 - an error that nobody foresaw must not take the other feeds away
        return unusable(path, f"cannot be used: {type(error).__name__}: {error}", **said)


def what_it_says(document: Mapping[object, object]) -> Said:
    """Return what can be read of a file whether the rest of it can be used or not."""
    name, sink, schedule = document.get("name"), document.get("sink"), document.get("schedule")
    path = sink.get("path") if isinstance(sink, dict) else None
    has_times = isinstance(schedule, str) and schedule not in WITHOUT_TIMES and why_no_schedule(schedule) is None
    return {
        "name": name if isinstance(name, str) else None,
        "sink_path": path if isinstance(path, str) and path.isprintable() and path else None,
        "schedule": schedule if isinstance(schedule, str) and has_times else "@hourly",
    }


def text_of(path: Path) -> str:
    """Return what is in a file; raises OSError, or ValueError where it is no file, too large or no UTF-8.

    Opened without waiting: a named pipe would be waited for, for ever.
    """
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:  # noqa: PTH123 - of a descriptor
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("expected a file, found something else under this name")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"expected at most {MAX_BYTES:,} bytes, found more")
    return content.decode("utf-8")


def unusable(path: Path, reason: str, **said: Unpack[Said]) -> FeedFile:
    """Return a feed file with its error, whose text is bounded: it is stored, logged and shown in many places."""
    error = InvalidFeedError(f"{storable(str(path))}: {storable(cut(reason, MAX_REASON))}")
    return FeedFile(path, None, error, **said)


def error_id(path: Path) -> str:
    """Return the id of the DAG, and of the maintenance's task, that is red for a broken file."""
    # Two file names may come to one readable id; the sum keeps them apart.
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", path.name)[:150]
    exact = f"feed_error__{readable}"
    return exact if readable == path.name else f"{exact}_{crc32(os.fsencode(path.name)):08x}"


def feed_named(name: str, directory: Path, environment: Mapping[str, str] = os.environ) -> Feed:
    """Return one feed; raises UnknownFeedError, or the error of the file that should hold it."""
    return feed_of(feed_file_named(name, directory, environment))


def feed_of(file: FeedFile) -> Feed:
    """Return a file's feed; raises its error where it cannot be used."""
    if file.feed is not None:
        return file.feed
    raise file.error or InvalidFeedError(f"{file.path} holds no feed")


def feed_file_named(name: str, directory: Path, environment: Mapping[str, str] = os.environ) -> FeedFile:
    """Return the file of one feed, which may be contested or broken; raises UnknownFeedError."""
    files = read_feed_files(directory, environment)
    for feeds in ([(file.feed, file) for file in files], [(file.contested, file) for file in files]):
        for feed, file in feeds:
            if feed is not None and feed.name == name:
                return file
    for file in files:
        if file.error is not None and name in {file.path.stem, file.name}:
            return file
    names = [file.feed.name for file in files if file.feed is not None]
    broken = [str(file.path) for file in files if file.error is not None]
    raise UnknownFeedError(
        f"expected one of the feeds in {directory}: {', '.join(names) or 'there are none'}; found {name!r}."
        + (f" These files cannot be used: {', '.join(broken)} (`kafka-ingest feeds` says why)." if broken else "")
    )


def refuse_shared(files: list[FeedFile], environment: Mapping[str, str]) -> list[FeedFile]:
    """Give an error to every feed that shares its name or group with another, or whose output and another's overlap."""
    feeds = {file.path: file.feed for file in files if file.feed is not None}
    claimed: dict[tuple[str, str], set[Path]] = {}
    for path, feed in feeds.items():
        for claim in claims(feed, environment):
            claimed.setdefault(claim, set()).add(path)

    rivals: dict[Path, set[Path]] = {path: set() for path in feeds}
    for path, feed in feeds.items():
        for claim in touches(feed, environment):
            for other in claimed.get(claim, set()) - {path}:
                rivals[path].add(other)
                rivals[other].add(path)
    return [
        refused(file, {path: feeds[path] for path in sorted(rivals[file.path])}, environment)
        if rivals.get(file.path)
        else file
        for file in files
    ]


def refused(file: FeedFile, rivals: Mapping[Path, Feed], environment: Mapping[str, str]) -> FeedFile:
    """Return a feed's file with the error that names the others.

    One DAG has one name: of several files that claim it only the one that is named after it can be the feed's.
    """
    feed = file.feed
    assert feed is not None  # noqa: S101 - only feeds have rivals
    shared = "; ".join(shared_with(feed, other, path, environment) for path, other in rivals.items())
    namesakes = [path for path, other in rivals.items() if other.name == feed.name]
    may_run = not namesakes or (file.path.stem == feed.name and all(path.stem != feed.name for path in namesakes))
    until = "only a feed that the control tables know, and none of the others, runs" if may_run else "this file is off"
    broken = unusable(
        file.path,
        f"{shared}. Two feeds may not share it; until one is changed, {until}.",
        name=file.name,
        sink_path=file.sink_path,
        schedule=file.schedule,
    )
    return replace(broken, contested=feed, rivals=tuple(rivals.values())) if may_run else broken


def shared_with(feed: Feed, other: Feed, path: Path, environment: Mapping[str, str]) -> str:
    """Return what a feed shares with another, in whose file it is."""
    if feed.name == other.name:
        return f"name {feed.name!r} is also that of {path}"
    if feed.kafka.group is not None and feed.kafka.group == other.kafka.group:
        return f"kafka.group {feed.kafka.group!r} is also that of {path}"
    mine, theirs = located(feed, environment), located(other, environment)
    if mine == theirs:
        return f"sink.path {str(mine)!r} is also that of {path}"
    if theirs in mine.parents:
        return f"sink.path {str(mine)!r} lies in the output of {path}, {str(theirs)!r}"
    if mine in theirs.parents:
        return f"in sink.path {str(mine)!r} lies the output of {path}, {str(theirs)!r}"
    return f"sink.path {str(mine)!r} and that of {path}, {str(theirs)!r}: one lies where the other stages"


def claims(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what is one feed's alone: its name, its group, its output and the folder beside it."""
    output = located(feed, environment)
    owned = [("name", feed.name), ("sink.path", str(output)), ("sink.path", f"{output}.kafka-ingest")]
    return [*owned, ("kafka.group", feed.kafka.group)] if feed.kafka.group else owned


def touches(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return all that must not be another feed's: what it claims, and every folder its output lies in."""
    above = [("sink.path", str(folder)) for folder in located(feed, environment).parents]
    return [*claims(feed, environment), *above]


def located(feed: Feed, environment: Mapping[str, str]) -> Path:
    """Return where a feed's output is, as far as it can be told: a relative path without a root stays relative."""
    return place_of(feed.sink.path, environment)


def place_of(sink_path: str, environment: Mapping[str, str]) -> Path:
    """Return where an output is, as far as it can be told."""
    return Path(os.path.normpath(Path(environment.get(DATA_VARIABLE) or "") / sink_path))


def check_not_taken(output: Path, environment: Mapping[str, str] = os.environ) -> None:
    """Raise InvalidBackfillError where a directory is, lies in, or holds a feed's output, also of a file that is broken now."""
    for file in read_feed_files(feeds_directory(environment), environment):
        if file.sink_path is None:
            continue
        of_feed = place_of(file.sink_path, environment)
        if is_taken(output, of_feed):
            raise InvalidBackfillError(
                f"expected an output of the copy's own, found {output}, which is, lies in, or holds the output of feed "
                f"{file.name or file.path}, {of_feed}. Nothing was planned; name another directory."
            )
