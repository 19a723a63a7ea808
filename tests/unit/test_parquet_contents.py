"""What is in a data file, and whose it is by its place."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from tests.fakes import partition, span
from tests.outputs import parquet_at

from kafka_ingest.errors import NotADataFileError
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import FilePlace
from kafka_ingest.sinks.batch_folders import data_file
from kafka_ingest.sinks.choose import DataFilesOfAllFormats
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.parquet_contents import DataFile, count_of

BATCH = UUID("01890000-0000-7000-8000-000000000001")
OUTPUT = Path("/data/orders")


def write(
    path: Path,
    offsets: Sequence[int],
    topic_partitions: Sequence[TopicPartition] = (partition(0),),
    *,
    row_group_size: int | None = None,
    statistics: bool = True,
) -> DataFile:
    """Write a data file; topic and partition of its rows take turns."""
    of = [topic_partitions[number % len(topic_partitions)] for number in range(len(offsets))]
    rows: dict[str, Any] = {
        "kafka_topic": pa.array([tp.topic for tp in of], pa.string()),
        "kafka_partition": pa.array([tp.partition for tp in of], pa.int32()),
        "kafka_offset": pa.array(offsets, pa.int64()),
    }
    pyarrow.parquet.write_table(pa.table(rows), path, row_group_size=row_group_size, write_statistics=statistics)
    return data_file(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "part-00000.parquet"


# ── Which offsets exactly ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("row_group_size", [1, 2, None])
@pytest.mark.parametrize(
    ("offsets", "intervals"),
    [
        ([7], [(7, 8)]),
        ([0, 1, 2], [(0, 3)]),
        ([0, 2, 3, 9], [(0, 1), (2, 4), (9, 10)]),
        ([3, 2, 9, 0], [(0, 1), (2, 4), (9, 10)]),
        ([2**62, 2**62 + 1], [(2**62, 2**62 + 2)]),
    ],
)
def test_the_offsets_of_a_file_are_shown_as_contiguous_intervals(
    path: Path, offsets: list[int], intervals: list[tuple[int, int]], row_group_size: int | None
) -> None:
    found = write(path, offsets, row_group_size=row_group_size).contents(intervals=100)
    assert list(found.intervals) == [span(0, *interval) for interval in intervals]
    assert (found.interval_count, [held.topic_partition for held in found.partitions]) == (
        len(intervals),
        [partition(0)],
    )
    assert (found.rows, found.distinct_offsets) == (len(offsets), len(offsets))
    assert found.only is not None
    assert (found.only.smallest_offset, found.only.largest_offset) == (min(offsets), max(offsets))
    assert found.size_bytes == path.stat().st_size
    assert found.columns == (("kafka_topic", "string"), ("kafka_partition", "int32"), ("kafka_offset", "int64"))


def test_a_record_whose_row_is_in_a_file_and_elsewhere_too_is_counted_as_one_offset(path: Path) -> None:
    held = write(path, [0, 1, 2]).contents(intervals=1).only
    assert held is not None
    count = count_of(partition(0), [(path, held)], pa.array([1, 5], pa.int64()))
    assert (count.rows, count.offsets, count.smallest_offset, count.largest_offset) == (5, 4, 0, 5)


def test_of_many_intervals_the_first_are_shown_and_how_many_there_are(path: Path) -> None:
    found = write(path, range(0, 10_000, 2)).contents(intervals=3)
    assert list(found.intervals) == [span(0, 0, 1), span(0, 2, 3), span(0, 4, 5)]
    assert found.interval_count == 5_000


def test_a_record_that_comes_twice_is_one_offset_and_two_rows(path: Path) -> None:
    found = write(path, [3, 4, 4]).contents(intervals=100)
    assert (found.rows, found.distinct_offsets, found.interval_count) == (3, 2, 1)


def test_a_file_without_rows_is_of_no_partition(path: Path) -> None:
    found = write(path, []).contents(intervals=100)
    assert (found.rows, found.only, found.partitions, found.intervals) == (0, None, (), ())


@pytest.mark.parametrize("row_group_size", [1, 2, 3, None])
def test_of_a_file_of_several_partitions_each_is_shown_separately(path: Path, row_group_size: int | None) -> None:
    refunds = partition(0, "refunds")
    file = write(path, [1, 7, 1, 2, 8, 5], [partition(0), partition(1), refunds], row_group_size=row_group_size)
    found = file.contents(intervals=100)
    assert (found.rows, found.distinct_offsets, found.only) == (6, 6, None)
    assert [
        (held.topic_partition, held.rows, held.smallest_offset, held.largest_offset) for held in found.partitions
    ] == [
        (partition(0), 2, 1, 2),
        (partition(1), 2, 7, 8),
        (refunds, 2, 1, 5),
    ]
    assert [held.interval_count for held in found.partitions] == [1, 1, 2]
    assert len(file.contents(intervals=3).intervals) == 3


# ── Whether an offset is in it ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("row_group_size", [1, 2, None])
def test_a_file_holds_the_offsets_that_were_written_to_it(
    path: Path, row_group_size: int | None, *, statistics: bool
) -> None:
    file = write(path, [2, 3, 5, 9], row_group_size=row_group_size, statistics=statistics)
    assert [offset for offset in range(11) if file.holds(partition(0), offset)] == [2, 3, 5, 9]
    assert not any(file.holds(other, 3) for other in (partition(1), partition(0, "refunds")))


@pytest.mark.parametrize("row_group_size", [1, 3, None])
def test_a_file_of_several_partitions_holds_an_offset_of_one_and_not_of_the_other(
    path: Path, row_group_size: int | None
) -> None:
    file = write(path, [1, 7, 2, 8], [partition(0), partition(1)], row_group_size=row_group_size)
    assert [offset for offset in range(11) if file.holds(partition(0), offset)] == [1, 2]
    assert [offset for offset in range(11) if file.holds(partition(1), offset)] == [7, 8]


# ── What is no data file ──────────────────────────────────────────────────────────────────────────────────────────────


def test_the_columns_of_a_file_have_the_names_of_types_that_schemas_of_records_have(path: Path) -> None:
    written = write(path, [0])
    inner = pa.struct(
        [("amount", pa.decimal128(12, 2)), ("at", pa.timestamp("us", "UTC")), ("local", pa.timestamp("us"))]
    )
    more = pa.schema(
        [
            ("lines", pa.list_(inner)),
            ("by_name", pa.map_(pa.string(), pa.float64())),
            ("day", pa.date32()),
            ("n", pa.uint8()),
        ]
    )
    table = pyarrow.parquet.read_table(path)
    for each in more:
        table = table.append_column(each, pa.nulls(1, each.type))
    pyarrow.parquet.write_table(table, path)
    assert {each.name: each.type.ddl for each in written.columns().fields} == {
        "kafka_topic": "string",
        "kafka_partition": "int",
        "kafka_offset": "bigint",
        "lines": "array<struct<`amount`:decimal(12,2),`at`:timestamp,`local`:timestamp_ntz>>",
        "by_name": "map<string,double>",
        "day": "date",
        # Spark has no such type: Arrow's own name.
        "n": "uint8",
    }


def test_a_file_without_positions_is_none_of_ours(path: Path) -> None:
    pyarrow.parquet.write_table(pa.table({"kafka_offset": [1], "customer": ["a"]}), path)
    with pytest.raises(NotADataFileError, match="no column kafka_topic, kafka_partition among kafka_offset, customer"):
        data_file(path).contents(intervals=100)
    with pytest.raises(NotADataFileError, match="no column kafka_topic"):
        data_file(path).holds(partition(0), 1)


def test_a_file_that_is_damaged_or_no_parquet_is_none_of_ours(path: Path) -> None:
    write(path, range(1000))
    for content in (b"", b"offset,value\n1,a\n", path.read_bytes()[:-9] + b"\0" * 9, path.read_bytes()[:100]):
        path.write_bytes(content)
        with pytest.raises(NotADataFileError, match=r"part-00000\.parquet: expected a data file of this project"):
            data_file(path).contents(intervals=100)


def test_a_file_that_is_not_there_is_the_systems_error(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        data_file(path).holds(partition(0), 1)


# ── Whose it is by its place ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_a_published_batchs_or_an_attempts_where_the_sink_puts_those() -> None:
    sink = parquet_sink(OUTPUT)
    assert DataFilesOfAllFormats().place_of(
        ParquetDirectory.at(OUTPUT).place_of(BATCH) / "part-0.parquet"
    ) == FilePlace(parquet_at(OUTPUT), BATCH, None)
    in_folders = ParquetDirectory.at(OUTPUT).place_of(BATCH) / "dt=2026-01-31" / "land=DE" / "part-0.parquet"
    assert DataFilesOfAllFormats().place_of(in_folders) == FilePlace(parquet_at(OUTPUT), BATCH, None)
    for data in ("data", "data.revoked", "data/dt=2026-01-31"):
        staged = sink.staging.attempt_directory(BATCH, 2) / data / "part-0.parquet"
        assert DataFilesOfAllFormats().place_of(staged) == FilePlace(parquet_at(OUTPUT), BATCH, 2)


@pytest.mark.parametrize(
    "path",
    [
        "/part-0.parquet",
        "/data/orders/part-0.parquet",
        "/data/orders/kafka_batch=today/part-0.parquet",
        f"/data/orders/kafka_batch={BATCH}/more/part-0.parquet",
        f"/data/orders.kafka-ingest/staging/{BATCH}/1/dead_letters/data/part-0.parquet",
        f"/data/orders/kafka_batch={BATCH.hex}/part-0.parquet",
        f"/data/orders/{BATCH}/part-0.parquet",
        f"/data/orders/staging/{BATCH}/1/data/part-0.parquet",
        f"/data/orders.kafka-ingest/staging/{BATCH}/one/data/part-0.parquet",
        f"/data/orders.kafka-ingest/staging/{BATCH}/01/data/part-0.parquet",
        f"/data/orders.kafka-ingest/receipts/{BATCH}/1/data/part-0.parquet",
    ],
)
def test_at_any_other_place_a_file_is_nobodys(path: str) -> None:
    assert DataFilesOfAllFormats().place_of(Path(path)) is None


def test_the_rows_of_each_hour_before_a_time_are_counted_from_the_row_groups_that_may_have_any(path: Path) -> None:
    times = [
        datetime(2026, 3, 1, 5, 59, 59, tzinfo=UTC),
        datetime(2026, 3, 1, 6, tzinfo=UTC),
        datetime(2026, 3, 1, 5, 0, 1, tzinfo=UTC),
        None,
        datetime(2026, 3, 1, 7, 59, tzinfo=UTC),
        datetime(2026, 3, 1, 8, tzinfo=UTC),
    ]
    rows = {name: [1] * 6 for name in ("kafka_topic", "kafka_partition", "kafka_offset")}
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ns")):
        stamps = pa.array([each and each.replace(tzinfo=None) for each in times], pa.timestamp("us")).cast(kind)
        pyarrow.parquet.write_table(pa.table({**rows, "kafka_timestamp": stamps}), path, row_group_size=2)

        assert data_file(path).rows_by_hour(datetime(2026, 3, 1, 8, tzinfo=UTC)) == {
            datetime(2026, 3, 1, 5, tzinfo=UTC): 2,
            datetime(2026, 3, 1, 6, tzinfo=UTC): 1,
            datetime(2026, 3, 1, 7, tzinfo=UTC): 1,
        }
        assert data_file(path).rows_by_hour(datetime(2026, 3, 1, 5, tzinfo=UTC)) == {}


def test_a_file_without_timestamps_has_no_rows_of_an_hour(path: Path) -> None:
    assert write(path, [1, 2]).rows_by_hour(datetime(2026, 3, 1, tzinfo=UTC)) == {}
