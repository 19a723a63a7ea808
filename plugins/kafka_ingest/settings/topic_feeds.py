"""What a file for many topics makes: the feeds of the topics that there are, and why others have none. Pure.

A topic that became a feed keeps it, whatever the pattern becomes. What is wrong with one topic stops its feed alone.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Unpack

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.model.topics import FilePlan, SeenTopic, TopicMemory, match_whole
from kafka_ingest.settings.defaults import FOR_EACH
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_claims import refuse_cycles, rivals_of, shared_with
from kafka_ingest.settings.feed_file import DeclaredFields, FeedFile, unusable
from kafka_ingest.settings.files_for_dags import why_refused
from kafka_ingest.settings.topics_file import TopicsFile

Topics = Mapping[str, str | None]
"""Topics that exist, with their ids; None where the broker knows none."""


@dataclass(frozen=True, slots=True)
class Others:
    """What else is in the folder: feeds of files that have one each, and other files for many topics."""

    folder: Path
    files: Sequence[FeedFile] = ()

    def file_text(self, path: Path) -> str:
        """Return how control tables call a file."""
        return Path(os.path.relpath(path, self.folder)).as_posix()


@dataclass(slots=True)
class TopicFeeds:
    """What a file makes now, by topic.

    ``files`` are the feeds, each in a file of its own whose path is the real one's with the topic; ``new`` and
    ``known`` name those that can be used, ``gone`` those whose topic does not exist any more, which are among the known
    ones, ``made_again`` those whose topic has another id. ``left`` are feeds that the file asks for no longer, and why;
    ``left_out`` topics that it wants no feed of; ``stopped`` topics, and why no feed can be made of them.
    """

    files: list[FeedFile] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    made_again: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)
    unknown_overrides: list[str] = field(default_factory=list)
    seen: list[SeenTopic] = field(default_factory=list)
    """What a plan remembers."""

    @property
    def feeds(self) -> dict[str, str]:
        """The names of the feeds that can be used, by topic."""
        return {str(each.topic): each.feed.name for each in self.files if each.feed is not None}

    def as_document(self) -> dict[str, Any]:
        feeds, had = self.feeds, {each.topic: each.name for each in self.files}

        def named(topics: Iterable[str]) -> list[dict[str, str | None]]:
            return [{"topic": topic, "feed": feeds.get(topic)} for topic in topics]

        return {
            **{key: named(getattr(self, key)) for key in ("new", "known", "gone", "made_again")},
            "left": [{"topic": topic, "feed": had[topic], "why": why} for topic, why in self.left.items()],
            "left_out": self.left_out,
            "stopped": [{"topic": topic, "feed": had[topic], "why": why} for topic, why in self.stopped.items()],
            "unknown_overrides": self.unknown_overrides,
        }

    @property
    def to_plan(self) -> list[FeedFile]:
        """The files of all feeds but those that are left; those of which no feed can be made say so when they run."""
        return [each for each in self.files if each.topic not in self.left]


def topic_feeds(
    file: FeedFile, there: Topics, memory: TopicMemory, others: Others, environment: Mapping[str, str]
) -> TopicFeeds:
    if (asked := file.topics) is None:
        return TopicFeeds()
    return Sorting(file, asked, there, memory, others, environment).result()


def remembered_feeds(
    file: FeedFile, memory: TopicMemory, others: Others, environment: Mapping[str, str]
) -> list[FeedFile]:
    """Return what a file came to at its last plan, by what the file says now; Kafka is not asked."""
    name = others.file_text(file.path)
    seen = {each.topic: each.topic_id for each in memory.seen if each.file == name and each.feed is not None}
    return topic_feeds(file, seen, memory, others, environment).files


class Sorting:
    """One file's topics that are being sorted."""

    def __init__(
        self,
        file: FeedFile,
        asked: TopicsFile,
        there: Topics,
        memory: TopicMemory,
        others: Others,
        environment: Mapping[str, str],
    ) -> None:
        self.file, self.asked, self.there, self.environment = file, asked, there, environment
        self.name, self.conn_id = others.file_text(file.path), asked.specimen.kafka.conn_id
        self.others = [each for each in others.files if each.path != file.path]
        self.rivals = {
            others.file_text(each.path): each.topics
            for each in self.others
            if each.topics is not None and each.topics.specimen.kafka.conn_id == self.conn_id
        }
        present = {self.name, *(others.file_text(each.path) for each in self.others if each.topics is not None)}
        # A file that was renamed: what it came to is this one's now, where it matches and no other has taken it over.
        of_connection = [each for each in memory.seen if each.conn_id == self.conn_id]
        taken_over = {each.topic for each in of_connection if each.file in present}
        orphans = [each for each in of_connection if each.file not in present and each.topic not in taken_over]
        self.own = {each.topic: each for each in [*orphans, *(each for each in memory.seen if each.file == self.name)]}
        self.elsewhere = {
            (each.file, each.topic): each for each in memory.seen if each.file in self.rivals and each.feed is not None
        }
        self.orphaned = {each.topic for each in orphans}
        self.planned = dict(memory.planned)
        self.alike = {name.casefold(): name for name in self.planned}
        self.last: FilePlan | None = next((each for each in memory.plans if each.file == self.name), None)
        self.found = TopicFeeds()
        self.feeds: dict[str, Feed] = {}

    def result(self) -> TopicFeeds:
        for topic in sorted({*self.there, *self.own}):
            self.sort(topic)
        self.refuse_shared()
        for topic, feed in self.feeds.items():
            was = self.own.get(topic)
            is_known = was is not None and was.feed is not None
            (self.found.known if is_known else self.found.new).append(topic)
            if topic not in self.there:
                self.found.gone.append(topic)
            elif is_known and was is not None and None not in (was.topic_id, self.there[topic]):
                self.found.made_again += [topic] if was.topic_id != self.there[topic] else []
            self.remember(topic, feed.name)
            after = self.found.seen[-1].found_after
            file = FeedFile(self.path(topic), feed, found_after=after, **self.declared(feed))
            self.add(file, topic)
        self.found.files.sort(key=lambda each: each.path)
        self.found.seen.sort(key=lambda each: each.topic)
        self.found.unknown_overrides = sorted(
            topic
            for topic in self.asked.overrides
            if (topic not in self.there and topic not in self.own) or self.asked.match(topic) is None
        )
        return self.found

    def sort(self, topic: str) -> None:
        was, matches = self.own.get(topic), self.asked.match(topic) is not None
        had = was.feed if was is not None else None
        wanted = matches and self.asked.overrides.get(topic, {}) is not None
        if not wanted and had is not None:
            if topic not in self.orphaned:
                why = (
                    f"{FOR_EACH} {self.asked.pattern!r} does not match it any more"
                    if not matches
                    else "overrides leave the topic out now"
                )
                self.leave(topic, had, why)
        elif not wanted and matches and topic in self.there:
            self.found.left_out.append(topic)
            self.remember(topic, None)
        elif wanted and (had is not None or topic in self.there):
            try:
                self.feeds[topic] = self.feed_of(topic, had)
            except InvalidFeedError as error:
                self.stop(topic, str(error))

    def feed_of(self, topic: str, had: str | None) -> Feed:
        """Return the feed of a topic; raises InvalidFeedError where it cannot be that."""
        self.check_only_match(topic, had)
        feed = self.asked.feed_of(topic)
        specimen, name = self.asked.specimen, feed.name
        if had is not None and had != name and had in self.planned:
            raise InvalidFeedError(
                f"expected the feed's name to stay {had!r}, found {name!r}: its offsets are stored under that name. "
                f"Say name: {had} in overrides, or give it the new one: `kafka-ingest rename-feed {had} {name}`"
            )
        if had != name:
            taken = name if name in self.planned else self.alike.get(name.casefold())
            if taken is not None and (taken != name or self.planned[name] != {topic}):
                raise InvalidFeedError(
                    f"expected a name that no other feed has, found {name!r}: the control tables have feed {taken} of "
                    f"{', '.join(sorted(self.planned[taken])) or 'no topic'}"
                )
        if feed.kafka.conn_id != specimen.kafka.conn_id:
            raise InvalidFeedError(
                f"expected connection {specimen.kafka.conn_id}, over which topics are found, found {feed.kafka.conn_id}"
            )
        if why := why_refused(feed, specimen, {feed.name}):
            raise InvalidFeedError(why)
        written = feed.sink.written_topic
        if written is not None and written[0] == self.conn_id and self.asked.match(written[1]):
            raise InvalidFeedError(
                f"expected sink.topic to be none that {FOR_EACH} {self.asked.pattern!r} matches, found {written[1]!r}: "
                "it would become a feed, too, and so without end"
            )
        return feed

    def check_only_match(self, topic: str, had: str | None) -> None:
        """Raise InvalidFeedError where another file has the topic, or may have it as well."""
        for name, rival in self.rivals.items():
            if rival.match(topic) is None or rival.overrides.get(topic, {}) is None or had is not None:
                continue
            theirs = self.elsewhere.get((name, topic))
            feed = f", where it is feed {theirs.feed}" if theirs is not None else ""
            raise InvalidFeedError(
                f"expected a topic that one file matches, found that {name} matches it too{feed}. Say null for it in "
                "the overrides of one of them"
            )

    def refuse_shared(self) -> None:
        """Stop feeds that share something with another: the newer one, both where no plan knows one of them."""
        mine = {self.path(topic): topic for topic in self.feeds}
        theirs = {each.path: feed for each in self.others if (feed := each.feed or each.contested) is not None}
        feeds = theirs | {path: self.feeds[topic] for path, topic in mine.items()}
        # Letters that differ in case are one name to some disks and catalogs.
        for path, rivals in rivals_of(feeds, self.environment, str.casefold).items():
            if path not in mine or not rivals:
                continue
            topic = mine[path]
            before = {rival for rival in rivals if rival not in mine or not self.is_newer(mine[rival], topic)}
            if before:
                rival = min(before)
                self.stop(topic, shared(feeds[path], feeds[rival], rival, self.environment))
        for topic in self.found.stopped:
            self.feeds.pop(topic, None)
        left = [FeedFile(self.path(topic), feed) for topic, feed in self.feeds.items()]
        for each in refuse_cycles([*self.others, *left]):
            if each.error is not None and each.path in mine and mine[each.path] in self.feeds:
                self.stop(mine[each.path], str(each.error).partition(": ")[2])
                self.feeds.pop(mine[each.path])

    def is_newer(self, topic: str, other: str) -> bool:
        return self.had(topic) is None and self.had(other) is not None

    def had(self, topic: str) -> str | None:
        was = self.own.get(topic)
        return was.feed if was is not None else None

    def leave(self, topic: str, had: str, why: str) -> None:
        self.found.left[topic] = why
        reason = f"feed {had} of topic {topic} is held: {why}. Its offsets and its output stay as they are"
        self.add_unusable(topic, reason, name=had, alerts_are_read=True)
        self.remember(topic, had)

    def stop(self, topic: str, why: str) -> None:
        self.found.stopped[topic] = why
        had = self.had(topic)
        self.add_unusable(topic, why, name=had, alerts=self.asked.specimen.alerts, alerts_are_read=True)
        self.remember(topic, had)

    def add_unusable(self, topic: str, why: str, **declared: Unpack[DeclaredFields]) -> None:
        self.add(unusable(self.path(topic), why, **declared), topic)

    def add(self, file: FeedFile, topic: str) -> None:
        self.found.files.append(replace(file, topic=topic, fleet=self.asked.specimen.fleet))

    def remember(self, topic: str, feed: str | None) -> None:
        """Note what the control tables keep of a topic; one that is gone and never became a feed is forgotten."""
        was = self.own.get(topic)
        if topic not in self.there and feed is None:
            return
        topic_id = self.there.get(topic, was.topic_id if was is not None else None)
        after = was.found_after if was is not None else self.found_after(topic)
        self.found.seen.append(SeenTopic(self.name, topic, self.conn_id, topic_id, feed, after))

    def found_after(self, topic: str) -> datetime | None:
        """Return the last plan, if it would have found the topic; one that is left out begins as its start says."""
        if self.last is None or topic in self.found.left_out:
            return None
        return self.last.planned_at if match_whole(self.last.pattern, topic) else None

    def path(self, topic: str) -> Path:
        return self.file.path.with_name(f"{self.file.path.name}#{topic}")

    def declared(self, feed: Feed) -> DeclaredFields:
        return {
            "name": feed.name,
            "sink_path": feed.sink.path,
            "schedule": self.file.schedule,
            "alerts": feed.alerts,
            "alerts_are_read": True,
        }


def shared(feed: Feed, other: Feed, path: Path, environment: Mapping[str, str]) -> str:
    """Return what a feed shares with another, which is in a file, or differs in by the case of letters alone."""
    if feed.name != other.name and feed.name.casefold() == other.name.casefold():
        return f"name {feed.name!r} differs from that of {path}, {other.name!r}, by the case of its letters alone"
    note = ". Letters that differ in case count as the same here" if feed.name != other.name else ""
    return f"{shared_with(feed, other, path, environment)}{note}"


def all_feeds(
    files: Iterable[FeedFile],
    memory: TopicMemory,
    folder: Path,
    environment: Mapping[str, str],
    *,
    but: Path | None = None,
) -> list[FeedFile]:
    """Return files with what those for many topics came to at their last plans in their places; without one of them."""
    files = list(files)
    if not any(file.topics is not None for file in files):
        return files
    others = Others(folder, files)
    return [
        each
        for file in files
        if file.path != but
        for each in ([file] if file.topics is None else remembered_feeds(file, memory, others, environment))
    ]
