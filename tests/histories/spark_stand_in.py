"""A stand-in for Spark: it reads the fake cluster's records and stages real Parquet files and a receipt."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from tests.histories.topics import Topics

from kafka_ingest.errors import SparkFailedError
from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.model.attempt_directory import DATA, DOCUMENT, RECEIPT
from kafka_ingest.model.batch import Attempt, AttemptDocument, BatchKind, BatchPlan
from kafka_ingest.model.left_out import LeftOut, ranges_read, to_leave_out
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.writing.stage_files import staged_files

SCHEMA = pa.schema(
    [
        pa.field("kafka_topic", pa.string()),
        pa.field("kafka_partition", pa.int32()),
        pa.field("kafka_offset", pa.int64()),
        pa.field("kafka_timestamp", pa.timestamp("us", "UTC")),
        pa.field("value", pa.string()),
        pa.field("kafka_topic_id", pa.string()),
    ]
)

COLUMNS = ("kafka_topic", "kafka_partition", "kafka_offset", "value")

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass
class SparkJob:
    """One application: it read its attempt's ranges, and writes them when it comes to it."""

    plan: BatchPlan
    attempt: Attempt
    tables: list[Any]
    is_clean: bool
    values: list[str] = field(default_factory=list)
    left_out: tuple[LeftOut, ...] = ()

    def finish(self) -> None:
        """Stage the files, and last of all the receipt.

        Fails where another application has staged some, as Spark does.
        """
        directory = self.attempt.directory
        if (directory / DATA).exists():
            # Control tables from a backup gave the attempt a number that was given before; the next attempt has another
            # one.
            raise SparkFailedError(f"path {directory / DATA} already exists")
        (directory / DATA).mkdir(parents=True)
        for number, table in enumerate(self.tables):
            pyarrow.parquet.write_table(table, directory / DATA / f"part-{number:05}.parquet")
        receipt = Receipt(
            batch_id=self.plan.batch_id,
            attempt=self.attempt.attempt,
            plan_fingerprint=self.plan.fingerprint,
            document_sha256=self.attempt.document_sha256,
            rows_read=len(self.values),
            files=tuple(staged_files(directory / DATA)),
            written_at=datetime.now(UTC),
            written_by="stand-in for Spark",
            left_out=self.left_out,
        )
        write_durably(directory / RECEIPT, receipt.as_bytes())


def start(attempt: Attempt, topics: Topics) -> SparkJob:
    """Read an attempt's ranges from whatever lies in the topics of these names; fails where offsets are not there.

    Of a live batch it leaves out what retention was quicker at, as the real job does, if anything is left.
    """
    document = AttemptDocument.from_bytes((attempt.directory / DOCUMENT).read_bytes(), attempt.document_sha256)
    plan = document.plan
    is_clean = all(
        topics[name].generation == topics.generation_of[str(known)] for name, known in plan.topic_ids.items()
    )
    job = SparkJob(plan, attempt, [], is_clean)
    if plan.kind is BatchKind.LIVE:
        logs = {planned.topic_partition: topics.log(planned.topic_partition) for planned in plan.ranges}
        starts = {tp: log.start for tp, log in logs.items() if log is not None and log.has_leader}
        job.left_out = to_leave_out(plan.ranges, starts)
    for planned in ranges_read(plan.ranges, job.left_out):
        log = topics.log(planned.topic_partition)
        if log is None or not topics.has_all(planned):
            raise SparkFailedError(f"cannot read {planned}")
        position = {"kafka_topic": planned.topic, "kafka_partition": planned.partition, "kafka_timestamp": NOON}
        rows = [
            {**position, "kafka_offset": at, "value": value, "kafka_topic_id": plan.topic_ids[planned.topic]}
            for at in range(planned.start_offset, planned.end_offset)
            if (value := log.content.get(at)) is not None
        ]
        job.values += [row["value"] for row in rows]
        job.tables.append(pa.Table.from_pylist(rows, SCHEMA))
    if plan.batch_id.int % 2:
        # As Spark does where many ranges are small: they share a file.
        job.tables = [pa.concat_tables(job.tables)]
    return job


def values_of(published: Path) -> list[tuple[str, int, int, str]]:
    """Return topic, partition, offset and value of all that readers see of one published batch."""
    rows: list[tuple[str, int, int, str]] = []
    for file in sorted(published.iterdir()):
        columns = pyarrow.parquet.ParquetFile(file).read().to_pydict()
        rows += zip(*(columns[name] for name in COLUMNS), strict=True)
    return rows
