"""The Spark job alone: an attempt's directory with its document and the zip, an empty working directory, a real broker."""

import json
import logging
import os
import subprocess
import sys
import sysconfig
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import duckdb
import polars as pl
import pyarrow.dataset
import pyarrow.parquet
import pytest
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession
from tests.kafka_faults import aborted_transaction, committed_transaction, plain_records

from embedded_broker import EmbeddedBroker
from kafka_ingest.attempt_directory import DATA, DOCUMENT, PACKAGE, RECEIPT
from kafka_ingest.batch import Attempt, AttemptDocument, AttemptState, BatchKind, BatchPlan, sha256
from kafka_ingest.kafka_client_settings import KafkaClientSettings
from kafka_ingest.offsets import Isolation, OffsetRange, OffsetsPolicy, TopicPartition
from kafka_ingest.receipt import Receipt
from kafka_ingest.submitting.installation import installation
from kafka_ingest.submitting.open_attempt import RAW_DECODE
from kafka_ingest.submitting.package_zip import write_package_zip
from kafka_ingest.submitting.spark_submission import SparkMaster, spark_submission
from order_events import create_topic, order_events, produce

MACHINE_LEARNING = "org.apache.spark.sql.ml.InternalFunctionRegistration"
"""The one extension among Spark's own jars: every session that looks for extensions finds it."""

# It says goodbye when the interpreter ends, and pytest has closed its streams by then.
logging.getLogger("py4j").setLevel(logging.WARNING)


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
        "sink_format": "parquet",
        "output_path": output,
        "planned_at": datetime.now(UTC),
    }
    return BatchPlan(**values | changes)


def python_without_the_repository(home: Path) -> Path:
    """Return a Python that has the installed libraries but not the editable installation: `-S` reads no .pth files."""
    python = home / "python"
    libraries = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    found = subprocess.run([python, "-c", "import kafka_ingest"], capture_output=True, text=True, check=False, cwd=home)
    assert "No module named 'kafka_ingest'" in found.stderr
    return python


class Job:
    """One attempt, handed to spark-submit with a Python to which only the zip brings the package."""

    def __init__(self, plan: BatchPlan, directory: Path, bootstrap_servers: str, **conf: str) -> None:
        self.plan = plan
        self.directory = directory
        self.class_log = directory.with_name(f"{directory.name}-classes.log")
        directory.mkdir(parents=True)
        content = AttemptDocument(plan, 1, RAW_DECODE).as_bytes()
        (directory / DOCUMENT).write_bytes(content)
        write_package_zip(directory / PACKAGE)
        self.attempt = Attempt(
            plan.batch_id, 1, AttemptState.OPEN, directory, sha256(content), datetime.now(UTC), "test"
        )
        self.submission = spark_submission(
            plan,
            self.attempt,
            master=SparkMaster("spark_default", "local[2]"),
            kafka=KafkaClientSettings("kafka_default", {"bootstrap.servers": bootstrap_servers}),
            conf={"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={self.class_log}:none"} | conf,
            sink_is_shared=False,
            installed=installation(),
        )

    done: subprocess.CompletedProcess[str]

    def run(self) -> subprocess.CompletedProcess[str]:
        empty = self.directory.parent / "empty"
        empty.mkdir(exist_ok=True)
        inherited = {
            key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "SPARK", "PYSPARK"))
        }
        alone = {
            "PYSPARK_DRIVER_PYTHON": str(python_without_the_repository(self.directory.parent)),
            "PYTHONVERBOSE": "1",  # tells on standard error what is imported, and from where
        }
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


@pytest.fixture(scope="module")
def written(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One job that wrote three ranges of six partitions; most tests look at what it left."""
    topic = f"spark-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, topic, 6)
    produce(broker.bootstrap_servers, topic, order_events(2_000, seed=4))
    home = tmp_path_factory.mktemp("spark")
    plan = plan_of(topic, home / "orders", (0, 100, 350), (1, 0, 50), (3, 10, 11))
    job = Job(plan, home / "attempt", broker.bootstrap_servers)
    job.done = job.run()
    assert job.done.returncode == 0, job.done.stderr[-3000:]
    return job


def test_it_reads_exactly_the_plans_ranges(written: Job) -> None:
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
    assert compared == {"kafka_topic", "kafka_partition", "kafka_offset", "kafka_timestamp"}


def test_spark_pyarrow_duckdb_and_polars_read_the_same_rows_from_the_output(written: Job, tmp_path: Path) -> None:
    output = tmp_path / "orders"
    output.mkdir()
    target = output / f"kafka_batch={written.plan.batch_id}"
    target.symlink_to(written.directory / DATA)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        by_spark = spark.read.parquet(str(output)).groupBy("kafka_batch").count().collect()
    finally:
        spark.stop()

    assert [(row["kafka_batch"], row["count"]) for row in by_spark] == [(str(written.plan.batch_id), 301)]
    assert pyarrow.dataset.dataset(output, partitioning="hive").count_rows() == 301
    relation = duckdb.read_parquet(f"{output}/*/*.parquet", hive_partitioning=True)
    assert relation.aggregate("count(*), min(kafka_batch::text)").fetchall() == [(301, str(written.plan.batch_id))]
    frame = pl.scan_parquet(output, hive_partitioning=True).select("kafka_offset", "kafka_batch").collect()
    assert frame.height == 301
    assert set(frame["kafka_batch"].to_list()) == {str(written.plan.batch_id)}


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


def test_an_extension_that_a_feed_names_is_applied(written: Job, broker: EmbeddedBroker) -> None:
    named = {"spark.sql.extensions": MACHINE_LEARNING}
    job = Job(written.plan, written.directory.with_name("extended"), broker.bootstrap_servers, **named)

    done = job.run()

    assert done.returncode == 0, done.stderr[-3000:]
    assert MACHINE_LEARNING in job.classes()
    assert job.receipt.rows == written.receipt.rows


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
    ]


def test_it_refuses_a_document_that_is_not_the_one_that_was_handed_over(written: Job, broker: EmbeddedBroker) -> None:
    job = Job(written.plan, written.directory.with_name("changed"), broker.bootstrap_servers)
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


def test_aborted_transactions_and_markers_are_invisible_and_an_empty_range_writes_a_receipt_alone(
    broker: EmbeddedBroker, tmp_path: Path, topic: str
) -> None:
    aborted_transaction(broker.bootstrap_servers, topic, 0, plain_records(5))
    plan = plan_of(topic, tmp_path / "orders", (0, 0, 6))
    job = Job(plan, tmp_path / "attempt", broker.bootstrap_servers)

    done = job.run()

    assert done.returncode == 0, done.stderr[-3000:]
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

    done = job.run()

    assert done.returncode == 0, done.stderr[-3000:]
    assert job.receipt.contradictions(plan) == []
    counts = [(count.rows, count.smallest_offset, count.largest_offset) for count in job.receipt.range_counts(plan)]
    assert counts == [(210_000, 0, 250_002), (100, 0, 99)]
    assert Counter(file.topic_partition.partition for file in job.receipt.files) == {0: 3, 1: 1}
    visible, found = Counter([(0, n) for n in hot] + [(1, n) for n in quiet]), job.offsets()
    # A few of them say enough: pytest would take minutes to compare all.
    assert (sorted(visible - found)[:5], sorted(found - visible)[:5]) == ([], [])
