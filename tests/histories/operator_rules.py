"""What an operator does at any time.

Skip, reset, decide, abandon, clean, repair the mirror, and things nobody should do.
"""

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.histories.interruptions import Interruption
from tests.histories.machine import CRASHES, INTERRUPTIONS, NAMES, NUMBERS, RECORDS, History
from tests.histories.spark_stand_in import SparkJob

from kafka_ingest.errors import BatchStateError, InvalidRangeError, OffsetsMovedError, WrongUseError
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import DATA, RECEIPT
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.verbs.reset_target import ResetTarget, ShiftBy, ToEarliest, ToLatest

TARGETS = st.sampled_from([ToEarliest(), ToLatest(), ShiftBy(-4), ShiftBy(-1), ShiftBy(2), ShiftBy(5)])


class OperatorRules(History):
    """Rules of the operator."""

    @rule(on_data_loss=st.sampled_from(list(OnDataLoss)))
    def the_feed_file_says_of_losses(self, on_data_loss: OnDataLoss) -> None:
        self.world.accept_losses(on_data_loss)

    @precondition(lambda self: self.known is not None)
    @rule(number=NUMBERS, ahead=st.sampled_from([0, 0, 1, 4]), span=st.integers(1, 4), interruption=CRASHES)
    def an_operator_skips(self, number: int, ahead: int, span: int, interruption: Interruption | None) -> None:
        """Some records at the stored offset or ahead of it, the newest there are."""
        topic_partition = self.partition(number)
        row, log = self.feed.stored.get(topic_partition), self.world.topics.log(topic_partition)
        start = ((row.next_offset if row is not None else None) or 0) + ahead
        self.world.topics.produce(topic_partition, max(0, start + span - log.end), 0)
        with self.step(interruption, InvalidRangeError, BatchStateError):
            self.world.skip(OffsetRange(topic_partition, start, start + span))

    @precondition(lambda self: self.known is not None)
    @rule(number=NUMBERS, records=RECORDS, interruption=CRASHES)
    def an_operator_moves_a_stored_offset_by_hand_and_puts_it_back(
        self, number: int, records: list[int], interruption: Interruption | None
    ) -> None:
        """Until then the batch that begins there cannot be committed, and none of its offsets moves (invariant 3)."""
        self.produce(records, 0)
        with self.step():
            self.world.run(last_task="write")
        batch = self.feed.open_batch
        if batch is not None and interruption is not None:
            with self.step(interruption, BatchStateError):
                self.world.commit(batch.batch_id)
            batch = self.feed.open_batch
        if batch is None:
            return
        topic_partition = batch.plan.ranges[number % len(batch.plan.ranges)].topic_partition
        row = self.feed.stored[topic_partition]
        is_back = number % 2 and row.next_offset > row.first_offset
        self.world.move_by_hand(topic_partition, row.next_offset + (-1 if is_back else 1))
        moved = self.feed.stored
        with self.step(None, BatchStateError, OffsetsMovedError):
            self.world.commit(batch.batch_id)
        assert self.feed.stored == moved
        self.world.move_by_hand(topic_partition, row.next_offset)

    @precondition(lambda self: self.known is not None)
    @rule(name=NAMES, interruption=CRASHES)
    def an_operator_decides_on_a_topic(self, name: str, interruption: Interruption | None) -> None:
        with self.step(interruption, WrongUseError, BatchStateError):
            self.world.decide_topic(name, self.world.choice_for(name))

    @rule(interruption=INTERRUPTIONS)
    def an_operator_abandons(self, interruption: Interruption | None) -> None:
        with self.step(interruption, BatchStateError):
            self.world.abandon()

    @rule(interruption=INTERRUPTIONS)
    def an_operator_cleans(self, interruption: Interruption | None) -> None:
        """The last copy of records that were never committed stays."""
        last_copies = self.last_copies()
        with self.step(interruption):
            self.world.clean()
        self.checks.check()
        for job in last_copies:
            assert job.attempt.directory.is_dir() or all(self.checks.times_seen[value] for value in job.values)

    def last_copies(self) -> list[SparkJob]:
        """Return what Spark wrote of records that nobody committed and Kafka has no more."""
        in_kafka = {
            value
            for tp in self.world.topics.partitions()
            for offset, value in self.world.topics.log(tp).content.items()
            if offset >= self.world.topics.log(tp).start
        }
        return [
            job
            for directory, job in self.world.finished.items()
            if (directory / DATA).is_dir()
            and (directory / RECEIPT).exists()
            and any(value not in in_kafka and not self.checks.times_seen[value] for value in job.values)
        ]

    @precondition(lambda self: self.known is not None)
    @rule(number=NUMBERS, to=TARGETS, is_all=st.booleans(), interruption=CRASHES)
    def an_operator_resets(
        self,
        number: int,
        to: ResetTarget,
        is_all: bool,  # noqa: FBT001 - drawn
        interruption: Interruption | None,
    ) -> None:
        """One partition, or all that have stored offsets; what was read before comes once more."""
        named = [] if is_all or self.partition(number) not in self.feed.stored else [self.partition(number)]
        with self.step(interruption, BatchStateError):
            self.world.reset(to, *named)

    @rule(interruption=CRASHES)
    def an_operator_repairs_the_mirror(self, interruption: Interruption | None) -> None:
        with self.step(interruption):
            self.world.mirror()
