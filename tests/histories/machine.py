"""Random histories as a state machine: what every history begins with, what holds after each step, and how it ends."""

import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant
from tests.histories.checks import Checks, check_accounted
from tests.histories.explanations import check_explained
from tests.histories.interruptions import INCIDENTS, Interruption, Killed
from tests.histories.recorded import check_adopted
from tests.histories.to_the_end import run_to_the_end
from tests.histories.world import FEED, OPERATOR, TOPICS, World

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import (
    KafkaIngestError,
    NothingToAdoptError,
    OutputConflictError,
    ReceiptsDoNotFollowError,
)
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.planning.settings import OnDataLoss
from kafka_ingest.verbs.adopt import adopt, decide_adoption

NUMBERS = st.integers(0, 99)
"""Picks one of whatever there is at that moment."""

NAMES = st.sampled_from(TOPICS)
RECORDS = st.lists(st.integers(0, 6), min_size=1, max_size=4)
MARKERS = st.sampled_from([0, 0, 0, 1, 3])
TROUBLE = st.builds(
    Interruption,
    moment=st.sampled_from(["before", "after"]),
    call=st.integers(1, 30),
    incident=st.sampled_from(INCIDENTS),
)
INTERRUPTIONS = st.none() | TROUBLE
CRASHES = st.none() | st.builds(
    Interruption, moment=st.sampled_from(["before", "after"]), call=st.integers(1, 12), incident=st.just("crash")
)


class History(RuleBasedStateMachine):
    """One feed of two topics, to which the rules of its subclasses happen, one after another and amid each other."""

    def __init__(self, template: Path) -> None:
        super().__init__()
        self._template = template
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-ingest-history-")
        self.world: World | None = None
        self.backfills = 0

    @initialize(partitions=st.integers(1, 2), max_records=st.sampled_from([None, 4, 9]), gaps=st.booleans())
    def begin(self, partitions: int, max_records: int | None, gaps: bool) -> None:  # noqa: FBT001 - drawn
        self.world = World(Path(self._directory.name), self._template, partitions=partitions, max_records=max_records)
        self.checks = Checks(self.world)
        if gaps:
            self.world.accept_losses(OnDataLoss.RECORD_GAP)

    @contextlib.contextmanager
    def step(self, interruption: Interruption | None = None, *refusals: type[KafkaIngestError]) -> Iterator[None]:
        """Let something happen; it may be killed, and refused where something explains it."""
        try:
            with self.world.interrupter.during_step(interruption):
                yield
        except Killed:
            pass
        except refusals:
            pass
        except KafkaIngestError as error:
            check_explained(error, self.world)

    @property
    def feed(self) -> FeedSnapshot | None:
        """The feed as it is stored."""
        return self.world.feed()

    @property
    def known(self) -> FeedSnapshot | None:
        """The feed as it was after the last step, for what is asked before each."""
        return self.checks.feed if self.world is not None else None

    def partition(self, number: int) -> TopicPartition:
        """Return one of the partitions there are."""
        partitions = self.world.topics.partitions()
        return partitions[number % len(partitions)]

    def produce(self, records: list[int], markers: int) -> None:
        """Append so many records to each partition, in turn, and markers that are no records."""
        for topic_partition, count in zip(self.world.topics.partitions(), itertools.cycle(records)):
            self.world.topics.produce(topic_partition, count, markers)

    def adopt(self, tables: SqlControlTables) -> bool:
        """Let control tables adopt what the output records.

        False where that is not all, or was damaged while published.
        """
        try:
            decision = decide_adoption(self.world.settings, tables, self.world.sink)
        except NothingToAdoptError:
            return True
        except (OutputConflictError, ReceiptsDoNotFollowError) as error:
            check_explained(error, self.world)
            return False
        if not decision.is_nothing:
            adopt(decision, tables, self.world.sink, reason="the disk died", actor=OPERATOR, letters=self.world.letters)
        return True

    def check_adopted(self, tables: SqlControlTables) -> None:
        """Hold tables that were empty before they adopted against those that wrote the output."""
        if published := self.world.sink.publisher.known_batches():
            check_adopted(tables, self.world.tables, FEED, self.world.recorded, published)
            check_accounted(tables)

    @invariant()
    def all_holds(self) -> None:
        if self.world is not None:
            self.checks.check()

    def run_to_the_end(self) -> None:
        """Repair everything, and see that nothing was lost, and that the output alone suffices to rebuild it."""
        run_to_the_end(self.world, self.checks)
        tables = self.world.empty_tables()
        assert self.adopt(tables)
        self.check_adopted(tables)

    def close(self) -> None:
        """Let go of databases and files."""
        if self.world is not None:
            self.world.close()
        self._directory.cleanup()

    def teardown(self) -> None:
        try:
            # Not where it failed already, or Hypothesis gave the example up.
            if self.world is not None and sys.exc_info()[0] is None:
                self.run_to_the_end()
        finally:
            self.close()
