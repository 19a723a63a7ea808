"""Outputs of every kind for the contract that all sinks keep.

What Spark does to them, and what an independent reader sees.
"""

import errno
import io
import json
import re
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Protocol

import deltalake
import duckdb
import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.parquet
import pytest
from confluent_kafka import KafkaError, KafkaException
from psycopg import sql
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from sqlalchemy.exc import OperationalError
from tests.contract.builders import NOON, attempt_of, batch_id_of, orders, plan_of
from tests.contract.staged_files import DAY
from tests.fakes import InMemorySink
from tests.iceberg_lake import connections_beside, iceberg_at, table_at
from tests.kafka_outputs import committed_records, connections_to_kafka, kafka_at, make_topic, topic_of
from tests.like_spark import files_of
from tests.object_store import FIXTURES, ObjectStore
from tests.postgresql_tables import (
    connections_to_postgresql,
    execute,
    make_schema,
    postgresql_at,
    rows_in_postgresql,
    schema_of,
)
from tests.store_proxy import Server

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation import storage
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import Event
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.partition_term import LATE_FOLDER, place_of_late_rows
from kafka_ingest.model.place import DATA, FAILURE, OutputLocation, Place, RemotePlace
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.choose import SinkConnections, sink_of
from kafka_ingest.sinks.delta import delta_sink, log_entry
from kafka_ingest.sinks.kafka_topic.commits import KafkaTopic
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.postgresql.commits import PostgresqlCommits

ROWS = 10
LATE = 1
"""The partition whose rows are late."""
SEEN = ("kafka_batch", "kafka_partition", "kafka_offset")


class Died(BaseException):
    """The process dies here."""


class Fault(Enum):
    """What may become of the step that makes a batch visible, or revokes it."""

    DIES_BEFORE = auto()
    DIES_AFTER = auto()
    ANSWER_LOST = auto()
    CONFLICT_AFTER_LANDING = auto()

    def around(
        self, step: Callable[..., object], *, is_it: Callable[..., bool], lost: Exception, conflict: Exception
    ) -> Callable[..., object]:
        """Return the step with this fault, where it is the one that decides."""

        def faulty(*arguments: Any, **named: Any) -> object:
            if not is_it(*arguments):
                return step(*arguments, **named)
            if self is Fault.DIES_BEFORE:
                raise Died
            step(*arguments, **named)
            raise {Fault.DIES_AFTER: Died(), Fault.ANSWER_LOST: lost}.get(self, conflict)

        return faulty


class Output(Protocol):
    """An output of either kind, and what Spark does to it."""

    format: ClassVar[str]
    name: ClassVar[str]
    sink: Sink
    path: Path

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        """Stage files of ten rows each; return their sizes in bytes."""

    def write_receipt(self, directory: Path, content: bytes) -> None:
        """Write an attempt's receipt."""

    def fail(self, directory: Path, said: str) -> None:
        """Leave what Spark said in an attempt's directory."""

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: "Fault") -> None:
        """Let the one step that decides who wins come to something else than it should."""

    def seen(self) -> Counter[tuple[str, int, int]]:
        """Return what a reader sees that is no part of this project: how often (batch, partition, offset) is there."""

    def data_files(self) -> list[str]:
        """Return all data files that exist, visible or not."""


class ParquetOutput:
    """The Parquet sink on real directories."""

    format = name = "parquet"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sink = parquet_sink(path)

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        data = directory / "data"
        data.mkdir(exist_ok=True)
        for name in files:
            (data / name).parent.mkdir(exist_ok=True)
            pyarrow.parquet.write_table(raw_rows(name), data / name)
        return {name: (data / name).stat().st_size for name in files}

    def seen(self) -> Counter[tuple[str, int, int]]:
        if not any(self.path.rglob("*.parquet")):
            return Counter()
        files = f"read_parquet('{self.path}/**/*.parquet', hive_partitioning = true)"
        return Counter(duckdb.sql(f"select kafka_batch::text, kafka_partition, kafka_offset from {files}").fetchall())  # noqa: S608

    def data_files(self) -> list[str]:
        return [str(path) for path in self.path.parent.rglob("*.parquet")]

    def write_receipt(self, directory: Path, content: bytes) -> None:
        (directory / "receipt.json").write_bytes(content)

    def fail(self, directory: Path, said: str) -> None:
        (directory / FAILURE).write_text(said, encoding="utf-8")

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        def is_the_data(source: Path, _target: Path) -> bool:
            return source.name == DATA

        lost, conflict = OSError(errno.EIO, "input/output error"), FileNotFoundError(errno.ENOENT, "it is gone")
        monkeypatch.setattr(Path, "rename", fault.around(Path.rename, is_it=is_the_data, lost=lost, conflict=conflict))

    def kept(self, number: int) -> Path:
        """Return where a batch's receipt is kept."""
        return self.path.with_name("orders.kafka-ingest") / "receipts" / DAY / f"{batch_id_of(number)}.json"

    def visible(self, number: int) -> Path:
        """Return where a batch's files are."""
        return self.path / f"kafka_batch={batch_id_of(number)}"

    def change(self, number: int, change: Callable[[dict[str, Any]], None]) -> None:
        """Change a kept receipt by hand."""
        document = json.loads(self.kept(number).read_bytes())
        change(document)
        self.kept(number).write_text(json.dumps(document))


class DeltaOutput(ParquetOutput):
    """The Delta sink on real directories."""

    format = name = "delta"

    def __init__(self, path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.path = path
        self.sink = delta_sink(path, options=options)

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        needs = self.sink.publisher.data_needs(directory)
        data = needs.place
        assert data is not None
        data.mkdir(parents=True, exist_ok=True)
        for name in files:
            (data / name).parent.mkdir(exist_ok=True)
            [(_, rows)] = files_of(raw_rows(name, batch_id=directory.parent.name), needs)
            pyarrow.parquet.write_table(rows, data / name)
        return {name: (data / name).stat().st_size for name in files}

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        real = deltalake.DeltaTable.create_write_transaction
        lost = OSError("Generic LocalFileSystem error: timed out")
        conflict = deltalake.exceptions.CommitFailedError("Concurrent transaction failed.")
        faulty = fault.around(real, is_it=lambda *_: True, lost=lost, conflict=conflict)
        monkeypatch.setattr(deltalake.DeltaTable, "create_write_transaction", faulty)
        taken = FileExistsError(errno.EEXIST, "file exists")
        creating = fault.around(log_entry.create, is_it=lambda *_: True, lost=lost, conflict=taken)
        monkeypatch.setattr(log_entry, "create", creating)

    def seen(self) -> Counter[tuple[str, int, int]]:
        if not (self.path / "_delta_log").exists():
            return Counter()
        rows = pl.read_delta(str(self.path)).select(*SEEN)
        return Counter(rows.rows())


class IcebergOutput(DeltaOutput):
    """The Iceberg sink on real directories, with a catalog in SQLite beside them."""

    format = name = "iceberg"

    def __init__(self, path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self.sink = sink_of(iceberg_at(path, options), connections_beside(path))

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        lost = OperationalError("UPDATE iceberg_tables", {}, OSError("server closed the connection unexpectedly"))
        conflict = CommitFailedException("Table has been updated by another process")
        faulty = fault.around(SqlCatalog.commit_table, is_it=lambda *_: True, lost=lost, conflict=conflict)
        monkeypatch.setattr(SqlCatalog, "commit_table", faulty)

    def table(self) -> Table:
        """Return the table as another program has it."""
        return table_at(self.path)

    def seen(self) -> Counter[tuple[str, int, int]]:
        try:
            table = self.table()
        except NoSuchTableError:
            return Counter()
        return Counter(self.rows_of(table))

    def rows_of(self, table: Table) -> list[Any]:
        with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
            return pl.scan_iceberg(table).select(*SEEN).collect().rows()


class InStore(DeltaOutput):
    """An output in a store that speaks S3's protocol; ``path`` stands for its place in the bucket."""

    server: ClassVar[Server] = "moto"

    def __init__(self, path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.path = path
        self.options = options
        self.store = ObjectStore.running(self.server)
        self.store.make_bucket("lake")
        self.place = RemotePlace(f"{self.store.scheme}://{self.store.conn_id}@{self.store.bucket}{path}")
        self.sink = self.reached(self.store.access())

    def reached(self, access: StoreAccess) -> Sink:
        """Return the sink, where the store is reached in some way."""
        raise NotImplementedError

    def opened(self, place: Place) -> Any:
        """Return what reads and writes at a place."""
        return storage.opened(place, self.store.access())

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        needs = self.sink.publisher.data_needs(directory)
        data = needs.place
        assert data is not None
        sizes = {}
        for name in files:
            content = io.BytesIO()
            [(_, rows)] = files_of(raw_rows(name, batch_id=directory.parent.name), needs)
            pyarrow.parquet.write_table(rows, content)
            storage.write_whole(self.opened(data / name), content.getvalue())
            sizes[name] = content.tell()
        return sizes

    def write_receipt(self, directory: Path, content: bytes) -> None:
        storage.write_whole(self.opened(directory / "receipt.json"), content)

    def fail(self, directory: Path, said: str) -> None:
        storage.write_whole(self.opened(directory / FAILURE), said.encode())

    def data_files(self) -> list[str]:
        found = storage.remote_sizes(self.opened(self.place.parent))
        return [name for name in found if name.endswith(".parquet")]


class DeltaInStore(InStore):
    """The Delta sink on a store."""

    name = "delta in S3"

    def reached(self, access: StoreAccess) -> Sink:
        return delta_sink(self.place, access, self.options)

    def seen(self) -> Counter[tuple[str, int, int]]:
        """Return what Delta's library reads. Polars is tried in tests/integration: see polars_in_stores."""
        try:
            options = self.store.access().for_delta()
            table = deltalake.DeltaTable(str(self.place.without_connection), storage_options=options)
        except deltalake.exceptions.TableNotFoundError:
            return Counter()
        return Counter(pl.DataFrame(table.to_pyarrow_table(columns=list(SEEN))).rows())


class IcebergInStore(InStore, IcebergOutput):
    """The Iceberg sink on a store, with a catalog in SQLite."""

    name = "iceberg in S3"
    with_fault = IcebergOutput.with_fault
    seen = IcebergOutput.seen

    def rows_of(self, table: Table) -> list[Any]:
        return pl.DataFrame(table.scan(selected_fields=SEEN).to_arrow()).select(*SEEN).rows()

    def __init__(self, path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, options)

    def reached(self, access: StoreAccess) -> Sink:
        return sink_of(iceberg_at(self.place, self.options), connections_beside(self.path, access))

    def table(self) -> Table:
        return table_at(self.path, self.store.access())


class PostgresqlOutput(ParquetOutput):
    """The sink of a table in PostgreSQL, in a schema of its own."""

    format = name = "postgresql"

    def __init__(self, path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.path = path
        self.sink = sink_of(postgresql_at(path, options), connections_to_postgresql())

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        """Stage records of another topic of that name for each batch: the table takes each record once."""
        sizes = super().stage(directory, files)
        for name in sizes:
            rows = raw_rows(name)
            number, topic_id = rows.schema.get_field_index("kafka_topic_id"), pa.array([directory.parent.name] * ROWS)
            pyarrow.parquet.write_table(rows.set_column(number, "kafka_topic_id", topic_id), directory / "data" / name)
        return {name: (directory / "data" / name).stat().st_size for name in sizes}

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        lost = OperationalError("COMMIT", {}, psycopg.OperationalError("server closed the connection unexpectedly"))
        conflict = OperationalError("COMMIT", {}, psycopg.errors.DeadlockDetected("deadlock detected"))
        faulty = fault.around(PostgresqlCommits.try_once, is_it=lambda *_: True, lost=lost, conflict=conflict)
        monkeypatch.setattr(PostgresqlCommits, "try_once", faulty)

    def seen(self) -> Counter[tuple[str, int, int]]:
        return Counter(rows_in_postgresql(self.path, "kafka_batch::text, kafka_partition, kafka_offset"))


class KafkaOutput(ParquetOutput):
    """The sink of a topic; each record's value says which one it was."""

    format = name = "kafka"

    def __init__(self, path: Path, connections: SinkConnections | None = None, **options: str) -> None:
        self.path = path
        self.sink = sink_of(kafka_at(path, **options), connections or connections_to_kafka())

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        sizes = super().stage(directory, files)
        for name in sizes:
            rows = raw_rows(name)
            values = pa.array([f"{directory.parent.name} {offset}".encode() for offset in range(ROWS)], pa.binary())
            number = rows.schema.get_field_index("value")
            pyarrow.parquet.write_table(rows.set_column(number, "value", values), directory / "data" / name)
        return {name: (directory / "data" / name).stat().st_size for name in sizes}

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        lost, conflict = (KafkaException(KafkaError(code)) for code in (KafkaError._TIMED_OUT, KafkaError._FENCED))
        faulty = fault.around(KafkaTopic.try_once, is_it=lambda *_: True, lost=lost, conflict=conflict)
        monkeypatch.setattr(KafkaTopic, "try_once", faulty)

    def seen(self) -> Counter[tuple[str, int, int]]:
        found: Counter[tuple[str, int, int]] = Counter()
        for record in committed_records(topic_of(self.path)):
            batch_id, offset = (record.value() or b"").decode().split()
            found[batch_id, record.partition() or 0, int(offset)] += 1
        return found


def raw_rows(name: str, *, batch_id: str | None = None) -> pa.Table:
    """Return the ten rows of a file in the raw format, of the partition that its name names."""
    topic_partition = orders(int(PurePosixPath(name).name.removeprefix("part-").partition(".")[0]))
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    columns = {
        "kafka_topic": pa.array([topic_partition.topic] * ROWS, pa.string()),
        "kafka_partition": pa.array([topic_partition.partition] * ROWS, pa.int32()),
        "kafka_offset": pa.array(range(ROWS), pa.int64()),
        "kafka_timestamp": pa.array([datetime(2026, 1, 2, tzinfo=UTC)] * ROWS, pa.timestamp("us", "UTC")),
        "key": pa.array([None] * ROWS, pa.binary()),
        "value": pa.array([f"{topic_partition}@{offset}".encode() for offset in range(ROWS)], pa.binary()),
        "kafka_headers": pa.array([None] * ROWS, pa.list_(header)),
        "kafka_topic_id": pa.array(["topic-id-1"] * ROWS, pa.string()),
        "kafka_timestamp_ms": pa.array([None] * ROWS, pa.int64()),
    }
    if batch_id is not None:
        columns["kafka_batch"] = pa.array([batch_id] * ROWS, pa.string())
    return pa.table(columns)


class InMemoryOutput:
    """The sink of the unit tests."""

    format = name = "memory"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sink = InMemorySink(path)

    def stage(self, directory: Path, files: list[str]) -> dict[str, int]:
        self.sink.staged.add(directory)
        return dict.fromkeys(files, 1_000)

    def write_receipt(self, directory: Path, content: bytes) -> None:
        self.sink.receipts[directory] = content

    def fail(self, directory: Path, said: str) -> None:
        self.sink.failures[directory] = said

    def with_fault(self, monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
        lost = OutputUnavailableError("input/output error")
        for name in ("_publish", "_revoke"):
            step = fault.around(getattr(self.sink, name), is_it=lambda *_: True, lost=lost, conflict=lost)
            monkeypatch.setattr(self.sink, name, step)

    def seen(self) -> Counter[tuple[str, int, int]]:
        return Counter(
            (str(batch_id), held.topic_partition.partition, offset)
            for batch_id, published in self.sink.published.items()
            for file in published.receipt.files
            for held in file.partitions
            for offset in range(held.smallest_offset, held.largest_offset + 1)
        )

    def data_files(self) -> list[str]:
        return [str(directory) for directory in self.sink.staged]


class LateRowsApart:
    """Of an output the batches' rows of one partition are late, and beside it.

    ``follows``: whether they are there a moment after the others.
    """

    follows: ClassVar[bool] = True
    late_partition: ClassVar[int | None] = LATE


class PostgresqlBeside(LateRowsApart, PostgresqlOutput):
    """The sink of a table in PostgreSQL and of that of late rows."""

    name = "postgresql with late rows"
    follows = False

    def seen(self) -> Counter[tuple[str, int, int]]:
        late = sql.Identifier(schema_of(self.path), f"{self.path.name}_late")
        with suppress(psycopg.errors.UndefinedTable):
            found = execute(
                self.path,
                "SELECT kafka_batch::text, kafka_partition, kafka_offset FROM {} WHERE kafka_partition <> 1 UNION ALL "
                "SELECT kafka_batch::text, kafka_partition, kafka_offset FROM {late} WHERE kafka_partition = 1",
                late=late,
            )
            return Counter(found)
        return super().seen()


class BesideInFiles(LateRowsApart):
    """Late rows are Parquet files, of which a reader sees those with a batch's name above them."""

    def seen(self: Any) -> Counter[tuple[str, int, int]]:
        rows: Counter[tuple[str, int, int]] = super().seen()
        late = Counter[tuple[str, int, int]]()
        for name, content in self.late_files().items():
            assert re.fullmatch(r"kafka_batch=[0-9a-f-]{36}/kafka_late=true/part-00001\.parquet", name)
            found = pyarrow.parquet.read_table(io.BytesIO(content))
            batches = [name.partition("/")[0].removeprefix("kafka_batch=")] * len(found)
            late.update(zip(batches, *(found[each].to_pylist() for each in SEEN[1:]), strict=True))
        assert {partition == LATE for _, partition, _ in rows} <= {False}
        assert {partition == LATE for _, partition, _ in late} <= {True}
        return rows + late

    def late_files(self: Any) -> dict[str, bytes]:
        place = place_of_late_rows(self.path)
        return {name: (place / name).read_bytes() for name in storage.files_below(place)}


class DeltaBeside(BesideInFiles, DeltaOutput):
    """The sink of a Delta table, with late rows beside it."""

    name = "delta with late rows"


class IcebergBeside(BesideInFiles, IcebergOutput):
    """The sink of an Iceberg table, with late rows beside it."""

    name = "iceberg with late rows"


class KafkaBeside(BesideInFiles, KafkaOutput):
    """The sink of a topic, with late rows beside its path."""

    name = "kafka with late rows"


class DeltaInStoreBeside(BesideInFiles, DeltaInStore):
    """The same on a store."""

    name = "delta in S3 with late rows"

    def late_files(self) -> dict[str, bytes]:
        place = self.opened(self.place.parent / f"{self.place.name}_late")
        return {name: storage.read_whole(place / name) for name in storage.files_below(place)}


class DeltaInS3Proxy(DeltaInStore):
    """The same on another server."""

    name = "delta in S3Proxy"
    server = "S3Proxy"


class IcebergInS3Proxy(IcebergInStore):
    """The same on another server."""

    name = "iceberg in S3Proxy"
    server = "S3Proxy"


class DeltaInGcs(DeltaInStore):
    """The same in a store that speaks Google's protocol."""

    name = "delta in GCS"
    server = "GCS"


class IcebergInGcs(IcebergInStore):
    """The same in a store that speaks Google's protocol."""

    name = "iceberg in GCS"
    server = "GCS"


class DeltaInAzure(DeltaInStore):
    """The same in a store that speaks Azure's protocols."""

    name = "delta in Azure"
    server = "Azure"


class IcebergInAzure(IcebergInStore):
    """The same in a store that speaks Azure's protocols."""

    name = "iceberg in Azure"
    server = "Azure"


OUTPUTS: list[type[Any]] = [
    ParquetOutput,
    DeltaOutput,
    DeltaInStore,
    IcebergOutput,
    PostgresqlOutput,
    KafkaOutput,
    InMemoryOutput,
]
"""Every kind of output; the last one is the double of the unit tests.

About an Iceberg table in a store the catalog decides as about one on a disk, and the store does for its files what it
does for Delta's; what is its own is tried in test_sink_in_store and test_sink_in_any_store.
"""

BESIDE: list[type[Any]] = [DeltaBeside, DeltaInStoreBeside, PostgresqlBeside]
"""Outputs with late rows beside them, which are published with them; beside others they are alike."""

IN_S3_PROXY: list[type[InStore]] = [DeltaInS3Proxy, IcebergInS3Proxy]
"""Tables in a store of another server, which checks signatures."""

IN_OTHER_CLOUDS: list[type[InStore]] = [DeltaInGcs, IcebergInGcs, DeltaInAzure, IcebergInAzure]
"""The same in the stores of Google and of Azure, of which only what is their own is tried."""

KINDS = [
    pytest.param(kind, marks=pytest.mark.long) if issubclass(kind, InStore | PostgresqlOutput | KafkaOutput) else kind
    for kind in OUTPUTS
]
"""The same for tests of which those with a server are no quick ones."""


def made(kind: type[Any], path: Path, request: pytest.FixtureRequest) -> Output:
    """Return an output of a kind, prepared; a store's server is started where it is needed."""
    if issubclass(kind, InStore):
        request.getfixturevalue(FIXTURES[kind.server])
    if issubclass(kind, PostgresqlOutput):
        make_schema(request.getfixturevalue("postgresql_server"), path)
    if issubclass(kind, KafkaOutput):
        make_topic(request.getfixturevalue("broker").bootstrap_servers, topic_of(path))
    output: Output = kind(path)
    output.sink.publisher.prepare()
    return output


def opened(output: Output, plan: BatchPlan, attempt: int = 1) -> Path:
    """Open an attempt and return its directory."""
    directory = output.sink.staging.attempt_directory(plan.batch_id, attempt)
    output.sink.staging.open_attempt(directory, b"{}")
    return directory


def plan_to(output: Output, number: int, *, partitions: int = 2, **changes: Any) -> BatchPlan:
    """Return a plan of ten offsets of some partitions."""
    plan = plan_of(
        *((orders(each), 0, ROWS) for each in range(partitions)), number=number, output=output.path, **changes
    )
    kind = "parquet" if output.format == "memory" else output.format
    place = output.place if isinstance(output, InStore) else output.path
    located: dict[str, Callable[[Any], OutputLocation]] = {
        "iceberg": iceberg_at,
        "postgresql": postgresql_at,
        "kafka": kafka_at,
    }
    return replace(plan, output=located[kind](place) if kind in located else OutputLocation(kind, str(place)))


def landed_states(output: Output, published: PublishedReceipt) -> list[Counter[tuple[str, int, int]]]:
    """Return what readers may see of a batch that is being published, once its commit has landed."""
    rows = rows_of(published)
    return [rows, *([without_late(rows)] if isinstance(output, LateRowsApart) and output.follows else [])]


def without_late(rows: Counter[tuple[str, int, int]]) -> Counter[tuple[str, int, int]]:
    return Counter({row: count for row, count in rows.items() if row[1] != LATE})


def rows_of(published: PublishedReceipt) -> Counter[tuple[str, int, int]]:
    """Return what readers should see of a batch."""
    return Counter(
        (str(published.plan.batch_id), span.topic_partition.partition, offset)
        for file in published.receipt.files
        for span, _ in file.spans
        for offset in range(span.start_offset, span.end_offset)
    )


def written(
    output: Output, plan: BatchPlan, *, attempt: int = 1, ledger: tuple[Event, ...] = (), without_rows: bool = False
) -> tuple[Path, PublishedReceipt]:
    """Write all records of a plan, or none; return the attempt's directory and what is to be published."""
    directory = opened(output, plan, attempt)
    read = [] if without_rows else list(plan.ranges)
    names = {each: name_of(each, late=each.partition == getattr(output, "late_partition", None)) for each in read}
    sizes = output.stage(directory, list(names.values()))
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=attempt,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt_of(plan, attempt).document_sha256,
        rows_read=ROWS * len(read),
        files=tuple(
            WrittenFile.of_one(names[each], sizes[names[each]], ROWS, each.topic_partition, 0, ROWS - 1)
            for each in read
        ),
        written_at=NOON,
        written_by="spark local-1",
    )
    output.write_receipt(directory, receipt.as_bytes())
    return directory, PublishedReceipt(plan, receipt, ledger)


def name_of(offset_range: OffsetRange, *, late: bool = False) -> str:
    return f"{f'{LATE_FOLDER}/' * late}part-{offset_range.partition:05d}.parquet"


def publish(output: Output, plan: BatchPlan, **written_with: Any) -> PublishedReceipt:
    """Write a batch and publish it."""
    directory, published = written(output, plan, **written_with)
    output.sink.publisher.publish(directory, published)
    return published
