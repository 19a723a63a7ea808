"""One step or question of a feed with years of history, in a separate process: `python step_after_years.py TASK`."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

# Imported here, since committing imports it: half a second that is not the step's.
import pyarrow as pa
import pyarrow.parquet
from one_step import WHO, Describe, Measured, Task, memory_mb, plan, receipt_of, status, work_of

from kafka_ingest.batches.commit_batch import commit_batch
from kafka_ingest.batches.known_output import check_output_known
from kafka_ingest.batches.open_attempt import open_attempt
from kafka_ingest.batches.pin_receipt import pin_attempt
from kafka_ingest.batches.plan_batch import PlanResult, plan_batch
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.foundation.durable_files import write_durably
from kafka_ingest.model.batch import Attempt, BatchPlan
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import DATA, RECEIPT, local
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.observing.journal import history
from kafka_ingest.observing.locate import locate
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.verbs.clean import staged_outputs

FEED = "bench"
RETENTION = timedelta(days=7)


def plan_nothing(task: Task) -> Describe:
    """Plan where nothing is new: what a feed does most of the time."""
    outcome = plan_batch(task.settings, task.parts(), actor=WHO)
    if outcome.result is not PlanResult.NOTHING_NEW:
        raise ValueError(f"expected nothing new, found {outcome.result}")
    return lambda: work_of([outcome.result.value])


def write(task: Task) -> Describe:
    """Bring a planned batch to WRITTEN, with files that hold its positions: not Spark, and not measured."""
    parts, batch_id = task.parts(), UUID(task.batch_id)
    attempt = open_attempt(batch_id, parts, actor=WHO)
    if attempt is None:
        raise ValueError(f"expected batch {batch_id} to be PLANNED, found it written already")
    receipt = written_receipt(parts.control.batch(batch_id).plan, attempt)
    write_durably(local(attempt.directory) / RECEIPT, receipt.as_bytes())
    pin_attempt(batch_id, attempt.attempt, parts)
    return lambda: work_of(f"{each.name} {each.rows}" for each in receipt.files)


def written_receipt(planned: BatchPlan, attempt: Attempt) -> Receipt:
    """Write a file for each range, and return what says so."""
    data = local(attempt.directory) / DATA
    data.mkdir()
    files = tuple(written_file(data / f"part-{number:05d}.parquet", each) for number, each in enumerate(planned.ranges))
    return receipt_of(planned, attempt, files)


def written_file(path: Path, offset_range: OffsetRange) -> WrittenFile:
    """Write the positions of a range into a file."""
    offsets = list(range(offset_range.start_offset, offset_range.end_offset))
    pyarrow.parquet.write_table(
        pa.table(
            {
                "kafka_topic": [offset_range.topic] * len(offsets),
                "kafka_partition": pa.array([offset_range.partition] * len(offsets), pa.int32()),
                "kafka_offset": offsets,
            }
        ),
        path,
    )
    size_bytes, smallest, largest = path.stat().st_size, offsets[0], offsets[-1]
    return WrittenFile.of_one(path.name, size_bytes, len(offsets), offset_range.topic_partition, smallest, largest)


def commit(task: Task) -> Describe:
    """Commit a written batch: everything but the consumer group."""
    committed = commit_batch(UUID(task.batch_id), task.parts(), group=None, actor=WHO)
    return lambda: work_of(f"{count.offset_range.topic_partition} {count.rows}" for count in committed.counts)


def summaries(task: Task) -> Describe:
    """Return the status of all feeds."""
    found = reader(task).feed_summaries()
    return lambda: work_of(f"{each.name} {each.partitions}" for each in found)


def batches(task: Task) -> Describe:
    """List the newest batches with their ranges."""
    found = reader(task).batch_summaries(FEED, limit=20)
    return lambda: work_of(f"{each.state} {len(each.ranges)}" for each in found)


def journal(task: Task) -> Describe:
    """List the newest lines of the journal."""
    control = reader(task)
    found = history(control, feed_id(control), kinds=[], since=None, limit=20)
    return lambda: work_of(f"{line.event.kind}" for line in found)


def gaps(task: Task) -> Describe:
    """List the gap ledger."""
    control = reader(task)
    found = control.gaps(feed_id(control))
    return lambda: work_of(str(each.offset_range) for each in found)


def coverage(task: Task) -> Describe:
    """Return where every offset is."""
    rows = reader(task).coverage(FEED)
    found = coverage_of(rows) if rows is not None else {}
    return lambda: work_of(f"{tp} {each.is_accounted}" for tp, each in found.items())


def locate_oldest(task: Task) -> Describe:
    """Say what became of the oldest offset."""
    found = locate(reader(task), sink_of, FEED, TopicPartition(task.topic, 0), 0)
    return lambda: work_of([found.state.value])


def whole_look(task: Task) -> Describe:
    """Hold all that the output holds against the control tables: maintenance does it daily."""
    control = reader(task)
    feed = control.feed(FEED)
    if feed is not None:
        check_output_known(feed, task.settings, task.control(), sink_of)
    return lambda: work_of([])


def clean(task: Task) -> Describe:
    """Look for staged output that has expired: maintenance does it daily."""
    control = task.control()
    found = list(
        staged_outputs(
            known(control),
            task.settings.output,
            control,
            task.kafka(),
            sink_of,
            ended_before=datetime.now(UTC) - RETENTION,
        )
    )
    return lambda: work_of(str(each.size_bytes) for each in found)


def reader(task: Task) -> SqlControlTables:
    """Open the control tables, read only."""
    return task.control()


def known(control: SqlControlTables) -> FeedSnapshot:
    """Return the feed's control rows."""
    feed = control.feed(FEED)
    if feed is None:
        raise ValueError(f"expected the control tables to know {FEED}")
    return feed


def feed_id(control: SqlControlTables) -> UUID:
    """Return the feed's id."""
    return known(control).feed_id


BEFORE_NEW: Mapping[str, Callable[[Task], Describe]] = {"plan, nothing new": plan_nothing}
"""Asked where all records are read."""

STEPS: Mapping[str, Callable[[Task], Describe]] = {
    **BEFORE_NEW,
    "plan": plan,
    "write": write,
    "commit": commit,
    "status FEED": status,
    "status": summaries,
    "batches": batches,
    "history": journal,
    "gaps": gaps,
    "coverage": coverage,
    "locate the oldest": locate_oldest,
    "daily: whole output": whole_look,
    "daily: clean": clean,
}
"""A batch's life, then the questions, then what maintenance does once a day."""


def measure(task: Task) -> Measured:
    """Do a step."""
    before_mb = memory_mb("VmRSS")
    started, cpu_started = time.perf_counter(), time.process_time()
    describe = STEPS[task.step](task)
    seconds, cpu_s, peak_mb = time.perf_counter() - started, time.process_time() - cpu_started, memory_mb("VmHWM")
    return Measured(seconds, cpu_s, before_mb, peak_mb, describe())


if __name__ == "__main__":
    print(json.dumps(asdict(measure(Task(**json.loads(sys.argv[1]))))))
