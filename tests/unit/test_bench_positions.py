"""The benchmark's checksum: it differs for any other output than the requested records."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from positions import Positions, data_files, positions_in, positions_of
from talking import BenchmarkError
from topic_data import IN_A_TRANSACTION, TopicData

Pairs = Sequence[tuple[int, int]]

FOUR: Pairs = ((0, 0), (0, 1), (1, 0), (1, 1))


def splitmix64(seed: int) -> int:
    """Return the first number of the generator with this seed, as its authors wrote it in C; 64 bits."""
    z = (seed + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
    return z ^ (z >> 31)


def expected(pairs: Pairs) -> Positions:
    total = sum(splitmix64(partition * 2**48 + offset) for partition, offset in pairs)
    return Positions(len(pairs), f"{total % 2**64:016x}")


def found(pairs: Pairs) -> Positions:
    partitions, offsets = (np.array(column, dtype=np.uint64) for column in zip(*pairs, strict=True))
    return positions_of([(partitions, offsets)])


def write(path: Path, pairs: Pairs, prefix: str = "", without: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partitions, offsets = map(list, zip(*pairs, strict=True))
    numbers = {f"{prefix}partition": partitions, f"{prefix}offset": offsets}
    rest = dict.fromkeys(
        [f"{prefix}topic", f"{prefix}topic_id", f"{prefix}timestamp", f"{prefix}headers", "key", "value"],
        [b"x"] * len(pairs),
    )
    columns = {name: values for name, values in {**numbers, **rest}.items() if name != without}
    pyarrow.parquet.write_table(pa.table(columns), path)


def test_the_hash_of_a_position_is_the_published_one() -> None:
    # The first output of SplitMix64 with seed 0, in the literature and in Java's SplittableRandom.
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    assert found([(0, 0)]) == Positions(1, "e220a8397b1dcdaf")


@pytest.mark.parametrize("pairs", [FOUR, [(9_999, 2**40)], [(3, offset) for offset in range(1_000)]])
def test_positions_amount_to_the_sum_of_their_hashes(pairs: Pairs) -> None:
    assert found(pairs) == expected(pairs)


@pytest.mark.parametrize(
    ("wrong", "pairs"),
    [
        ("one is missing", FOUR[:3]),
        ("one is twice", [*FOUR, FOUR[0]]),
        ("one is missing, another twice", [*FOUR[:3], FOUR[0]]),
        ("partition and offset are swapped", [(0, 0), (1, 0), (1, 1), (1, 0)]),
        ("a partition is another one's", [(0, 0), (0, 1), (2, 0), (2, 1)]),
        ("an offset is the next one", [(0, 0), (0, 2), (1, 0), (1, 1)]),
        ("two offsets whose sum is the same", [(0, 0), (0, 3), (1, 0), (1, -1 % 2**47)]),
    ],
)
def test_other_positions_have_another_checksum(wrong: str, pairs: Pairs) -> None:
    assert found(pairs).checksum != found(FOUR).checksum, wrong


def test_order_and_parts_do_not_matter() -> None:
    parts = [tuple(np.array([number], dtype=np.uint64) for number in pair) for pair in reversed(FOUR)]

    assert positions_of(parts) == expected(FOUR)


def test_no_position_is_no_row() -> None:
    assert positions_of([]) == Positions(0, "0" * 16)


@pytest.mark.parametrize("prefix", ["", "kafka_"])
def test_the_positions_in_files_are_those_of_their_rows(tmp_path: Path, prefix: str) -> None:
    write(tmp_path / "one.parquet", FOUR[:3], prefix)
    write(tmp_path / "deep" / "two.parquet", FOUR[3:], prefix)

    assert positions_in(data_files(tmp_path)) == expected(FOUR)


def test_what_is_hidden_is_no_output(tmp_path: Path) -> None:
    for name in (".staging/a.parquet", "_temporary/b.parquet", "_spark_metadata/0", ".c.parquet.crc"):
        write(tmp_path / name, FOUR)

    assert data_files(tmp_path) == []


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp", "headers", "key", "value"])
def test_a_file_without_a_column_that_the_others_write_is_no_output(tmp_path: Path, column: str) -> None:
    write(tmp_path / "one.parquet", FOUR, without=column)

    with pytest.raises(BenchmarkError, match=r"expected topic, .*, headers, key, value in .*: all write the same"):
        positions_in(data_files(tmp_path))


def test_a_topic_is_expected_to_hold_every_offset_of_every_partition() -> None:
    data = TopicData("orders", records=5, partitions=2)

    assert data.positions(data.end_offsets()) == expected([(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)])


def test_a_part_of_a_topic_is_expected_to_hold_what_is_before_its_ends() -> None:
    data = TopicData("orders", records=5, partitions=2)

    assert data.positions({0: 1, 1: 2}) == expected([(0, 0), (1, 0), (1, 1)])


def test_the_marker_of_a_transaction_is_no_record() -> None:
    data = TopicData("orders", records=IN_A_TRANSACTION + 1, partitions=1, transactional=True)
    offsets = [*range(IN_A_TRANSACTION), IN_A_TRANSACTION + 1]

    assert data.positions(data.end_offsets()) == expected([(0, offset) for offset in offsets])
