"""What two feeds may not share: a name, a consumer group, an output. Files cannot say which feed was first.

Nor may records go round, where feeds read topics that others write.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.foundation.stores.kinds import bucket_in
from kafka_ingest.model.dead_letters import directory_of_dead_letters
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import place_of_late_rows
from kafka_ingest.model.topics import is_selected
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, unusable
from kafka_ingest.settings.sink_settings.local_directory import DATA_VARIABLE, in_object_store
from kafka_ingest.sinks.usable_places import places_of

WrittenTopic = tuple[str, str]
"""A topic, by its connection or cluster, and name."""


def refuse_shared(files: list[FeedFile], environment: Mapping[str, str]) -> list[FeedFile]:
    """Give an error to every feed that shares its name or group with another, or whose output and another's overlap."""
    feeds = {file.path: file.feed for file in files if file.feed is not None}
    rivals = rivals_of(feeds, environment)
    return [
        refused(file, {path: feeds[path] for path in sorted(rivals[file.path])}, environment)
        if rivals.get(file.path)
        else file
        for file in files
    ]


def rivals_of(
    feeds: Mapping[Path, Feed], environment: Mapping[str, str], alike: Callable[[str], str] = str
) -> dict[Path, set[Path]]:
    """Return with which others each feed shares something; what ``alike`` makes the same text counts as the same."""
    claimed: dict[tuple[str, str], set[Path]] = {}
    for path, feed in feeds.items():
        for kind, claim in claims(feed, environment):
            claimed.setdefault((kind, alike(claim)), set()).add(path)

    rivals: dict[Path, set[Path]] = {path: set() for path in feeds}
    for path, feed in feeds.items():
        for kind, claim in touches(feed, environment):
            for other in claimed.get((kind, alike(claim)), set()) - {path}:
                rivals[path].add(other)
                rivals[other].add(path)
    return rivals


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
    broken = refused_for(file, f"{shared}. Two feeds may not share it; until one is changed, {until}.")
    return replace(broken, contested=feed if may_run else None, rivals=tuple(rivals.values()))


def refused_for(file: FeedFile, reason: str) -> FeedFile:
    return unusable(file.path, reason, name=file.name, sink_path=file.sink_path, schedule=file.schedule)


def shared_with(feed: Feed, other: Feed, path: Path, environment: Mapping[str, str]) -> str:
    """Return what a feed shares with another, in whose file it is."""
    if feed.name == other.name:
        return f"name {feed.name!r} is also that of {path}"
    if feed.kafka.group is not None and feed.kafka.group == other.kafka.group:
        return f"kafka.group {feed.kafka.group!r} is also that of {path}"
    theirs = addresses_of(other, environment)
    for address in addresses_of(feed, environment):
        if address in theirs:
            name, value = list(address.items())[-1]
            setting = "sink." if address == feed.sink.address else "its "
            return f"{setting}{name} {value!r} is also that of {path}"
    for one, rival in ((feed, other), (other, feed)):
        place = located(rival, environment)
        for what, owned in (("dead letters", place_of_letters), ("late rows", place_of_late)):
            other_place = owned(one, environment)
            if other_place is not None and (other_place == place or other_place in place.parents):
                return f"the {what} of {one.name} go to {str(other_place)!r}, and sink.path {str(place)!r} is there"
    return shared_place(located(feed, environment), located(other, environment), path)


def shared_place(mine: Path, theirs: Path, path: Path) -> str:
    if mine == theirs:
        return f"sink.path {str(mine)!r} is also that of {path}"
    if theirs in mine.parents:
        return f"sink.path {str(mine)!r} is in the output of {path}, {str(theirs)!r}"
    if mine in theirs.parents:
        return f"in sink.path {str(mine)!r} is the output of {path}, {str(theirs)!r}"
    return f"sink.path {str(mine)!r} and that of {path}, {str(theirs)!r}: one is where the other stages"


def claims(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what belongs to one feed alone: its name, its group, its output and the folder next to it."""
    output = located(feed, environment)
    letters = place_of_letters(feed, environment)
    late = place_of_late(feed, environment)
    places = (*places_of(output), *(places_of(letters) if letters is not None else ()), *([late] if late else []))
    owned = [("name", feed.name), *(("sink.path", str(place)) for place in places)]
    owned += [("sink.table", str(sorted(each.items()))) for each in addresses_of(feed, environment)]
    return [*owned, ("kafka.group", feed.kafka.group)] if feed.kafka.group else owned


def touches(feed: Feed, environment: Mapping[str, str]) -> list[tuple[str, str]]:
    above = [("sink.path", str(folder)) for folder in located(feed, environment).parents]
    return [*claims(feed, environment), *above]


def addresses_of(feed: Feed, environment: Mapping[str, str]) -> list[Mapping[str, str]]:
    letters, late = place_of_letters(feed, environment) is not None, feed.late_by is not None
    return feed.sink.addresses(letters=letters, late=late)


def place_of_letters(feed: Feed, environment: Mapping[str, str]) -> Path | None:
    has_none = feed.decoding().takes_all and not feed.sink.keeps_refused
    return None if has_none else directory_of_dead_letters(located(feed, environment))


def place_of_late(feed: Feed, environment: Mapping[str, str]) -> Path | None:
    """Return the directory of late rows; None where there is none, or they are in a database."""
    in_files = feed.late_by is not None and feed.sink.format != "postgresql"
    return place_of_late_rows(located(feed, environment)) if in_files else None


def located(feed: Feed, environment: Mapping[str, str]) -> Path:
    """Return a feed's output path; a relative path without a root stays relative."""
    return place_of(feed.sink.path, environment)


def place_of(sink_path: str, environment: Mapping[str, str]) -> Path:
    """Return an output's path; a relative path without a root stays relative.

    A place in an object store is ``SCHEME:/BUCKET/NAME``, whatever connection leads there: only to be compared.
    """
    if in_object_store(sink_path):
        scheme, _, rest = sink_path.partition("://")
        authority, _, key = rest.partition("/")
        return Path(f"{scheme}:", bucket_in(scheme, authority), key)
    path = os.path.normpath(Path(environment.get(DATA_VARIABLE) or "") / sink_path)
    return Path(path[1:] if path.startswith("//") else path)  # POSIX allows two at the beginning to mean something else


def refuse_cycles(files: Iterable[FeedFile], cluster_of: Callable[[str], str] = str) -> list[FeedFile]:
    """Give an error to every feed whose records come back to it.

    Topics are compared by name and connection, or by the cluster that a connection leads to, which brokers know only.
    """
    files = list(files)
    written = {
        file.path: (cluster_of(topic[0]), topic[1])
        for file in files
        if file.feed is not None and (topic := file.feed.sink.written_topic) is not None
    }
    feeds = {file.path: file.feed for file in files if file.feed is not None and file.path in written}
    readers: dict[WrittenTopic, list[Path]] = {topic: [] for topic in written.values()}
    for path, feed in feeds.items():
        for topic in topics_read(feed, cluster_of(feed.kafka.conn_id), list(readers)):
            readers.setdefault(topic, []).append(path)
    return [
        refused_for(
            file,
            f"records that it writes to topic {written[file.path][1]} come back to it: "
            f"{' → '.join(str(path) for path in way)}{through([feeds[path] for path in way], cluster_of)}. Change "
            "sink.topic, or what one of these reads",
        )
        if file.path in written and (way := way_back(file.path, written, readers))
        else file
        for file in files
    ]


def through(way: Sequence[Feed], cluster_of: Callable[[str], str]) -> str:
    """Return which connections on a way lead to one cluster, for a message; an empty text where none do."""
    found: dict[str, set[str]] = {}
    for conn_id in (each for feed in way for each in (feed.kafka.conn_id, feed.sink.address["conn_id"])):
        found.setdefault(cluster_of(conn_id), set()).add(conn_id)
    several = {cluster: sorted(conn_ids) for cluster, conn_ids in found.items() if len(conn_ids) > 1}
    return "".join(f"; connections {listing(each)} lead to one cluster, {cluster}" for cluster, each in several.items())


def topics_read(feed: Feed, cluster: str, written: Iterable[WrittenTopic]) -> list[WrittenTopic]:
    """Return which topics a feed names, or which of the ``written`` ones its pattern selects."""
    pattern = feed.kafka.topic_pattern
    if pattern is None:
        return [(cluster, topic.name) for topic in feed.kafka.listed]
    found = []
    for of, name in written:
        with suppress(InvalidFeedError):  # the feed's own plan says so
            found += [(of, name)] if of == cluster and is_selected(name, pattern) else []
    return found


def way_back(
    start: Path, written: Mapping[Path, WrittenTopic], readers: Mapping[WrittenTopic, Sequence[Path]]
) -> list[Path]:
    """Return the files on the shortest way of a feed's records back to it; empty where there is none."""
    ways = [[start]]
    seen: set[Path] = set()
    for way in ways:
        for path in readers.get(written[way[-1]], ()):
            if path == start:
                return way
            if path not in seen:
                seen.add(path)
                ways.append([*way, path])
    return []
