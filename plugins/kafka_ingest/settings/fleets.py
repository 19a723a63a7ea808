"""Feeds that share a DAG: those whose files name the same fleet."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, unusable


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
    """Return the feed of a file, or one that stands for those of many topics."""
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
