"""`make bench-table-history`: what publishing into a table takes on its first day and after years. See README.md.

The history is a copy of what the first batch left: of a Delta table its log, entry by entry, with a checkpoint in the
end; of an Iceberg table its files, in one commit, and the snapshots that its metadata names.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import deltalake
import pyarrow as pa
import pyarrow.parquet
from places import directory_for_data, run_in_a_directory
from pyiceberg.catalog import load_catalog
from talking import BenchmarkError, say
from years_of_batches import id_at

from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.place import OutputLocation, local
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import SinkConnections, sink_of
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings

FORMATS = DELTA, ICEBERG = "delta", "iceberg"
SIZES = (1, 8_640, 105_120)
"""The first batch; a month and a year of one every five minutes."""
SNAPSHOTS = 8_640
"""How many of an Iceberg table's snapshots are kept at most: a month's, as where older ones are expired."""
EVERY = timedelta(minutes=5)
TABLE, TOPIC = "bench.orders", "orders"
ROWS, PARTITIONS = 100, 4
REPETITIONS = 5
FILE_PATH = 1
"""The field of a manifest's entry that names its file."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A batch that was published on top of others: what both steps took, and how many files readers see then."""

    format: str
    batches: int
    can_take_s: float
    publish_s: float
    processor_s: float
    files: int


class Table:
    """A table with its sink, and batches for it, numbered in their order."""

    def __init__(self, table_format: str, directory: Path, snapshots: int = SNAPSHOTS) -> None:
        self.format = table_format
        self._snapshots = snapshots
        self.path = directory / "orders"
        options = {"catalog": "lake", "table": TABLE} if table_format == ICEBERG else {}
        self.output = OutputLocation.local(table_format, self.path, options)
        uri = f"sqlite:///{directory}/catalog.db"
        self._settings = CatalogSettings("lake", "lake", {"type": "sql", "uri": uri})
        self._began = datetime.now(UTC)
        self._numbers = count(1)

    @property
    def sink(self) -> Sink:
        """A sink that has looked at nothing yet, as in the process of a task."""
        return sink_of(self.output, SinkConnections(catalog=lambda _: self._settings))

    def next_id(self) -> UUID:
        """Return the next batch's id."""
        number = next(self._numbers)
        return id_at(self._began + EVERY * number, number)

    def stage(self) -> tuple[Path, PublishedReceipt]:
        """Write the next batch's files; return its attempt's directory, and what is to be published."""
        plan = self._plan(self.next_id())
        sink = self.sink
        sink.publisher.prepare()
        directory = sink.staging.attempt_directory(plan.batch_id, 1)
        sink.staging.open_attempt(directory, b"{}")
        data = local(sink.publisher.data_needs(directory).place or directory)
        data.mkdir(parents=True, exist_ok=True)
        files = tuple(staged_file(data / f"part-{each.partition:05d}.parquet", plan, each) for each in plan.ranges)
        receipt = Receipt(
            batch_id=plan.batch_id,
            attempt=1,
            plan_fingerprint=plan.fingerprint,
            document_sha256="s" * 64,
            rows_read=ROWS * PARTITIONS,
            files=files,
            written_at=self._began,
            written_by="bench",
        )
        return local(directory), PublishedReceipt(plan, receipt, [])

    def _plan(self, batch_id: UUID) -> BatchPlan:
        return BatchPlan(
            batch_id=batch_id,
            kind=BatchKind.LIVE,
            feed_id=UUID(int=1),
            feed_name="bench",
            cluster_id="cluster",
            topic_ids={TOPIC: "topic-id-1"},
            ranges=tuple(OffsetRange(TopicPartition(TOPIC, number), 0, ROWS) for number in range(PARTITIONS)),
            isolation=Isolation.READ_COMMITTED,
            offsets_policy=OffsetsPolicy.AUTO,
            output=self.output,
            planned_at=self._began,
        )

    def publish_one(self) -> Measured:
        """Stage a batch and measure what its commit asks of the sink."""
        directory, published = self.stage()
        sink = self.sink
        began, used = time.perf_counter(), time.process_time()
        sink.publisher.can_take(directory, published.receipt)
        taken = time.perf_counter()
        sink.publisher.publish(directory, published)
        ended = time.perf_counter()
        used = time.process_time() - used
        return Measured(self.format, 0, taken - began, ended - taken, used, self.files())

    def files(self) -> int:
        """Return how many files readers see."""
        if self.format == DELTA:
            return len(deltalake.DeltaTable(str(self.path)).file_uris())
        table = load_catalog(self._settings.name, **self._settings.properties).load_table(TABLE)
        snapshot = table.current_snapshot()
        if snapshot is None or snapshot.summary is None:
            return 0
        return int(snapshot.summary["total-data-files"] or 0)

    def grow_to(self, batches: int) -> None:
        """Add batches up to this number, which were published by others, as far as a commit can tell."""
        missing = batches - 1
        if missing < 1:
            return
        if self.format == DELTA:
            self._copy_log(missing)
        else:
            self._copy_files(missing)

    def _copy_log(self, more: int) -> None:
        """Copy the newest entry of a Delta table's log under other numbers, for other batches."""
        log = self.path / "_delta_log"
        newest = max(log.glob("*.json"))
        entry, version = newest.read_text(), int(newest.stem)
        batch = json.loads(next(line for line in entry.splitlines() if line.startswith('{"txn"')))["txn"]["appId"]
        for number in range(1, more + 1):
            path = log / f"{version + number:020d}.json"
            path.write_text(entry.replace(batch, str(self.next_id())))
            written = time.time() - (more - number) * EVERY.total_seconds()
            os.utime(path, (written, written))  # entries that are old enough are cleaned up
        table = deltalake.DeltaTable(str(self.path))
        table.create_checkpoint()
        table.cleanup_metadata()

    def _copy_files(self, more: int) -> None:
        """Add copies of the entries of an Iceberg table's first files, under other names."""
        table = load_catalog(self._settings.name, **self._settings.properties).load_table(TABLE)
        first = [task.file for task in table.scan().plan_files()]
        batch = first[0].file_path.split("/")[-3]
        with table.transaction() as change, change.update_snapshot().merge_append() as append:
            for name in [str(self.next_id()) for _ in range(more)]:
                for file in first:
                    added = deepcopy(file)
                    added[FILE_PATH] = file.file_path.replace(batch, name)
                    append.append_data_file(added)
        write_snapshots(local_path(table.metadata_location), min(more, self._snapshots) - 1)


def write_snapshots(path: Path, more: int) -> None:
    """Add snapshots between the first two of an Iceberg table, one every five minutes: appends of nothing.

    Each has a list of manifests of its own, since a commit may delete it.
    """
    metadata = json.loads(path.read_text())
    first, newest = metadata["snapshots"]
    manifests = local_path(newest["manifest-list"])
    added: list[dict[str, Any]] = []
    for number in range(more, 0, -1):
        of_its_own = manifests.with_name(f"{number}-{manifests.name}")
        of_its_own.write_bytes(manifests.read_bytes())
        parent = (added or [first])[-1]["snapshot-id"]
        own = {"snapshot-id": newest["snapshot-id"] - number, "parent-snapshot-id": parent}
        at = newest["timestamp-ms"] - number * EVERY // timedelta(milliseconds=1)
        added.append(newest | own | {"timestamp-ms": at, "manifest-list": f"file://{of_its_own}"})
    if added:
        first["timestamp-ms"] = added[0]["timestamp-ms"] - 1
        newest["parent-snapshot-id"] = added[-1]["snapshot-id"]
    metadata["snapshots"] = [first, *added, newest]
    metadata["snapshot-log"] = [
        {"snapshot-id": each["snapshot-id"], "timestamp-ms": each["timestamp-ms"]} for each in metadata["snapshots"]
    ]
    path.write_text(json.dumps(metadata))


def local_path(location: str) -> Path:
    """Return the path of a file that Iceberg names."""
    return Path(location.removeprefix("file://"))


def staged_file(path: Path, plan: BatchPlan, offset_range: OffsetRange) -> WrittenFile:
    """Write the rows of a range in the raw format."""
    rows = offset_range.end_offset - offset_range.start_offset
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "kafka_topic": pa.array([offset_range.topic] * rows, pa.string()),
        "kafka_partition": pa.array([offset_range.partition] * rows, pa.int32()),
        "kafka_offset": pa.array(range(offset_range.start_offset, offset_range.end_offset), pa.int64()),
        "kafka_timestamp": pa.array([plan.planned_at] * rows, pa.timestamp("us", "UTC")),
        "key": pa.array([b"key"] * rows, pa.binary()),
        "value": pa.array([b"value"] * rows, pa.binary()),
        "kafka_headers": pa.array([None] * rows, pa.list_(header)),
        "kafka_topic_id": pa.array([plan.topic_ids[TOPIC]] * rows, pa.string()),
        "kafka_timestamp_ms": pa.array([None] * rows, pa.int64()),
        "kafka_batch": pa.array([str(plan.batch_id)] * rows, pa.string()),
    }
    pyarrow.parquet.write_table(pa.table(columns), path)
    first, last = offset_range.start_offset, offset_range.end_offset - 1
    return WrittenFile.of_one(path.name, path.stat().st_size, rows, offset_range.topic_partition, first, last)


def main() -> int:
    options = parse_options()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Make the tables, publish into all of them in turn, and print what it took."""
    found = measure_all(options, directory)
    if options.json:
        print(json.dumps({"version": 1, "rows": [asdict(each) for each in found]}))
    else:
        print("\n".join(table_of(found)))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="make bench-table-history ARGS=…", description=__doc__)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS, help="default: both")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BATCHES", help=f"default: {SIZES}")
    parser.add_argument(
        "--snapshots", type=int, default=SNAPSHOTS, help=f"at most so many of an Iceberg table; default: {SNAPSHOTS}"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--directory", type=directory_for_data, help="where the tables are kept; default: /tmp")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error(f"expected --repetitions of 1 or more, found {options.repetitions}")
    if min(options.sizes) < 1:
        parser.error(f"expected --sizes of 1 or more, found {min(options.sizes)}")
    return options


def measure_all(options: argparse.Namespace, directory: Path) -> list[Measured]:
    """Return the measurements of all tables in turn, repetition by repetition.

    Raises BenchmarkError where a table does not have the files of all its batches.
    """
    tables: list[tuple[int, Table]] = []
    for table_format in options.formats:
        for batches in sorted(set(options.sizes)):
            started, place = time.monotonic(), directory / f"{table_format}-{batches}"
            place.mkdir()
            table = Table(table_format, place, options.snapshots)
            table.publish_one()
            table.grow_to(batches)
            tables.append((batches, table))
            say(f"{table_format}, {batches:,} batches: {time.monotonic() - started:.0f} s")
    found: list[Measured] = []
    for repetition in range(1, options.repetitions + 1):
        for batches, table in tables:
            measured = replace(table.publish_one(), batches=batches)
            if measured.files != (expected := (batches + repetition) * PARTITIONS):
                raise BenchmarkError(
                    f"{table.format}, {batches:,} batches: expected {expected:,} files, found {measured.files:,}"
                )
            found.append(measured)
    return found


def table_of(found: Sequence[Measured]) -> list[str]:
    """Return the medians in milliseconds as lines of a Markdown table."""
    lines = [
        "| table | batches | can_take, ms | publish, ms | both | largest | processor, ms | files |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for place in dict.fromkeys((each.format, each.batches) for each in found):
        rows = [each for each in found if (each.format, each.batches) == place]
        taken, published = [each.can_take_s for each in rows], [each.publish_s for each in rows]
        both = [each.can_take_s + each.publish_s for each in rows]
        cells = [statistics.median(taken), statistics.median(published), statistics.median(both), max(both)]
        cells.append(statistics.median(each.processor_s for each in rows))
        shown = " | ".join(f"{1_000 * seconds:,.0f}" for seconds in cells)
        lines.append(f"| {place[0]} | {place[1]:,} | {shown} | {rows[-1].files:,} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
