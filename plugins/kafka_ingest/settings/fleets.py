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

    What Airflow knows of a DAG alone, its schedule and its tasks' pool, retries and owner, is the first feed's.
    """

    name: str
    members: tuple[Member, ...]
    refused: tuple[FeedFile, ...]

    @property
    def first(self) -> Feed:
        """The feed that stands for what is the same in all."""
        return self.members[0].feed


def fleets_of(files: Iterable[FeedFile]) -> Iterator[Fleet]:
    """Yield the fleets that files name."""
    files = list(files)
    feeds = [(feed, file) for file in files if (feed := file.feed or file.contested) is not None]
    names = {feed.name for feed, _ in feeds}
    by_name: dict[str, list[Member]] = {}
    for feed, file in feeds:
        if feed.fleet is not None:
            by_name.setdefault(feed.fleet, []).append(Member(feed, file))
    for name, members in by_name.items():
        like = next((each.feed for each in members if each.feed.complete is None), members[0].feed)
        reasons = [(each, why_refused(each.feed, like, names)) for each in members]
        taken = tuple(each for each, why in reasons if why is None)
        refused = [unusable(each.file.path, why, schedule=each.file.schedule) for each, why in reasons if why]
        yield Fleet(name, taken, tuple(refused))


def why_refused(feed: Feed, like: Feed, names: set[str]) -> str | None:
    """Return why a feed cannot be in its fleet; None where it can."""
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
