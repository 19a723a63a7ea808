"""A project as an earlier version left it, in a folder of this test's own, run by the present command line.

Control tables, output and commands are real. Kafka is the fake, with the ids and records of the broker of that time,
and the stand-in for Spark reads them from there.
"""

import json
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.fakes import FakeKafkaCluster, FakeTopic, log, topic
from tests.project import Answer
from tests.quick_project import QuickProject

from kafka_ingest import assembly
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.verbs import status

HERE = "/proc/self/cwd"
"""Where each process finds its own folder: the stored documents name the output by it."""

Position = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class StoredTopic:
    """A topic that the earlier version read, with its records."""

    topic_id: str
    records: Mapping[Position, bytes]

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "StoredTopic":
        """Read it back."""
        records = {(partition, offset): value.encode() for partition, offset, value in document["records"]}
        return cls(document["topic_id"], records)

    @property
    def ends(self) -> dict[int, int]:
        """The end of the log by partition."""
        return {partition: offset + 1 for partition, offset in sorted(self.records)}

    def described(self) -> FakeTopic:
        """Return the topic as the broker described it."""
        return topic(*(log(0, end, leader_epoch=0) for end in self.ends.values()), topic_id=self.topic_id)


class StoredProject(QuickProject):
    """A copy of a state; the process has to be in its folder."""

    def __init__(self, home: Path, version: Path, state: str) -> None:
        super().__init__(home, "127.0.0.1:9")
        self.environment["KAFKA_INGEST_DATA"] = f"{HERE}/output"
        kafka = json.loads((version / "kafka.json").read_bytes())
        self.topics = {name: StoredTopic.of(document) for name, document in kafka["topics"].items()}
        described = {name: stored.described() for name, stored in self.topics.items()}
        self.cluster = FakeKafkaCluster(described, cluster_id=kafka["cluster_id"])
        for file in version.glob("*.yaml"):
            shutil.copy(file, self.feeds)
        shutil.copytree(version / state / "output", self.output)
        self._control_tables = version / state / "control.sql"
        self.said: dict[str, Any] = json.loads((version / state / "answers.json").read_bytes())
        """What the earlier version answered."""

    def restore_control_tables(self) -> None:
        """Make the control tables as the earlier version left them."""
        with closing(sqlite3.connect(self.control_file)) as connection:
            connection.executescript(self._control_tables.read_text())

    def control_tables_now(self) -> bytes:
        """Return the control tables as one file, with what is still beside it."""
        with closing(sqlite3.connect(self.control_file)) as connection:
            return connection.serialize()

    def kafka_ingest(self, *arguments: str, **environment: str) -> Answer:
        with (
            patch.object(assembly, "ConfluentKafkaCluster", lambda *_, **__: self.cluster),
            patch.object(status, "ConfluentKafkaCluster", lambda *_, **__: self.cluster),
        ):
            return super().kafka_ingest(*arguments, **environment)

    @contextmanager
    def reading(self, _servers: str, plan: BatchPlan) -> Iterator["StoredLogs"]:
        yield StoredLogs(self.topics, plan)

    @property
    def open_batches(self) -> list[str]:
        """The batches that the earlier version left open, oldest first."""
        batches = reversed(self.said["batches"]["batches"])
        return [batch["batch_id"] for batch in batches if batch["state"] not in {"COMMITTED", "ABANDONED"}]

    def lose_control_tables(self) -> None:
        """Leave nothing but the output, and what lies beside it."""
        for file in self.home.glob(f"{self.control_file.name}*"):
            file.unlink()
        self.make_control_tables()


@dataclass(frozen=True)
class StoredLogs:
    """What the stand-in for Spark reads, for a plan."""

    topics: Mapping[str, StoredTopic]
    plan: BatchPlan

    def starts(self) -> dict[TopicPartition, int]:
        return {planned.topic_partition: 0 for planned in self.plan.ranges}

    def rows_of(self, offset_range: OffsetRange) -> list[dict[str, Any]]:
        name, partition = offset_range.topic_partition.topic, offset_range.partition
        records = self.topics[name].records
        row = {
            "kafka_topic": name,
            "kafka_partition": partition,
            "kafka_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
            "kafka_topic_id": self.plan.topic_ids[name],
        }
        offsets = range(offset_range.start_offset, offset_range.end_offset)
        return [row | {"kafka_offset": offset, "value": records[partition, offset]} for offset in offsets]
