"""What a backfill replaces: whole ranges of committed batches, in chunks that stay whole."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.fakes import a_plan, span

from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, OffsetRanges, OnMissing, OnOverlap
from kafka_ingest.batches.replacing import read_by, whole_chunks
from kafka_ingest.cli.backfill_command import choices
from kafka_ingest.errors import InvalidBackfillError
from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.observing.locate import RecordState
from kafka_ingest.verbs.locate import RECORD_IN_WORDS

BATCHES = [UUID(int=number) for number in range(10)]


def held(*ranges: OffsetRange) -> list[ReplacedRange]:
    """Return ranges of as many batches."""
    return [ReplacedRange(each, batch_id) for each, batch_id in zip(ranges, BATCHES, strict=False)]


def plan_replacing(*replaced: ReplacedRange, reads: tuple[OffsetRange, ...]) -> BatchPlan:
    return replace(a_plan(*reads), kind=BatchKind.REPLACE, replaces=replaced)


def test_a_chunk_is_made_of_whole_ranges_however_large_one_is() -> None:
    replaced = held(span(0, 0, 10), span(0, 10, 1_000), span(0, 1_000, 1_010), span(0, 1_010, 1_020))
    chunks, left = whole_chunks(replaced, 20, 100)
    assert [read_by(chunk) for chunk in chunks] == [(span(0, 0, 10),), (span(0, 10, 1_000),), (span(0, 1_000, 1_020),)]
    assert left == []


def test_ranges_of_a_partition_that_do_not_follow_each_other_are_in_chunks_of_their_own() -> None:
    chunks, _ = whole_chunks(held(span(0, 0, 10), span(0, 20, 30), span(1, 5, 10)), 1_000, 100)
    assert [read_by(chunk) for chunk in chunks] == [(span(0, 0, 10),), (span(0, 20, 30), span(1, 5, 10))]


def test_what_exceeds_the_number_of_chunks_is_for_later() -> None:
    chunks, left = whole_chunks(held(span(0, 0, 10), span(0, 10, 20), span(0, 20, 30)), 10, 1)
    assert (len(chunks), left) == (1, [span(0, 10, 30)])


def test_a_plan_keeps_what_it_replaces_and_its_fingerprint_covers_it() -> None:
    replaced = held(span(0, 0, 10), span(0, 10, 20))
    plan = plan_replacing(*replaced, reads=(span(0, 0, 20),))
    assert BatchPlan.from_document(plan.as_document()) == plan
    other = [ReplacedRange(each.offset_range, BATCHES[9]) for each in replaced]
    assert replace(plan, replaces=tuple(other)).fingerprint != plan.fingerprint


def test_the_plan_of_any_other_batch_has_the_form_that_it_always_had() -> None:
    assert "replaces" not in a_plan(span(0, 0, 10)).as_document()


@pytest.mark.parametrize(
    "replaced",
    [(span(0, 0, 10),), (span(0, 0, 5), span(0, 6, 20)), (span(0, 0, 20), span(1, 0, 1)), ()],
    ids=["less", "a hole", "more", "nothing"],
)
def test_a_plan_that_does_not_replace_exactly_what_it_reads_is_refused(replaced: tuple[OffsetRange, ...]) -> None:
    with pytest.raises(ValueError, match="replace"):
        plan_replacing(*held(*replaced), reads=(span(0, 0, 20),))


def test_only_a_batch_of_its_kind_replaces_ranges() -> None:
    with pytest.raises(ValueError, match="only a batch of kind replace"):
        replace(a_plan(span(0, 0, 20)), replaces=tuple(held(span(0, 0, 20))))


@pytest.mark.parametrize(
    ("on_overlap", "on_missing"), [(OnOverlap.REFUSE, OnMissing.REFUSE), (OnOverlap.CUT, OnMissing.RECORD_GAP)]
)
def test_replacing_leaves_nothing_out(on_overlap: OnOverlap, on_missing: OnMissing) -> None:
    with pytest.raises(ValueError, match="leaves nothing out"):
        BackfillRequest(
            OffsetRanges([span(0, 0, 1)]), {}, mode=Mode.REPLACE, on_overlap=on_overlap, on_missing=on_missing
        )


def test_on_the_command_line_what_is_in_the_output_may_be_replaced_and_a_copy_replaces_nothing() -> None:
    assert choices(["overlap=replace"], None) == {"mode": "replace"}
    assert choices(["overlap=refuse", "missing=record_gap"], "/c") == {"overlap": "refuse", "missing": "record_gap"}
    with pytest.raises(InvalidBackfillError, match="--copy-to or overlap=replace"):
        choices(["overlap=replace"], "/data/copy")


def test_every_state_of_a_record_has_a_word_in_the_table_of_located_batches() -> None:
    assert set(RECORD_IN_WORDS) == {*RecordState, None}
