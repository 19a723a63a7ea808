"""After a schedule: one clean DAG run after another, as Airflow would start them, until there is nothing new.

Then the count.
"""

from collections import Counter

from tests.fakes import FeedInMemory, log, sinks, topic, watched
from tests.model.explore import ViolationError
from tests.model.invariants import OPERATOR, Invariants
from tests.model.roles import BY_HAND, move_by_hand
from tests.model.world import World

from kafka_ingest.errors import BatchRevokedError, KafkaIngestError, OffsetsMovedError, RetryableError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.offsets import LogBounds, TopicPartition
from kafka_ingest.verbs.abandon import abandon

RUNS = 12
"""How many runs have to be enough."""

LOGS_LATER = (log(0, 120), log(0, 60))


class Recovers(Invariants):
    """Invariants whose end is that the feed recovers by itself, and has every record exactly once."""

    def at_the_end(self, world: World) -> None:
        """Recover, count; then let more records arrive, and do both again: the feed has to live on."""
        self.recover(world)
        check_end(world, group_may_drift=not world.nobody_crashed)
        world.feed.kafka.topics["orders"] = topic(*LOGS_LATER)
        self.recover(world)
        check_end(world, group_may_drift=False)

    def recover(self, world: World) -> None:
        """Run the DAG until a plan says that nothing is new."""
        for number in range(1, RUNS + 1):
            actor = f"recovery {number}"
            feed = self.looked_at(world, actor)
            try:
                batch = feed.plan(actor).batch
                if batch is None:
                    self.finish_backfills(feed, actor)
                    world.add_line(f"{actor}: nothing new")
                    return
                feed.write(batch.batch_id)
                feed.commit(batch.batch_id, group=world.group, actor=actor)
                world.add_line(f"{actor}: done")
            except KafkaIngestError as error:
                world.add_line(f"{actor}: {error.code}: {error}")
                if not isinstance(error, RetryableError):
                    self.decide(feed, error)
        raise ViolationError(f"the feed did not recover in {RUNS} runs")

    def finish_backfills(self, feed: FeedInMemory, actor: str) -> None:
        """Work on the chunks that were planned and left: nobody reads their offsets otherwise."""
        snapshot = feed.control.feed("orders")
        for chunk in feed.control.open_backfills(snapshot.feed_id):
            feed.write(chunk.batch_id)
            feed.commit(chunk.batch_id, group=None, actor=actor)

    def looked_at(self, world: World, actor: str) -> FeedInMemory:
        """Return the feed, the invariants of which are looked at after every call."""
        before = world.moment()

        def returned(call: str) -> None:
            nonlocal before
            was, before = before, world.moment()
            try:
                self.after_step(actor, was, before)
            except ViolationError as violation:
                raise ViolationError(f"{actor}, {call}: {violation}") from violation

        return watched(world.feed, lambda _: None, returned)

    def decide(self, feed: FeedInMemory, error: KafkaIngestError) -> None:
        """Do what the error asks of an operator, where one is expected here."""
        open_batch = feed.control.feed("orders").open_batch
        if isinstance(error, BatchRevokedError) and BatchRevokedError in self.expected:
            abandon(open_batch.batch_id, feed.control, sinks(feed.sink), reason="finishing", actor=OPERATOR)
        elif isinstance(error, OffsetsMovedError) and self.moved_by_hand:
            # Who moved it puts it back: nothing was published at the wrong place, nor is anything lost.
            move_by_hand(feed.control, -BY_HAND)
            self.moved_by_hand = False
        else:
            raise ViolationError(f"a clean run was refused by {error.code}, and nothing asks for it: {error}")


def check_end(world: World, *, group_may_drift: bool) -> None:
    """Raise ViolationError unless every record is visible exactly once, and offsets and group are at the log's end."""
    feed = world.feed
    ends = {
        TopicPartition("orders", number): bounds.high_watermark
        for number, bounds in feed.kafka.topics["orders"].logs.items()
        if isinstance(bounds, LogBounds)
    }
    if (stored := feed.stored_offsets()) != ends:
        raise ViolationError(f"the stored offsets are {stored}, the log ends at {ends}")
    if world.group is not None and not group_may_drift and feed.kafka.groups[world.group] != stored:
        raise ViolationError(f"the group is at {feed.kafka.groups[world.group]}, the stored offsets are {stored}")
    for batch in feed.control.state.batches.values():
        if batch.state is not BatchState.ABANDONED and batch.batch_id not in feed.sink.published:
            raise ViolationError(f"batch {batch.batch_id} ended as {batch.state}, and is not visible")
    for topic_partition, end in ends.items():
        check_once(feed, topic_partition, end)


def check_once(feed: FeedInMemory, topic_partition: TopicPartition, end: int) -> None:
    """Raise ViolationError on an offset that is missing without a gap, or visible more often than resets explain."""
    seen = Counter(
        offset
        for planned in feed.sink.published_ranges()
        if planned.topic_partition == topic_partition
        for offset in range(planned.start_offset, planned.end_offset)
    )
    passed = Counter(
        offset
        for _, gap in feed.control.state.gaps.values()
        if gap.offset_range.topic_partition == topic_partition and gap.closed_by_batch is None
        for offset in range(gap.offset_range.start_offset, gap.offset_range.end_offset)
    )
    read_again = Counter(
        offset
        for _, event in feed.control.state.events
        if event.kind == "reset"
        for was, now in zip(event.detail["removed"], event.detail["partitions"], strict=True)
        if was["partition"] == topic_partition.partition
        for offset in range(now["next_offset"], was["next_offset"])
    )
    for offset in range(end):
        if not seen[offset] and not passed[offset]:
            raise ViolationError(f"{topic_partition}: offset {offset} was never published, and lies in no gap")
        if seen[offset] + passed[offset] > 1 + read_again[offset]:
            raise ViolationError(f"{topic_partition}: offset {offset} is visible {seen[offset]} times")
