"""What becomes of backfills and copies.

They are planned, two at once, worked on chunk by chunk, crash, and are abandoned.
"""

import contextlib
from collections.abc import Iterator
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.fakes import GROUP
from tests.histories.interruptions import Interruption
from tests.histories.machine import CRASHES, INTERRUPTIONS, NUMBERS, History
from tests.histories.run_rules import SPARK
from tests.histories.world import Spark

from kafka_ingest.batches.backfill_request import (
    BackfillRequest,
    BetweenTimestamps,
    Mode,
    OffsetRanges,
    OnMissing,
    OnOverlap,
    OpenGaps,
)
from kafka_ingest.errors import BatchStateError, KafkaIngestError, RangesTakenError
from kafka_ingest.model.offsets import OffsetRange

CHUNKS = st.sampled_from([2, 100])
ON_MISSING = st.sampled_from([OnMissing.RECORD_GAP, OnMissing.RECORD_GAP, OnMissing.REFUSE])


class BackfillRules(History):
    """Rules of backfills. None of their steps moves a stored offset or the group."""

    @precondition(lambda self: self.known is not None)
    @rule(
        number=NUMBERS,
        back=st.integers(1, 12),
        span=st.integers(1, 6),
        on_overlap=st.sampled_from(list(OnOverlap)),
        on_missing=ON_MISSING,
        interruption=INTERRUPTIONS,
    )
    def offsets_are_backfilled(
        self,
        number: int,
        back: int,
        span: int,
        on_overlap: OnOverlap,
        on_missing: OnMissing,
        interruption: Interruption | None,
    ) -> None:
        """Some below the stored offset: committed ones, gaps, and what lies before the first."""
        row = self.feed.stored.get(self.partition(number))
        if row is None or not row.next_offset:
            return
        start = max(0, row.next_offset - back)
        wanted = OffsetRange(row.topic_partition, start, min(start + span, row.next_offset))
        request = BackfillRequest(OffsetRanges([wanted]), {}, on_overlap=on_overlap, on_missing=on_missing)
        refusals = [RangesTakenError] if on_overlap is OnOverlap.REFUSE else []
        self.plan_and_work(request, interruption, *refusals)

    @precondition(lambda self: self.known is not None)
    @rule(chunk=CHUNKS, on_missing=ON_MISSING, is_planned_only=st.booleans(), interruption=INTERRUPTIONS)
    def gaps_are_backfilled(
        self,
        chunk: int,
        on_missing: OnMissing,
        is_planned_only: bool,  # noqa: FBT001 - drawn
        interruption: Interruption | None,
    ) -> None:
        request = BackfillRequest(OpenGaps(), {}, on_missing=on_missing, max_records=chunk)
        self.plan_and_work(request, interruption, is_planned_only=is_planned_only)

    @precondition(lambda self: self.known is not None)
    @rule(chunk=CHUNKS, is_planned_only=st.booleans(), interruption=INTERRUPTIONS)
    def all_is_copied(self, chunk: int, is_planned_only: bool, interruption: Interruption | None) -> None:  # noqa: FBT001 - drawn
        """Into another output, as far as Kafka holds it; what is there already is left out."""
        request = BackfillRequest(
            BetweenTimestamps(None, None),
            {},
            mode=Mode.COPY,
            output=self.world.copy_output,
            on_missing=OnMissing.RECORD_GAP,
            max_records=chunk,
        )
        self.plan_and_work(request, interruption, is_planned_only=is_planned_only)

    @precondition(lambda self: self.chunks)
    @rule(number=NUMBERS, spark=SPARK, last_task=st.sampled_from(["commit", "write"]), interruption=INTERRUPTIONS)
    def a_chunk_is_worked_on(
        self, number: int, spark: Spark, last_task: str, interruption: Interruption | None
    ) -> None:
        chunk = self.chunks[number % len(self.chunks)]
        with self.nothing_moves(interruption), self.step(interruption):
            self.world.work_on(chunk, spark, last_task=last_task)

    @precondition(lambda self: self.chunks)
    @rule(number=NUMBERS, interruption=CRASHES)
    def a_chunk_is_abandoned(self, number: int, interruption: Interruption | None) -> None:
        chunk = self.chunks[number % len(self.chunks)]
        with self.nothing_moves(interruption), self.step(interruption, BatchStateError):
            self.world.abandon_batch(chunk)

    @property
    def chunks(self) -> list[UUID]:
        """The chunks that are open."""
        return [batch.batch_id for batch in self.world.open_backfills()] if self.world is not None else []

    def plan_and_work(
        self,
        request: BackfillRequest,
        interruption: Interruption | None,
        *refusals: type[KafkaIngestError],
        is_planned_only: bool = False,
    ) -> None:
        """Plan a backfill, and again where that was interrupted: the chunks are the same; then work on them in turn."""
        self.backfills += 1
        actor = f"backfill {self.backfills}"
        with self.nothing_moves(interruption), self.step(interruption, *refusals):
            self.world.plan_backfill(request, actor=actor, once=True)
        planned = self.world.tables.backfill_of(self.feed.feed_id, actor)
        with self.nothing_moves(None), self.step(None, *refusals):
            chunks = self.world.plan_backfill(request, actor=actor, once=True).chunks
            assert not planned or [chunk.batch_id for chunk in chunks] == [batch.batch_id for batch in planned]
            for chunk in () if is_planned_only else chunks:
                if self.world.tables.batch(chunk.batch_id).state.is_open:
                    self.world.work_on(chunk.batch_id)

    @contextlib.contextmanager
    def nothing_moves(self, interruption: Interruption | None) -> Iterator[None]:
        """See that no stored offset and no group offset moves, unless another process was let in."""
        stored, group = dict(self.feed.stored), dict(self.world.topics.cluster.groups.get(GROUP, {}))
        yield
        if interruption is None or interruption.incident != "another run":
            assert dict(self.feed.stored) == stored
            assert self.world.topics.cluster.groups.get(GROUP, {}) == group
