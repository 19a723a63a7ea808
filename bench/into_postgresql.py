"""`make bench-postgresql`: the same rows into a table in PostgreSQL by this project and by its peers. See README.md.

All write the same staged Parquet files into tables with the same unique position, on one server, over TCP.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from contestant import FLINK, FLINK_HEAP, FLINK_PYTHON, SCRIPTS, SETTINGS_OF_THE_SHELL
from measured_on import commit, file_system, machine_in_short
from places import directory_for_data, run_in_a_directory
from sqlalchemy import URL, create_engine, text
from talking import BenchmarkError, say
from years_of_batches import id_at

from embedded_postgresql import EmbeddedPostgresql
from environment import ROOT
from free_ports import LOOPBACK, random_free_ports
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.place import OutputLocation, local
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.choose import SinkConnections, sink_of
from kafka_ingest.sinks.postgresql.database import DatabaseSettings

TOPIC, PARTITIONS, ROWS, REPETITIONS = "orders", 4, 1_000_000, 3
SCHEMA = "bench"
JDBC_JARS, FLINK_JDBC_JARS = ROOT / ".jvm" / "postgresql", ROOT / ".jvm" / "flink-jdbc"
COLUMNS = (
    ("kafka_topic", "text", "STRING"),
    ("kafka_partition", "int4", "INT"),
    ("kafka_offset", "int8", "BIGINT"),
    ("kafka_timestamp", "timestamptz", "TIMESTAMP(6)"),
    ("kafka_topic_id", "text", "STRING"),
    ("key", "bytea", "BYTES"),
    ("customer", "text", "STRING"),
    ("amount", "float8", "DOUBLE"),
    ("number", "int8", "BIGINT"),
    ("note", "text", "STRING"),
)
"""Each column with its type in PostgreSQL and in Flink."""
CHECKSUM = "SELECT count(*), sum(hashtextextended(concat_ws('|', {columns}), 0)::numeric)::text FROM {table}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One contestant's write: its seconds, what the server had in its table then, and the log it wrote."""

    contestant: str
    seconds: float
    rows: int
    checksum: str
    wal_mb: float


class Server:
    """PostgreSQL with its own settings, its data on the disk."""

    def __init__(self, directory: Path, embedded: EmbeddedPostgresql) -> None:
        [port] = random_free_ports(1)
        embedded.restart_on_loopback(port)
        self.url = URL.create("postgresql+psycopg", "postgres", host=LOOPBACK, port=port, database="postgres")
        self.directory = directory
        self._engine = create_engine(self.url, isolation_level="AUTOCOMMIT")
        self.run(f"CREATE SCHEMA {SCHEMA}")

    def run(self, statement: str) -> list[Sequence[object]]:
        """Run one statement by itself, and return its rows."""
        with self._engine.connect() as connection:
            found = connection.execute(text(statement))
            return [tuple(row) for row in found] if found.returns_rows else []

    def wal(self) -> int:
        """Return how many bytes of log the server has written."""
        [[written]] = self.run("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        return int(str(written))

    def end(self) -> None:
        """Close the connections."""
        self._engine.dispose()


class Batches:
    """This project's batches of the same rows, each of another id, in a table of its own."""

    def __init__(self, server: Server) -> None:
        self._settings = DatabaseSettings("warehouse", server.url)
        self._numbers = 0
        options = {"conn_id": "warehouse", "table": f"{SCHEMA}.ours", **TableOptions(decoded=True).as_options()}
        self.output = OutputLocation.local("postgresql", server.directory / "ours", options)

    def stage(self, rows: int) -> tuple[Path, PublishedReceipt]:
        """Write the next batch's files; return its attempt's directory, and what is to be published."""
        self._numbers += 1
        plan = BatchPlan(
            batch_id=id_at(datetime.now(UTC), self._numbers),
            kind=BatchKind.LIVE,
            feed_id=UUID(int=1),
            feed_name="bench",
            cluster_id="cluster",
            topic_ids={TOPIC: "topic-id-1"},
            ranges=tuple(OffsetRange(TopicPartition(TOPIC, each), 0, rows // PARTITIONS) for each in range(PARTITIONS)),
            isolation=Isolation.READ_COMMITTED,
            offsets_policy=OffsetsPolicy.AUTO,
            output=self.output,
            planned_at=datetime.now(UTC),
        )
        sink = sink_of(self.output, SinkConnections(database=lambda _: self._settings))
        sink.publisher.prepare()
        directory = sink.staging.attempt_directory(plan.batch_id, 1)
        sink.staging.open_attempt(directory, b"{}")
        data = local(sink.publisher.data_needs(directory).place or directory / "data")
        data.mkdir(parents=True, exist_ok=True)
        files = tuple(written_file(data / f"part-{each.partition:05d}.parquet", each) for each in plan.ranges)
        receipt = Receipt(
            batch_id=plan.batch_id,
            attempt=1,
            plan_fingerprint=plan.fingerprint,
            document_sha256="s" * 64,
            rows_read=rows,
            files=files,
            written_at=datetime.now(UTC),
            written_by="bench",
        )
        return local(directory), PublishedReceipt(plan, receipt, [])

    def publish(self, directory: Path, published: PublishedReceipt) -> float:
        """Do what a commit asks of the sink, from the verification of the files on, and return its seconds."""
        sink = sink_of(self.output, SinkConnections(database=lambda _: self._settings))
        began = time.perf_counter()
        sink.publisher.can_take(directory, published.receipt)
        sink.publisher.publish(directory, published)
        return time.perf_counter() - began


def written_file(path: Path, offset_range: OffsetRange) -> WrittenFile:
    """Write decoded orders of a range: the same in every run. No record has headers; peers leave these out."""
    rows, partition = offset_range.span, offset_range.partition
    numbers = np.arange(rows, dtype=np.int64)
    random = np.random.default_rng(partition)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = np.datetime64(start.replace(tzinfo=None), "us") + numbers * np.timedelta64(1_000, "us")
    customers = [f"customer-{each:06d}" for each in random.integers(0, 100_000, rows)]
    columns = {
        "kafka_topic": pa.array([TOPIC] * rows),
        "kafka_partition": pa.array(np.full(rows, partition, dtype=np.int32)),
        "kafka_offset": pa.array(numbers),
        "kafka_timestamp": pa.array(times, pa.timestamp("us")).cast(pa.timestamp("us", "UTC")),
        "kafka_timestamp_ms": pa.nulls(rows, pa.int64()),
        "kafka_headers": pa.nulls(rows, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        "kafka_topic_id": pa.array(["topic-id-1"] * rows),
        "key": pa.array([each.encode() for each in customers], pa.binary()),
        "customer": pa.array(customers),
        "amount": pa.array(random.integers(0, 1_000_000, rows) / 100),
        "number": pa.array(random.integers(0, 2**62, rows)),
        "note": pa.array([f"order {each} of {name}, to be delivered by noon" for each, name in enumerate(customers)]),
    }
    pyarrow.parquet.write_table(pa.table(columns), path, compression="zstd", compression_level=1)
    return WrittenFile.of_one(path.name, path.stat().st_size, rows, offset_range.topic_partition, 0, rows - 1)


def peers(server: Server, files: Sequence[Path], timeout: timedelta) -> Mapping[str, Callable[[str], float]]:
    """Return what the peers do into a table, by their names; those that are not installed are left out, and said so."""
    jdbc = f"jdbc:postgresql://{LOOPBACK}:{server.url.port}/postgres?user=postgres"
    columns = [dict(zip(("name", "postgresql", "flink"), each, strict=True)) for each in COLUMNS]
    [driver, *_] = [*sorted(JDBC_JARS.glob("*.jar")), None]
    folders = (FLINK / "jars", JDBC_JARS, FLINK_JDBC_JARS)
    uri = server.url.set(drivername="postgresql").render_as_string(hide_password=False)
    task = {"columns": columns, "files": list(map(str, files)), "jdbc": jdbc, "uri": uri, "user": "postgres"}
    task |= {"driver": str(driver), "jars": list(map(str, folders)), "parallelism": os.cpu_count() or 1}
    shell = {name: value for name, value in os.environ.items() if not name.startswith(SETTINGS_OF_THE_SHELL)}

    def run(python: str, script: str, **environment: str) -> Callable[[str], float]:
        def seconds(table: str) -> float:
            command = [python, str(SCRIPTS / script), json.dumps({**task, "table": table})]
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=shell | environment,
                check=False,
                timeout=timeout.total_seconds(),
            )
            if done.returncode:
                raise BenchmarkError(f"{script}: expected exit code 0, found {done.returncode}: {done.stderr[-3000:]}")
            return float(json.loads(done.stdout.splitlines()[-1])["seconds"])

        return seconds

    found = {"psycopg COPY": run(sys.executable, "rows_by_copy.py")}
    if driver is not None:
        found["Spark JDBC"] = run(sys.executable, "rows_by_spark.py", TZ="UTC")
    if (FLINK / ".stamp").exists() and any(FLINK_JDBC_JARS.glob("*.jar")):
        java = f"{FLINK_HEAP} -Duser.timezone=UTC"
        found["Flink JDBC"] = run(
            str(FLINK_PYTHON), "rows_by_flink.py", JVM_ARGS=java, FLINK_LOG_DIR=str(server.directory), TZ="UTC"
        )
    return found


def measure_all(options: argparse.Namespace, server: Server) -> list[Measured]:
    """Return the measurements of all in turn; raises BenchmarkError where a table does not have the rows."""
    batches = Batches(server)
    batches.publish(*batches.stage(PARTITIONS))  # makes the tables
    directory, published = batches.stage(options.rows)
    files = sorted(directory.rglob("*.parquet"))
    tables = {"kafka-ingest": f"{SCHEMA}.ours"}
    for name in (others := peers(server, files, timedelta(minutes=30))):
        tables[name] = f"{SCHEMA}.{name.lower().replace(' ', '_')}"
        server.run(f"CREATE TABLE {tables[name]} (LIKE {SCHEMA}.ours INCLUDING ALL)")
        server.run(f"ALTER TABLE {tables[name]} ALTER kafka_batch SET DEFAULT '{published.plan.batch_id}'")
    found: list[Measured] = []
    for repetition in range(options.repetitions):
        names = list(tables)
        for name in names[repetition % len(names) :] + names[: repetition % len(names)]:
            server.run(f"TRUNCATE {tables[name]}")
            server.run("CHECKPOINT")
            before = server.wal()
            if name == "kafka-ingest":
                again = replace(published.plan, batch_id=id_at(datetime.now(UTC), 100 + repetition))
                seconds = publish_again(batches, directory, published, again)
            else:
                seconds = others[name](tables[name])
            wal_mb = (server.wal() - before) / 1e6
            columns = ", ".join(f"encode({each}, 'hex')" if kind == "bytea" else each for each, kind, _ in COLUMNS)
            [[rows, checksum]] = server.run(CHECKSUM.format(columns=columns, table=tables[name]))
            found.append(Measured(name, seconds, int(str(rows)), str(checksum), wal_mb))
            say(f"{name}: {seconds:.1f} s, {options.rows / seconds:,.0f} rows a second")
            server.run(f"TRUNCATE {tables[name]}")
    if {(each.rows, each.checksum) for each in found} != {(options.rows, found[0].checksum)}:
        raise BenchmarkError(f"expected {options.rows:,} equal rows in each table, found {found}")
    return found


def publish_again(batches: Batches, directory: Path, published: PublishedReceipt, plan: BatchPlan) -> float:
    """Publish the same files as another batch's."""
    receipt = replace(published.receipt, batch_id=plan.batch_id, plan_fingerprint=plan.fingerprint)
    return batches.publish(directory, replace(published, plan=plan, receipt=receipt))


def table_of(found: Sequence[Measured], rows: int) -> list[str]:
    """Return the medians as lines of a Markdown table."""
    lines = ["| into PostgreSQL | s | rows a second | times | log, MB |", "|---|--:|--:|--:|--:|"]
    own = statistics.median(each.seconds for each in found if each.contestant == "kafka-ingest")
    for name in dict.fromkeys(each.contestant for each in found):
        of_name = [each for each in found if each.contestant == name]
        times = [each.seconds for each in of_name]
        middle = statistics.median(times)
        spread = f"{middle:.1f} ({min(times):.1f} to {max(times):.1f})"
        wal = statistics.median(each.wal_mb for each in of_name)
        lines.append(f"| {name} | {spread} | {rows / middle:,.0f} | {middle / own:.2f} | {wal:,.0f} |")
    return lines


def main() -> int:
    options = parse_options()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Start a server, let all write in turn, and print what it took."""
    with EmbeddedPostgresql(options.directory) as embedded:
        server = Server(directory, embedded)
        found = measure_all(options, server)
        server.end()
    if options.json:
        print(json.dumps({"version": 1, "rows": [asdict(each) for each in found]}))
    else:
        kind = file_system(options.directory or Path(tempfile.gettempdir()))
        print(f"{options.rows:,} rows, {commit(ROOT)}, {machine_in_short()}, {kind}\n")
        print("\n".join(table_of(found, options.rows)))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="make bench-postgresql ARGS=…", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help=f"of each write; default: {ROWS:,}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--directory", type=directory_for_data, help="where the server's data is; default: /tmp")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error(f"expected --repetitions of 1 or more, found {options.repetitions}")
    if options.rows < PARTITIONS:
        parser.error(f"expected --rows of {PARTITIONS} or more, found {options.rows}")
    return options


if __name__ == "__main__":
    sys.exit(main())
