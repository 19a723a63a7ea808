"""Which dead letters a replay takes up, in which chunks, and what its plan and receipt must agree on."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.fakes import FakeKafkaCluster, InMemoryControlTables, a_plan, a_receipt, span

from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, OpenGaps, StoredDeadLetters
from kafka_ingest.batches.replaying import LettersFound, chunks_of_letters, cut
from kafka_ingest.model.batch import AttemptDocument, BatchKind, BatchPlan, sha256
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import place_of
from kafka_ingest.model.read_again import ReplayedLetters, spanned_by, taken_twice
from kafka_ingest.model.receipt import WrittenFile
from kafka_ingest.verbs.clean import last_copy

BATCHES = [UUID(int=number) for number in range(10)]
NOT_JSON, DOES_NOT_FIT = "NOT_JSON", "DOES_NOT_FIT"


def letters(offset_range: OffsetRange, batch: int = 0, **records: int) -> ReplayedLetters:
    """Return some of a batch's dead letters; three that are no JSON where nothing else is said."""
    return ReplayedLetters(offset_range, BATCHES[batch], tuple(sorted((records or {NOT_JSON: 3}).items())))


def plan_replaying(*replays: ReplayedLetters) -> BatchPlan:
    return replace(a_plan(*spanned_by(replays)), kind=BatchKind.REPLAY, replays=tuple(sorted(replays)))


def chunked(
    *found: ReplayedLetters, max_records: int = 100, most: int = 10, ids: dict[int, str] | None = None
) -> tuple[list[list[int]], list[OffsetRange]]:
    """Return the batches of each chunk's letters, and what is left for later."""
    topic_ids = {batch_id: {"orders": (ids or {}).get(number, "id")} for number, batch_id in enumerate(BATCHES)}
    chunks, later = chunks_of_letters(LettersFound(found, topic_ids), max_records, most)
    return [[BATCHES.index(each.batch_id) for each in chunk] for chunk in chunks], later


def test_a_chunk_takes_letters_of_several_batches_up_to_its_size_and_one_batch_at_least() -> None:
    found = [letters(span(0, 10 * number, 10 * number + 5), number) for number in range(4)]
    assert chunked(*found, max_records=6) == ([[0, 1], [2, 3]], [])
    assert chunked(*found, max_records=1) == ([[0], [1], [2], [3]], [])
    assert chunked(*found, max_records=6, most=1) == ([[0, 1]], [span(0, 20, 25), span(0, 30, 35)])


def test_letters_whose_ranges_overlap_are_in_chunks_of_their_own() -> None:
    again = [letters(span(0, 0, 30), 0), letters(span(0, 10, 20), 1), letters(span(1, 10, 20), 2)]
    assert chunked(*again) == ([[0], [1, 2]], [])


def test_letters_of_a_topic_that_was_made_again_are_in_chunks_of_their_own() -> None:
    found = [letters(span(0, 0, 10), 0), letters(span(0, 10, 20), 1), letters(span(0, 20, 30), 2)]
    assert chunked(*found, ids={2: "another id"}) == ([[0, 1], [2]], [])


def test_a_range_is_cut_where_an_earlier_replay_ends() -> None:
    assert cut(span(0, 0, 10), {0, 4, 10, 12}) == [span(0, 0, 4), span(0, 4, 10)]
    assert cut(span(0, 0, 10), ()) == [span(0, 0, 10)]


# ── Plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_spans_the_ranges_of_its_letters_and_holds_as_many_rows_as_there_are_letters() -> None:
    plan = plan_replaying(letters(span(0, 0, 10)), letters(span(0, 50, 60), 1, DOES_NOT_FIT=2), letters(span(1, 5, 7)))
    assert plan.ranges == (span(0, 0, 60), span(1, 5, 7))
    assert plan.max_rows == 8


def test_a_plan_keeps_what_it_replays_and_its_fingerprint_covers_it() -> None:
    plan = plan_replaying(letters(span(0, 0, 10), NOT_JSON=1, DOES_NOT_FIT=2))
    assert BatchPlan.from_document(plan.as_document()) == plan
    other = plan_replaying(letters(span(0, 0, 10), NOT_JSON=2, DOES_NOT_FIT=1))
    assert other.fingerprint != plan.fingerprint
    assert "replays" not in a_plan(span(0, 0, 10)).as_document()


@pytest.mark.parametrize(
    ("ranges", "replays", "said"),
    [
        ((span(0, 0, 10),), (), "names the dead letters that it replays, found none"),
        ((span(0, 0, 10),), (letters(span(0, 0, 5)),), "expected the ranges"),
        ((span(0, 0, 10), span(1, 0, 1)), (letters(span(0, 0, 10)),), "expected the ranges"),
        ((span(0, 0, 10),), (letters(span(0, 0, 6)), letters(span(0, 5, 10), 1)), "replays an offset once"),
        (
            (span(0, 0, 10),),
            (letters(span(0, 0, 10)), letters(span(0, 1, 2), 1), letters(span(0, 3, 4), 2)),
            "replays an offset once",
        ),
    ],
)
def test_a_plan_that_replays_other_than_it_spans_is_refused(
    ranges: tuple[OffsetRange, ...], replays: tuple[ReplayedLetters, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        replace(a_plan(*ranges), kind=BatchKind.REPLAY, replays=replays)


def test_only_a_replay_replays() -> None:
    with pytest.raises(ValueError, match="only a batch of kind replay replays dead letters, found kind live"):
        replace(a_plan(span(0, 0, 10)), replays=(letters(span(0, 0, 10)),))
    with pytest.raises(ValueError, match="a replay is of dead letters, and nothing else is"):
        BackfillRequest(OpenGaps(), asked={}, mode=Mode.REPLAY)
    with pytest.raises(ValueError, match="a replay is of dead letters, and nothing else is"):
        BackfillRequest(StoredDeadLetters(), asked={})


@pytest.mark.parametrize("records", [(), (("B", 1), ("A", 1)), (("A", 1), ("A", 1)), (("A", 0),)])
def test_replayed_causes_are_sorted_each_once_and_have_records(records: tuple[tuple[str, int], ...]) -> None:
    with pytest.raises(ValueError, match="replayed cause"):
        ReplayedLetters(span(0, 0, 10), BATCHES[0], records)


def test_letters_are_taken_twice_where_batch_range_and_cause_meet() -> None:
    mine = letters(span(0, 0, 10))
    apart = [letters(span(0, 0, 10), 1), letters(span(0, 0, 10), DOES_NOT_FIT=1), letters(span(0, 10, 20))]
    assert taken_twice([mine], apart) == []
    assert taken_twice([mine], [letters(span(0, 9, 20), NOT_JSON=1, DOES_NOT_FIT=1)]) == [span(0, 0, 10)]
    assert taken_twice([mine, letters(span(0, 5, 7))], []) == [span(0, 0, 10), span(0, 5, 7)]


# ── Attempts and receipts ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_attempts_document_names_the_files_that_it_reads() -> None:
    plan = plan_replaying(letters(span(0, 0, 10)), letters(span(1, 0, 10), 1))
    files = {BATCHES[0]: (place_of("/data/l/b/a.parquet"),), BATCHES[1]: (place_of("/data/l/c/a.parquet"),)}
    document = AttemptDocument(plan, 2, letters=files)
    content = document.as_bytes()
    assert AttemptDocument.from_bytes(content, sha256(content)) == document


def replayed_into(plan: BatchPlan, rows: int, dead: int) -> list[str]:
    """Return what is wrong with a receipt of so many rows and dead letters, in files that overlap."""
    good = [WrittenFile.of_one("part-0.parquet", 9, rows, plan.ranges[0].topic_partition, 0, 8)]
    bad = [WrittenFile.of_one("part-0.parquet", 9, dead, plan.ranges[0].topic_partition, 1, 7)] if dead else []
    receipt = replace(a_receipt(plan), files=tuple(good), dead_letters=tuple(bad), rows_read=rows + dead)
    return receipt.contradictions(plan) or receipt.not_replayed(plan)


def test_a_receipt_of_a_replay_has_as_many_records_as_its_plan_names() -> None:
    plan = plan_replaying(letters(span(0, 0, 10), NOT_JSON=5))
    assert replayed_into(plan, 5, 0) == replayed_into(plan, 2, 3) == []
    assert replayed_into(plan, 2, 2) == ["orders-0: expected 5 dead letters to be replayed, found 4"]
    assert replayed_into(plan, 3, 3) == ["orders-0: expected 5 dead letters to be replayed, found 6"]


def test_files_of_a_replay_may_hold_offsets_between_those_of_another() -> None:
    plan = plan_replaying(letters(span(0, 0, 10), NOT_JSON=5))
    at = plan.ranges[0].topic_partition
    files = (WrittenFile.of_one("a.parquet", 9, 3, at, 0, 8), WrittenFile.of_one("b.parquet", 9, 2, at, 1, 7))
    receipt = replace(a_receipt(plan), files=files, rows_read=5)
    assert (receipt.contradictions(plan), receipt.not_replayed(plan)) == ([], [])
    other = replace(plan, kind=BatchKind.BACKFILL, replays=())
    assert any(
        "both hold offsets" in each
        for each in replace(receipt, plan_fingerprint=other.fingerprint).contradictions(other)
    )


def test_what_a_replay_has_staged_is_never_the_last_copy() -> None:
    plan = plan_replaying(letters(span(0, 0, 10)), letters(span(0, 50, 60), 1))
    assert last_copy(plan, plan.ranges, InMemoryControlTables(), FakeKafkaCluster()) is None
