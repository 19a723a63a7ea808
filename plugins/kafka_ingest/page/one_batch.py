"""The view of one batch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from kafka_ingest.batches.known_feed import batch_of_feed
from kafka_ingest.errors import UnknownBatchError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import Attempt, Batch, BatchState
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.model.summaries import BatchLine
from kafka_ingest.page.kept_answers import REFRESH_PENDING_S, REFRESH_S, Answer
from kafka_ingest.page.rendering import PageOf
from kafka_ingest.page.sources import BACKFILL_DAG, OPERATE_DAG, BatchFiles, Sources

RUN: Final = re.compile(rf"airflow:(?:.*@(?={OPERATE_DAG}/))?(?P<dag_id>[^/]+)/(?P<run_id>.+)", re.DOTALL)
"""A user's name may hold an @ or a / as well."""

RANGES_A_PAGE: Final = 100


@dataclass(frozen=True, slots=True)
class Step:
    """A state that the batch came into: when, and by whom where that is known."""

    state: str
    at: datetime | None
    actor: str | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A DAG run that planned or committed the batch, and below which path of it each task's log is."""

    dag_id: str
    run_id: str

    @property
    def logs(self) -> Sequence[tuple[str, str]]:
        """The names of its tasks, and their paths in Airflow; a backfill's chunks are mapped tasks."""
        if self.dag_id == BACKFILL_DAG:
            return (("plan", "plan"), ("write", "chunk.write/mapped"), ("commit", "chunk.commit/mapped"))
        if self.dag_id == OPERATE_DAG:
            return (("operate", "operate"),)
        return tuple((task, task) for task in ("plan", "write", "commit"))

    @property
    def has_spark(self) -> bool:
        return self.dag_id != OPERATE_DAG


@dataclass(frozen=True, slots=True)
class TopicSum:
    """One topic's ranges in sum; the counts are None before WRITTEN."""

    topic: str
    partitions: int
    offsets: int
    rows: int | None
    dead_letters: int | None


@dataclass(frozen=True, slots=True)
class OneBatch:
    """What the view shows of a batch."""

    feed: str
    batch: Batch
    line: BatchLine
    steps: Sequence[Step]
    attempts: Sequence[Attempt]
    topics: Sequence[TopicSum]
    ranges: PageOf[tuple[OffsetRange, RangeCount | None]]
    found: Answer[BatchFiles]
    has_dead_letters: bool

    @property
    def refresh_s(self) -> int | None:
        """When the page asks again by itself; None where nothing more will come."""
        if self.found.is_pending:
            return REFRESH_PENDING_S
        return REFRESH_S if self.batch.state.is_open else None

    @property
    def runs(self) -> Sequence[Run]:
        actors = [self.batch.planned_by, *(each.opened_by for each in self.attempts), self.batch.committed_by]
        return runs_of(actor for actor in actors if actor is not None)


def one_batch(sources: Sources, feed_name: str, batch_id: UUID, *, page: int, with_logs: bool) -> OneBatch:
    """Return what there is of a feed's batch; raises UnknownBatchError, also where it is another feed's.

    ``with_logs``: with what Spark said where an attempt failed, which is in the logs of its task, too.
    """
    control = sources.control()
    try:
        batch = batch_of_feed(batch_id, feed_name, control)
    except UnknownBatchError as error:
        # One error for a batch of another feed, which the user may not know of, and for none at all.
        raise UnknownBatchError(f"no batch {batch_id} of feed {feed_name} in the control tables") from error
    # The newest that is not newer: the batch itself.
    [line] = control.batch_lines(batch.plan.feed_id, before=UUID(int=batch_id.int + 1), limit=1)
    attempts = control.attempts(batch_id)
    counts = {count.offset_range.topic_partition: count for count in control.range_counts(batch_id)}
    found = sources.batch_files(batch, attempts)
    ranges = [(each, counts.get(each.topic_partition)) for each in batch.ranges_read]
    return OneBatch(
        feed=feed_name,
        batch=batch,
        line=line,
        steps=steps_of(batch, line, attempts),
        attempts=attempts,
        topics=topic_sums(batch.ranges_read, counts),
        ranges=PageOf.of(ranges, page, RANGES_A_PAGE),
        found=found if with_logs else without_logs(found),
        has_dead_letters=any(count.dead_letters for count in counts.values()),
    )


def without_logs(found: Answer[BatchFiles]) -> Answer[BatchFiles]:
    """Return what was found without what Spark said, for who may not read the logs of tasks."""
    if found.value is None:
        return found
    return Answer(replace(found.value, failures={}), found.age_s, found.error, found.is_pending)


def steps_of(batch: Batch, line: BatchLine, attempts: Sequence[Attempt]) -> list[Step]:
    steps = [Step(BatchState.PLANNED, line.planned_at, line.planned_by)]
    steps += [
        Step(
            f"attempt {each.attempt}",
            each.opened_at,
            each.opened_by,
            ": ".join(filter(None, (each.state.value, each.reason))),
        )
        for each in attempts
    ]
    if line.written_at is not None:
        steps.append(Step(BatchState.WRITTEN, line.written_at, None, f"by attempt {line.attempt or 'that is folded'}"))
    if batch.state is BatchState.COMMITTING:
        steps.append(Step(BatchState.COMMITTING, batch.updated_at, None))
    if batch.state is BatchState.COMMITTED:
        steps.append(Step(BatchState.COMMITTED, batch.committed_at, batch.committed_by))
    if batch.state is BatchState.ABANDONED:
        steps.append(Step(BatchState.ABANDONED, batch.updated_at, batch.abandoned_by, batch.reason or ""))
    return steps


def topic_sums(ranges: Sequence[OffsetRange], counts: Mapping[TopicPartition, RangeCount]) -> list[TopicSum]:
    sums = []
    for topic, found in grouped((each.topic, each) for each in ranges).items():
        counted = [counts[each.topic_partition] for each in found if each.topic_partition in counts]
        is_counted = len(counted) == len(found)
        sums.append(
            TopicSum(
                topic=topic,
                partitions=len(found),
                offsets=sum(each.span for each in found),
                rows=sum(count.rows for count in counted) if is_counted else None,
                dead_letters=sum(count.dead_letters for count in counted) if is_counted else None,
            )
        )
    return sums


def runs_of(actors: Iterable[str]) -> list[Run]:
    """Return the DAG runs among those that acted, each once.

    The journal has them as ``airflow:DAG/RUN``, a decision's as ``airflow:USER@DAG/RUN``.
    """
    found = (RUN.fullmatch(actor) for actor in actors)
    return list(dict.fromkeys(Run(each["dag_id"], each["run_id"]) for each in found if each is not None))
