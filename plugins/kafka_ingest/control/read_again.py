"""Whose rows other batches have replaced, and whose rows are there to be replaced.

Such a batch leaves the ledger as it is: offsets stay committed by the batch that read them first. What it replaces is
a part of its plan.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, bindparam, select, update

from kafka_ingest.control.log_cuts import PLANNED_ON, Cuts, PlannedOn, ids_before, read_again_since, resets
from kafka_ingest.control.output_rows import lost_of_batches, removed_ranges
from kafka_ingest.control.passed_offsets import same_topic
from kafka_ingest.control.rows import COUNTS, OF_THE_FEED, OUTPUT, not_live_of, output_of
from kafka_ingest.control.schema import batch, batch_range, stored_offset
from kafka_ingest.errors import OffsetsMovedError, RangesTakenError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import HeldRange
from kafka_ingest.model.documents import range_of_row
from kafka_ingest.model.gap import RemovedRange
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect, listing, subtract
from kafka_ingest.model.read_again import Replacement, Replay, ReplayedLetters, taken_twice

LANDED = batch.c.state.in_((BatchState.COMMITTING.value, BatchState.COMMITTED.value))
"""Batches that are published, or are about to be whatever else happens, unless an operator revokes them."""


def plans_of(
    connection: Connection, feed_id: UUID, kind: BatchKind, *conditions: ColumnElement[bool]
) -> Iterator[tuple[BatchPlan, bool]]:
    """Yield the plans of a feed's batches of a kind that is not live, by their ids, and whether each is open."""
    query = select(batch.c.state, batch.c.plan).where(not_live_of(feed_id), batch.c.kind == kind.value, *conditions)
    for row in connection.execute(query.order_by(batch.c.batch_id)):
        yield BatchPlan.from_document(row.plan), BatchState(row.state).is_open


def replacements(
    connection: Connection, feed_id: UUID, apart_from: UUID | None = None, states: ColumnElement[bool] = COUNTS
) -> list[Replacement]:
    """Return what batches that are open or committed replace, in the order of their ids."""
    return [
        Replacement(each, plan.batch_id, plan.topic_ids[each.topic_partition.topic], is_open)
        for plan, is_open in plans_of(connection, feed_id, BatchKind.REPLACE, states)
        if plan.batch_id != apart_from
        for each in plan.replaces
    ]


def not_taken_over(
    connection: Connection, feed_id: UUID, removed: Sequence[RemovedRange], batches: Sequence[UUID]
) -> list[RemovedRange]:
    """Return what is removed with some batches, without what others have replaced of them since that was decided."""
    landed = replacements(connection, feed_id, states=LANDED)
    return without_taken_over(removed, batches, landed, ids_before(resets(connection, feed_id)))


def held_ranges(connection: Connection, feed_id: UUID, intervals: Sequence[OffsetRange]) -> list[HeldRange]:
    """Return which committed batches' rows the output holds of intervals of the topics as they are now, sorted.

    Whole ranges, without those that were replaced since, and without those whose every record a truncation cut off.
    Folded ones are not among them: which batch read an offset, only receipts know.
    """
    if not intervals:
        return []
    cuts = Cuts.of(resets(connection, feed_id))
    gone = {(each.replaced.batch_id, each.replaced.topic_partition) for each in replacements(connection, feed_id)}
    query = (
        select(batch_range, *PLANNED_ON, *OUTPUT)
        .join(batch, batch.c.batch_id == batch_range.c.batch_id)
        .join(stored_offset, same_topic(connection, feed_id))
        .where(
            batch.c.feed_id == feed_id,
            OF_THE_FEED,
            # A replay holds single records of others' ranges.
            batch.c.kind != BatchKind.REPLAY.value,
            batch.c.state == BatchState.COMMITTED.value,
            batch_range.c.topic.in_({each.topic for each in intervals}),
            batch_range.c.partition.in_({each.partition for each in intervals}),
            batch_range.c.start_offset < max(each.end_offset for each in intervals),
            batch_range.c.end_offset > min(each.start_offset for each in intervals),
        )
    )
    found: list[HeldRange] = []
    for row in connection.execute(query).mappings():
        span = range_of_row(row)
        at = span.topic_partition
        cut = cuts.at(at, row["topic_id"], PlannedOn.of_row(row))
        if (row["batch_id"], at) in gone or (cut is not None and cut <= span.start_offset):
            continue
        if intersect([span], intervals):
            found.append(HeldRange(row["batch_id"], span, output_of(row), cut))
    return sorted(found, key=lambda each: (each.offset_range, each.batch_id))


def check_still_replaceable(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError where what a batch replaces has expired, was replaced, or was read again since its plan.

    Nothing of that happens while control tables and output are of one piece. But an expiry may have been decided
    before the plan; and control tables may have been restored from a backup.
    """
    row = connection.execute(select(batch.c.plan, batch.c.ledger_upto).where(batch.c.batch_id == batch_id)).one()
    plan = BatchPlan.from_document(row.plan)
    mine = {(each.batch_id, each.topic_partition): each.offset_range for each in plan.replaces}
    taken = [
        mine[each.replaced.batch_id, each.replaced.topic_partition]
        for each in replacements(connection, feed_id, apart_from=batch_id)
        if (each.replaced.batch_id, each.replaced.topic_partition) in mine
    ]
    decided = resets(connection, feed_id)
    ids = ids_before(decided)

    def now(topic: str, topic_id: str | None) -> str | None:
        return ids.get((topic, topic_id), topic_id)

    expired = [
        each.offset_range
        for each in removed_ranges(connection, feed_id)
        for topic in [each.offset_range.topic]
        if topic in plan.topic_ids and now(topic, each.topic_id) == now(topic, plan.topic_ids[topic])
    ]
    taken += intersect(plan.ranges, [*expired, *read_again_since(decided, row.ledger_upto, plan.topic_ids)])
    if taken:
        raise OffsetsMovedError(
            f"batch {batch_id} replaces rows that have expired, or were replaced or read again by others since it was "
            f"planned: {listing(sorted(set(taken)))}. Nothing was changed; abandon it: `kafka-ingest abandon "
            f"{batch_id} --reason …`, and plan what is left again."
        )


def without_taken_over(
    removed: Iterable[RemovedRange],
    batches: Collection[UUID],
    landed: Iterable[Replacement],
    ids: Mapping[tuple[str, str | None], str | None],
) -> list[RemovedRange]:
    """Return what is removed with some batches, without ranges of theirs that another batch holds now.

    ``landed`` are the replacements that were published or will be; ``ids`` the current ones of earlier topic ids whose
    records are the same.
    """
    by_replaced = {(each.replaced.batch_id, each.replaced.topic_partition): each for each in landed}
    taken: list[Replacement] = []
    for (batch_id, at), each in by_replaced.items():
        holder = each
        while (later := by_replaced.get((holder.by, at))) is not None:
            holder = later
        if batch_id in batches and holder.by not in batches:
            taken.append(each)

    def now(topic: str, topic_id: str | None) -> str | None:
        return ids.get((topic, topic_id), topic_id)

    return [
        RemovedRange(left, each.topic_id)
        for each in removed
        for topic in [each.offset_range.topic]
        for left in subtract(
            [each.offset_range],
            [one.replaced.offset_range for one in taken if now(topic, one.topic_id) == now(topic, each.topic_id)],
        )
    ]


def replays(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[Replay]:
    """Return what batches that are open or committed replay, in the order of their ids."""
    return [
        Replay(each, plan.batch_id, plan.topic_ids[each.topic_partition.topic], is_open)
        for plan, is_open in plans_of(connection, feed_id, BatchKind.REPLAY, COUNTS, *conditions)
        for each in plan.replays
    ]


def check_not_replayed(connection: Connection, feed_id: UUID, chunks: Sequence[BatchPlan]) -> None:
    """Raise RangesTakenError where chunks replay letters that another replay decodes again, or that two of them do."""
    mine = [each for chunk in chunks for each in chunk.replays]
    if not mine:
        return
    others = batch.c.batch_id.not_in([chunk.batch_id for chunk in chunks])
    taken = taken_twice(mine, [each.letters for each in replays(connection, feed_id, others)])
    if taken:
        raise RangesTakenError(
            f"expected dead letters that no other batch replays, found {listing(taken)}. Nothing was written; plan the "
            "replay again."
        )


def check_still_replayable(connection: Connection, feed_id: UUID, batch_id: UUID) -> None:
    """Raise OffsetsMovedError where letters were replayed, lost or read again by others since their replay's plan.

    Nothing of that happens while control tables and output are of one piece, except that files may be recorded as
    lost, or a truncated topic moves back. But control tables may have been restored from a backup.
    """
    row = connection.execute(select(batch.c.plan, batch.c.ledger_upto).where(batch.c.batch_id == batch_id)).one()
    plan = BatchPlan.from_document(row.plan)
    found = replays(connection, feed_id, batch.c.batch_id != batch_id)
    elsewhere = taken_twice(plan.replays, [each.letters for each in found])
    lost = lost_of_batches(connection, feed_id)
    for each in plan.replays:
        elsewhere += intersect([each.offset_range], lost.get(each.batch_id, ()))
    again = read_again_since(resets(connection, feed_id), row.ledger_upto, plan.topic_ids)
    elsewhere += intersect([each.offset_range for each in plan.replays], again)
    if elsewhere:
        raise OffsetsMovedError(
            f"batch {batch_id} replays dead letters that were lost, replayed or read again by others since it was "
            f"planned: {listing(sorted(set(elsewhere)))}. Nothing was changed; abandon it: `kafka-ingest abandon "
            f"{batch_id} --reason …`, and replay what is left."
        )


def count_replayed_again(connection: Connection, feed_id: UUID, batches: Collection[UUID]) -> None:
    """Write again how many letters of a feed's batches are replayed, where some of ``batches`` may replay or have any.

    For an operator's step that wrote batches.
    """
    if not batches:
        return
    of_feed = select(batch.c.batch_id).where(batch.c.feed_id == feed_id)
    connection.execute(
        update(batch_range).where(batch_range.c.batch_id.in_(of_feed), batch_range.c.replayed > 0).values(replayed=0)
    )
    found = replays(connection, feed_id, batch.c.state == BatchState.COMMITTED.value)
    add_replayed(connection, [each.letters for each in found], may_lack=True)


def add_replayed(connection: Connection, letters: Collection[ReplayedLetters], *, may_lack: bool = False) -> None:
    """Add to the ranges of batches how many of their letters were replayed: they count for the replay from then on.

    ``may_lack``: batches may be missing, as in control tables that were rebuilt.
    """
    numbers: Counter[tuple[UUID, TopicPartition]] = Counter()
    for each in letters:
        numbers[each.batch_id, each.topic_partition] += each.number
    if not numbers:
        return
    statement = (
        update(batch_range)
        .where(
            batch_range.c.batch_id == bindparam("of_batch"),
            batch_range.c.topic == bindparam("of_topic"),
            batch_range.c.partition == bindparam("of_partition"),
        )
        .values(replayed=batch_range.c.replayed + bindparam("number"))
    )
    changed = 0
    for (batch_id, at), number in sorted(numbers.items()):
        values = {"of_batch": batch_id, "of_topic": at.topic, "of_partition": at.partition, "number": number}
        changed += connection.execute(statement, values).rowcount
    if changed != len(numbers) and not may_lack:
        raise OffsetsMovedError(
            f"expected the ranges of {counted(len(numbers), 'batch')} whose dead letters are replayed, found "
            f"{changed:,}. "
            "Nothing was changed; `kafka-ingest adopt` adds batches that the output has and the control tables lack."
        )
