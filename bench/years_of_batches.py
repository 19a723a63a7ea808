"""Control tables and outputs as years of runs leave them.

Any number of batches, each of one offset of each partition.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    URL,
    BigInteger,
    ColumnElement,
    Connection,
    Interval,
    String,
    Uuid,
    case,
    cast,
    create_engine,
    func,
    insert,
    literal,
    select,
)

from kafka_ingest.control import schema
from kafka_ingest.control.rows import insert_rows
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.batch_folders import PUBLISHED
from kafka_ingest.sinks.kept_receipts import KEPT, day_of, published_document
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet.directory import ParquetDirectory

EVERY = timedelta(minutes=5)
MILLISECOND, EPOCH = timedelta(milliseconds=1), datetime(1970, 1, 1, tzinfo=UTC)
AT_ONCE = 50_000
WHOLE = 1_000
"""This many of the newest batches have a plan and a receipt as a run writes them; no step reads earlier ones."""

FAILED_MIRRORS = 100
"""One commit in this many leaves a line in the journal."""

COPIED_FROM = 2
"""This many of the oldest batches are written; all up to the newest are copies of them."""

COPIED = (("batch", 0, 1), ("attempt", 0, 1), ("batch_range", 0, 1), ("event", 1, FAILED_MIRRORS))
"""Tables, the batch whose rows are copied, and how many batches share one copy."""

NAMED = {"batch_id", "attempt", "topic", "partition"}
OFFSETS = {"start_offset", "end_offset", "smallest_offset", "largest_offset"}

LINKS = 50_000
"""How many names one file gets: ext4 allows 65,000."""

FEED, CLUSTER_RUN = "bench", "airflow:bench/scheduled__2026-01-01T00:00:00+00:00"
VERSION_7, VARIANT = 7 << 76, 2 << 62


@dataclass(frozen=True, slots=True)
class Years:
    """What is made: a feed of one topic, whose batches read one offset of each partition."""

    topic: str
    topic_id: str
    cluster_id: str
    partitions: int
    batches: int
    output: Path
    ends_at: datetime
    whole: int = WHOLE

    @property
    def first_whole(self) -> int:
        """The oldest batch with a plan and a receipt."""
        return max(0, self.batches - self.whole)

    @property
    def feed_id(self) -> UUID:
        """The feed's id."""
        return id_at(self.ends_at - EVERY * (self.batches + 1), 0)

    def batch_id(self, number: int) -> UUID:
        """Return a batch's id: as old as its turn is."""
        return id_at(self.planned_at(number), number)

    def planned_at(self, number: int) -> datetime:
        """Return when a batch was planned."""
        return self.ends_at - EVERY * (self.batches - number)

    def plan(self, number: int) -> BatchPlan:
        """Return a batch's plan."""
        return BatchPlan(
            batch_id=self.batch_id(number),
            kind=BatchKind.LIVE,
            feed_id=self.feed_id,
            feed_name=FEED,
            cluster_id=self.cluster_id,
            topic_ids={self.topic: self.topic_id},
            ranges=tuple(
                OffsetRange(TopicPartition(self.topic, p), number, number + 1) for p in range(self.partitions)
            ),
            isolation=Isolation.READ_COMMITTED,
            offsets_policy=OffsetsPolicy.AUTO,
            output=OutputLocation.local("parquet", self.output),
            planned_at=self.planned_at(number),
        )


def id_at(when: datetime, number: int) -> UUID:
    """Return a time-ordered id (RFC 9562, version 7)."""
    return UUID(int=milliseconds_at(when) << 80 | VERSION_7 | VARIANT | number)


def milliseconds_at(when: datetime) -> int:
    """Return an instant as a time-ordered id has it."""
    return (when - EPOCH) // MILLISECOND


def fill_tables(url: URL, years: Years) -> None:
    """Write the control rows: most are copies that the database makes of the oldest ones."""
    with tables_to_fill(url) as connection:
        write_feed(connection, years)
        write_batches(connection, years, range(min(COPIED_FROM, years.batches)))
        for first in range(COPIED_FROM, years.first_whole, AT_ONCE):
            copy_batches(connection, years, first, min(first + AT_ONCE, years.first_whole) - 1)
            connection.commit()
        write_batches(connection, years, range(max(COPIED_FROM, years.first_whole), years.batches))


@contextlib.contextmanager
def tables_to_fill(url: URL) -> Iterator[Connection]:
    """Connect to control tables that are to be filled.

    What was written is durable, and counted for queries, in the end.
    """
    engine = create_engine(url)
    sqlite = url.get_backend_name() == "sqlite"
    with engine.connect() as connection:
        # Batches name their pinned attempts, and those name their batch.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF" if sqlite else "SET session_replication_role = replica")
        connection.exec_driver_sql("PRAGMA synchronous=OFF" if sqlite else "SET synchronous_commit = off")
        connection.commit()
        yield connection
        connection.commit()
        at_rest = connection.execution_options(isolation_level="AUTOCOMMIT")
        for statement in ["ANALYZE", "PRAGMA wal_checkpoint(TRUNCATE)"] if sqlite else ["VACUUM ANALYZE", "CHECKPOINT"]:
            at_rest.exec_driver_sql(statement)
    engine.dispose()


def write_feed(connection: Connection, years: Years) -> None:
    """Write the feed's row, where its partitions begin and stand, and what the journal has of that."""
    begun = years.ends_at - EVERY * (years.batches + 1)
    feed = {"feed_id": years.feed_id, "name": FEED, "cluster_id": years.cluster_id, "topics": [years.topic]}
    feed |= {"revision": 1, "created_at": begun, "updated_at": years.ends_at}
    feed |= {"rows_committed": years.batches * years.partitions}
    insert_rows(connection, schema.feed, [feed])
    place = [
        {"topic": years.topic, "partition": number, "topic_id": years.topic_id} for number in range(years.partitions)
    ]
    stored = {"feed_id": years.feed_id, "first_offset": 0, "next_offset": years.batches, "seeded_by": "earliest"}
    stored |= {"updated_at": years.ends_at} | {"rows": years.batches}
    insert_rows(connection, schema.stored_offset, [stored | each for each in place])
    seeded = {"partitions": [each | {"offset": 0, "rule": "earliest"} for each in place]}
    about = {"feed_id": years.feed_id, "at": begun, "actor": CLUSTER_RUN}
    insert_rows(connection, schema.event, [about | {"kind": "seeded", "detail": seeded}])


def write_batches(connection: Connection, years: Years, numbers: range) -> None:
    """Write committed batches with an attempt each, and a journal entry for one in a hundred, whose mirror failed."""
    insert_rows(connection, schema.batch, list(batch_rows(years, numbers)))
    attempt = {"attempt": 1, "state": "PINNED", "document_sha256": "s" * 64, "receipt_sha256": "r" * 64}
    attempt |= {"opened_by": CLUSTER_RUN, "directory": str(years.output.with_name("staging") / "1")}
    insert_rows(
        connection,
        schema.attempt,
        [
            attempt | {"batch_id": years.batch_id(number), "opened_at": when, "cleaned_at": when}
            for number in numbers
            for when in [years.planned_at(number)]
        ],
    )
    counts = {"rows": 1, "filtered": 0, "dead_letters": 0, "invisible": 0, "topic_id": years.topic_id}
    insert_rows(
        connection,
        schema.batch_range,
        [
            {"batch_id": years.batch_id(number), "topic": years.topic, "partition": partition}
            | {"start_offset": number, "end_offset": number + 1, "smallest_offset": number, "largest_offset": number}
            | counts
            for number in numbers
            for partition in range(years.partitions)
        ],
    )
    failed = {
        "feed_id": years.feed_id,
        "kind": "mirror_failed",
        "actor": CLUSTER_RUN,
        "detail": {"reason": "no answer"},
    }
    insert_rows(
        connection,
        schema.event,
        [
            failed | {"batch_id": years.batch_id(n), "at": years.planned_at(n)}
            for n in numbers
            if n % FAILED_MIRRORS == 1
        ],
    )


def copy_batches(connection: Connection, years: Years, first: int, last: int) -> None:
    """Write what `write_batches` would for these numbers: the database copies the rows of the oldest batches."""
    is_sqlite = connection.dialect.name == "sqlite"
    numbers = select(literal(first).label("number")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.number + 1).where(numbers.c.number < last))
    number = numbers.c.number
    for name, copied, of_each in COPIED:
        table = schema.metadata.tables[name]
        replaced: dict[str, ColumnElement[Any]] = {
            "batch_id": (id_on_sqlite if is_sqlite else id_on_postgresql)(years, number)
        }
        for each in table.columns:
            if isinstance(each.type, schema.UtcDateTime):
                when = (time_on_sqlite if is_sqlite else time_on_postgresql)(years, number)
                replaced[each.name] = case((each.is_not(None), when))
            elif each.name in OFFSETS:
                replaced[each.name] = each + (number - copied)
        columns = [each for each in table.columns if not each.primary_key or each.name in NAMED]
        chosen = select(*(replaced.get(each.name, each) for each in columns))
        chosen = chosen.select_from(numbers.join(table, table.c.batch_id == years.batch_id(copied)))
        chosen = chosen.where(number % of_each == copied % of_each).order_by(number)
        connection.execute(insert(table).from_select([each.key for each in columns], chosen))


def id_on_sqlite(years: Years, number: ColumnElement[int]) -> ColumnElement[Any]:
    """Return `Years.batch_id` as SQLite works it out, and keeps it."""
    milliseconds = number * (EVERY // MILLISECOND) + milliseconds_at(years.planned_at(0))
    return func.printf("%012x70008%015x", milliseconds, number, type_=String())


def id_on_postgresql(years: Years, number: ColumnElement[int]) -> ColumnElement[Any]:
    """Return `Years.batch_id` as PostgreSQL works it out."""
    milliseconds = cast(number, BigInteger) * (EVERY // MILLISECOND) + milliseconds_at(years.planned_at(0))
    parts = [(func.to_hex(milliseconds), 12), (literal("70008"), 5), (func.to_hex(number), 15)]
    return cast(func.concat(*(func.lpad(part, digits, "0") for part, digits in parts)), Uuid)


def time_on_sqlite(years: Years, number: ColumnElement[int]) -> ColumnElement[Any]:
    """Return `Years.planned_at` as SQLite keeps it.

    What is below a minute is the same for all, and finer than its functions.
    """
    first = years.planned_at(0).astimezone(UTC)
    below = f"{first:%S.%f}"
    seconds = number * int(EVERY.total_seconds()) + milliseconds_at(first) // 1_000
    return func.strftime("%Y-%m-%d %H:%M:", seconds, "unixepoch", type_=String()).concat(below)


def time_on_postgresql(years: Years, number: ColumnElement[int]) -> ColumnElement[Any]:
    """Return `Years.planned_at` as PostgreSQL works it out."""
    return literal(years.planned_at(0), schema.UtcDateTime()) + number * literal(EVERY, Interval())


def batch_rows(years: Years, numbers: range) -> Iterator[dict[str, Any]]:
    """Yield the rows of committed batches."""
    plan = years.plan(0)
    document, fingerprint = plan.as_document(), plan.fingerprint
    for number in numbers:
        if number >= years.first_whole:
            plan = years.plan(number)
            document, fingerprint = plan.as_document(), plan.fingerprint
        when = years.planned_at(number)
        yield {
            "batch_id": years.batch_id(number),
            "feed_id": years.feed_id,
            "kind": BatchKind.LIVE.value,
            "state": BatchState.COMMITTED.value,
            "plan": document,
            "plan_fingerprint": fingerprint,
            "planned_at": when,
            "planned_by": CLUSTER_RUN,
            "pinned_attempt": 1,
            "rows": years.partitions,
            "size_bytes": 1_000,
            "written_at": when,
            "ledger_after": 1,
            "ledger_upto": 1,
            "committed_at": when,
            "committed_by": CLUSTER_RUN,
            "updated_at": when,
        }


def fill_output(years: Years) -> None:
    """Make the names that the batches have left next to and in the output; only the newest are more than names."""
    parquet_sink(years.output).publisher.prepare()
    directory = ParquetDirectory.at(years.output)
    linked = years.output.with_name(f"{years.output.name}.names")
    linked.mkdir()
    link_names(years, directory, linked)
    for number in range(years.first_whole, years.batches):
        batch_id = years.batch_id(number)
        directory.place_of(batch_id).mkdir()
        kept = directory.receipts.path(batch_id)
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(published_document(published(years, number)))


def link_names(years: Years, directory: ParquetDirectory, linked: Path) -> None:
    """Make the names of all but the newest batches: each is a link to one of a few empty files."""
    source = linked
    batch_ids = map(years.batch_id, range(years.first_whole))
    made = 0
    for day, of_day in itertools.groupby(batch_ids, day_of):
        # Asking for each name's place looks for files that are not there: most of an hour for a million.
        receipts = directory.receipts.folder / str(day)
        receipts.mkdir(exist_ok=True)
        for batch_id in of_day:
            if made % (LINKS // 2) == 0:
                source = linked / uuid4().hex
                source.touch()
            made += 1
            os.link(source, f"{years.output}/{PUBLISHED}{batch_id}")
            os.link(source, f"{receipts}/{batch_id}{KEPT}")


def published(years: Years, number: int) -> PublishedReceipt:
    """Return what is kept of a batch."""
    plan = years.plan(number)
    files = tuple(
        WrittenFile.of_one(f"part-{index:05d}.parquet", 1_000, 1, each.topic_partition, number, number)
        for index, each in enumerate(plan.ranges)
    )
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=1,
        plan_fingerprint=plan.fingerprint,
        document_sha256="s" * 64,
        rows_read=years.partitions,
        files=files,
        written_at=plan.planned_at.astimezone(UTC),
        written_by=CLUSTER_RUN,
    )
    return PublishedReceipt(plan, receipt, [])
