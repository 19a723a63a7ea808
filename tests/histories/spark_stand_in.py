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
from kafka_ingest.model.batch import Attempt, AttemptDocument, BatchKind, BatchPlan
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.decoding import Decoding, FieldDecoding, Format
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.omissions import LeftOut, ranges_read, to_leave_out
from kafka_ingest.model.place import DATA, DOCUMENT, RECEIPT
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

NO_TEXT = {"error_part": "value", "error_class": "NOT_JSON", "error": "found: text"}
DEAD_LETTERS = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in NO_TEXT)])

JSON = Decoding(value=FieldDecoding(Format.JSON))
TEXT = Decoding(value=FieldDecoding(Format.STRING))

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
    letters: list[dict[str, Any]] = field(default_factory=list)

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
        staged = staged_dead_letters(directory) / DATA
        if self.letters:
            staged.mkdir(parents=True)
            table = pa.Table.from_pylist(self.letters, DEAD_LETTERS)
            pyarrow.parquet.write_table(table, staged / "part-00000.parquet")
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
            dead_letters=tuple(staged_files(staged)) if self.letters else (),
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
    replayed = letters_of(document)
    for planned in ranges_read(plan.ranges, job.left_out):
        log = topics.log(planned.topic_partition)
        if plan.kind.reads_kafka and (log is None or not topics.has_all(planned)):
            raise SparkFailedError(f"cannot read {planned}")
        position = {"kafka_topic": planned.topic, "kafka_partition": planned.partition, "kafka_timestamp": NOON}
        rows = [
            {**position, "kafka_offset": at, "value": value, "kafka_topic_id": plan.topic_ids[planned.topic]}
            for at in range(planned.start_offset, planned.end_offset)
            if (value := (log.content.get(at) if replayed is None else replayed.get((*place_of(planned), at))))
        ]
        job.values += [row["value"] for row in rows]
        dead = [row for row in rows if not is_decodable(row["value"], document.decode)]
        job.letters += [row | NO_TEXT for row in dead]
        rows = [row for row in rows if row not in dead]
        job.tables.append(pa.Table.from_pylist(rows, SCHEMA))
    if plan.batch_id.int % 2:
        # As Spark does where many ranges are small: they share a file.
        job.tables = [pa.concat_tables(job.tables)]
    return job


def place_of(planned: OffsetRange) -> tuple[str, int]:
    """Return the partition of a range as a row names it."""
    return planned.topic, planned.partition


def is_decodable(value: str, decoding: Decoding) -> bool:
    """Whether a feed that decodes its records gets columns from this one: as JSON from few, as text from most."""
    if decoding.is_raw:
        return True
    number = int(value.rpartition("#")[2])
    return number % 4 != 0 if decoding == TEXT else number % 4 == 1


def letters_of(document: AttemptDocument) -> dict[tuple[str, int, int], str] | None:
    """Return the values that a replay reads, from the files that its attempt names; None for other batches."""
    if not document.plan.replays:
        return None
    files = [(batch_id, Path(path)) for batch_id, paths in document.letters.items() for path in paths]
    return {
        (topic, partition, offset): value
        for batch_id, path in files
        for topic, partition, offset, value in rows_of(path)
        for each in document.plan.replays
        if each.batch_id == batch_id and (each.offset_range.topic, each.offset_range.partition) == (topic, partition)
        if each.offset_range.start_offset <= offset < each.offset_range.end_offset
    }


def values_of(published: Path) -> list[tuple[str, int, int, str]]:
    """Return topic, partition, offset and value of all that readers see of one published batch."""
    rows: list[tuple[str, int, int, str]] = []
    for file in sorted(published.iterdir()):
        rows += rows_of(file)
    return rows


def rows_of(file: Path) -> list[tuple[str, int, int, str]]:
    """Return topic, partition, offset and value of all rows of a file."""
    columns = pyarrow.parquet.ParquetFile(file).read().to_pydict()
    return list(zip(*(columns[name] for name in COLUMNS), strict=True))
