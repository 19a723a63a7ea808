"""An attempt's staged files on a real disk, as Spark leaves them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from tests.contract.builders import NOON, attempt_of, orders, plan_of

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.gap import Event
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.parquet import parquet_sink

DAY = "2023-06-28"
"""The day that the builders' batch ids name."""

SEEDED = Event(
    event_id=7, kind="seeded", at=NOON, actor="planner", batch_id=None, detail={"partitions": [{"offset": 0}]}
)


class Staged:
    """A sink on real directories with one attempt's files staged, as Spark leaves them."""

    def __init__(self, output: Path, *, number: int = 1, attempt: int = 1, partitions: int = 2) -> None:
        self.output = output
        self.sink = parquet_sink(output)
        self.plan = plan_of(*((orders(each), 0, 10) for each in range(2)), number=number, output=output)
        self.sink.publisher.prepare()
        self.directory = self.sink.staging.attempt_directory(self.plan.batch_id, attempt)
        self.sink.staging.open_attempt(self.directory, b"{}")
        self.data = self.directory / "data"
        self.data.mkdir()
        self.receipt = receipt_of_files(self.plan, attempt, self.data, [orders(each) for each in range(partitions)])
        (self.directory / "receipt.json").write_bytes(self.receipt.as_bytes())
        self.target = output / f"kafka_batch={self.plan.batch_id}"
        self.kept = output.with_name("orders.kafka-ingest") / "receipts" / DAY / f"{self.plan.batch_id}.json"

    @property
    def published(self) -> PublishedReceipt:
        return PublishedReceipt(self.plan, self.receipt, [SEEDED])

    def verify(self) -> None:
        self.sink.staging.verify(self.directory, self.receipt)

    def publish(self) -> None:
        self.sink.publisher.publish(self.directory, self.published)

    def retouch(self, name: str, **changes: Any) -> None:
        """Let the receipt say something else of a file."""
        files = tuple(replace(file, **changes) if file.name == name else file for file in self.receipt.files)
        self.receipt = replace(self.receipt, files=files)


def write_rows(path: Path, topic_partition: TopicPartition, offsets: range) -> None:
    rows = {
        "kafka_topic": [topic_partition.topic] * len(offsets),
        "kafka_partition": pa.array([topic_partition.partition] * len(offsets), pa.int32()),
        "kafka_offset": list(offsets),
        "value": [f"{topic_partition}@{offset}".encode() for offset in offsets],
    }
    pyarrow.parquet.write_table(pa.table(rows), path, compression="zstd")


def receipt_of_files(plan: BatchPlan, attempt: int, data: Path, partitions: list[TopicPartition]) -> Receipt:
    """Write ten rows a partition and return the receipt of it."""
    files = []
    for index, topic_partition in enumerate(partitions):
        path = data / f"part-{index:05d}.zstd.parquet"
        write_rows(path, topic_partition, range(10))
        files.append(WrittenFile.of_one(path.name, path.stat().st_size, 10, topic_partition, 0, 9))
    return Receipt(
        batch_id=plan.batch_id,
        attempt=attempt,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt_of(plan, attempt).document_sha256,
        rows_read=10 * len(files),
        files=tuple(files),
        written_at=NOON,
        written_by="spark local-1",
    )


def below(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory with their contents."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
