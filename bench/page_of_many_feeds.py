"""`make bench-page`: what each view of the page takes at the server, with many feeds, partitions and years of batches.

Control tables are in SQLite. Kafka answers at once, as the page never waits for it for longer than 0.3 s; the brokers'
own time is measured by `make bench-plan`. Airflow's authentication is left out. See README.md.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from fastapi import Request
from measured_on import commit, machine_in_short
from places import run_in_a_directory
from sqlalchemy import URL
from years_of_batches import CLUSTER_RUN, FEED, Years, fill_tables, id_at, tables_to_fill

from environment import ROOT
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.rows import insert_rows
from kafka_ingest.control.upgrade import upgrade
from kafka_ingest.model.batch import Attempt, Batch, BatchKind, BatchPlan
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed, PlanRecord
from kafka_ingest.model.offsets import (
    Isolation,
    LogBounds,
    OffsetRange,
    OffsetsPolicy,
    StoredOffset,
    TopicDescription,
    TopicPartition,
    Unavailable,
)
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.observing.feed_lines import ClusterLogs, ask_logs
from kafka_ingest.observing.feed_status import Answers, ask
from kafka_ingest.observing.group_drift import Mirrored
from kafka_ingest.page.all_feeds import all_feeds
from kafka_ingest.page.feed_view import coverage_view
from kafka_ingest.page.kept_answers import Answer
from kafka_ingest.page.metrics_app import exposition, scraped_feeds
from kafka_ingest.page.one_batch import one_batch
from kafka_ingest.page.one_feed import FeedAsked, one_feed
from kafka_ingest.page.rendering import page
from kafka_ingest.page.sources import WAIT_S, BatchFiles, Places, Sources
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

VERSION = 1
CLUSTER, TOPIC_ID, WIDE = "bench-cluster", "bench-topic-id", "wide"
FEEDS, PARTITIONS, BATCHES, REPETITIONS = 2_000, 10_000, 100_000, 5
PARTITIONS_OF_A_FEED = 5
LOG_END = 1_000_000


class KnownKafka:
    """A cluster whose answers about these partitions are known: every log ends a little above what was read."""

    def __init__(self, groups: Mapping[str, Mapping[TopicPartition, int]] | None = None) -> None:
        self._groups = groups or {}

    def group_offsets(
        self, group: str, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | None]:
        """Return where a group is."""
        stored = self._groups.get(group, {})
        return {each: stored.get(each) for each in topic_partitions}

    def cluster_id(self) -> str:
        """Return the one cluster's id."""
        return CLUSTER

    def describe_topics(self, topics: Collection[str]) -> dict[str, TopicDescription]:
        """Return each topic with its partitions."""
        sizes = {name: PARTITIONS if name == WIDE else PARTITIONS_OF_A_FEED for name in topics}
        return {name: TopicDescription(name, TOPIC_ID, tuple(range(size))) for name, size in sizes.items()}

    def visible_topics(self, topics: Collection[str]) -> tuple[dict[str, TopicDescription], dict[str, str]]:
        """Return each topic with its partitions: all may be seen."""
        return self.describe_topics(topics), {}

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Return bounds above all that is stored."""
        return {each: LogBounds(0, LOG_END - each.partition, LOG_END) for each in topic_partitions}


@dataclass(frozen=True)
class KnownSources(Sources):
    """The page's sources, with Kafka's answers and the feed files given."""

    files: Mapping[str, FeedFile] | None = None

    def feed_files(self, *, wait_s: float = WAIT_S) -> Answer[dict[str, FeedFile]]:  # noqa: ARG002 - given at once
        """Return the feed files, as they are kept."""
        return Answer(dict(self.files or {}), 0.0)

    def logs(self, conn_id: str, feeds: list[FeedOverview], *, wait_s: float = WAIT_S) -> Answer[ClusterLogs]:
        """Return the bounds of all logs, kept from the first time on."""
        partitions = {partition for feed in feeds for partition in feed.stored}
        kafka: Any = KnownKafka()
        return self.kept.answer(("logs", conn_id), lambda: ask_logs(kafka, partitions), wait_s=wait_s)

    def oldest_ages(
        self, conn_id: str, feeds: Mapping[str, Places], *, of: str = "", wait_s: float = WAIT_S
    ) -> Answer[dict[str, timedelta | None]]:
        """Return an hour for each feed."""
        question = ("ages", conn_id, of)
        return self.kept.answer(question, lambda: dict.fromkeys(feeds, timedelta(hours=1)), wait_s=wait_s)

    def newest_ages(
        self, conn_id: str, feeds: Mapping[str, Collection[StoredOffset]], *, of: str = "", wait_s: float = WAIT_S
    ) -> Answer[dict[str, timedelta | None]]:
        """Return an hour for each feed."""
        question = ("newest", conn_id, of)
        return self.kept.answer(question, lambda: dict.fromkeys(feeds, timedelta(hours=1)), wait_s=wait_s)

    def look_for_drift(
        self, conn_id: str, feeds: Mapping[str, Mirrored], shown: Collection[str], *, wait_s: float = WAIT_S
    ) -> Answer[None]:
        """Find each group where its stored offsets are."""
        kafka: Any = KnownKafka({each.group: each.stored for each in feeds.values()})
        question = ("drifts", conn_id, frozenset(shown))
        return self.kept.answer(question, lambda: self.drifts.look(kafka, feeds, shown), wait_s=wait_s)

    def batch_files(self, batch: Batch, attempts: Sequence[Attempt]) -> Answer[BatchFiles]:  # noqa: ARG002 - as given
        """Return no file: nothing was written."""
        return Answer(BatchFiles((), 0, {}))

    def answers(self, snapshot: FeedSnapshot, feed: Feed) -> Answer[Answers]:
        """Return the answers about one feed."""
        kafka: Any = KnownKafka()
        return self.kept.answer(snapshot.feed_id, lambda: ask(snapshot, kafka, feed.kafka.group), wait_s=WAIT_S)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-page ARGS=…", description=__doc__)
    parser.add_argument("--feeds", type=int, default=FEEDS, help=f"default: {FEEDS}")
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"of one feed; default: {BATCHES}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    return run_in_a_directory(partial(compare, parser.parse_args()))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Measure the views in turn, and print what was found."""
    found = measure(directory, options)
    machine = f"{machine_in_short()}, commit {commit(ROOT)}"
    if options.json:
        print(json.dumps({"version": VERSION, "machine": machine, "seconds": found}))
    else:
        print(machine)
        for view, seconds in found.items():
            print(f"{view:40} {statistics.median(seconds):6.3f} s (first {seconds[0]:.3f} s)")


def measure(home: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the seconds of each view."""
    url = URL.create("sqlite", database=str(home / "control.db"))
    engine = open_database(ControlDatabaseSettings(url), create=True)
    upgrade(engine, create=True)
    now = datetime.now(UTC)
    years = Years(FEED, TOPIC_ID, CLUSTER, PARTITIONS_OF_A_FEED, options.batches, home / "output" / FEED, now)
    fill_tables(url, years)
    fill_feeds(url, options.feeds, now)
    wide = plan_wide(SqlControlTables(engine), now)
    sources = known_sources(home, [f"feed{number:04d}" for number in range(options.feeds)])
    views = views_of(sources, years, wide)
    return {name: [timed(view) for _ in range(options.repetitions)] for name, view in views.items()}


def views_of(sources: Sources, years: Years, wide: UUID) -> dict[str, Callable[[], object]]:
    """Return the views, each as the server makes it: questions and HTML."""
    request = Request({"type": "http", "root_path": "/kafka-offsets", "headers": [], "method": "GET", "path": "/"})

    def feeds(search: str = "", number: int = 1) -> object:
        return page(request, "feeds.html", view=all_feeds(sources, set, search=search, page=number), dags={})

    def feed(name: str, before: UUID | None = None) -> object:
        asked = FeedAsked(batches_before=before)
        view = one_feed(sources, name, asked, set)
        shown: dict[str, Any] = {"again": {}, "stays": {}, "offers": [], "dags": {}, "dag_id": name}
        return page(request, "feed.html", view=view, asked=asked, **shown)

    def batch(name: str, batch_id: UUID) -> object:
        return page(
            request, "batch.html", view=one_batch(sources, name, batch_id, page=1, with_logs=True), offers=[], dags={}
        )

    return {
        "all feeds": feeds,
        "all feeds, the last page": lambda: feeds(number=10_000),
        "all feeds, a search": lambda: feeds(search="feed12"),
        f"one feed, {PARTITIONS:,} partitions": lambda: feed(WIDE),
        f"coverage, {PARTITIONS:,} partitions": lambda: page(
            request, "coverage.html", view=coverage_view(sources, WIDE, 1)
        ),
        f"one feed, {years.batches:,} batches": lambda: feed(FEED),
        "the same, its oldest batches": lambda: feed(FEED, years.batch_id(50)),
        f"one batch, {PARTITIONS:,} ranges": lambda: batch(WIDE, wide),
        "one batch of years": lambda: batch(FEED, years.batch_id(years.batches - 1)),
        "metrics of all feeds": lambda: exposition(scraped_feeds(sources)),
    }


def timed(view: Callable[[], object]) -> float:
    """Return how long a view took."""
    started = time.perf_counter()
    view()
    return time.perf_counter() - started


def fill_feeds(url: URL, number: int, now: datetime) -> None:
    """Write feeds of five partitions each, every tenth with an open gap, every twentieth with a held partition."""
    with tables_to_fill(url) as connection:
        feeds = [(id_at(now - timedelta(days=400), 1_000 + each), f"feed{each:04d}") for each in range(number)]
        common = {"cluster_id": CLUSTER, "revision": 1, "created_at": now, "updated_at": now, "rows_committed": 5}
        insert_rows(
            connection,
            schema.feed,
            [common | {"feed_id": feed_id, "name": name, "topics": [name]} for feed_id, name in feeds],
        )
        stored = {"topic_id": TOPIC_ID, "first_offset": 0, "seeded_by": "earliest", "updated_at": now, "rows": 1}
        insert_rows(
            connection,
            schema.stored_offset,
            [
                stored | {"feed_id": feed_id, "topic": name, "partition": each, "next_offset": LOG_END - 10 * each}
                for feed_id, name in feeds
                for each in range(PARTITIONS_OF_A_FEED)
            ],
        )
        gap = {"partition": 0, "topic_id": TOPIC_ID, "start_offset": 5, "end_offset": 9, "cause": "skipped"}
        gap |= {"reason": "poisoned", "decided_by": CLUSTER_RUN, "decided_at": now, "applied_at": now}
        insert_rows(
            connection,
            schema.gap,
            [gap | {"gap_id": feed_id, "feed_id": feed_id, "topic": name} for feed_id, name in feeds[::10]],
        )
        hold = {"partition": 1, "cause": "no_answer", "reason": "no leader", "since": now}
        insert_rows(
            connection,
            schema.hold,
            [hold | {"hold_id": feed_id, "feed_id": feed_id, "topic": name} for feed_id, name in feeds[::20]],
        )


def plan_wide(control: SqlControlTables, now: datetime) -> UUID:
    """Plan the first batch of a feed of many partitions, and return its id."""
    partitions = [TopicPartition(WIDE, number) for number in range(PARTITIONS)]
    plan = BatchPlan(
        batch_id=id_at(now, 7),
        kind=BatchKind.LIVE,
        feed_id=id_at(now, 6),
        feed_name=WIDE,
        cluster_id=CLUSTER,
        topic_ids={WIDE: TOPIC_ID},
        ranges=tuple(OffsetRange(each, 0, 1_000) for each in partitions),
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=OffsetsPolicy.AUTO,
        output=OutputLocation.local("parquet", Path("/data/wide")),
        planned_at=now,
    )
    seeds = [StoredOffset(each, TOPIC_ID, 0, 0, "earliest") for each in partitions]
    control.record_plan(NewFeed(plan.feed_id, WIDE), PlanRecord(CLUSTER, [WIDE], seeds=seeds, plan=plan), actor="bench")
    return plan.batch_id


def known_sources(home: Path, names: list[str]) -> KnownSources:
    """Return the page's sources; feed files of the two large feeds lie where the page looks for them."""
    feeds = home / "feeds"
    feeds.mkdir()

    def settings(name: str) -> dict[str, Any]:
        return {"name": name, "kafka": {"topics": [name], "group": name}, "sink": {"format": "parquet", "path": name}}

    files = {
        name: FeedFile(feeds / name, Feed.model_validate(settings(name)), name=name) for name in [*names, FEED, WIDE]
    }
    for name in (FEED, WIDE):
        (feeds / f"{name}.yaml").write_text(json.dumps(settings(name)))
    connection = ConnectionFields("kafka_ingest", "sqlite", host=str(home / "control.db"))
    return KnownSources(lambda _: connection, {"KAFKA_INGEST_FEEDS": str(feeds)}, files=files)


if __name__ == "__main__":
    sys.exit(main())
