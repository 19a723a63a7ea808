"""``feeds``, ``batches``, ``history``, ``gaps``: what feed files and the control tables have, listed. Commands only."""

import json
import os
from collections.abc import Iterable
from dataclasses import replace
from itertools import chain
from typing import Annotated

from pydantic import Field

from kafka_ingest.assembly import file_of_feed
from kafka_ingest.errors import UnknownFeedError, WrongUseError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.summaries import BatchSummary
from kafka_ingest.observing.journal import HistoryLine, history
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.defaults import FOR_EACH, Value, written_values
from kafka_ingest.settings.feed_file import FeedFile, feed_of, read_feed_file
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.feed_schema import feed_schema, schema_text
from kafka_ingest.settings.run_request import time_with_zone
from kafka_ingest.settings.topic_feeds import TopicFeeds
from kafka_ingest.sinks.choose import FORMATS
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, number
from kafka_ingest.verbs.request import Argument, Call, Deciding, Option, Request
from kafka_ingest.verbs.topics_of_files import look_at

MOST_LINES = 1_000_000


def known_or_new(call: Call, feed_name: str) -> FeedSnapshot | None:
    """Return a feed's control rows, None where it was never planned; raises where it has no file either."""
    feed = call.control.feed(feed_name)
    if feed is None:
        feed_of(file_of_feed(feed_name, call.find_connection))
    return feed


def what_it_comes_to(name: str, find_connection: FindConnection) -> Answer:
    file = file_of_feed(name, find_connection)
    if file.contested is None:
        feed_of(file)  # a broken file's values may be anything, secrets in the wrong place too
    topic, path = file.topic, file.path
    if topic is not None:
        path = path.with_name(path.name.removesuffix(f"#{topic}"))
    values = list(written_values(path, topic))
    if topic is not None and (asked := read_feed_file(path).topics) is not None:
        values = [replace(each, value=asked.filled(each.value, topic)) for each in values]
    document = {
        "feed": name,
        "file": str(file.path),
        "values": [
            {"key": each.key, "value": each.value, "from": {"file": str(each.path), "line": each.line}}
            for each in values
        ],
    }
    return Answer(document, [written_values_table(name, values)])


def what_topics_come_to(name: str, files: list[FeedFile], call: Call) -> Answer:
    """Show what the files for many topics of that name, or of a fleet, come to now. Nothing is remembered."""
    named = [
        file
        for file in files
        if file.topics is not None and name in {file.path.name, file.path.stem, file.topics.specimen.fleet}
    ]
    if broken := [file for file in files if file.error is not None and name in {file.path.name, file.path.stem}]:
        feed_of(broken[0])
    if not named:
        there = [file.path.name for file in files if file.topics is not None]
        raise UnknownFeedError(
            f"expected a file with {FOR_EACH}, or its fleet, found {name!r}; there is {listing(there) or 'none'}"
        )
    memory = call.control.topic_memory()
    found = {file.path.name: look_at(file, files, memory, call.find_connection, os.environ) for file in named}
    is_stopped = any(each.stopped for each in found.values())
    tables = (topics_table(name, each) for name, each in found.items())
    document = {"files": [{"file": name, **each.as_document()} for name, each in found.items()]}
    return Answer(document, tables, WrongUseError.exit_code if is_stopped else 0)


class Feeds(Request):
    """Validate all feed files and list them. Exit code 2 where one cannot be used."""

    command = "feeds"
    deciding = Deciding.ONLY_SHOWS
    command_names_feed = needs_feed = False

    file: Annotated[
        str | None,
        Argument("A file for many topics, or its fleet: which feeds it makes now; changes nothing.", "FILE"),
    ] = None
    show: Annotated[
        str | None,
        Option("This feed with the values of _defaults.yaml, and the line that each is from.", metavar="NAME"),
    ] = None
    for_editors: Annotated[bool, Option("Print the JSON Schema of a feed file.", flag="--schema")] = False
    defaults: Annotated[bool, Option("With --schema: that of _defaults.yaml.")] = False

    def answer(self, call: Call) -> Answer:
        if (self.defaults and not self.for_editors) or (self.for_editors and (self.show or self.file)):
            raise WrongUseError("expected FILE, --show, --schema, or --schema with --defaults, found others together")
        if self.for_editors:
            text = schema_text(of_defaults=self.defaults).rstrip()
            return Answer(feed_schema(of_defaults=self.defaults), [Line(text)])
        if self.show is not None:
            return what_it_comes_to(self.show, call.find_connection)
        files = read_feed_files(feeds_directory())
        if self.file is not None:
            return what_topics_come_to(self.file, files, call)
        broken = [file for file in files if file.error is not None]
        document = {
            "feeds": [
                file.feed.model_dump(mode="json")
                | {"file": str(file.path), "guarantee": FORMATS[file.feed.sink.format].guarantee}
                for file in files
                if file.feed
            ],
            "for_each_topic": [
                {"file": str(file.path), "fleet": file.topics.specimen.fleet, "pattern": file.topics.pattern}
                for file in files
                if file.topics is not None
            ],
            "errors": [{"file": str(file.path), "message": str(file.error)} for file in broken],
        }
        problems = (Line(f"✗ {file.error}", "red", aside=True) for file in broken)
        return Answer(document, chain([feed_files_table(files)], problems), WrongUseError.exit_code if broken else 0)


class Batches(Request):
    """List batches, newest first."""

    command = "batches"
    deciding = Deciding.ONLY_SHOWS
    needs_feed = False

    kind: Annotated[list[BatchKind], Option("Only batches of this kind; may be repeated.")] = Field(
        default_factory=list
    )
    state: Annotated[list[BatchState], Option("Only in this state; may be repeated.", any_case=True)] = Field(
        default_factory=list
    )
    limit: Annotated[int, Field(ge=1, le=MOST_LINES), Option("How many at most.")] = 20
    since: Annotated[str | None, Option("Planned at or after this time, e.g. 2026-01-31T00:00:00Z.")] = None

    def answer(self, call: Call) -> Answer:
        if call.feed is not None:
            known_or_new(call, call.feed)
        since = time_with_zone(self.since, call.named("since")) if self.since is not None else None
        found = call.control.batch_summaries(
            call.feed, kinds=self.kind, states=self.state, since=since, limit=self.limit
        )
        return Answer({"batches": [document_of(batch) for batch in found]}, [batches_table(found)])


class History(Request):
    """Show who changed what about a feed, when and why, newest first: offsets, gaps, abandoned batches, its name."""

    command = "history"
    deciding = Deciding.ONLY_SHOWS

    limit: Annotated[int, Field(ge=1, le=MOST_LINES), Option("How many at most.")] = 50
    since: Annotated[str | None, Option("At or after this time, e.g. 2026-01-31T00:00:00Z.")] = None
    kind: Annotated[list[str], Option("Only events of this kind; may be repeated.")] = Field(default_factory=list)

    def answer(self, call: Call) -> Answer:
        name = call.feed_name
        feed = known_or_new(call, name)
        since = time_with_zone(self.since, call.named("since")) if self.since is not None else None
        lines = (
            history(call.control, feed.feed_id, kinds=self.kind, since=since, limit=self.limit)
            if feed is not None
            else []
        )
        return Answer({"feed": name, "events": [line.as_document() for line in lines]}, [history_table(name, lines)])


class Gaps(Request):
    """List the gap ledger: which offsets are not ingested, who or what decided it, when and why."""

    command = "gaps"
    deciding = Deciding.ONLY_SHOWS
    needs_feed = False

    def answer(self, call: Call) -> Answer:
        names = [summary.name for summary in call.control.feed_summaries()] if call.feed is None else [call.feed]
        feeds = {name: known_or_new(call, name) for name in names}
        found = [(name, gap) for name, feed in feeds.items() if feed for gap in call.control.gaps(feed.feed_id)]
        document = {"gaps": [{"feed": name, "state": gap.state, **gap.as_document()} for name, gap in found]}
        return Answer(document, [gaps_table(found)])


def history_table(feed: str, lines: list[HistoryLine]) -> FittingTable:
    made = FittingTable(f"history of feed {feed}", "when (UTC)", "who", "what", "batch", "old → new", "why")
    for line in lines:
        event, text = line.event, line.text
        made.add_line(event.at, event.actor, event.kind, event.batch_id, text.summary, text.reason or None)
    return made


def feed_files_table(files: list[FeedFile]) -> FittingTable:
    made = FittingTable("feeds", "feed", "topics", "schedule", "output", "file")
    for file in files:
        if file.topics is not None:
            name, schedule = str(file.topics.document["name"]), file.topics.specimen.schedule
            output = f"{file.topics.specimen.sink.format} for each"
            made.add_line(name, f"for each like {file.topics.pattern}", schedule or "none", output, file.path.name)
        elif file.feed is not None:
            feed, output = file.feed, f"{file.feed.sink.format} {file.feed.sink.path}"
            made.add_line(feed.name, feed.kafka.described(), feed.schedule or "none", output, file.path.name)
    return made


def topics_table(name: str, found: TopicFeeds) -> FittingTable:
    """Return what a file for many topics makes: each topic, its feed, and what is new or wrong about it."""
    made = FittingTable(f"topics of {name}", "topic", "feed", "is")
    feeds, had = found.feeds, {each.topic: each.name for each in found.files}
    said = dict.fromkeys(found.known, "known") | dict.fromkeys(found.new, "new")
    said |= dict.fromkeys(found.made_again, "known; the topic was made again: its next plan decides")
    said |= dict.fromkeys(found.gone, "known; the topic is gone: its next plan decides")
    said |= {topic: f"held: {why}" for topic, why in found.left.items()}
    said |= dict.fromkeys(found.left_out, "left out") | {
        topic: f"stopped: {why}" for topic, why in found.stopped.items()
    }
    for topic, what in sorted(said.items()):
        made.add_line(topic, feeds.get(topic) or had.get(topic) or "none", what)
    for topic in found.unknown_overrides:
        made.add_line(topic, "none", "an override that meets no topic")
    return made


def written_values_table(name: str, values: Iterable[Value]) -> FittingTable:
    made = FittingTable(f"feed {name}", "key", "value", "from")
    for each in values:
        line = f":{each.line}" if each.line is not None else ""
        made.add_line(each.key, json.dumps(each.value, ensure_ascii=False), f"{each.path}{line}")
    return made


def batches_table(batches: list[BatchSummary]) -> FittingTable:
    letters = {batch.batch_id: sum(each.dead_letters or 0 for each in batch.ranges) for batch in batches}
    filtered = {batch.batch_id: sum(each.filtered or 0 for each in batch.ranges) for batch in batches}
    counted = {
        name: counts for name, counts in (("dead letters", letters), ("filtered", filtered)) if any(counts.values())
    }
    numbers = ("ranges", "rows", *counted, "MB")
    made = FittingTable(
        "batches", *("batch", "feed", "kind", "state", "planned by", "committed (UTC)"), *numbers, numbers=numbers
    )
    for batch in batches:
        of_batch = (batch.batch_id, batch.feed, batch.kind, batch.state, batch.planned_by, batch.committed_at)
        size = None if batch.size_bytes is None else f"{batch.size_bytes / 1e6:,.1f}"
        numbers_of_batch = (counts[batch.batch_id] for counts in counted.values())
        made.add_line(*of_batch, number_of_ranges(batch), batch.rows, *numbers_of_batch, size)
    return made


def number_of_ranges(batch: BatchSummary) -> str:
    """Return a batch's number of ranges, and of how many planned ones where it left some out; a folded one has none."""
    if batch.folded:
        return "folded"
    read = len(batch.ranges)
    return f"{number(read)} of {number(read + len(batch.left_out))}" if batch.left_out else number(read)


def gaps_table(gaps: list[tuple[str, Gap]]) -> FittingTable:
    numbers = ("partition", "start offset", "end offset", "offsets")
    closed = ["closed by"] if any(gap.closed_by_batch for _, gap in gaps) else []
    made = FittingTable(
        "gaps",
        *("feed", "topic", *numbers, "cause", "state", *closed, "decided (UTC)", "by", "reason"),
        numbers=numbers,
    )
    for feed, gap in gaps:
        span = gap.offset_range
        offsets = (str(span.partition), span.start_offset, span.end_offset, span.span)
        state = (gap.cause, gap.state, *([gap.closed_by_batch] if closed else []))
        made.add_line(feed, span.topic, *offsets, *state, gap.decided_at, gap.decided_by, gap.reason)
    return made
