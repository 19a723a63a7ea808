"""Which refusals something in the world explains. All others are faults: nobody did what they say."""

from collections.abc import Callable, Mapping

from tests.histories.checks import resets
from tests.histories.world import World

from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    FeedChangedError,
    InvalidBackfillError,
    InvalidReceiptError,
    KafkaIngestError,
    KafkaUnavailableError,
    OffsetsLostError,
    OffsetsMovedError,
    OutputConflictError,
    RangeNotInLogError,
    RangesTakenError,
    RecordsDeletedError,
    SparkFailedError,
    StagedOutputUnusableError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
)
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.offsets import LogBounds
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.sinks.kept_receipts import KeptReceipts


def check_explained(error: KafkaIngestError, world: World) -> None:
    """Raise AssertionError on a refusal that nothing in the world explains."""
    explains = EXPLANATIONS.get(type(error))
    if explains is None or not explains(world):
        raise AssertionError(f"nothing explains {type(error).__name__}") from error


def kafka_does_not_answer(world: World) -> bool:
    """Whether a broker is down, or a partition is without a leader."""
    logs = [world.topics.log(tp) for tp in world.topics.partitions()]
    return world.topics.cluster.is_down or any(log is not None and not log.has_leader for log in logs)


def another_process_came_between(world: World) -> bool:
    """Whether another process did something in the middle of the step."""
    return world.interrupter.happened is not None


def records_were_deleted(world: World) -> bool:
    """Whether retention is ahead of a stored offset, and the feed stops there."""
    feed = world.feed()
    stored = {tp: row.next_offset for tp, row in feed.stored.items()} if feed is not None else {}
    is_lost = any(
        isinstance(bounds := world.topics.cluster.topics[tp.topic].logs[tp.partition], LogBounds)
        and bounds.log_start_offset > (stored.get(tp) or 0)
        for tp in world.topics.partitions()
    )
    return is_lost and world.settings.on_data_loss is OnDataLoss.FAIL


def ranges_are_not_in_the_log(world: World) -> bool:
    """Whether an open batch's ranges cannot be read as they were planned."""
    return not all(world.topics.has_all(planned) for batch in open_batches(world) for planned in batch.plan.ranges)


def spark_cannot_work(world: World) -> bool:
    """Whether ranges cannot be read, or the control tables are an older copy, which may repeat an attempt's number."""
    return world.is_restored or ranges_are_not_in_the_log(world)


def a_topic_was_made_again(world: World) -> bool:
    """Whether a topic has another id than its stored offsets or an open batch."""
    feed = world.feed()
    known = {(tp.topic, row.topic_id) for tp, row in feed.stored.items()} if feed is not None else set()
    known |= {known for batch in open_batches(world) for known in batch.plan.topic_ids.items()}
    return any(world.topics[name].topic_id != topic_id for name, topic_id in known)


def files_were_damaged(world: World) -> bool:
    """Whether staged files were damaged."""
    return world.was_damaged


def a_log_was_cut_off(world: World) -> bool:
    """Whether a log ended below its stored offset, and nobody has decided on it."""
    return bool(world.cuts)


def an_open_batch_is_revoked(world: World) -> bool:
    """Whether an operator began to take a COMMITTING batch back."""
    return any(
        KeptReceipts(output.with_name(f"{output.name}.kafka-ingest") / "receipts").is_withdrawn(batch.batch_id)
        for batch in open_batches(world)
        for output in [batch.plan.output.path]
    )


def records_of_a_backfill_are_gone(world: World) -> bool:
    """Whether retention took something somewhere, or a log was cut off below a chunk's end since it was planned."""
    logs = {tp: log for tp in world.topics.partitions() if (log := world.topics.log(tp)) is not None}
    return any(log.start > 0 for log in logs.values()) or any(
        planned.end_offset > logs[tp].end_of(epoch)
        for batch in world.open_backfills()
        for planned in batch.plan.ranges
        for tp in [planned.topic_partition]
        if tp in logs and (epoch := batch.plan.leader_epochs.get(tp)) is not None
    )


def a_backfill_was_overtaken(world: World) -> bool:
    """Whether others read an open backfill's offsets, or will, since it was planned.

    After a reset, or with older tables.
    """
    feed = world.feed()
    ways = resets(world.tables.ledger_of_feed(feed.feed_id)) if feed is not None else []
    back = max((at for way, _, at in ways if way.is_back), default=None)
    return any(
        world.is_restored or (back is not None and back > batch.plan.planned_at) for batch in world.open_backfills()
    )


def others_are_at_it(world: World) -> bool:
    """Whether chunks are open, which hold their offsets until they are committed or abandoned.

    Of older tables, forever.
    """
    return world.is_restored or bool(world.open_backfills())


def open_batches(world: World) -> list[Batch]:
    """Return the live batch and the chunks that are open."""
    feed = world.feed()
    live = [feed.open_batch] if feed is not None and feed.open_batch is not None else []
    return [*live, *world.open_backfills()]


EXPLANATIONS: Mapping[type[KafkaIngestError], Callable[[World], bool]] = {
    KafkaUnavailableError: kafka_does_not_answer,
    FeedChangedError: another_process_came_between,
    BatchStateError: another_process_came_between,
    OffsetsLostError: records_were_deleted,
    RangeNotInLogError: ranges_are_not_in_the_log,
    SparkFailedError: spark_cannot_work,
    TopicRecreatedError: a_topic_was_made_again,
    TopicGoneError: a_topic_was_made_again,
    StoredOffsetBeyondLogError: a_log_was_cut_off,
    StagedOutputUnusableError: files_were_damaged,
    InvalidReceiptError: files_were_damaged,
    OutputConflictError: files_were_damaged,
    BatchRevokedError: an_open_batch_is_revoked,
    RecordsDeletedError: records_of_a_backfill_are_gone,
    RangesTakenError: others_are_at_it,
    InvalidBackfillError: a_log_was_cut_off,
    OffsetsMovedError: a_backfill_was_overtaken,
}
