"""Rows of any order and origin as runs of offsets: what is there, what is there twice, and by whose batch."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.model.proof import HeldLog, OffsetRuns
from kafka_ingest.sinks import found_offsets
from kafka_ingest.sinks.found_offsets import FoundOffsets

ONE, OTHER = UUID(int=1), UUID(int=2)


def rows(*positions: tuple[Any, ...]) -> pa.Table:
    """Return rows of (topic, id, partition, offset, batch)."""
    names = ("kafka_topic", "kafka_topic_id", "kafka_partition", "kafka_offset", "kafka_batch")
    types = (pa.string(), pa.string(), pa.int32(), pa.int64(), pa.string())
    columns = [pa.array([each[number] for each in positions], kind) for number, kind in enumerate(types)]
    return pa.table(dict(zip(names, columns, strict=True)))


def of(*offsets: int, partition: int = 0, batch: UUID | None = ONE, topic_id: str | None = "id-1") -> pa.Table:
    """Return rows of topic ``orders``."""
    return rows(*(("orders", topic_id, partition, each, str(batch) if batch else None) for each in offsets))


def held(*tables: pa.Table, ids: Mapping[UUID, str] = MappingProxyType({})) -> list[HeldLog]:
    """Return what files with these rows hold."""
    found = FoundOffsets()
    for number, table in enumerate(tables):
        found.add(f"file-{number}", table, {})
    assert found.problems == []
    return found.held(lambda batch, _: ids.get(batch) if batch is not None else None)


def runs(offsets: OffsetRuns) -> list[tuple[int, int]]:
    return offsets.first(100)


def test_rows_in_order_are_one_run_across_files_and_batches() -> None:
    [log] = held(of(0, 1, 2), of(3, 4, batch=OTHER))

    assert (log.topic_id, log.rows, runs(log.offsets), runs(log.doubled)) == ("id-1", 5, [(0, 5)], [])
    assert {batch: runs(found) for batch, found in log.of_batches.items()} == {ONE: [(0, 3)], OTHER: [(3, 5)]}
    assert log.files == [("file-0", 0, 3), ("file-1", 3, 5)]


def test_files_of_which_the_runs_were_put_together_meanwhile_are_still_told_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(found_offsets, "AT_ONCE", 2)
    [log] = held(*(of(number, number + 1, batch=UUID(int=number)) for number in range(1, 8)))
    assert (log.rows, runs(log.offsets), runs(log.doubled)) == (14, [(1, 9)], [(2, 8)])
    assert {batch: runs(found) for batch, found in log.of_batches.items()} == {
        UUID(int=number): [(number, number + 2)] for number in range(1, 8)
    }
    assert log.files_of(3, 4) == ["file-1", "file-2"]


@pytest.mark.parametrize(("partition", "offset"), [(-1, 7), (0, -1), (0, 2**63 - 1), (None, 7)])
def test_rows_with_positions_that_kafka_never_has_are_other_programs_own(partition: int | None, offset: int) -> None:
    found = FoundOffsets()
    positions = [("orders", "id-1", 0, 6, None), ("orders", "id-1", partition, offset, None)]
    found.add("file", rows(*positions), {})
    [log] = found.held(lambda *_: None)
    assert (runs(log.offsets), found.foreign_rows) == ([(6, 7)], 1)


def test_a_file_whose_rows_all_are_of_a_partition_below_zero_is_another_programs_own() -> None:
    found = FoundOffsets()
    found.add("file", rows(("orders", "id-1", 0, 6, None)).drop_columns("kafka_partition"), {"kafka_partition": -1})
    assert (found.held(lambda *_: None), found.foreign_rows) == ([], 1)


def test_offsets_of_two_files_are_doubled_and_those_of_three_counted_once() -> None:
    [log] = held(of(0, 1, 2, 3, 4, 5), of(2, 3, batch=OTHER), of(3, 4, 9))

    assert (log.rows, runs(log.offsets), runs(log.doubled)) == (11, [(0, 6), (9, 10)], [(2, 5)])
    assert log.files_of(2, 3) == ["file-0", "file-1"]
    assert set(log.batches_of(2, 3)) == {ONE, OTHER}


def test_a_row_that_comes_twice_in_one_file_is_doubled_wherever_it_is() -> None:
    [log] = held(of(5, 5, 1, 3, 1))
    assert (log.rows, runs(log.offsets), runs(log.doubled)) == (5, [(1, 2), (3, 4), (5, 6)], [(1, 2), (5, 6)])


def test_shuffled_rows_far_apart_are_put_in_order_too() -> None:
    far = 2**61
    for log in held(*(of(far, 7, far + 1, 3, 7, partition=number) for number in range(5))):
        assert runs(log.offsets) == [(3, 4), (7, 8), (far, far + 2)]
        assert runs(log.doubled) == [(7, 8)]


POSITIONS = st.tuples(
    st.just("orders"),
    st.sampled_from(["id-1", "id-2"]),
    st.integers(0, 1),
    st.integers(0, 40),
    st.sampled_from([str(ONE), str(OTHER)]),
)


@given(st.lists(POSITIONS, max_size=200), st.integers(0, 200))
def test_rows_in_any_order_are_counted_as_a_set_counts_them(positions: list[tuple[Any, ...]], cut: int) -> None:
    found = held(rows(*positions[:cut]), rows(*positions[cut:]))

    expected: dict[tuple[str, int], Counter[int]] = {}
    for _, topic_id, partition, offset, _ in positions:
        expected.setdefault((topic_id, partition), Counter())[offset] += 1
    seen = {(str(log.topic_id), log.topic_partition.partition): log for log in found}
    assert {key: log.rows for key, log in seen.items()} == {key: each.total() for key, each in expected.items()}
    for key, log in seen.items():
        assert [each for start, end in runs(log.offsets) for each in range(start, end)] == sorted(expected[key])
        twice = sorted(offset for offset, count in expected[key].items() if count > 1)
        assert [each for start, end in runs(log.doubled) for each in range(start, end)] == twice


def test_a_topic_that_was_made_again_is_another_one() -> None:
    first, second = held(of(0, 1), of(0, 1, topic_id="id-2"))
    assert [(log.topic_id, runs(log.doubled)) for log in (first, second)] == [("id-1", []), ("id-2", [])]


def test_rows_of_an_earlier_version_have_the_id_that_their_batch_read() -> None:
    [log] = held(of(0, 1, topic_id=None), of(1, 2, batch=OTHER), ids={ONE: "id-1"})
    assert (log.topic_id, runs(log.doubled)) == ("id-1", [(1, 2)])
    [log] = held(of(0, topic_id=None), of(0, batch=OTHER))
    assert (log.topic_id, runs(log.doubled)) == ("id-1", [(0, 1)]), "the only one of that topic"


def test_a_batch_that_is_no_id_or_none_is_none() -> None:
    [log] = held(of(0, batch=None), rows(("orders", "id-1", 0, 1, "by hand")))
    assert {batch: runs(found) for batch, found in log.of_batches.items()} == {None: [(0, 2)]}


def test_rows_without_a_position_are_other_programs_own() -> None:
    found = FoundOffsets()
    found.add("file", rows(("orders", "id-1", 0, 7, str(ONE)), (None, None, None, None, None)), {})
    found.add("file", pa.table({"kafka_offset": [1, 2]}), {"kafka_topic": None})
    found.add("file", pa.table({"name": ["of a table", "without positions"]}), {})
    [log] = found.held(lambda *_: None)
    assert (runs(log.offsets), found.foreign_rows) == ([(7, 8)], 5)


def test_nothing_found_is_nothing_held() -> None:
    assert held() == held(of()) == []


def test_a_file_is_read_by_what_its_statistics_do_not_say_and_values_that_its_place_says(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = of(*range(10)).drop_columns(["kafka_batch"])
    pyarrow.parquet.write_table(table, path, row_group_size=4)
    found = FoundOffsets()

    found.add_file("a", path, {"kafka_batch": str(OTHER)})

    [log] = found.held(lambda *_: None)
    assert (log.rows, runs(log.of_batches[OTHER]), log.files) == (10, [(0, 10)], [("a", 0, 10)])


def test_a_row_group_of_one_value_and_nulls_is_not_of_that_value_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(rows(("orders", "id-1", 0, 7, str(ONE)), (None, None, None, 8, None)), path)
    found = FoundOffsets()

    found.add_file("a", path, {})

    [log] = found.held(lambda *_: None)
    assert (runs(log.offsets), found.foreign_rows) == ([(7, 8)], 1)


@pytest.mark.parametrize(
    "row",
    [
        ("orders", "id-1", 0, 7, str(ONE)),
        ("orders", None, 0, 7, None),
        ("orders", "id-1", 0, 7, "by hand"),
        ("orders", "id-1", -1, 7, str(ONE)),
        ("orders", "id-1", 0, 2**62, str(ONE)),
        ("orders", "id-1", None, 7, str(ONE)),
    ],
)
def test_a_file_of_one_row_holds_what_the_row_does_whatever_its_statistics_say(
    tmp_path: Path, row: tuple[Any, ...]
) -> None:
    path = tmp_path / "a.parquet"
    of_rows = FoundOffsets()
    of_rows.add("a", rows(row), {})
    expected = of_rows.held(lambda *_: None)
    for statistics in (True, False):
        pyarrow.parquet.write_table(rows(row), path, write_statistics=statistics)
        found = FoundOffsets()
        found.add_file("a", path, {})
        assert (found.held(lambda *_: None), found.foreign_rows) == (expected, of_rows.foreign_rows)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"no parquet", "Parquet magic bytes not found"),
        (None, "No such file"),
        (pa.table({"a": [1]}), "column kafka_topic"),
    ],
    ids=["damaged", "missing", "another"],
)
def test_a_file_that_cannot_be_read_is_named_and_stops_no_other(
    tmp_path: Path, content: bytes | pa.Table | None, why: str
) -> None:
    path = tmp_path / "bad.parquet"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        pyarrow.parquet.write_table(content, path)
    found = FoundOffsets()

    found.add_file("bad.parquet", path, {})

    [problem] = found.problems
    assert problem.startswith("bad.parquet: expected a file with the positions of records, found ")
    assert why in problem


def test_runs_know_what_is_within_a_range_and_what_is_not() -> None:
    found = OffsetRuns([0, 10, 20], [5, 15, 25])
    assert (found.count, runs(found.within(3, 22))) == (15, [(3, 5), (10, 15), (20, 22)])
    assert runs(found.holes(3, 30)) == [(5, 10), (15, 20), (25, 30)]
    assert runs(found.within(5, 10)) == runs(found.holes(11, 14)) == []
    assert runs(OffsetRuns().holes(3, 5)) == [(3, 5)]
    assert runs(found.within(12, 13)) == [(12, 13)]
