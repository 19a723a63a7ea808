"""The beginnings of lives of a batch, and what makes many feeds that begin so, in the same control tables."""

import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.contract.interference import Died, dying_before, watched
from tests.contract.whole_feed import JSON, Scheduler, WholeFeed, at_rest, whole_feed
from tests.fakes import InMemoryControlTables
from tests.iceberg_lake import connections_beside

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.table_options import DECODED, RECORDS
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.sinks.choose import sink_of

Life = Callable[[WholeFeed], None]
"""Brings a feed that was never planned to where a batch's life begins."""


def first_run(feed: WholeFeed) -> None:
    """A feed that was never run, and whose limit lets its first batch take a part of what is there."""
    produce(feed)
    feed.settings = replace(feed.settings, max_records=6)


def second_batch(feed: WholeFeed) -> None:
    """A feed that has run before; of its second batch some records cannot be decoded, of a table's first one, too."""
    if feed.settings.output.format != "parquet":
        decode_into_a_table(feed)
    produce(feed)
    at_rest(feed)
    if feed.letters is not None:
        feed.decoding = JSON
    produce(feed)


def decode_into_a_table(feed: WholeFeed) -> None:
    """Let a feed that was never planned decode its records; that a table has such ones is part of its options."""
    output = feed.settings.output
    output = replace(output, options=tuple(sorted({**dict(output.options), RECORDS: DECODED}.items())))
    feed.settings = replace(feed.settings, output=output)
    feed.sink = sink_of(output, connections_beside(feed.output, feed.access))
    feed.decoding = JSON


def empty_batch(feed: WholeFeed) -> None:
    """Offsets without a single record."""
    produce(feed)
    at_rest(feed)
    feed.log.append_markers(0, 2)
    feed.log.append_markers(2, 1)


def damaged_files(feed: WholeFeed) -> None:
    """Staged files that were damaged before the commit: they are discarded, and the batch is written again."""
    produce(feed)
    stop_before(feed, "control.begin_commit")
    [attempt] = (feed.output.parent / "orders.kafka-ingest" / "staging").glob("*/*")
    data = feed.sink.publisher.data_needs(attempt).place or attempt / "data"
    staged = list(data.glob("part-*"))
    assert staged
    for path in staged:
        path.write_bytes(b"damaged")


LIVES = [first_run, second_batch, empty_batch, damaged_files]


def produce(feed: WholeFeed) -> None:
    """Let records arrive in two of the partitions, with a hole where a transaction was aborted."""
    feed.log.produce(0, 3)
    feed.log.append_markers(0, 1)
    feed.log.produce(0, 1)
    feed.log.produce(1, 3)


def stop_before(feed: WholeFeed, call: str) -> Scheduler:
    """Run a feed until its process dies just before a call; return who would start its next run."""
    scheduler = Scheduler()
    with suppress(Died), watched(feed, dying_before(call)) as (doomed, _):
        scheduler.resume(doomed)
        raise AssertionError(f"expected a run to come to {call}")
    return scheduler


class Feeds:
    """Makes feeds that begin a life, each with a name and an output of its own."""

    def __init__(
        self,
        lake: Path,
        control: Callable[[], OperatorTables],
        output_format: str = "parquet",
        access: S3Access | None = None,
    ) -> None:
        self._lake = lake
        self._format = output_format
        self._access = access
        self._control = control
        self._numbers = count()

    def new(self, life: Life) -> WholeFeed:
        """Return another feed at the beginning of a life."""
        feed = whole_feed(f"feed-{next(self._numbers)}", self._control(), self._lake, self._format, self._access)
        life(feed)
        return feed

    def beginning(self, life: Life) -> "Beginning":
        """Return the beginning of a life from which many continue."""
        return Beginning(lambda: (self.new(life), Scheduler()))


Begun = tuple[WholeFeed, Any]
"""A feed, and what is needed to continue: who starts its next run, or its batch."""


class Beginning:
    """A beginning from which a feed goes on in many ways, one after the other.

    A feed with control tables in memory and an output on a disk begins once: what it did then is undone. In others
    another feed begins each time.
    """

    def __init__(self, begin: Callable[[], Begun]) -> None:
        self._begin = begin
        self._kept: tuple[Begun, Path] | None = None

    def again(self) -> Begun:
        """Return the feed at its beginning; the one that was returned before is of no use any more."""
        if self._kept is None:
            feed, other = self._begin()
            if isinstance(feed.control, InMemoryControlTables) and feed.access is None:
                folder = feed.output.parent
                files = shutil.copytree(folder, Path(tempfile.mkdtemp(dir=folder.parent)) / "files")
                self._kept = (as_it_is(feed), copy.deepcopy(other)), files
            return feed, other
        (feed, other), files = self._kept
        put_back(files, feed.output.parent)
        return as_it_is(feed), copy.deepcopy(other)


def put_back(files: Path, folder: Path) -> None:
    """Let a folder hold what it held when these files were copied from it; a folder that stays is the same inode."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if not path.is_dir():
            path.unlink()
        elif not (files / path.relative_to(folder)).is_dir():
            path.rmdir()
    shutil.copytree(files, folder, dirs_exist_ok=True)


def as_it_is(feed: WholeFeed) -> WholeFeed:
    """Return a feed in memory with parts of its own, which know what those of this one know now."""
    log = copy.deepcopy(feed.log)
    output, connections = feed.settings.output, connections_beside(feed.output)
    return replace(
        feed,
        control=feed.control.copied(),
        sink=sink_of(output, connections),
        letters=sink_of(output_of_dead_letters(output), connections),
        log=log,
        kafka=log.kafka,
        airflow=copy.deepcopy(feed.airflow),
    )


@contextmanager
def lake_folder() -> Iterator[Path]:
    """Yield a folder for outputs, where temporary files are: in memory where there is room."""
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-lake-") as directory:
        yield Path(directory)


STORES = ["in_memory", "sqlite", "postgresql"]
"""The fixtures of control tables, by their names."""


@contextmanager
def feeds_in(kind: str, request: pytest.FixtureRequest, lake: Path, output_format: str = "parquet") -> Iterator[Feeds]:
    """Yield what makes feeds, all in one database of a kind, or each in a memory of its own."""
    if kind == "in_memory":
        yield Feeds(lake, InMemoryControlTables, output_format)
        return
    engine = request.getfixturevalue(kind).open()
    yield Feeds(lake, lambda: SqlControlTables(engine), output_format)
