"""Feeds whose records would go round: each reads a topic that another one writes, or its own."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, unusable

WrittenTopic = tuple[str, str]
"""A topic, by connection and name."""


def refuse_cycles(files: Iterable[FeedFile]) -> list[FeedFile]:
    """Give an error to every feed whose records come back to it.

    Topics are compared by connection and name. Patterns are matched by the plan only; what they find is refused by the
    topic's id before a batch is committed.
    """
    files = list(files)
    feeds = {file.path: file.feed for file in files if file.feed is not None and file.feed.sink.written_topic}
    readers: dict[WrittenTopic | None, list[Path]] = {}
    for path, feed in feeds.items():
        for topic in feed.kafka.listed:
            readers.setdefault((feed.kafka.conn_id, topic.name), []).append(path)
    return [
        unusable(
            file.path,
            f"records that it writes to topic {file.feed.sink.written_topic[1]} come back to it: "
            f"{' → '.join(str(path) for path in way)}. Change sink.topic, or what one of these reads",
            name=file.name,
            sink_path=file.sink_path,
            schedule=file.schedule,
        )
        if file.feed is not None and file.feed.sink.written_topic and (way := way_back(file.path, feeds, readers))
        else file
        for file in files
    ]


def way_back(
    start: Path, feeds: Mapping[Path, Feed], readers: Mapping[WrittenTopic | None, Sequence[Path]]
) -> list[Path]:
    """Return the files on the shortest way of a feed's records back to it; empty where there is none."""
    ways = [[start]]
    seen: set[Path] = set()
    for way in ways:
        for path in readers.get(feeds[way[-1]].sink.written_topic, ()):
            if path == start:
                return way
            if path not in seen:
                seen.add(path)
                ways.append([*way, path])
    return []
