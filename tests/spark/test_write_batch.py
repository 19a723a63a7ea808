"""The Spark job alone: an attempt's directory with document and zip, an empty working directory, a real broker."""

import json
import os
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import duckdb
import polars as pl
import pyarrow.compute
import pyarrow.dataset
import pyarrow.parquet
import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.kafka_faults import Record, aborted_transaction, committed_transaction, delete_records, plain_records
from tests.kafka_faults import create_topic as create_plain_topic
from tests.kafka_faults import produce as produce_plain
from tests.kept_spark import kept_spark
from tests.outputs import parquet_at

from embedded_broker import EmbeddedBroker
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.foundation.storage import files_below
from kafka_ingest.model.batch import Attempt, AttemptDocument, AttemptState, BatchKind, BatchPlan, DataNeeds, sha256
from kafka_ingest.model.decoding import Decoding
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.place import DATA, DOCUMENT, FAILURE, RECEIPT, JobSettings, OutputLocation
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.spark_settings import SparkSettings
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import END_OF_SECONDS, FIRST_SECOND
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.spark_submission import SparkMaster, SparkRun, spark_submission, together
from kafka_ingest.spark_launch.workplace import PACKAGE, SETTINGS, begun_in, equip, package_zip
from kafka_ingest.writing.read_ranges import milliseconds_of
from kafka_ingest.writing.share_out import MOST_ROWS_KEPT
from order_events import create_topic, order_events, produce

TOPIC_ID = "ycHo5xUrQBeDXzYxYmU6Xg"

MACHINE_LEARNING = "org.apache.spark.sql.ml.InternalFunctionRegistration"
"""The one extension among Spark's own jars: every session that looks for extensions finds it."""


OF_A_CLUSTER = {"spark.hadoop.fs.defaultFS": "hdfs://there.is.none:1"}
"""As a machine's configuration of Hadoop may have it: where files without a scheme would be."""


def plan_of(topic: str, output: Path, *ranges: tuple[int, int, int], **changes: object) -> BatchPlan:
    values = {
        "batch_id": uuid4(),
        "kind": BatchKind.LIVE,
        "feed_id": UUID(int=7),
        "feed_name": "orders",
        "cluster_id": "cluster",
        "topic_ids": {topic: None},
        "ranges": tuple(OffsetRange(TopicPartition(topic, p), start, end) for p, start, end in ranges),
        "isolation": Isolation.READ_COMMITTED,
        "offsets_policy": OffsetsPolicy.AUTO,
        "output": parquet_at(output),
        "planned_at": datetime.now(UTC),
    }
    return BatchPlan(**values | changes)


def python_without_the_repository(home: Path) -> Path:
    """Return a Python that has the installed libraries but not the editable installation: `-S` reads no .pth files."""
    python = home / "python"
    libraries = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return python


class Job:
    """One attempt, handed to spark-submit with a Python to which only the zip brings the package."""

    def __init__(
        self,
        plan: BatchPlan,
        directory: Path,
        bootstrap_servers: str,
        *,
        beside: Path | None = None,
        master: str = "local[2]",
        needs: DataNeeds = DataNeeds(),  # noqa: B008 - frozen
        is_watched: bool = False,
        is_kept: bool = True,
        **conf: str,
    ) -> None:
        """Prepare an attempt; a watched one notes what Java and Python load.

        It is done by a Spark that did others before, unless that is watched or not wanted.
        """
        self.plan = plan
        self.directory = directory
        self.beside = beside or directory.parent
        self.class_log = self.beside / f"{directory.name if beside is None else 'attempt'}-classes.log"
        self._is_watched = is_watched
        logging_classes = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={self.class_log}:none"}
        directory.mkdir(parents=True)
        content = AttemptDocument(plan, 1, Decoding(settings=SparkSettings(feed=conf)), needs).as_bytes()
        (directory / DOCUMENT).write_bytes(content)
        # Whoever may write beside the output decides nothing about the code.
        (directory / "kafka_ingest.zip").write_bytes(b"another one")
        workplace = self.beside / f"workplace-{directory.name}"
        workplace.mkdir()
        client = KafkaClientSettings("kafka_default", {"bootstrap.servers": bootstrap_servers})
        equip(workplace, package_zip(), JobSettings([client.java_settings()]))
        self.attempt = Attempt(
            plan.batch_id, 1, AttemptState.OPEN, directory, sha256(content), datetime.now(UTC), "test"
        )
        self.submission = spark_submission(
            plan,
            self.attempt,
            spark=SparkRun(
                SparkMaster("spark_default", master), OF_A_CLUSTER | (logging_classes if is_watched else {}) | conf
            ),
            kafka=client,
            sink_is_shared=False,
            installed=installation(),
            workplace=workplace,
        )
        if is_kept and not is_watched:
            self.submission = kept_spark().instead(self.submission)

    done: subprocess.CompletedProcess[str]

    def run(self) -> subprocess.CompletedProcess[str]:
        empty = self.beside / "empty"
        empty.mkdir(exist_ok=True)
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "PYSPARK"))
        } | {"LC_ALL": "C"}
        alone = {"PYSPARK_DRIVER_PYTHON": str(python_without_the_repository(self.beside))}
        if self._is_watched:
            alone["PYTHONVERBOSE"] = "1"  # reports on standard error what is imported, and from where
        done = subprocess.run(
            self.submission.command(),
            cwd=empty,
            env=inherited | self.submission.environment | alone,
            capture_output=True,
            text=True,
            check=False,
        )
        assert list(empty.iterdir()) == [], "the job leaves nothing in its working directory"
        return done

    def succeeds(self) -> subprocess.CompletedProcess[str]:
        self.done = self.run()
        assert self.done.returncode == 0, self.done.stderr[-3000:]
        return self.done

    @property
    def receipt(self) -> Receipt:
        return Receipt.from_bytes((self.directory / RECEIPT).read_bytes())

    def classes(self) -> set[str]:
        """Return the names of the classes that Spark's driver loaded."""
        return {line.split(" ", 1)[0] for line in self.class_log.read_text().splitlines()}

    def offsets(self) -> Counter[tuple[int, int]]:
        """Return how often each partition and offset is in the data."""
        data = pyarrow.dataset.dataset(self.directory / DATA).to_table(["kafka_partition", "kafka_offset"])
        return Counter(zip(*(column.to_pylist() for column in data.columns), strict=True))


ODD = "a,b#c:d{e,f}*?[g]!(h)%20%zz ;&|$x`'\"\\é😀+=@~."
"""What is special to URIs, to Hadoop's patterns, to shells or to lists, and a dot at the end."""


@pytest.fixture(scope="module")
def written(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One job that wrote three ranges of six partitions to an odd path; most tests look at what it left."""
    topic = f"spark-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, 6)
    produce(broker.bootstrap_servers, topic, order_events(2_000, seed=4))
    beside = tmp_path_factory.mktemp("spark")
    home = beside / ODD
    home.mkdir()
    ranges = (0, 100, 350), (1, 0, 50), (3, 10, 11)
    plan = plan_of(topic, home / "orders", *ranges, topic_ids={topic: TOPIC_ID})
    job = Job(plan, home / f"attempt {ODD}", broker.bootstrap_servers, beside=beside, is_watched=True)
    job.succeeds()
    return job


def test_its_python_knows_the_package_by_the_zip_alone(tmp_path: Path) -> None:
    command = [python_without_the_repository(tmp_path), "-c", "import kafka_ingest"]
    found = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "No module named 'kafka_ingest'" in found.stderr


def test_it_reads_exactly_the_plans_ranges_into_any_printable_path(written: Job) -> None:
    assert written.offsets() == Counter(
        [(0, offset) for offset in range(100, 350)] + [(1, offset) for offset in range(50)] + [(3, 10)]
    )


def test_its_receipt_counts_what_the_footers_say_and_fits_the_plan(written: Job) -> None:
    receipt = written.receipt

    assert receipt.contradictions(written.plan) == []
    assert receipt.rows_read == 301
    counts = [(count.rows, count.smallest_offset, count.largest_offset) for count in receipt.range_counts(written.plan)]
    assert counts == [(250, 100, 349), (50, 0, 49), (1, 10, 10)]
    assert {file.name for file in receipt.files} == {path.name for path in (written.directory / DATA).iterdir()}


def test_it_writes_zstd_and_no_litter_beside_the_data(written: Job) -> None:
    files = list((written.directory / DATA).iterdir())

    assert {path.suffix for path in files} == {".parquet"}
    assert not [path for path in files if path.name.startswith((".", "_"))]
    codecs = {pyarrow.parquet.read_metadata(path).row_group(0).column(4).compression for path in files}
    assert codecs == {"ZSTD"}


def test_a_column_has_a_dictionary_or_statistics_where_they_are_worth_their_time(written: Job) -> None:
    files = map(pyarrow.parquet.read_metadata, (written.directory / DATA).iterdir())
    metadata = max(files, key=lambda file: file.num_rows)  # for a handful of rows Parquet writes no dictionary anyway
    every = [metadata.row_group(0).column(number) for number in range(metadata.num_columns)]
    columns = {column.path_in_schema: column for column in every if "headers" not in column.path_in_schema}

    looked_up = {name for name, column in columns.items() if "PLAIN_DICTIONARY" in column.encodings}
    compared = {name for name, column in columns.items() if column.statistics and column.statistics.has_min_max}
    assert looked_up == {"kafka_partition"}
    assert compared == {"kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp", "kafka_topic_id"}


def test_spark_pyarrow_duckdb_and_polars_read_the_same_rows_from_the_output(
    written: Job, tmp_path: Path, spark: SparkSession
) -> None:
    output = tmp_path / "orders"
    output.mkdir()
    target = output / f"kafka_batch={written.plan.batch_id}"
    target.symlink_to(written.directory / DATA)
    (output / "dt=2026-01-31").mkdir()
    (output / "dt=2026-01-31" / "_SUCCESS").touch()
    by_spark = spark.read.parquet(str(output)).groupBy("kafka_batch").count().collect()

    assert [(row["kafka_batch"], row["count"]) for row in by_spark] == [(str(written.plan.batch_id), 301)]
    assert pyarrow.dataset.dataset(output, partitioning="hive").count_rows() == 301
    relation = duckdb.read_parquet(f"{output}/*/*.parquet", hive_partitioning=True)
    assert relation.aggregate("count(*), min(kafka_batch::text)").fetchall() == [(301, str(written.plan.batch_id))]
    frame = pl.scan_parquet(output, hive_partitioning=True).select("kafka_offset", "kafka_batch").collect()
    assert frame.height == 301
    assert set(frame["kafka_batch"].to_list()) == {str(written.plan.batch_id)}


def test_an_output_whose_older_batches_lack_a_column_is_read_with_all_of_them(
    written: Job, tmp_path: Path, spark: SparkSession
) -> None:
    output = tmp_path / "orders"
    new, old = output / "kafka_batch=01", output / "kafka_batch=00"
    output.mkdir()
    new.symlink_to(written.directory / DATA)
    old.mkdir()
    before = (
        pyarrow.dataset.dataset(written.directory / DATA)
        .to_table()
        .drop_columns(["kafka_topic_id", "kafka_timestamp_ms"])
    )
    pyarrow.parquet.write_table(before, old / "part-0.parquet")
    frame = spark.read.option("mergeSchema", "true").parquet(str(output))
    by_spark = frame.selectExpr("count(*)", "count(kafka_topic_id)").collect()

    assert [tuple(row) for row in by_spark] == [(602, 301)]
    relation = duckdb.read_parquet(f"{output}/*/*.parquet", hive_partitioning=True, union_by_name=True)
    assert relation.aggregate("count(*), count(kafka_topic_id)").fetchall() == [(602, 301)]
    scanned = pl.scan_parquet(
        sorted(output.glob("*/*.parquet"), reverse=True), missing_columns="insert", extra_columns="ignore"
    )
    assert scanned.select("kafka_topic_id").collect()["kafka_topic_id"].count() == 301
    newest = pyarrow.dataset.dataset(new).schema
    table = pyarrow.dataset.dataset(output, partitioning="hive", schema=newest).to_table(["kafka_topic_id"])
    assert (table.num_rows, table["kafka_topic_id"].null_count) == (602, 301)


def test_its_python_imports_pyspark_as_it_is_installed_and_not_the_slow_libraries_that_it_asks_for(
    written: Job,
) -> None:
    output = (written.done.stdout + written.done.stderr).splitlines()
    imported = {line.split("'")[1]: line for line in output if line.startswith("import '")}

    assert "zipimporter" in imported["kafka_ingest.writing.write_batch"]
    assert "zipimporter" not in imported["pyspark"]
    assert not {"pandas", "pyspark.testing", "pyspark.pandas"} & set(imported)


def test_its_session_is_made_without_looking_for_extensions(written: Job) -> None:
    classes = written.classes()

    assert "org.apache.spark.sql.classic.SparkSession" in classes
    assert MACHINE_LEARNING not in classes


def test_an_extension_that_a_feed_names_is_loaded(written: Job, broker: EmbeddedBroker, tmp_path: Path) -> None:
    named = f"there.is.no.such.Extension{uuid4().hex}"
    job = Job(written.plan, tmp_path / "attempt", broker.bootstrap_servers, **{"spark.sql.extensions": named})

    job.succeeds()

    assert f"Cannot use {named} to configure session extensions" in kept_spark().log.read_text()


def test_the_columns_are_those_of_the_raw_format(written: Job) -> None:
    schema = pyarrow.dataset.dataset(written.directory / DATA).schema

    assert [(field.name, str(field.type)) for field in schema] == [
        ("kafka_topic", "string"),
        ("kafka_partition", "int32"),
        ("kafka_offset", "int64"),
        ("kafka_timestamp", "timestamp[us, tz=UTC]"),
        ("key", "binary"),
        ("value", "binary"),
        ("kafka_headers", "list<element: struct<key: string, value: binary>>"),
        ("kafka_topic_id", "string"),
        ("kafka_timestamp_ms", "int64"),
    ]


def test_each_record_names_its_topic_s_id_and_none_where_the_broker_gave_none(
    written: Job, broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    [known] = written.plan.topic_ids
    produce(broker.bootstrap_servers, topic, order_events(100, seed=4))
    plan = plan_of(known, tmp_path / "orders", (0, 0, 10), topic_ids={known: TOPIC_ID, topic: None})
    other = OffsetRange(TopicPartition(topic, 0), 0, 10)
    plan = replace(plan, ranges=tuple(sorted((*plan.ranges, other), key=lambda found: found.topic)))
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    job.succeeds()

    table = pyarrow.dataset.dataset(job.directory / DATA).to_table(["kafka_topic", "kafka_topic_id"])
    assert Counter(zip(*table.to_pydict().values(), strict=True)) == {(known, TOPIC_ID): 10, (topic, None): 10}
    of_one = pyarrow.dataset.dataset(written.directory / DATA).to_table(["kafka_topic_id"])
    assert set(of_one["kafka_topic_id"].to_pylist()) == {TOPIC_ID}


def test_it_refuses_a_document_that_is_not_the_one_that_was_handed_over(
    written: Job, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    job = Job(written.plan, tmp_path / "changed", broker.bootstrap_servers)
    document = json.loads((job.directory / DOCUMENT).read_bytes())
    document["plan"]["ranges"][0]["end_offset"] += 1
    (job.directory / DOCUMENT).write_text(json.dumps(document))

    done = job.run()

    assert done.returncode != 0
    assert "expected an attempt document with SHA-256" in done.stderr + done.stdout
    assert not (job.directory / DATA).exists()
    assert not (job.directory / RECEIPT).exists()


def test_a_range_that_retention_has_deleted_fails_the_job_and_leaves_no_receipt(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    produce(broker.bootstrap_servers, topic, order_events(100, seed=4))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for deleted in admin.delete_records([ClientTopicPartition(topic, 0, 10)]).values():
        deleted.result()
    # How long the reader waits for a record that will not come: two minutes by default.
    waits = {"spark.network.timeout": "11s"}
    job = Job(plan_of(topic, tmp_path / "orders", (0, 0, 20)), tmp_path / "attempt", broker.bootstrap_servers, **waits)

    done = job.run()

    assert done.returncode != 0
    assert not (job.directory / RECEIPT).exists()


def test_a_range_that_retention_has_deleted_is_left_out_where_another_can_be_read(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    produce(broker.bootstrap_servers, topic, order_events(100, seed=4))
    delete_records(broker.bootstrap_servers, topic, 0, 10)
    plan = plan_of(topic, tmp_path / "orders", (0, 0, 20), (1, 0, 5), topic_ids={topic: TOPIC_ID})
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    job.succeeds()

    assert job.receipt.left_out == (LeftOut(plan.ranges[0], 10),)
    assert job.receipt.contradictions(plan) == []
    assert job.offsets() == Counter((1, offset) for offset in range(5))
    assert sorted(path.name for path in job.directory.iterdir()) == [DATA, "kafka_ingest.zip", DOCUMENT, RECEIPT]


def test_aborted_transactions_and_markers_are_invisible_and_an_empty_range_writes_a_receipt_alone(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    aborted_transaction(broker.bootstrap_servers, topic, 0, plain_records(5))
    plan = plan_of(topic, tmp_path / "orders", (0, 0, 6), kind=BatchKind.BACKFILL)
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    job.succeeds()

    assert job.receipt.files == ()
    assert job.receipt.range_counts(plan)[0].invisible == 6
    assert list((job.directory / DATA).iterdir()) == []


def test_a_hot_range_is_read_by_several_tasks_and_each_visible_record_is_there_once(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    many = plain_records(70_000)
    # Of 250,004 offsets each of three tasks gets a third: the second task begins amid what was aborted.
    first = committed_transaction(broker.bootstrap_servers, topic, 0, many)
    aborted_transaction(broker.bootstrap_servers, topic, 0, plain_records(40_000))
    hot = first + [n for _ in range(2) for n in committed_transaction(broker.bootstrap_servers, topic, 0, many)]
    quiet = committed_transaction(broker.bootstrap_servers, topic, 1, plain_records(100))
    plan = plan_of(topic, tmp_path / "orders", (0, 0, 250_004), (1, 0, 101))
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    job.succeeds()

    assert job.receipt.contradictions(plan) == []
    counts = [(count.rows, count.smallest_offset, count.largest_offset) for count in job.receipt.range_counts(plan)]
    assert counts == [(210_000, 0, 250_002), (100, 0, 99)]
    assert Counter(file.partitions[0].topic_partition.partition for file in job.receipt.files) == {0: 3, 1: 1}
    visible, found = Counter([(0, n) for n in hot] + [(1, n) for n in quiet]), job.offsets()
    # A few of them say enough: pytest would take minutes to compare all.
    assert (sorted(visible - found)[:5], sorted(found - visible)[:5]) == ([], [])


# ── Partitions of a table ─────────────────────────────────────────────────────────────────────────────────────────────

DAYS = terms_of(["kafka_topic", "day(kafka_timestamp)"])
MS_A_DAY = 86_400_000


def partitioned(plan: BatchPlan, tmp_path: Path) -> tuple[BatchPlan, DataNeeds]:
    """Return a plan for a table that is partitioned by topic and day, and what its sink needs."""
    output = OutputLocation.local("delta", tmp_path / "orders", TableOptions(partition_by=DAYS).as_options())
    needs = DataNeeds(
        tmp_path / "orders" / "data", batch_column=True, without=("kafka_headers",), partition_by=DAYS, own_columns=True
    )
    return replace(plan, output=output), needs


def test_each_file_holds_one_partition_of_a_table_and_each_record_is_there_once(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic = f"partitioned-{uuid4().hex[:8]}"
    create_plain_topic(broker.bootstrap_servers, topic, partitions=2, config=TAKES_ANY_TIMESTAMP)
    first = round(time.time() * 1000) // MS_A_DAY
    times = [(first - number % 3) * MS_A_DAY + number for number in range(3_000)]
    for partition in (0, 1):
        records = [Record(b"%d" % number, None, at) for number, at in enumerate(times)]
        produce_plain(broker.bootstrap_servers, topic, partition, [*records, Record(b"without a time", None, -1)])
    plan, needs = partitioned(plan_of(topic, tmp_path, (0, 0, 3_001), (1, 0, 3_001)), tmp_path)
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers, needs=needs)

    job.succeeds()

    assert job.receipt.contradictions(plan) == []
    assert job.receipt.rows == job.receipt.rows_read == 2 * 3_001
    assert len(job.receipt.files) == 2 * 4
    data = tmp_path / "orders" / "data"
    assert files_below(data) == sorted(file.name for file in job.receipt.files)
    found: Counter[tuple[int, int]] = Counter()
    for file in job.receipt.files:
        rows = pyarrow.parquet.ParquetFile(data / file.name).read()
        assert not {"kafka_by_0", "kafka_headers"} & set(rows.column_names)
        offsets = rows["kafka_offset"].to_pylist()
        assert offsets == sorted(offsets)
        dates = {at.date() if at else None for at in rows["kafka_timestamp"].to_pylist()}
        [date] = dates
        assert file.name.startswith(f"kafka_topic={topic}/kafka_date={date or '__HIVE_DEFAULT_PARTITION__'}/")
        assert dates == set(rows["kafka_date"].to_pylist())
        found.update(zip(rows["kafka_partition"].to_pylist(), offsets, strict=True))
    assert found == Counter((partition, offset) for partition in (0, 1) for offset in range(3_001))


# ── Whatever number a producer writes into a timestamp ────────────────────────────────────────────────────────────────

LARGEST = 2**63 - 1

TAKES_ANY_TIMESTAMP = {
    "message.timestamp.before.max.ms": str(LARGEST),
    "message.timestamp.after.max.ms": str(LARGEST),
}

NO_DATES = [
    -1,
    -LARGEST - 1,
    -LARGEST,
    LARGEST,
    LARGEST // 1_000 + 1,
    -(LARGEST // 1_000) - 2,
    1_700_000_000_000_000_000,
]
BEFORE_1900 = [datetime(1582, 10, 4, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC), datetime(1899, 12, 31, 23, tzinfo=UTC)]
DATES = [1, -2, 1_700_000_000_123, END_OF_SECONDS * 1000 - 1]

ORDINARY = 1_700_000_000_123

ODD_RECORDS: list[dict[str, Any]] = [
    {"value": None, "key": None},
    {"value": b"", "key": b""},
    {"value": b"\xff", "headers": [("a", None), ("", b"no name"), ("", None)]},
    {"value": b"1", "headers": [("a", b"1"), ("a", b"2"), ("a", b"")]},
    {"value": b"2", "headers": [(f"header {number}", b"value") for number in range(5_000)]},
    {"value": b"3", "headers": [("k" * 100_000, b"v" * 100_000)]},
    {"value": None, "key": b"k" * 900_000},
    {"value": b"v" * 900_000, "headers": []},
]


def as_produced(row: dict[str, Any]) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
    """Return a row's key, value and headers."""
    return row["key"], row["value"], [(each["key"], each["value"]) for each in row["kafka_headers"] or ()]


IN_TURN = [
    # What Spark's own source can take, what it changes without a word, and what it fails on.
    pytest.param([*DATES, 1_700_000_000_000_000, END_OF_SECONDS * 1000, -1], ORDINARY, False, id="it takes"),
    pytest.param([*DATES, *map(milliseconds_of, BEFORE_1900)], ORDINARY, True, id="the Julian calendar"),
    pytest.param([*DATES, *NO_DATES, *map(milliseconds_of, BEFORE_1900)], LARGEST, True, id="too large and too small"),
]


@pytest.mark.parametrize(("timestamps", "of_odd_records", "read_again"), IN_TURN)
def test_a_record_lands_as_it_is_whatever_its_timestamp_key_value_and_headers(
    broker: EmbeddedBroker, tmp_path: Path, timestamps: list[int], of_odd_records: int, *, read_again: bool
) -> None:
    topic, odd = f"timestamps-{uuid4().hex[:8]}", f"odd-{uuid4().hex[:8]}"
    for name in (topic, odd):
        create_plain_topic(broker.bootstrap_servers, name, config=TAKES_ANY_TIMESTAMP)
    records = [Record(b"%d" % number, None, number) for number in timestamps]
    offsets = committed_transaction(broker.bootstrap_servers, topic, 0, [*records, Record(None, b"")])
    aborted_transaction(broker.bootstrap_servers, topic, 0, records)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for record in ODD_RECORDS:
        producer.produce(odd, partition=0, timestamp=of_odd_records, **record)
    assert producer.flush(30) == 0
    plan = plan_of(
        topic,
        tmp_path / "orders",
        topic_ids={topic: TOPIC_ID, odd: None},
        ranges=(
            OffsetRange(TopicPartition(odd, 0), 0, len(ODD_RECORDS)),
            OffsetRange(TopicPartition(topic, 0), 0, len(offsets) + len(records) + 2),
        ),
    )
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    done = job.succeeds()

    assert ("all is read again" in done.stdout + done.stderr) is read_again
    table = pyarrow.dataset.dataset(job.directory / DATA).to_table()
    of_topic = {
        name: table.filter(pyarrow.compute.equal(table["kafka_topic"], name)).sort_by("kafka_offset")
        for name in (topic, odd)
    }
    assert sum(found.num_rows for found in of_topic.values()) == table.num_rows

    rows = of_topic[topic].to_pylist()
    assert [row["kafka_offset"] for row in rows] == offsets
    assert {row["kafka_topic_id"] for row in rows} == {TOPIC_ID}
    assert (rows[-1]["key"], rows[-1]["value"], rows[-1]["kafka_headers"]) == (b"", None, None)
    found = [milliseconds_in(row) for row in rows[:-1]]
    assert found == timestamps
    dated = [number for number, row in zip(timestamps, rows, strict=False) if row["kafka_timestamp"] is not None]
    assert dated == [number for number in timestamps if is_date(number)]

    rows_of_odd = of_topic[odd].to_pylist()
    assert [as_produced(row) for row in rows_of_odd] == [
        (each.get("key"), each["value"], each.get("headers", [])) for each in ODD_RECORDS
    ]
    assert {milliseconds_in(row) for row in rows_of_odd} == {of_odd_records}
    assert of_topic[odd]["kafka_headers"].null_count == 4
    assert str(table.schema.field("kafka_headers").type) == "list<element: struct<key: string, value: binary>>"

    without_date = len(timestamps) - len(dated) + (0 if is_date(of_odd_records) else len(ODD_RECORDS))
    assert job.receipt.without_date == without_date
    assert job.receipt.contradictions(plan) == []
    assert len(duckdb.read_parquet(f"{job.directory / DATA}/*.parquet").fetchall()) == table.num_rows
    assert len(pl.read_parquet(job.directory / DATA).to_dicts()) == table.num_rows


def is_date(number: int) -> bool:
    return number != -1 and FIRST_SECOND * 1000 <= number < END_OF_SECONDS * 1000


def milliseconds_in(row: dict[str, Any]) -> int:
    """Return the number that the record has in Kafka."""
    when, number = row["kafka_timestamp"], row["kafka_timestamp_ms"]
    assert (when is None) is not (number is None)
    return int(number) if when is None else (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


# ── Many small ranges are read by one consumer ────────────────────────────────────────────────────────────────────────


def test_many_small_ranges_land_in_one_file_as_they_would_in_many(
    written: Job, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, servers = f"small-{uuid4().hex[:8]}", broker.bootstrap_servers
    create_plain_topic(servers, topic, 40, config=TAKES_ANY_TIMESTAMP)
    with Producer({"bootstrap.servers": servers}) as producer:
        for record in ODD_RECORDS:
            producer.produce(topic, partition=0, timestamp=LARGEST, **record)
    seen = committed_transaction(servers, topic, 1, plain_records(3))
    aborted_transaction(servers, topic, 1, plain_records(4))
    for partition in range(2, 40):
        produce_plain(servers, topic, partition, plain_records(5))
    # In [0, 9) the last five offsets are no records; of the others the first and the last records are not planned.
    ranges = [(0, 0, 8), (1, 0, 9), *((partition, 1, 4) for partition in range(2, 40))]
    plan = plan_of(topic, tmp_path / "orders", *ranges, topic_ids={topic: TOPIC_ID})
    job = Job(plan, tmp_path / "attempt", servers)

    job.succeeds()

    assert job.receipt.contradictions(plan) == []
    planned = [(0, n) for n in range(8)] + [(1, n) for n in seen] + [(p, n) for p in range(2, 40) for n in (1, 2, 3)]
    assert job.offsets() == Counter(planned)
    [file] = (job.directory / DATA).iterdir()
    [other, *_] = (written.directory / DATA).iterdir()
    assert pyarrow.parquet.read_metadata(file).schema.equals(pyarrow.parquet.read_metadata(other).schema)
    rows = sorted(
        pyarrow.parquet.read_table(file).to_pylist(), key=lambda row: (row["kafka_partition"], row["kafka_offset"])
    )
    odd, plain = rows[:8], rows[8:]
    assert [as_produced(row) for row in odd] == [
        (each.get("key"), each["value"], each.get("headers", [])) for each in ODD_RECORDS
    ]
    assert {(row["kafka_timestamp"], row["kafka_timestamp_ms"]) for row in odd} == {(None, LARGEST)}
    assert [(row["key"], row["value"], milliseconds_in(row)) for row in plain] == [
        (record.key, record.value, record.timestamp_ms) for record in plain_records(3) + plain_records(5)[1:4] * 38
    ]
    assert {(row["kafka_topic"], row["kafka_topic_id"], row["kafka_headers"]) for row in plain} == {
        (topic, TOPIC_ID, None)
    }


def test_small_ranges_that_are_too_large_for_one_consumer_get_their_own_and_one_that_retention_has_deleted_is_left_out(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topic, servers = f"small-{uuid4().hex[:8]}", broker.bootstrap_servers
    create_plain_topic(servers, topic, 42)
    for partition in range(42):
        produce_plain(servers, topic, partition, [Record(b"v" * 900_000)])
    delete_records(servers, topic, 7, 1)
    plan = plan_of(topic, tmp_path / "orders", *((partition, 0, 1) for partition in range(42)))
    job = Job(plan, tmp_path / "attempt", servers)

    job.succeeds()

    assert job.receipt.contradictions(plan) == []
    assert job.receipt.left_out == (LeftOut(plan.ranges[7], 1),)
    assert job.offsets() == Counter((partition, 0) for partition in range(42) if partition != 7)
    held = sorted(len(file.partitions) for file in job.receipt.files)
    assert held[-1] * 900_000 <= MOST_ROWS_KEPT
    assert len(held) > 1


def test_records_of_kafkas_largest_default_size_fit_into_the_default_heap_with_six_tasks_at_once(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    # A hundred of them are a few kilobytes on the wire: what a task holds follows from how many records it polls and
    # writes.
    for partition in range(6):
        produce_large(broker.bootstrap_servers, topic, partition, [b"x" * 1_000_000] * 120)
    plan = plan_of(topic, tmp_path / "orders", *((partition, 0, 120) for partition in range(6)))
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers, master="local[8]", is_kept=False)

    job.succeeds()

    assert job.receipt.contradictions(plan) == []
    assert job.receipt.rows == 720


def produce_large(bootstrap_servers: str, topic: str, partition: int, values: list[bytes]) -> None:
    """Send values that are large but for their compression, in batches that the broker takes."""
    settings = {"bootstrap.servers": bootstrap_servers, "compression.codec": "zstd", "message.max.bytes": 100_000_000}
    with Producer({**settings, "queue.buffering.max.kbytes": 1_000_000}) as producer:
        for value in values:
            producer.produce(topic, value, partition=partition)


def test_several_attempts_share_a_spark_and_what_one_does_fails_that_one_alone(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topics = [f"several-{uuid4().hex[:8]}" for _ in range(2)]
    for topic in topics:
        create_topic(broker.bootstrap_servers, topic, 6)
        produce(broker.bootstrap_servers, topic, order_events(500, seed=4))
    first, refused, damaged, last = (
        Job(plan_of(topic, tmp_path / name, *spans), tmp_path / name / "attempt", broker.bootstrap_servers)
        for topic, name, *spans in (
            (topics[0], "first", (0, 0, 20), (2, 3, 7)),
            (topics[0], "refused", (0, 0, 20), (2, 3, 7)),
            (topics[0], "damaged", (0, 0, 20)),
            (topics[1], "last", (1, 5, 15)),
        )
    )
    (damaged.directory / DOCUMENT).write_bytes(b"{}")
    jobs = [first, refused, damaged, last]
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    # Settings of one connection reach no attempt of another.
    kafka = [servers, servers | {"security.protocol": "NO_SUCH"}, servers, servers]
    workplace = tmp_path / "workplace"
    workplace.mkdir()
    equip(workplace, package_zip(), JobSettings(kafka, limits_s=[60.0] * 4))
    call = together([each.submission for each in jobs])
    tail = ("--package", str(workplace / PACKAGE), "--settings", str(workplace / SETTINGS))
    first.submission = replace(call, arguments=(*call.arguments[: 4 * len(jobs)], *tail))

    done = first.run()

    assert done.returncode == 1, done.stderr[-2000:]
    # A file for each of two small ranges takes longer than reading them.
    [file] = first.receipt.files
    assert [each.topic_partition.partition for each in file.partitions] == [0, 2]
    assert first.offsets() == {(0, offset): 1 for offset in range(20)} | {(2, offset): 1 for offset in range(3, 7)}
    assert last.offsets() == {(1, offset): 1 for offset in range(5, 15)}
    for job in (first, last):
        assert job.receipt.contradictions(job.plan) == []
        assert not (job.directory / FAILURE).exists()
    assert "SHA-256" in (damaged.directory / FAILURE).read_text()
    assert "NO_SUCH" in (refused.directory / FAILURE).read_text()
    assert not [job for job in (refused, damaged) if (job.directory / RECEIPT).exists()]
    assert begun_in(workplace) == {0, 1, 3}
