"""What the contract tests are made of: a feed, its plans and receipts, a batch in each of its states, and rivals."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol
from uuid import UUID

import pytest
from tests.outputs import parquet_at

from kafka_ingest.model.batch import (
    Attempt,
    AttemptDocument,
    AttemptState,
    BatchKind,
    BatchPlan,
    BatchState,
    sha256,
)
from kafka_ingest.model.control_rows import FeedSnapshot, NewFeed, PlanRecord
from kafka_ingest.model.gap import GapCause, Jump, NewGap
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import Isolation, OffsetRange, OffsetsPolicy, StoredOffset, TopicPartition
from kafka_ingest.model.published_output import AdoptedBatch
from kafka_ingest.model.receipt import RangeCount, Receipt, WrittenFile
from kafka_ingest.ports.control import ControlTables

CLUSTER = "cluster-a"
TOPIC_ID = "orders-topic-id"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ORDERS_FEED = UUID("01890000-0000-7000-8000-00000000f00d")
OUTPUT = Path("/data/orders")
SHA = "ab" * 32


def batch_id_of(number: int) -> UUID:
    """Return a batch id that sorts by its number, as time-ordered ids do."""
    return UUID(f"01890000-0000-7000-8000-{number:012d}")


def orders(partition: int) -> TopicPartition:
    """Return a partition of the topic ``orders``."""
    return TopicPartition("orders", partition)


def seed(
    topic_partition: TopicPartition,
    offset: int | None,
    *,
    topic_id: str | None = TOPIC_ID,
    rule: str = "earliest",
    leader_epoch: int | None = None,
) -> StoredOffset:
    """Return a seed; without an offset it is pending."""
    return StoredOffset(topic_partition, topic_id, offset, offset, rule, leader_epoch=leader_epoch)


def plan_of(
    *ranges: tuple[TopicPartition, int, int],
    number: int = 1,
    feed_id: UUID = ORDERS_FEED,
    feed_name: str = "orders",
    kind: BatchKind = BatchKind.LIVE,
    topic_id: str | None = TOPIC_ID,
    output: Path = OUTPUT,
    planned_at: datetime | None = None,
    leader_epochs: Mapping[TopicPartition, int] | None = None,
) -> BatchPlan:
    """Return a plan over ``(partition, start_offset, end_offset)`` ranges."""
    return BatchPlan(
        batch_id=batch_id_of(number),
        kind=kind,
        feed_id=feed_id,
        feed_name=feed_name,
        cluster_id=CLUSTER,
        topic_ids={topic_partition.topic: topic_id for topic_partition, _, _ in ranges},
        ranges=tuple(OffsetRange(topic_partition, start, end) for topic_partition, start, end in sorted(ranges)),
        isolation=Isolation.READ_COMMITTED,
        offsets_policy=OffsetsPolicy.AUTO,
        output=parquet_at(output),
        planned_at=planned_at or NOON + timedelta(hours=number),
        leader_epochs=leader_epochs or {},
    )


FIRST_PLAN = plan_of((orders(0), 0, 100), (orders(1), 40, 50))
"""The plan that :func:`plan_first` records: 100 offsets of one partition, 10 of another."""


def plan_first(control: ControlTables, plan: BatchPlan | None = FIRST_PLAN, *seeds: StoredOffset) -> BatchPlan | None:
    """Record a feed's first plan; unless seeds are given, each of its ranges starts at a seed."""
    if plan is not None and not seeds:
        seeds = tuple(seed_of(plan, offset_range) for offset_range in plan.ranges)
    control.record_plan(
        NewFeed(plan.feed_id, plan.feed_name) if plan is not None else NewFeed(ORDERS_FEED, "orders"),
        PlanRecord(CLUSTER, sorted({row.topic_partition.topic for row in seeds}), seeds=seeds, plan=plan),
        actor="planner",
    )
    return plan


def seed_of(plan: BatchPlan, offset_range: OffsetRange) -> StoredOffset:
    """Return the seed at which a range begins."""
    return seed(
        offset_range.topic_partition,
        offset_range.start_offset,
        topic_id=plan.topic_ids[offset_range.topic_partition.topic],
    )


def plan_next(
    control: ControlTables, plan: BatchPlan | None, *seeds: StoredOffset, snapshot: FeedSnapshot | None = None
) -> None:
    """Record a plan of a known feed, decided on its rows as they are now or on an older snapshot."""
    control.record_plan(
        snapshot or snapshot_of(control, plan.feed_name if plan is not None else "orders"),
        PlanRecord(CLUSTER, ["orders"], seeds=seeds, plan=plan),
        actor="planner",
    )


def record(
    control: ControlTables, *, snapshot: FeedSnapshot | None = None, actor: str = "planner", **decided: Any
) -> None:
    """Record what a plan of the known feed ``orders`` decided, with the arguments of a PlanRecord."""
    record = PlanRecord(**({"cluster_id": CLUSTER, "topics": ["orders"]} | decided))
    control.record_plan(snapshot or snapshot_of(control), record, actor=actor)


def gap(
    topic_partition: TopicPartition, start: int, end: int, cause: GapCause = GapCause.SKIPPED, reason: str = "poisoned"
) -> NewGap:
    """Return a gap as it is decided."""
    return NewGap(OffsetRange(topic_partition, start, end), cause, reason)


def jump(topic_partition: TopicPartition, start: int, end: int, *, reason: str = "the log starts later") -> Jump:
    """Return a jump over one new gap, which is retention's."""
    new = gap(topic_partition, start, end, GapCause.RETENTION, reason)
    return Jump(topic_partition, start, end, gaps=(new,))


def hold(number: int, cause: HoldCause = HoldCause.NO_ANSWER, at_offset: int | None = None, **changes: Any) -> Hold:
    """Return a hold on a partition of ``orders``."""
    return replace(Hold("orders", number, cause, "no leader", NOON, at_offset), **changes)


def snapshot_of(control: ControlTables, feed_name: str = "orders") -> FeedSnapshot:
    """Return a feed's control rows; the feed is known."""
    snapshot = control.feed(feed_name)
    assert snapshot is not None, f"feed {feed_name} was planned before"
    return snapshot


def stored(control: ControlTables, feed_name: str = "orders") -> dict[TopicPartition, int | None]:
    """Return the next offset of each partition."""
    return {topic_partition: row.next_offset for topic_partition, row in snapshot_of(control, feed_name).stored.items()}


def attempt_of(plan: BatchPlan, number: int) -> Attempt:
    """Return an attempt that is about to be opened."""
    document = AttemptDocument(plan, number).as_bytes()
    return Attempt(
        batch_id=plan.batch_id,
        attempt=number,
        state=AttemptState.OPEN,
        directory=plan.output.place.parent / "orders.kafka-ingest" / "staging" / str(plan.batch_id) / str(number),
        document_sha256=sha256(document),
        opened_at=NOON + timedelta(minutes=number),
        opened_by=f"writer {number}",
    )


def receipt_of(plan: BatchPlan, number: int, rows: Mapping[TopicPartition, int] | None = None) -> Receipt:
    """Return the receipt of an attempt with one file a range; every offset is a row by default."""
    files = tuple(
        WrittenFile.of_one(
            name=f"part-{index:05d}.zstd.parquet",
            size_bytes=1_000,
            rows=count,
            topic_partition=offset_range.topic_partition,
            smallest_offset=offset_range.start_offset,
            largest_offset=offset_range.start_offset + count - 1,
        )
        for index, offset_range in enumerate(plan.ranges)
        for count in [(rows or {}).get(offset_range.topic_partition, offset_range.span)]
        if count
    )
    return Receipt(
        batch_id=plan.batch_id,
        attempt=number,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt_of(plan, number).document_sha256,
        rows_read=sum(file.rows for file in files),
        files=files,
        written_at=NOON + timedelta(minutes=30),
        written_by=f"spark {number}",
    )


def pin(control: ControlTables, plan: BatchPlan, number: int, rows: Mapping[TopicPartition, int] | None = None) -> None:
    """Pin an attempt's receipt."""
    receipt = receipt_of(plan, number, rows)
    control.pin(plan.batch_id, number, receipt, sha256(receipt.as_bytes()), receipt.range_counts(plan))


def write(control: ControlTables, plan: BatchPlan) -> None:
    """PLANNED → WRITTEN by attempt 1."""
    control.open_attempt(attempt_of(plan, 1))
    pin(control, plan, 1)


def publish(control: ControlTables, plan: BatchPlan) -> None:
    """PLANNED → COMMITTING, where the output becomes visible."""
    write(control, plan)
    control.begin_commit(plan.batch_id, 1)


def commit(control: ControlTables, plan: BatchPlan, actor: str = "committer") -> None:
    """PLANNED → COMMITTED."""
    publish(control, plan)
    control.complete_commit(plan.batch_id, actor=actor)


def as_adopted(plan: BatchPlan, number: int = 1, rows: Mapping[TopicPartition, int] | None = None) -> AdoptedBatch:
    """Return a batch as its output describes it: published by this attempt."""
    receipt = receipt_of(plan, number, rows)
    return AdoptedBatch(plan, receipt, sha256(receipt.as_bytes()), attempt_of(plan, number).directory)


def counts_of(plan: BatchPlan) -> list[RangeCount]:
    """Return what a full receipt says of each range."""
    return receipt_of(plan, 1).range_counts(plan)


def bring_to(control: ControlTables, state: BatchState, plan: BatchPlan = FIRST_PLAN) -> BatchPlan:
    """Plan a batch, open its attempts 1 and 2, and bring it to a state; attempt 1 is the pinned one."""
    plan_first(control, plan)
    control.open_attempt(attempt_of(plan, 1))
    control.open_attempt(attempt_of(plan, 2))
    for step in WAY_TO[state]:
        step(control, plan)
    return plan


WAY_TO: Mapping[BatchState, tuple[Callable[[ControlTables, BatchPlan], object], ...]] = {
    BatchState.PLANNED: (),
    BatchState.WRITTEN: (lambda control, plan: pin(control, plan, 1),),
    BatchState.COMMITTING: (
        lambda control, plan: pin(control, plan, 1),
        lambda control, plan: control.begin_commit(plan.batch_id, 1),
    ),
    BatchState.COMMITTED: (
        lambda control, plan: pin(control, plan, 1),
        lambda control, plan: control.begin_commit(plan.batch_id, 1),
        lambda control, plan: control.complete_commit(plan.batch_id, actor="committer"),
    ),
    BatchState.ABANDONED: (
        lambda control, plan: pin(control, plan, 1),
        lambda control, plan: control.abandon(plan.batch_id, reason="wrong topic", actor="ops"),
    ),
}

Step = Callable[[ControlTables, BatchPlan], object]

STEPS: Mapping[str, Step] = {
    "open_attempt": lambda control, plan: control.open_attempt(attempt_of(plan, 3)),
    "pin": lambda control, plan: pin(control, plan, 2),
    "discard_written": lambda control, plan: control.discard_written(plan.batch_id, 1, reason="damaged", actor="ops"),
    "begin_commit": lambda control, plan: control.begin_commit(plan.batch_id, 1),
    "complete_commit": lambda control, plan: control.complete_commit(plan.batch_id, actor="rival"),
    "abandon": lambda control, plan: control.abandon(plan.batch_id, reason="not wanted", actor="ops"),
}
"""Each step that changes a batch, on a batch with attempts 1 (pinned, from WRITTEN on) and 2 (open)."""


class Dumped(Protocol):
    """Control tables of which all that is stored can be read."""

    def dump(self) -> dict[str, Any]: ...


@contextmanager
def refused(
    store: Dumped, error: type[Exception] | tuple[type[Exception], ...], match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect that what is done inside is refused, and that nothing of it is stored."""
    before = store.dump()
    with pytest.raises(error, match=match) as refusal:
        yield refusal
    assert store.dump() == before


# ── Rivals ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def at_once(*calls: Callable[[], object]) -> list[Any]:
    """Make all calls at the same moment, each in a thread; return what each returned or raised, in their order."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(max_workers=len(calls)) as pool:
        futures = [pool.submit(run, call) for call in calls]
        return [future.exception(timeout=60) or future.result() for future in futures]


class RivalProcess:
    """A Python program in a process of its own, which prints a line where it waits to be resumed."""

    def __init__(self, program: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_line(self) -> str:
        """Return the next line that it prints; fail with what it says instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        return line.strip()

    def resume(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def answer(self) -> tuple[str, str]:
        """Return what it prints until its end, on stdout and stderr."""
        stdout, stderr = self._process.communicate(timeout=60)
        return stdout.strip(), stderr.strip()

    def kill(self) -> None:
        """End it as a SIGKILL does: it cannot do anything any more."""
        self._process.kill()
        self._process.communicate(timeout=60)
