"""What became of an offset, as the control rows around it decide: batches first, then gaps, then the stored offset."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import partition, span
from tests.outputs import parquet_at

from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.coverage import BatchOfOffset
from kafka_ingest.model.gap import Event, Gap, GapCause
from kafka_ingest.model.offsets import StoredOffset
from kafka_ingest.observing.locate import LocatedBatch, OffsetState, gap_of, ids_of_same_records, is_earlier, state_of

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BATCH = UUID("01890000-0000-7000-8000-000000000001")
STORED = StoredOffset(partition(0), "id-1", 100, 200, "latest")
OPEN = Gap(BATCH, span(0, 150, 160), "id-1", GapCause.SKIPPED, "poisoned", "ops", NOON, NOON)


def a_batch(state: BatchState, kind: BatchKind = BatchKind.LIVE, *, is_earlier_topic: bool = False) -> LocatedBatch:
    batch = BatchOfOffset(
        batch_id=BATCH,
        kind=kind,
        state=state,
        planned_at=NOON,
        planned_by="planner",
        committed_at=None,
        committed_by=None,
        reason=None,
        offset_range=span(0, 100, 200),
        topic_id="id-1",
        dead_letters=None,
        filtered=None,
        output=parquet_at(Path("/data/orders")),
    )
    return LocatedBatch(batch, is_earlier_topic)


COMMITTED, PLANNED, ABANDONED = (
    a_batch(state) for state in (BatchState.COMMITTED, BatchState.PLANNED, BatchState.ABANDONED)
)


# ── Batches ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_one_batch_committed_stays_so_whatever_others_and_gaps_hold_it() -> None:
    assert state_of(STORED, [PLANNED, ABANDONED, COMMITTED], OPEN, 150) is OffsetState.COMMITTED
    went_back = replace(STORED, next_offset=120)
    assert state_of(went_back, [COMMITTED], None, 150) is OffsetState.COMMITTED


def test_an_offset_that_an_open_batch_reads_is_pending_also_where_it_is_a_gap() -> None:
    assert state_of(STORED, [PLANNED], None, 250) is OffsetState.PENDING
    assert state_of(STORED, [a_batch(BatchState.COMMITTING, BatchKind.BACKFILL)], OPEN, 150) is OffsetState.PENDING


@pytest.mark.parametrize(
    "batch",
    [
        ABANDONED,
        a_batch(BatchState.COMMITTED, BatchKind.COPY),
        a_batch(BatchState.PLANNED, BatchKind.COPY),
        a_batch(BatchState.COMMITTED, is_earlier_topic=True),
    ],
)
def test_a_batch_that_ended_went_elsewhere_or_read_an_earlier_topic_decides_nothing(batch: LocatedBatch) -> None:
    assert state_of(STORED, [batch], OPEN, 150) is OffsetState.GAP
    assert state_of(STORED, [batch], None, 250) is OffsetState.NOT_READ_YET
    assert state_of(None, [batch], None, 150) is OffsetState.FORGOTTEN


# ── Gaps and the stored offset ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("offset", "state"),
    [
        (0, OffsetState.BEFORE_FIRST),
        (99, OffsetState.BEFORE_FIRST),
        (100, OffsetState.UNACCOUNTED),
        (199, OffsetState.UNACCOUNTED),
        (200, OffsetState.NOT_READ_YET),
    ],
)
def test_without_a_batch_or_gap_the_first_and_the_stored_offset_decide(offset: int, state: OffsetState) -> None:
    assert state_of(STORED, [], None, offset) is state


def test_where_the_start_is_still_to_be_resolved_nothing_is_read_yet() -> None:
    pending = replace(STORED, first_offset=None, next_offset=None)
    assert state_of(pending, [], None, 5) is OffsetState.START_PENDING


def test_a_gap_that_was_closed_is_none_any_more_and_one_ahead_is() -> None:
    assert state_of(STORED, [], replace(OPEN, applied_at=None), 250) is OffsetState.GAP
    assert state_of(STORED, [COMMITTED], replace(OPEN, closed_by_batch=BATCH), 150) is OffsetState.COMMITTED
    assert state_of(STORED, [], replace(OPEN, closed_by_batch=BATCH), 150) is OffsetState.UNACCOUNTED


def test_of_several_gaps_the_one_that_is_not_closed_holds_the_offset() -> None:
    closed = replace(OPEN, closed_by_batch=BATCH, decided_at=NOON + timedelta(hours=1))
    of_earlier_topic = replace(OPEN, topic_id="id-0")
    assert gap_of([closed, of_earlier_topic, OPEN], {"id-1"}) == OPEN
    assert gap_of([closed, of_earlier_topic], {"id-1"}) == closed
    assert gap_of([of_earlier_topic], {"id-1"}) is None


# ── Which topic ids stand for the same records ────────────────────────────────────────────────────────────────────────


def a_reset(was: str, now: str, *, topic: str = "orders", same_records: bool = True) -> Event:
    def rows(topic_id: str) -> list[dict[str, Any]]:
        return [{"topic": topic, "partition": 0, "topic_id": topic_id}]

    detail = {"same_records": [topic] if same_records else [], "removed": rows(was), "partitions": rows(now)}
    return Event(1, "reset", NOON, "ops", None, detail)


def test_a_topic_with_the_same_records_under_another_id_is_one_topic_also_over_several_changes() -> None:
    resets = [a_reset("id-b", "id-1"), a_reset("id-a", "id-b")]
    assert ids_of_same_records("orders", STORED, resets) == {"id-1", "id-b", "id-a"}


def test_a_topic_that_was_made_again_and_those_of_other_names_are_others() -> None:
    resets = [
        a_reset("id-b", "id-1", same_records=False),
        a_reset("id-a", "id-b"),
        a_reset("id-x", "id-1", topic="refunds"),
    ]
    assert ids_of_same_records("orders", STORED, resets) == {"id-1"}


def test_a_topic_is_an_earlier_one_only_where_both_ids_are_known() -> None:
    assert is_earlier("id-0", {"id-1"})
    assert not is_earlier("id-1", {"id-1", "id-0"})
    assert not is_earlier(None, {"id-1"})
    assert not is_earlier("id-0", {None})


def test_of_a_partition_that_the_feed_has_no_more_every_topic_is_an_earlier_one() -> None:
    assert is_earlier("id-1", ids_of_same_records("orders", None, []))
