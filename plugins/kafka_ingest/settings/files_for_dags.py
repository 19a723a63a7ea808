"""The feed files that a DAG file builds DAGs of: all of them, or the one that is asked for.

Airflow reads a DAG file whenever it starts a task, and says which DAG it wants. What that costs may not grow with the
number of feeds, so no other file is read then. What a feed shares with others is asked by the tasks that depend on it,
when they run.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.settings.defaults import defaults_of
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FEED_ERROR, SUFFIXES, FeedFile, error_id, read_feed_file, unusable
from kafka_ingest.settings.feed_files import (
    feed_folders,
    feed_paths,
    feeds_directory,
    read_feed_files,
    read_those,
    texts_of,
)


@dataclass(frozen=True, slots=True)
class Member:
    """A feed of a fleet, and its file."""

    feed: Feed
    file: FeedFile


@dataclass(frozen=True, slots=True)
class Fleet:
    """The feeds of a fleet, by their files' names; ``refused`` are the files of those that cannot be in it, and why.

    ``sources`` are files for many topics: plans find which feeds they come to.
    What Airflow knows of a DAG alone, its schedule and its tasks' pool, retries and owner, is the first feed's.
    """

    name: str
    members: tuple[Member, ...]
    refused: tuple[FeedFile, ...]
    sources: tuple[FeedFile, ...] = ()

    @property
    def feeds(self) -> list[Feed]:
        """The feeds of its members, and one in the place of those that plans find of each source."""
        return [*(each.feed for each in self.members), *self.specimens]

    @property
    def specimens(self) -> list[Feed]:
        """One feed for each source, which stands for all that plans find of it."""
        return [each.topics.specimen for each in self.sources if each.topics is not None]

    @property
    def first(self) -> Feed:
        """The feed that stands for what is the same in all."""
        return self.feeds[0]


def fleets_of(files: Iterable[FeedFile]) -> Iterator[Fleet]:
    files = list(files)
    feeds = [(feed, file) for file in files if (feed := feed_in(file)) is not None]
    names = {feed.name for feed, file in feeds if file.topics is None}
    by_name: dict[str, list[Member]] = {}
    for feed, file in feeds:
        if feed.fleet is not None:
            by_name.setdefault(feed.fleet, []).append(Member(feed, file))
    for name, members in by_name.items():
        like = next((each.feed for each in members if each.feed.complete is None), members[0].feed)
        reasons = [(each, why_refused(each.feed, like, names)) for each in members]
        taken = [each for each, why in reasons if why is None]
        refused = [unusable(each.file.path, why, schedule=each.file.schedule) for each, why in reasons if why]
        sources = tuple(each.file for each in taken if each.file.topics is not None)
        yield Fleet(name, tuple(each for each in taken if each.file.topics is None), tuple(refused), sources)


def feed_in(file: FeedFile) -> Feed | None:
    return file.feed or file.contested or (file.topics.specimen if file.topics is not None else None)


def why_refused(feed: Feed, like: Feed, names: set[str]) -> str | None:
    if feed.fleet in names:
        return f"feed {feed.name}: expected a fleet whose name no feed has, found {feed.fleet!r}"
    if feed.complete is not None:
        return f"feed {feed.name}: expected complete in a feed without a fleet, found it in fleet {feed.fleet!r}"
    for key, mine, first in (
        ("schedule", feed.schedule, like.schedule),
        ("airflow.pool", feed.airflow.pool, like.airflow.pool),
        ("airflow.retries", feed.airflow.retries, like.airflow.retries),
        ("airflow.owner", feed.airflow.owner, like.airflow.owner),
    ):
        if mine != first:
            return (
                f"feed {feed.name}: expected {key} {first!r}, as feed {like.name} of fleet {feed.fleet} has it, "
                f"since a fleet is one DAG; found {mine!r}"
            )
    return None


def files_for_dags(asked: str | None) -> list[FeedFile]:
    """Return all feed files, or the one whose DAG has this id, or those of the fleet that is called so.

    One with an error where the folder cannot be read.
    """
    directory = feeds_directory()
    try:
        if asked is None:
            return read_feed_files(directory)
        file = broken_file(asked, directory) if asked.startswith(FEED_ERROR) else file_of_feed(asked, directory)
    except (InvalidFeedError, OSError) as error:
        file = unusable(directory, str(error))
        return [file] if asked in {None, error_id(directory)} else []
    return [file] if file is not None else files_of_fleet(asked, directory)


def files_of_fleet(name: str, directory: Path) -> list[FeedFile]:
    """Return the files of the feeds of a fleet, each as it is by itself."""
    texts = texts_of(feed_paths(directory))
    files = read_those(path for path, text in texts if may_name(text, name) or shared_fleet(path.parent) == name)
    return [file for file in files if (feed := feed_in(file)) is not None and feed.fleet == name]


def may_name(text: str, name: str) -> bool:
    """Whether a file's text may name a feed or a fleet: as it is, or with escapes."""
    return name in text or ("\\" in text and '"' in text)


def shared_fleet(folder: Path) -> object:
    return (defaults_of(folder).document or {}).get("fleet")


def file_of_feed(name: str, directory: Path) -> FeedFile | None:
    """Return the file that has the feed's DAG, as it is by itself; None where none has it, or not any more.

    Of several files that claim one name only the one that is called after it has its DAG.
    """
    called = (folder / f"{name}{suffix}" for folder in feed_folders(directory) for suffix in SUFFIXES)
    called_after = [path for path in called if os.path.lexists(path)]
    if found := holding(name, called_after):
        return found[0] if len(found) == 1 else None
    found = holding(name, (path for path, text in texts_of(feed_paths(directory)) if may_name(text, name)))
    return found[0] if len(found) == 1 else None


def holding(name: str, paths: Iterable[Path]) -> list[FeedFile]:
    return [file for file in read_those(paths) if file.feed is not None and file.feed.name == name]


def broken_file(red_id: str, directory: Path) -> FeedFile | None:
    """Return the unusable file whose error the DAG with this id shows; None where there is no such file any more."""
    exact = directory / red_id.removeprefix(FEED_ERROR)
    is_exact = exact.suffix in SUFFIXES and error_id(exact) == red_id and os.path.lexists(exact)
    paths = [exact] if is_exact else feed_paths(directory)
    file = next((read_feed_file(path) for path in paths if error_id(path) == red_id), None)
    feed = feed_in(file) if file is not None and file.error is None else None
    if file is None or feed is None:
        return file
    if feed.fleet is not None:
        for fleet in fleets_of(files_of_fleet(feed.fleet, directory)):
            if refused := next((each for each in fleet.refused if each.path == file.path), None):
                return refused
    shares = InvalidFeedError(f"{file.path} shared something with another file when the DAG files were last read")
    return replace(file, feed=None, contested=file.feed, error=shares)
