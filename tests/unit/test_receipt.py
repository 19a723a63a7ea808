"""Receipts: what they say, what they refuse to be, and every way in which one contradicts its plan."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import BATCH_ID, a_file, a_plan, a_receipt, partition, span

from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.receipt import Filtered, RangeCount, Receipt, WrittenFile, WrittenPartition

PLANNED = span(0, 100, 200)
PLAN = a_plan(PLANNED)


def changed_document(receipt: Receipt, **changes: Any) -> bytes:
    """Return a receipt's bytes with some top-level keys replaced."""
    return json.dumps(receipt.as_document() | changes).encode()


def test_a_receipt_comes_back_from_its_bytes_as_it_was() -> None:
    receipt = a_receipt(a_plan())
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt


def test_records_without_a_date_are_counted_by_file_and_a_receipt_without_the_count_has_none() -> None:
    receipt = a_receipt(PLAN, a_file(PLANNED, without_date=7))

    assert Receipt.from_bytes(receipt.as_bytes()).without_date == 7
    assert "without_date" not in json.dumps(a_receipt(PLAN).as_document())
    assert Receipt.from_bytes(a_receipt(PLAN).as_bytes()).without_date == 0


class CountedFiles(list[WrittenFile]):
    """Files that count how often they are looked through."""

    looks = 0

    def __iter__(self) -> Iterator[WrittenFile]:
        self.looks += 1
        return super().__iter__()


def test_a_receipt_looks_through_its_files_a_few_times_however_many_there_are() -> None:
    # Once for each file is 100 million steps for 10,000 partitions, and seconds of each commit.
    spans = [span(number, 0, 10) for number in range(50)]
    receipt = a_receipt(a_plan(*spans), *(a_file(each, name=f"part-{number}") for number, each in enumerate(spans)))
    files = CountedFiles(receipt.files)

    replace(receipt, files=files).as_document()

    assert 0 < files.looks < 10


@pytest.mark.parametrize("version", [0, 6, "1", None])
def test_a_receipt_of_an_unknown_version_is_refused(version: object) -> None:
    with pytest.raises(ValueError, match=f"receipt of format version 1 or 2 or 3 or 4 or 5, found {version!r}"):
        Receipt.from_bytes(changed_document(a_receipt(PLAN), version=version))


def test_a_receipt_that_was_cut_off_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Unterminated string|Expecting"):
        Receipt.from_bytes(a_receipt(PLAN).as_bytes()[:100])


def test_a_receipt_that_is_not_an_object_is_refused() -> None:
    with pytest.raises(ForeignJsonError, match="expected a JSON object, found list"):
        Receipt.from_bytes(b"[]")


def test_a_receipt_that_lacks_a_field_is_refused() -> None:
    document = a_receipt(PLAN).as_document()
    del document["rows_read"]
    with pytest.raises(ForeignJsonError, match="expected 'rows_read' in it, found none"):
        Receipt.from_document(document)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "../part-0.parquet",
        "/etc/passwd",
        "a//b.parquet",
        "a/../b.parquet",
        "a/",
        "./b",
        ".part-0.parquet.crc",
        "..",
    ],
)
def test_a_data_files_name_stays_within_its_directory(name: str) -> None:
    with pytest.raises(ValueError, match=r"plain, or relative with plain folders in it, without '..', found"):
        a_file(PLANNED, name=name)


def test_a_data_file_of_a_partitioned_table_lies_in_folders() -> None:
    receipt = a_receipt(a_plan(), a_file(PLANNED, name="day=2026-01-02/hour=3/part-0.parquet"))
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt


def test_rows_and_bytes_are_those_of_the_files() -> None:
    receipt = a_receipt(a_plan(), a_file(PLANNED, size_bytes=700), a_file(span(1, 0, 50), size_bytes=300))
    assert (receipt.rows, receipt.size_bytes) == (150, 1_000)


def test_the_files_of_one_partition_are_counted_together() -> None:
    receipt = a_receipt(PLAN, a_file(span(0, 150, 200), name="b.parquet"), a_file(span(0, 100, 150), name="a.parquet"))
    assert receipt.range_counts(PLAN) == [RangeCount(PLANNED, 100, 100, 199)]


def test_a_range_of_which_nothing_was_written_has_no_offsets() -> None:
    receipt = a_receipt(a_plan(), a_file(span(1, 0, 50)))
    assert receipt.range_counts(a_plan())[0] == RangeCount(PLANNED, 0, None, None)


def test_the_counts_come_in_the_plans_order() -> None:
    plan = a_plan(span(0, 0, 5), span(1, 0, 6), span(2, 0, 7))
    receipt = a_receipt(plan, *(a_file(planned) for planned in reversed(plan.ranges)))
    assert [count.rows for count in receipt.range_counts(plan)] == [5, 6, 7]


def test_offsets_without_a_record_are_invisible() -> None:
    assert RangeCount(PLANNED, 98, 100, 199).invisible == 2


def test_a_receipt_of_every_record_contradicts_nothing() -> None:
    assert a_receipt(a_plan()).contradictions(a_plan()) == []


def test_a_receipt_without_files_may_be_true_of_a_range_that_holds_only_transaction_markers() -> None:
    assert a_receipt(PLAN, rows_read=0, files=()).contradictions(PLAN) == []


def test_a_receipt_of_another_batch_says_only_that() -> None:
    receipt = a_receipt(PLAN, batch_id=UUID(int=7), rows_read=3)
    assert receipt.contradictions(PLAN) == [f"expected batch {BATCH_ID}, found {UUID(int=7)}"]


def test_a_receipt_of_another_plan_of_the_batch_says_only_that() -> None:
    other = a_plan(span(0, 100, 300))
    assert a_receipt(other, rows_read=3).contradictions(PLAN) == [
        f"expected the plan with fingerprint {PLAN.fingerprint}, found {other.fingerprint}"
    ]


def test_files_that_hold_other_than_what_spark_read_are_a_contradiction() -> None:
    assert a_receipt(PLAN, rows_read=101).contradictions(PLAN) == [
        "Spark read 101 records, the files hold 100: a file did not reach the storage where the receipt was written"
    ]


def test_a_file_of_a_partition_that_is_not_in_the_plan_is_a_contradiction() -> None:
    stray = a_file(span(9, 0, 5), name="stray.parquet")
    assert a_receipt(PLAN, a_file(PLANNED), stray).contradictions(PLAN) == [
        "stray.parquet holds orders-9, which the plan does not read"
    ]


def test_more_rows_than_offsets_are_a_contradiction() -> None:
    twice = a_file(PLANNED, rows=100, name="again.parquet")
    assert a_receipt(PLAN, a_file(PLANNED), twice).contradictions(PLAN) == [
        "orders-0[100, 200) can hold 100 records, the files hold 200",
        "part-orders-0.parquet and again.parquet both hold offsets of orders-0 from 100 to 199: duplicate records",
    ]


def test_an_offset_below_the_range_is_a_contradiction() -> None:
    assert a_receipt(PLAN, a_file(PLANNED, smallest_offset=99)).contradictions(PLAN) == [
        "orders-0[100, 200) was planned, the files begin at offset 99"
    ]


def test_the_end_offset_itself_is_a_contradiction() -> None:
    assert a_receipt(PLAN, a_file(PLANNED, largest_offset=200)).contradictions(PLAN) == [
        "orders-0[100, 200) was planned, the files go up to offset 200"
    ]


def test_the_last_offset_of_the_range_is_none() -> None:
    assert a_receipt(PLAN, a_file(PLANNED, largest_offset=199)).contradictions(PLAN) == []


def test_all_contradictions_are_named() -> None:
    receipt = a_receipt(
        PLAN, a_file(PLANNED, smallest_offset=99, largest_offset=200), a_file(span(9, 0, 5)), rows_read=1
    )
    assert len(receipt.contradictions(PLAN)) == 4


def test_a_receipt_of_a_partition_is_of_that_topic_too() -> None:
    receipt = a_receipt(PLAN, a_file(PLANNED, topic_partition=partition(0, "refunds")))
    assert receipt.contradictions(PLAN) == ["part-orders-0.parquet holds refunds-0, which the plan does not read"]


# ── Files of several partitions ───────────────────────────────────────────────────────────────────────────────────────

SMALL = a_plan(span(0, 100, 103), span(1, 0, 2), span(2, 5, 9))


def shared(*held: tuple[int, int, int, int], name: str = "part-0.parquet") -> WrittenFile:
    """Return a file of several partitions: number, rows, smallest and largest offset of each."""
    return WrittenFile(
        name, 900, tuple(WrittenPartition(partition(number), rows, *bounds) for number, rows, *bounds in held)
    )


EVERY_RECORD = shared((0, 3, 100, 102), (1, 2, 0, 1), (2, 4, 5, 8))


def test_a_file_of_several_partitions_is_counted_for_each_of_them() -> None:
    receipt = a_receipt(SMALL, EVERY_RECORD)
    assert (receipt.rows, receipt.size_bytes) == (9, 900)
    assert receipt.range_counts(SMALL) == [
        RangeCount(SMALL.ranges[0], 3, 100, 102),
        RangeCount(SMALL.ranges[1], 2, 0, 1),
        RangeCount(SMALL.ranges[2], 4, 5, 8),
    ]
    assert receipt.contradictions(SMALL) == []


def test_a_receipt_of_such_a_file_is_of_version_2_and_comes_back_as_it_was() -> None:
    receipt = a_receipt(SMALL, EVERY_RECORD, a_file(span(1, 0, 2)))
    assert receipt.as_document()["version"] == 2
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt


# ── Dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────


def with_dead_letters(read: int, *letters: WrittenFile) -> Receipt:
    """Return a receipt of the small plan's first range: two rows, and dead letters."""
    file = WrittenFile.of_one("part-0.parquet", 900, 2, partition(0), 100, 102)
    return replace(a_receipt(SMALL, file), rows_read=read, dead_letters=letters)


ONE_LETTER = WrittenFile.of_one("part-9.parquet", 300, 1, partition(0), 101, 101)


def test_dead_letters_are_counted_apart_from_rows_and_are_no_missing_offsets() -> None:
    receipt = with_dead_letters(3, ONE_LETTER)
    assert receipt.contradictions(SMALL) == []
    assert receipt.rows == 2
    assert receipt.range_counts(SMALL)[0] == RangeCount(SMALL.ranges[0], 2, 100, 102, dead_letters=1)
    assert receipt.range_counts(SMALL)[0].invisible == 0


def test_a_receipt_with_dead_letters_is_of_version_4_and_comes_back_as_it_was() -> None:
    receipt = with_dead_letters(3, ONE_LETTER)
    assert receipt.as_document()["version"] == 4
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt
    of_letters = receipt.of_dead_letters()
    assert (of_letters.rows, of_letters.rows_read, of_letters.version) == (1, 1, 1)
    assert Receipt.from_bytes(of_letters.as_bytes()) == of_letters


@pytest.mark.parametrize("version", [1, 4])
def test_a_receipt_of_a_version_that_cannot_hold_what_it_has_is_refused(version: int) -> None:
    with pytest.raises(ValueError, match=f"expected format version 5 of a receipt .*, found {version}"):
        Receipt.from_bytes(changed_document(with_filtered(3, ONE_FILTERED, letters=(ONE_LETTER,)), version=version))


def test_a_receipt_of_version_4_without_dead_letters_is_refused() -> None:
    with pytest.raises(ValueError, match="of format version 4 has dead letters, found none"):
        Receipt.from_bytes(changed_document(with_dead_letters(3, ONE_LETTER), dead_letters=[]))


@pytest.mark.parametrize(
    ("receipt", "problem"),
    [
        (with_dead_letters(2, ONE_LETTER), "Spark read 2 records, the files hold 3"),
        (
            with_dead_letters(4, WrittenFile.of_one("part-9.parquet", 300, 2, partition(0), 100, 101)),
            "can hold 3 records, the files hold 4",
        ),
        (
            with_dead_letters(3, WrittenFile.of_one("part-9.parquet", 300, 1, partition(0), 103, 103)),
            "dead letters: orders-0[100, 103) was planned, the files go up to offset 103",
        ),
        (
            with_dead_letters(4, ONE_LETTER, replace(ONE_LETTER, name="part-8.parquet")),
            "dead letters: part-9.parquet and part-8.parquet both hold offsets of orders-0",
        ),
    ],
)
def test_dead_letters_that_cannot_be_true_of_the_plan_are_named(receipt: Receipt, problem: str) -> None:
    assert problem in "; ".join(receipt.contradictions(SMALL))


def test_a_receipt_of_files_of_one_partition_is_what_earlier_versions_wrote_byte_for_byte() -> None:
    receipt = a_receipt(PLAN)
    assert receipt.as_document()["version"] == 1
    assert receipt.as_document()["files"] == [
        {
            "name": "part-orders-0.parquet",
            "size_bytes": 1_000,
            "rows": 100,
            "topic": "orders",
            "partition": 0,
            "smallest_offset": 100,
            "largest_offset": 199,
        }
    ]


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        (shared((0, 3, 99, 102), (1, 2, 0, 1)), "orders-0[100, 103) was planned, the files begin at offset 99"),
        (shared((0, 3, 100, 102), (1, 2, 0, 2)), "orders-1[0, 2) was planned, the files go up to offset 2"),
        (shared((0, 3, 100, 102), (9, 2, 0, 1)), "part-0.parquet holds orders-9, which the plan does not read"),
        (
            shared((0, 3, 100, 101), (1, 2, 0, 1)),
            "part-0.parquet holds 3 records of orders-0 between offsets 100 and 101",
        ),
        (shared((0, 4, 100, 103), (1, 2, 0, 1)), "orders-0[100, 103) can hold 3 records, the files hold 4"),
    ],
)
def test_each_partition_of_a_file_is_held_against_the_plan(file: WrittenFile, problem: str) -> None:
    assert any(found.startswith(problem) for found in a_receipt(SMALL, file).contradictions(SMALL))


def test_a_partition_in_two_files_may_not_come_twice_wherever_the_others_are() -> None:
    again = shared((1, 1, 1, 1), (2, 4, 5, 8), name="again.parquet")
    [_, twice] = a_receipt(SMALL, shared((0, 3, 100, 102), (1, 2, 0, 1)), again).contradictions(SMALL)
    assert twice == "part-0.parquet and again.parquet both hold offsets of orders-1 from 1 to 1: duplicate records"


@pytest.mark.parametrize("held", [(), ((1, 1, 0, 0), (0, 1, 0, 0)), ((0, 1, 0, 0), (0, 1, 1, 1))])
def test_a_file_names_its_partitions_sorted_and_each_once(held: tuple[tuple[int, int, int, int], ...]) -> None:
    with pytest.raises(ValueError, match="names its partitions sorted, each once"):
        shared(*held)


# ── Filtered ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_filtered(
    read: int, *filtered: Filtered, letters: tuple[WrittenFile, ...] = (), any_order: bool = False
) -> Receipt:
    """Return a receipt of the small plan's first range: one row, and filtered records."""
    file = WrittenFile.of_one("part-0.parquet", 900, 1, partition(0), 100, 100)
    receipt = a_receipt(SMALL, file)
    return replace(receipt, rows_read=read, dead_letters=letters, filtered=filtered, in_any_order=any_order)


ONE_FILTERED = Filtered(partition(0), 1)


def test_filtered_records_are_counted_apart_from_rows_and_are_no_missing_offsets() -> None:
    receipt = with_filtered(3, ONE_FILTERED, letters=(ONE_LETTER,))
    assert receipt.contradictions(SMALL) == []
    assert receipt.range_counts(SMALL)[0] == RangeCount(SMALL.ranges[0], 1, 100, 100, dead_letters=1, filtered=1)
    assert [count.invisible for count in receipt.range_counts(SMALL)] == [0, SMALL.ranges[1].span, SMALL.ranges[2].span]
    assert receipt.of_dead_letters().contradictions(SMALL) == []


@pytest.mark.parametrize(
    "receipt",
    [
        with_filtered(2, ONE_FILTERED),
        with_filtered(3, ONE_FILTERED, letters=(ONE_LETTER,)),
        with_filtered(1, any_order=True),
        replace(with_filtered(2, ONE_FILTERED), left_out=(LeftOut(SMALL.ranges[1], 2),)),
    ],
)
def test_a_receipt_with_filtered_records_is_of_version_5_and_comes_back_as_it_was(receipt: Receipt) -> None:
    assert receipt.as_document()["version"] == 5
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt


def test_a_receipt_of_version_5_without_filtered_records_is_refused() -> None:
    with pytest.raises(ValueError, match="of format version 5 has filtered records, found none"):
        Receipt.from_bytes(changed_document(with_filtered(2, ONE_FILTERED), filtered=[]))
    with pytest.raises(ValueError, match="expected at least 1 filtered record, found 0"):
        Filtered(partition(0), 0)


@pytest.mark.parametrize(
    ("receipt", "problem"),
    [
        (with_filtered(1, ONE_FILTERED), "Spark read 1 record, the files hold 1 and 1 were filtered: a file did not"),
        (with_filtered(4, Filtered(partition(0), 3)), "can hold 3 records, the files hold 4 with those that were filt"),
        (with_filtered(2, Filtered(partition(9), 1)), "1 record of orders-9 was filtered, which the plan does not"),
        (with_filtered(3, ONE_FILTERED, ONE_FILTERED), "the filtered records are not named by partition, sorted, each"),
        (
            replace(with_filtered(2, Filtered(partition(1), 1)), left_out=(LeftOut(SMALL.ranges[1], 2),)),
            "1 record of orders-1 was filtered, which is left out",
        ),
    ],
)
def test_filtered_records_that_cannot_be_are_a_contradiction(receipt: Receipt, problem: str) -> None:
    assert any(problem in found for found in receipt.contradictions(SMALL)), receipt.contradictions(SMALL)


def test_files_of_rows_that_may_have_moved_overlap_but_hold_no_more_rows_than_offsets() -> None:
    files = [WrittenFile.of_one(f"part-{n}.parquet", 9, 1, partition(0), 100, 102) for n in range(3)]
    files = [replace(file, partitions=(replace(file.partitions[0], rows=1),)) for file in files]
    moved = replace(a_receipt(SMALL, *files), in_any_order=True)
    assert moved.contradictions(SMALL) == []
    assert any("duplicate records" in found for found in replace(moved, in_any_order=False).contradictions(SMALL))


def test_late_rows_are_among_the_rows_and_their_files_overlap_with_the_others() -> None:
    names = ("part-0.parquet", "kafka_late=true/part-0.parquet", "kafka_late=true/dt=2026-01-31/part-0.parquet")
    held = WrittenFile.of_one("part", 9, 1, partition(0), 100, 102)
    receipt = a_receipt(SMALL, *(replace(held, name=name) for name in names))

    assert (receipt.rows, receipt.late_rows) == (3, 2)
    assert receipt.contradictions(SMALL) == []
    assert Receipt.from_bytes(receipt.as_bytes()) == receipt


def test_a_receipt_of_decoded_records_keeps_their_columns_and_others_have_none() -> None:
    plain = a_receipt(a_plan())
    receipt = replace(plain, columns={"value": "struct", "value.id": "bigint"})

    assert Receipt.from_bytes(receipt.as_bytes()) == receipt
    assert receipt.version == plain.version
    assert Receipt.from_bytes(plain.as_bytes()).columns is None
    assert b"columns" not in plain.as_bytes()
    for damaged in (["value"], {"value": 1}):
        with pytest.raises(ForeignJsonError, match="a JSON object of texts"):
            Receipt.from_bytes(changed_document(plain, columns=damaged))
