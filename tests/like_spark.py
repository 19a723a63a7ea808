"""A stand-in for Spark that reads a real broker: it stages an attempt's files and writes its receipt.

In the tests' process (:mod:`tests.quick_project`), or in a fork for each client of a socket: `like_spark.py SOCKET`.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition
from tests.forked_script import serve_forks, take_over
from tests.kept_spark import SUBMIT

from dies_with_parent import dying_with_this_process
from kafka_ingest.foundation.storage import access_from_json, make_folder, opened, read_whole, write_new
from kafka_ingest.model.batch import AttemptDocument, BatchKind, BatchPlan, DataNeeds
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.decoding import Format
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.omissions import ranges_read, to_leave_out
from kafka_ingest.model.partition_term import LATE_FOLDER, PartitionTerm, Transform, folder_of
from kafka_ingest.model.place import (
    DATA,
    DOCUMENT,
    RECEIPT,
    JobSettings,
    place_of,
)
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.record_schema import read_schema
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.spark_launch.workplace import remove_workplace
from kafka_ingest.writing.stage_files import staged_files

PATIENCE_S = 30.0

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
ARROW = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string()}


class LikeSpark:
    """Does what the Spark job does with an attempt's directory."""

    def write_like_spark(self, submission: SparkSubmission, _log_file: Path, **_: object) -> None:
        """Do what the Spark job does, and what its submitter does then."""
        self.stage_attempt(submission.arguments)
        remove_workplace(submission.workplace)

    def stage_attempt(self, arguments: Sequence[str]) -> None:
        """Do the job that was submitted with these arguments."""
        named = dict(pairs := list(zip(arguments[::2], arguments[1::2], strict=False)))
        settings = JobSettings.take(Path(named["--settings"]))
        values = ([value for name, value in pairs if name == option] for option in ("--attempt", "--document-sha256"))
        for directory_name, sha256, kafka in zip(*values, settings.kafka, strict=True):
            self.stage_one(directory_name, sha256, kafka["bootstrap.servers"], settings.store)

    def stage_one(self, directory_name: str, sha256: str, servers: str, store: str | None) -> None:
        """Do what the job does with one attempt."""
        directory, access = place_of(directory_name), access_from_json(store) if store else None
        document = AttemptDocument.from_bytes(read_whole(opened(directory / DOCUMENT, access)), sha256)
        plan = document.plan
        data = opened(document.data.place or directory / DATA, access)
        if isinstance(data, Path):
            data.mkdir(parents=True)
        letters = Path(str(staged_dead_letters(directory))) / DATA  # decoded records are on disks only
        rows_read = 0
        live = plan.kind is BatchKind.LIVE
        with self.reading(servers, plan) as log:
            left_out = to_leave_out(plan.ranges, log.starts()) if live else ()
            for number, offset_range in enumerate(ranges_read(plan.ranges, left_out)):
                rows = log.rows_of(offset_range) if plan.kind.reads_kafka else letters_of(document, offset_range)
                rows_read += len(rows)
                rows, dead = divided(rows, document)
                if dead:
                    letters.mkdir(parents=True, exist_ok=True)
                    pyarrow.parquet.write_table(dead_letters_of(dead, document), letters / f"part-{number:05}.parquet")
                table = pa.Table.from_pylist(rows, pa.schema(fields_of(document)))
                if document.data.batch_column:
                    batch_ids = pa.array([str(plan.batch_id)] * len(rows), pa.string())
                    table = table.append_column("kafka_batch", batch_ids)
                for folder, rows_of_file in files_of(table, document.data):
                    make_folder(data / folder)
                    with (data / folder / f"part-{number:05}.parquet").open("wb") as file:
                        pyarrow.parquet.write_table(rows_of_file, file)
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
            dead_letters=tuple(staged_files(letters)) if letters.is_dir() else (),
        )
        write_new(opened(directory / RECEIPT, access), receipt.as_bytes())

    @contextmanager
    def reading(self, servers: str, plan: BatchPlan) -> Iterator["PlannedLogs"]:
        """Yield what the stand-in for Spark reads: the logs of a plan's ranges, by one consumer of its isolation."""
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
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
            yield LogsInKafka(plan, consumer)
        finally:
            consumer.close()


class PlannedLogs(Protocol):
    """The logs of the ranges of one plan."""

    def starts(self) -> dict[TopicPartition, int]:
        """Return where they begin now."""

    def rows_of(self, offset_range: OffsetRange) -> list[dict[str, Any]]:
        """Return the rows that the stand-in for Spark makes of a range."""


class LogsInKafka:
    """Those of a real broker."""

    def __init__(self, plan: BatchPlan, consumer: Consumer) -> None:
        self._plan = plan
        self._consumer = consumer

    def starts(self) -> dict[TopicPartition, int]:
        return {
            each.topic_partition: self._consumer.get_watermark_offsets(
                ClientTopicPartition(each.topic, each.partition), PATIENCE_S
            )[0]
            for each in self._plan.ranges
        }

    def rows_of(self, offset_range: OffsetRange) -> list[dict[str, Any]]:
        topic_id = self._plan.topic_ids[offset_range.topic]
        return [row_of(message, topic_id) for message in self._messages(offset_range)]

    def _messages(self, offset_range: OffsetRange) -> Iterator[Message]:
        """Read the records of one range as a consumer of the plan's isolation sees them."""
        topic_partition = offset_range.topic, offset_range.partition
        self._consumer.assign([ClientTopicPartition(*topic_partition, offset_range.start_offset)])
        while (message := self._consumer.poll(PATIENCE_S)) is not None:
            error, offset = message.error(), message.offset()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            if (message.topic(), message.partition()) != topic_partition:
                continue  # the end of the range before
            if error is not None or offset is None or offset >= offset_range.end_offset:
                return
            yield message
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


Row = dict[str, Any]


def divided(rows: list[Row], document: AttemptDocument) -> tuple[list[Row], list[Row]]:
    """Return the rows of an attempt, and its dead letters with their causes.

    These should be JSON and are not, or the output has refused their rows.
    """
    has_columns = fields_of(document) is not FIELDS
    refused = {(each.topic_partition, offset) for each in document.decode.refused for offset in each.offsets}
    is_json = document.decode.value.format is Format.JSON
    good: list[Row] = []
    dead: list[Row] = []
    for row in rows:
        if (TopicPartition(row["kafka_topic"], row["kafka_partition"]), row["kafka_offset"]) in refused:
            dead.append(row | {"error_part": "row", "error_class": "REFUSED_BY_OUTPUT", "error": "it is refused"})
        elif is_json and not row["value"].startswith(b"{"):
            cause = {"error_part": "value", "error_class": "NOT_JSON", "error": "expected JSON, found text"}
            dead.append(row | cause)
        else:
            good.append(row | {"value": json.loads(row["value"])} if has_columns else row)
    return good, dead


def fields_of(document: AttemptDocument) -> "list[pa.Field[Any]]":
    """Return the fields of an attempt's rows; values stay bytes, but for JSON of one schema of plain types."""
    value = document.decode.value
    fields = read_schema(value.schema).fields if value.format is Format.JSON and value.schema else ()
    if not fields or not {field.type.ddl for field in fields} <= ARROW.keys():
        return FIELDS
    of_value = pa.field("value", pa.struct([(field.name, ARROW[field.type.ddl]) for field in fields]))
    return [of_value if field.name == "value" else field for field in FIELDS]


def dead_letters_of(dead: list[Row], document: AttemptDocument) -> pa.Table:
    """Return dead letters as their file has them; those of a table carry their batch's id."""
    fields = [*FIELDS, *(pa.field(name, pa.string()) for name in ("error_part", "error_class", "error"))]
    table = pa.Table.from_pylist(dead, pa.schema(fields))
    if not document.data.batch_column:
        return table
    return table.append_column(BATCH_COLUMN, pa.array([str(document.plan.batch_id)] * len(table)))


def letters_of(document: AttemptDocument, offset_range: OffsetRange) -> list[dict[str, Any]]:
    """Return the dead letters of a range that a replay takes up, all of the files that its attempt names."""
    files = [path for of_batch in document.letters.values() for path in of_batch]
    rows = [row for path in files for row in pyarrow.parquet.read_table(path, partitioning=None).to_pylist()]
    at = offset_range.topic, offset_range.partition
    return [row for row in rows if (row["kafka_topic"], row["kafka_partition"]) == at]


def files_of(rows: pa.Table, needs: DataNeeds) -> list[tuple[str, pa.Table]]:
    """Return rows of the raw format as the tables of one task's files, with the folder of each."""
    if needs.late is not None:
        first, before = needs.late.first, needs.late.before
        late = pa.array([at is not None and first <= at < before for at in rows["kafka_timestamp"].to_pylist()])
        others = replace(needs, late=None)
        found = [*files_of(rows.filter(pc.invert(late)), others)] if not all(late.to_pylist()) else []
        if any(late.to_pylist()):
            found += [(f"{LATE_FOLDER}/{name}", each) for name, each in files_of(rows.filter(late), others)]
        return found
    written = rows.drop_columns(list(needs.without))
    if not needs.partition_by:
        return [("", written)]
    for term in needs.partition_by if needs.own_columns else ():
        if term.is_of_time:
            written = written.append_column(term.own_column, own_values(rows, term))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(rows.to_pylist()):
        groups.setdefault(tuple(value_of(term, row[term.column]) for term in needs.partition_by), []).append(number)
    return [(folder(needs, values), written.take(numbers)) for values, numbers in groups.items()] or [("", written)]


def folder(needs: DataNeeds, values: Sequence[Any]) -> str:
    """Return the folder of a partition."""
    texts = [None if value is None else str(value) for value in values]
    names = [folder_of(term.own_column, text) for term, text in zip(needs.partition_by, texts, strict=True)]
    return "/".join(name for name in names if name is not None) if None not in names else ""


def own_values(rows: pa.Table, term: PartitionTerm) -> pa.Array:
    """Return the values of a day's or an hour's own column."""
    values = [value_of(term, value) for value in rows[term.column].to_pylist()]
    return pa.array(values, pa.date32() if term.transform is Transform.DAY else pa.string())


def value_of(term: PartitionTerm, value: Any) -> Any:
    """Return the partition of a column's value."""
    if not isinstance(value, datetime):
        return value
    at = value.astimezone(UTC)
    return at.date() if term.transform is Transform.DAY else at.isoformat(timespec="hours")[:13]


class WithoutPandas:
    """Lets no module find pandas: pyarrow would import it to look whether a list is an array, for 0.2 s of CPU."""

    def find_spec(self, name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


@cache
def program_like_spark() -> Path:
    """Return a program that does what a spark-submit's Java does with an attempt.

    In a fork of a process that has imported what it needs, which takes most of its time.
    """
    folder = tempfile.TemporaryDirectory(prefix="kafka-ingest-like-spark-")
    program = Path(folder.name) / "java"
    program.write_text(SUBMIT)
    program.chmod(0o755)
    server = subprocess.Popen(
        dying_with_this_process([sys.executable, __file__, str(program.with_name("jobs"))]),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    atexit.register(folder.cleanup)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return program


def stage_in_this_fork(arguments: list[str], variables: dict[str, str], outputs: list[int]) -> None:
    take_over(arguments, variables, "/", [0, *outputs])
    LikeSpark().stage_attempt(arguments[arguments.index("--attempt") :])


if __name__ == "__main__":
    sys.meta_path.insert(0, WithoutPandas())
    serve_forks(sys.argv[1], stage_in_this_fork)
