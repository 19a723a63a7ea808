"""A user's project whose commands run in this process, with a stand-in for Spark.

A tenth of a second instead of seconds.

Broker, control tables, output and the command line are real. What Spark alone can show (how its reads fail, what it
makes of holes in a log) is tested with :class:`tests.project.Project`.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet
import yaml
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition
from tests.project import Answer, Project
from typer.testing import CliRunner

from environment import settings
from kafka_ingest.assembly import FeedParts
from kafka_ingest.cli import app as command_line
from kafka_ingest.cli import write_and_commit
from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.model.attempt_directory import DATA, DOCUMENT, KAFKA_SETTINGS_VARIABLE, RECEIPT
from kafka_ingest.model.batch import AttemptDocument, BatchKind, BatchPlan
from kafka_ingest.model.left_out import ranges_read, to_leave_out
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.writing.stage_files import staged_files

PATIENCE_S = 30.0
BEYOND_SETTINGS = ("KAFKA_INGEST_FEEDS", "SPARK_LOCAL_DIRS")

FIELDS: "list[pa.Field[Any]]" = [
    pa.field("kafka_topic", pa.string()),
    pa.field("kafka_partition", pa.int32()),
    pa.field("kafka_offset", pa.int64()),
    pa.field("kafka_timestamp", pa.timestamp("us", "UTC")),
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("kafka_headers", pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))),
    pa.field("kafka_topic_id", pa.string()),
    pa.field("kafka_timestamp_ms", pa.int64()),
]


class QuickProject(Project):
    """A project whose command line is called, not started."""

    def __init__(self, home: Path, bootstrap_servers: str) -> None:
        super().__init__(home, bootstrap_servers)
        self.spark_is_real = False
        self.before_spark: Callable[[], object] = lambda: None

    def kafka_ingest(self, *arguments: str, **environment: str) -> Answer:
        of_project = {key: self.environment[key] for key in (*settings(self.home, ""), *BEYOND_SETTINGS)}
        with patch.object(write_and_commit, "run_spark_submit", self.submit):
            done = CliRunner().invoke(command_line.app, arguments, env=of_project | environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    @contextmanager
    def submitting(
        self, *, spark_is_real: bool = False, before_spark: Callable[[], object] = lambda: None
    ) -> Iterator[None]:
        """Let something happen after the last look at Kafka, before Spark reads; and let Spark be the real one."""
        self.spark_is_real, self.before_spark = spark_is_real, before_spark
        try:
            yield
        finally:
            self.spark_is_real, self.before_spark = False, lambda: None

    def submit(self, submission: SparkSubmission, log_file: Path, *, while_running: Callable[[], object]) -> None:
        """Run what a run submits."""
        self.before_spark()
        if self.spark_is_real:
            run_spark_submit(submission, log_file, while_running=while_running)
        else:
            self.write_like_spark(submission, log_file)

    def write_like_spark(self, submission: SparkSubmission, _log_file: Path) -> None:
        """Do what the Spark job does with an attempt's directory."""
        _, directory_name, _, sha256 = submission.arguments
        directory = Path(directory_name)
        document = AttemptDocument.from_bytes((directory / DOCUMENT).read_bytes(), sha256)
        plan = document.plan
        servers = json.loads(submission.environment[KAFKA_SETTINGS_VARIABLE])["bootstrap.servers"]
        data = document.data.place or directory / DATA
        data.mkdir(parents=True)
        rows_read = 0
        live = plan.kind is BatchKind.LIVE
        left_out = to_leave_out(plan.ranges, self.log_starts(servers, plan)) if live else ()
        for number, offset_range in enumerate(ranges_read(plan.ranges, left_out)):
            rows = self.rows_of(servers, plan, offset_range)
            rows_read += len(rows)
            table = pa.Table.from_pylist(rows, pa.schema(FIELDS))
            if document.data.batch_column:
                batch_ids = pa.array([str(plan.batch_id)] * len(rows), pa.string())
                table = table.append_column("kafka_batch", batch_ids)
            pyarrow.parquet.write_table(table, data / f"part-{number:05}.parquet")
        receipt = Receipt(
            batch_id=plan.batch_id,
            attempt=document.attempt,
            plan_fingerprint=plan.fingerprint,
            document_sha256=sha256,
            rows_read=rows_read,
            files=tuple(staged_files(data)),
            written_at=datetime.now(UTC),
            written_by="stand-in for Spark",
            left_out=left_out,
        )
        write_durably(directory / RECEIPT, receipt.as_bytes())

    def log_starts(self, servers: str, plan: BatchPlan) -> dict[TopicPartition, int]:
        """Return where the logs begin that the stand-in for Spark reads."""
        return log_starts(servers, plan.ranges)

    def rows_of(self, servers: str, plan: BatchPlan, offset_range: OffsetRange) -> list[dict[str, Any]]:
        """Return the rows that the stand-in for Spark makes of a range."""
        topic_id = plan.topic_ids[offset_range.topic]
        return [row_of(message, topic_id) for message in read_range(servers, plan, offset_range)]

    @contextmanager
    def stopping_before_the_commit(self) -> Iterator[None]:
        """Let runs end as if they were killed between write and commit."""
        with patch.object(FeedParts, "commit", side_effect=Killed):
            yield

    @contextmanager
    def stopping_before_the_pin(self) -> Iterator[None]:
        """Let runs end as if they were killed after Spark wrote its receipt, before it was pinned."""
        with patch.object(FeedParts, "pin", side_effect=Killed):
            yield

    def edit_feed(self, name: str = "orders", **changes: Any) -> None:
        """Replace or add top-level keys of a feed file."""
        path = self.feeds / f"{name}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))

    def answer(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """Return what a command that succeeds says with --json."""
        found = self.kafka_ingest(*arguments, "--json", **environment)
        assert found.exit_code == 0, found.stdout + found.stderr
        return found.document

    def plan(self, *options: str, name: str = "orders") -> dict[str, Any]:
        """Plan the feed's next batch."""
        return self.answer("plan", name, *options)

    def dry_run(self, *options: str, name: str = "orders") -> dict[str, Any]:
        """Show what the next plan would be."""
        return self.answer("plan", name, "--dry-run", *options)

    def refusal(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Return exit code, error code and message of a command that fails."""
        found = self.kafka_ingest(*arguments, "--json", **environment)
        assert found.exit_code != 0, found.stdout
        error = found.document["error"]
        assert error["exit_code"] == found.exit_code
        return found.exit_code, error["code"], error["message"]

    def partition(self, partition: int = 0, *, topic: str | None = None, name: str = "orders") -> dict[str, Any]:
        """Return what status says of one partition."""
        [found] = [
            entry
            for entry in self.status(name)["partitions"]
            if entry["partition"] == partition and topic in {None, entry["topic"]}
        ]
        return found  # type: ignore[no-any-return]

    def batches(self, name: str = "orders") -> list[dict[str, Any]]:
        """Return the feed's batches, newest first."""
        return self.answer("batches", name)["batches"]  # type: ignore[no-any-return]

    def gaps(self, name: str = "orders") -> list[tuple[int, int, int, str, str]]:
        """Return partition, start offset, end offset, cause and state of each gap."""
        found = self.answer("gaps", name)["gaps"]
        return [(gap["partition"], gap["start_offset"], gap["end_offset"], gap["cause"], gap["state"]) for gap in found]


class Killed(BaseException):
    """What a process that is killed leaves its caller with: nothing."""


def spans(document: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return the ranges of a plan or a batch over one topic, by partition."""
    return {entry["partition"]: (entry["start_offset"], entry["end_offset"]) for entry in document["ranges"]}


def seeds(document: dict[str, Any]) -> dict[int, tuple[int | None, str]]:
    """Return where a plan lets the partitions of one topic begin, and by which rule."""
    return {entry["partition"]: (entry["offset"], entry["rule"]) for entry in document["seeds"]}


def log_starts(bootstrap_servers: str, ranges: Iterable[OffsetRange]) -> dict[TopicPartition, int]:
    """Return where the logs of ranges start now."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "stand-in", "log_level": 0})
    try:
        return {
            each.topic_partition: consumer.get_watermark_offsets(
                ClientTopicPartition(each.topic, each.partition), PATIENCE_S
            )[0]
            for each in ranges
        }
    finally:
        consumer.close()


def read_range(bootstrap_servers: str, plan: BatchPlan, offset_range: OffsetRange) -> Iterator[Message]:
    """Read the records of one range as a consumer of the plan's isolation sees them."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"stand-in-{plan.batch_id}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": plan.isolation.value,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([ClientTopicPartition(offset_range.topic, offset_range.partition, offset_range.start_offset)])
        while (message := consumer.poll(PATIENCE_S)) is not None:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if error is not None or offset is None or offset >= offset_range.end_offset:
                return
            yield message
    finally:
        consumer.close()
    raise TimeoutError(f"expected the end of {offset_range} within {PATIENCE_S:.0f} s")


def row_of(message: Message, topic_id: str | None) -> dict[str, Any]:
    """Return a record as the raw format has it."""
    _, timestamp_ms = message.timestamp()
    return {
        "kafka_topic": message.topic(),
        "kafka_partition": message.partition(),
        "kafka_offset": message.offset(),
        "kafka_timestamp": datetime.fromtimestamp(timestamp_ms / 1000, UTC),
        "key": message.key(),
        "value": message.value(),
        "kafka_headers": [{"key": header[0], "value": header[1]} for header in message.headers() or ()] or None,
        "kafka_topic_id": topic_id,
        "kafka_timestamp_ms": None,
    }
