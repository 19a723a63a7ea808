"""Counting what readers see of a batch, on real Parquet files: every row, and every offset once."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.contract.builders import batch_id_of, orders
from tests.contract.ordinary_user import ordinary_user
from tests.contract.staged_files import Staged, write_rows

from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedCount
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet_contents import look_at_named

BATCH = batch_id_of(1)
ORDERS_0 = orders(0)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "orders"


@pytest.fixture
def published(output: Path) -> Path:
    """Where the files of the batch are, once it is published."""
    directory = output / f"kafka_batch={BATCH}"
    directory.mkdir(parents=True)
    return directory


def put(directory: Path, name: str, offsets: Sequence[int], topic_partition: TopicPartition = ORDERS_0) -> Path:
    """Write a data file with these offsets, which may come twice."""
    path = directory / f"{name}.parquet"
    rows = {
        "kafka_topic": pa.array([topic_partition.topic] * len(offsets), pa.string()),
        "kafka_partition": pa.array([topic_partition.partition] * len(offsets), pa.int32()),
        "kafka_offset": pa.array(list(offsets), pa.int64()),
    }
    pyarrow.parquet.write_table(pa.table(rows), path)
    return path


def counted(output: Path, batch_id: UUID = BATCH) -> list[PublishedCount]:
    """Return what readers see, after a look that found nothing wrong."""
    look = parquet_sink(output).inspector.look_at(batch_id)
    assert not look.problems
    return list(look.counts)


# ── Rows and offsets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_row_of_every_partition_is_counted(output: Path, published: Path) -> None:
    put(published, "part-0", range(10, 20))
    put(published, "part-1", [3, 5, 9], orders(1))
    put(published, "part-2", [7], TopicPartition("refunds", 0))

    assert counted(output) == [
        PublishedCount(orders(0), rows=10, offsets=10, smallest_offset=10, largest_offset=19),
        PublishedCount(orders(1), rows=3, offsets=3, smallest_offset=3, largest_offset=9),
        PublishedCount(TopicPartition("refunds", 0), rows=1, offsets=1, smallest_offset=7, largest_offset=7),
    ]


def test_a_published_batch_is_counted_as_its_receipt_says(output: Path) -> None:
    staged = Staged(output)
    staged.publish()

    assert counted(output, staged.plan.batch_id) == [
        PublishedCount(orders(0), 10, 10, 0, 9),
        PublishedCount(orders(1), 10, 10, 0, 9),
    ]


def test_files_that_follow_each_other_are_counted_together(output: Path, published: Path) -> None:
    put(published, "part-1", range(10, 15))
    put(published, "part-0", range(10))
    put(published, "part-2", [20, 30])

    assert counted(output) == [PublishedCount(orders(0), 17, 17, 0, 30)]


def test_a_row_that_comes_twice_in_a_file_is_two_rows_of_one_offset(output: Path, published: Path) -> None:
    put(published, "part-0", [*range(10), 4, 4])

    assert counted(output) == [PublishedCount(orders(0), 12, 10, 0, 9)]


@pytest.mark.parametrize(
    ("files", "rows", "offsets"),
    [
        ([range(10), range(10)], 20, 10),
        ([range(10), range(9, 20)], 21, 20),
        ([range(0, 20, 2), range(1, 20, 2)], 20, 20),
        ([range(100), [50], range(200, 205)], 106, 105),
        ([range(100), range(5, 7), range(50, 60)], 112, 100),
        ([range(5), range(10, 15), range(4, 11)], 17, 15),
        ([[0, 9], [9, 20]], 4, 3),
        ([[7], [7], [7]], 3, 1),
    ],
)
def test_files_of_a_partition_that_overlap_are_looked_at_offset_by_offset(
    output: Path, published: Path, files: list[Sequence[int]], rows: int, offsets: int
) -> None:
    for number, each in enumerate(files):
        put(published, f"part-{number}", each)
    # Of another partition, the same offsets are others.
    put(published, "part-other", range(200), orders(1))

    [found, other] = counted(output)
    every = [offset for each in files for offset in each]
    assert found == PublishedCount(orders(0), rows, offsets, min(every), max(every))
    assert other == PublishedCount(orders(1), 200, 200, 0, 199)


@settings(max_examples=30, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.lists(st.integers(0, 12), max_size=6), max_size=5))
def test_whatever_the_files_hold_rows_and_different_offsets_are_counted_right(
    tmp_path: Path, files: list[list[int]]
) -> None:
    directory = tmp_path / "any"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for number, each in enumerate(files):
        put(directory, f"part-{number}", each)

    every = [offset for each in files for offset in each]
    expected = [PublishedCount(orders(0), len(every), len(set(every)), min(every), max(every))] if every else []
    names = [path.name for path in directory.iterdir()]
    assert look_at_named(directory.joinpath, names, None, closely=False).counts == expected


# ── Nothing to count ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_batch_that_is_not_there_nothing_is_seen(output: Path) -> None:
    assert counted(output) == []


def test_of_an_empty_directory_or_files_without_rows_nothing_is_seen(output: Path, published: Path) -> None:
    assert counted(output) == []
    put(published, "part-0", [])
    assert counted(output) == []


def test_a_file_without_rows_adds_nothing_to_the_others(output: Path, published: Path) -> None:
    put(published, "part-0", [])
    put(published, "part-1", range(3))
    put(published, "part-2", [1])
    assert counted(output) == [PublishedCount(orders(0), 4, 3, 0, 2)]


def test_another_batch_of_the_output_is_not_counted(output: Path, published: Path) -> None:
    put(published, "part-0", range(10))
    assert counted(output, batch_id_of(2)) == []


def test_counting_changes_nothing(output: Path, published: Path) -> None:
    put(published, "part-0", range(10))
    put(published, "part-1", range(10))
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in published.iterdir()}
    counted(output)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in published.iterdir()} == before


# ── What cannot be counted ────────────────────────────────────────────────────────────────────────────────────────────


def refused(output: Path, path: Path) -> str:
    """Return why a batch cannot be counted; the file is named."""
    [problem] = parquet_sink(output).inspector.look_at(BATCH).problems
    assert (problem.name, problem.is_there) == (path.name, True)
    assert str(path) in problem.problem
    return problem.problem


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all", b"PAR1" + b"\x00" * 100 + b"PAR1"])
def test_a_file_that_is_no_parquet_is_named(output: Path, published: Path, content: bytes) -> None:
    put(published, "part-0", range(10))
    foreign = published / "notes.txt"
    foreign.write_bytes(content)
    assert "expected a data file of this project" in refused(output, foreign)


def test_a_parquet_file_of_another_form_is_named(output: Path, published: Path) -> None:
    foreign = published / "part-1.parquet"
    pyarrow.parquet.write_table(pa.table({"id": [1, 2]}), foreign)
    assert "no column kafka_topic, kafka_partition, kafka_offset" in refused(output, foreign)


def test_a_file_with_records_of_two_partitions_is_counted_for_each_of_them(output: Path, published: Path) -> None:
    mixed = published / "part-0.parquet"
    tables = [pyarrow.parquet.read_table(put(published, "x", [1, 2, 2], orders(number))) for number in (0, 1)]
    (published / "x.parquet").unlink()
    pyarrow.parquet.write_table(pa.concat_tables(tables), mixed)
    put(published, "part-1", [2, 3], orders(1))
    assert counted(output) == [
        PublishedCount(orders(0), 3, 2, 1, 2),
        PublishedCount(orders(1), 5, 3, 1, 3),
    ]


@pytest.mark.parametrize("kept", [0.2, 0.9])
def test_a_file_that_was_cut_off_is_named(output: Path, published: Path, kept: float) -> None:
    put(published, "part-0", range(10))
    path = published / "part-1.parquet"
    write_rows(path, orders(0), range(10, 10_000))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * kept)])
    refused(output, path)


def test_a_file_whose_offsets_were_overwritten_is_named(output: Path, published: Path) -> None:
    path = put(published, "part-0", range(10_000))
    content = bytearray(path.read_bytes())
    column = pyarrow.parquet.ParquetFile(path).metadata.row_group(0).column(2)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    path.write_bytes(bytes(content))
    refused(output, path)


def test_a_directory_among_the_files_is_named(output: Path, published: Path) -> None:
    put(published, "part-0", range(10))
    (published / "part-1.parquet").mkdir()
    assert "part-1.parquet" in refused(output, published / "part-1.parquet")


def test_a_file_in_the_place_of_the_directory_holds_nothing_that_readers_see(output: Path) -> None:
    output.mkdir()
    (output / f"kafka_batch={BATCH}").write_text("in the way")
    assert counted(output) == []


def test_a_file_that_may_not_be_read_says_nothing_about_the_data(output: Path, published: Path) -> None:
    path = put(published, "part-0", range(10))
    path.chmod(0)
    for folder in (output, published):
        folder.chmod(0o755)
    with ordinary_user(), pytest.raises(OutputUnavailableError, match="Permission denied"):
        counted(output)
