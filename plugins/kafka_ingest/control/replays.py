"""Which dead letters replays have decoded again, or are about to.

Which letters a replay decodes again is a part of its plan. Its commit adds the numbers to the ranges of the batches
that published the letters, where a check keeps them from being more than there are.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, bindparam, select, update

from kafka_ingest.control.batch_conditions import COUNTS, not_live_of
from kafka_ingest.control.log_cuts import read_again_since, resets
from kafka_ingest.control.removed_output import lost_of_batches
from kafka_ingest.control.schema import batch, batch_range
from kafka_ingest.errors import OffsetsMovedError, RangesTakenError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchKind, BatchPlan, BatchState
from kafka_ingest.model.offset_sets import intersect
from kafka_ingest.model.offsets import TopicPartition, listing
from kafka_ingest.model.read_again import Replay, ReplayedLetters, taken_twice


def replays(connection: Connection, feed_id: UUID, *conditions: ColumnElement[bool]) -> list[Replay]:
    """Return what batches that are open or committed replay, in the order of their ids."""
    query = select(batch.c.batch_id, batch.c.state, batch.c.plan).where(
        not_live_of(feed_id), batch.c.kind == BatchKind.REPLAY.value, COUNTS, *conditions
    )
    found: list[Replay] = []
    for row in connection.execute(query.order_by(batch.c.batch_id)).mappings():
        plan, is_open = BatchPlan.from_document(row["plan"]), BatchState(row["state"]).is_open
        found += [
            Replay(each, plan.batch_id, plan.topic_ids[each.topic_partition.topic], is_open) for each in plan.replays
        ]
    return found


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


def note_replayed(connection: Connection, plan: BatchPlan) -> None:
    """Move letters from the counts of the batches that published them to those of the replay, which is committed."""
    add_replayed(connection, plan.replays)


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
    """Add to the ranges of batches how many of their letters were replayed.

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
