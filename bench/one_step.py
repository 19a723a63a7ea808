"""One step of a batch's life, measured in a separate process: so its peak of memory includes no other step's.

`python one_step.py TASK` does the step; the task and what is printed are JSON.
"""

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from sqlalchemy import make_url

from kafka_ingest.batches.commit_batch import pinned_attempt
from kafka_ingest.batches.mirror_group import mirror_group
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.plan_batch import PlanResult, plan_batch
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.offsets import Isolation, OffsetsPolicy
from kafka_ingest.model.place import RECEIPT, OutputLocation, local
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.observing.feed_status import feed_status
from kafka_ingest.planning.settings import Earliest, FeedPlanSettings
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.kept_receipts import KeptReceipts

FEED = "bench"
WHO = "bench"


@dataclass(frozen=True, slots=True)
class Task:
    """Which step, on what. ``feed_id`` and ``batch_id`` are empty until a plan has made them."""

    step: str
    database: str
    bootstrap_servers: str
    topic: str
    group: str
    output: str
    max_records: int
    feed_id: str = ""
    batch_id: str = ""

    @property
    def settings(self) -> FeedPlanSettings:
        """The feed: one topic, from its beginning, a part of it at a time."""
        return FeedPlanSettings(
            name=FEED,
            start_rules={self.topic: Earliest()},
            isolation=Isolation.READ_COMMITTED,
            offsets_policy=OffsetsPolicy.AUTO,
            output=OutputLocation("parquet", self.output),
            max_records=self.max_records,
        )

    def control(self) -> SqlControlTables:
        """Open the control tables."""
        return SqlControlTables(open_database(ControlDatabaseSettings(make_url(self.database))))

    def kafka(self) -> ConfluentKafkaCluster:
        """Return what asks Kafka."""
        settings = KafkaClientSettings("bench", {"bootstrap.servers": self.bootstrap_servers})
        return ConfluentKafkaCluster(lambda: settings)

    def parts(self) -> "OpenParts":
        """Return what the steps of a batch touch."""
        return OpenParts(self.control(), self.kafka())


@dataclass(frozen=True, slots=True)
class OpenParts:
    """Control tables, Kafka and the sinks of outputs."""

    control: SqlControlTables
    kafka: ConfluentKafkaCluster
    sinks: Sinks = sink_of


@dataclass(frozen=True, slots=True)
class Work:
    """What was done, to see that it was the same every time: rows, and a checksum over what is in them."""

    rows: int
    checksum: str
    feed_id: str = ""
    batch_id: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """Time on the clock and on the processors, and memory: before (Python and imports) and at its peak."""

    seconds: float
    cpu_s: float
    before_mb: float
    peak_mb: float
    work: Work


Describe = Callable[[], Work]
"""Describes what a step did; called after the measurement, since it takes time and memory, too."""


def plan(task: Task) -> Describe:
    """Plan a batch: stored offsets, Kafka's bounds, ranges, durable plan."""
    return _plan(task, PlanResult.PLANNED)


def plan_again(task: Task) -> Describe:
    """Plan while a batch is open: it is compared with Kafka's logs, and resumed."""
    return _plan(task, PlanResult.RESUMED)


def _plan(task: Task, expected: PlanResult) -> Describe:
    outcome = plan_batch(task.settings, task.parts(), actor=WHO)
    planned = outcome.batch
    if outcome.result is not expected or planned is None:
        raise ValueError(f"expected the plan's result to be {expected}, found {outcome.result}")
    return lambda: work_of(
        (f"{each.topic_partition} {each.start_offset} {each.end_offset}" for each in planned.ranges),
        feed_id=str(planned.feed_id),
        batch_id=str(planned.batch_id),
    )


def write(task: Task) -> Describe:
    """Bring a planned batch to WRITTEN, as if Spark had written a file a range.

    No file of records is made.
    """
    parts, batch_id = task.parts(), UUID(task.batch_id)
    attempt = open_attempt(batch_id, parts, actor=WHO)
    if attempt is None:
        raise ValueError(f"expected batch {batch_id} to be PLANNED, found it written already")
    receipt = full_receipt(parts.control.batch(batch_id).plan, attempt)
    write_durably(local(attempt.directory) / RECEIPT, receipt.as_bytes())
    pin_attempt(batch_id, attempt.attempt, parts)
    return lambda: work_of(f"{held.topic_partition} {held.rows}" for file in receipt.files for held in file.partitions)


def move_offsets(task: Task) -> Describe:
    """Commit a written batch: COMMITTING, its receipt kept, then the compare-and-set over all partitions."""
    control, batch_id = task.control(), UUID(task.batch_id)
    batch = control.batch(batch_id)
    attempt = pinned_attempt(batch, control)
    control.begin_commit(batch_id, attempt.attempt)
    # The next plan looks for it, to check that the output is still the one with the published batches.
    place = local(attempt.directory).parents[2]
    published = PublishedReceipt(batch.plan, full_receipt(batch.plan, attempt), control.ledger(batch_id))
    KeptReceipts(place / "receipts").keep(published)
    control.complete_commit(batch_id, actor=WHO)

    def describe() -> Work:
        feed = control.feed(FEED)
        rows = feed.stored.values() if feed is not None else ()
        return work_of(f"{row.topic_partition} {row.next_offset}" for row in rows if str(row.batch_id) == task.batch_id)

    return describe


def move_group(task: Task) -> Describe:
    """Bring the consumer group to the stored offsets."""
    parts = task.parts()
    mirrored = mirror_group(UUID(task.feed_id), task.group, parts, batch_id=None, actor=WHO)
    if mirrored.failure is not None:
        raise ValueError(f"expected the group at the stored offsets, found {mirrored.failure}")

    def describe() -> Work:
        feed = parts.control.feed(FEED)
        found = parts.kafka.group_offsets(task.group, feed.stored.keys()) if feed is not None else {}
        return work_of(f"{tp} {offset}" for tp, offset in sorted(found.items()))

    return describe


def status(task: Task) -> Describe:
    """Return the feed's status, partition by partition, with the consumer group."""
    found = feed_status(FEED, task.control(), task.kafka(), group=task.group, isolation=Isolation.READ_COMMITTED)
    if found.kafka_error is not None:
        raise ValueError(f"expected Kafka's answers, found {found.kafka_error}")
    return lambda: work_of(
        f"{row.stored.topic_partition} {row.stored.next_offset} {row.lag} {row.headroom} {row.drift} {row.rows}"
        for row in found.partitions
    )


STEPS: Mapping[str, Callable[[Task], Describe]] = {
    "first plan": plan,
    "write": write,
    "commit: stored offsets": move_offsets,
    "commit: consumer group": move_group,
    "status": status,
    "second plan": plan,
    "plan, batch open": plan_again,
}
"""A feed's life, in this order; each step finds what the ones before it left."""


def full_receipt(planned: BatchPlan, attempt: Attempt) -> Receipt:
    """Return the receipt of an attempt that wrote every record that was planned."""
    files = tuple(
        WrittenFile.of_one(
            name=f"part-{number:05d}.zstd.parquet",
            size_bytes=1_000,
            rows=each.span,
            topic_partition=each.topic_partition,
            smallest_offset=each.start_offset,
            largest_offset=each.end_offset - 1,
        )
        for number, each in enumerate(planned.ranges)
    )
    return receipt_of(planned, attempt, files)


def receipt_of(planned: BatchPlan, attempt: Attempt, files: tuple[WrittenFile, ...]) -> Receipt:
    """Return the receipt of files that hold every record that was planned."""
    return Receipt(
        batch_id=planned.batch_id,
        attempt=attempt.attempt,
        plan_fingerprint=planned.fingerprint,
        document_sha256=attempt.document_sha256,
        rows_read=planned.max_rows,
        files=files,
        written_at=datetime.now(UTC),
        written_by=WHO,
    )


def work_of(rows: Iterable[str], *, feed_id: str = "", batch_id: str = "") -> Work:
    """Return how many rows there are, and a checksum over them in their order."""
    lines = list(rows)
    checksum = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:8]
    return Work(len(lines), checksum, feed_id, batch_id)


def memory_mb(kind: str) -> float:
    """Return this process's resident memory in megabytes, VmRSS now or VmHWM at its peak.

    Not getrusage's ru_maxrss: that of a child begins at what its parent used when it started it.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == kind:
            return int(value.split()[0]) * 1024 / 1e6
    raise ValueError(f"expected {kind} in /proc/self/status")


def measure(task: Task) -> Measured:
    """Do a step."""
    step = STEPS[task.step]
    before_mb = memory_mb("VmRSS")
    started, cpu_started = time.perf_counter(), time.process_time()
    describe = step(task)
    seconds, cpu_s, peak_mb = time.perf_counter() - started, time.process_time() - cpu_started, memory_mb("VmHWM")
    return Measured(seconds, cpu_s, before_mb, peak_mb, describe())


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Task(**json.loads(sys.argv[1]))))))
