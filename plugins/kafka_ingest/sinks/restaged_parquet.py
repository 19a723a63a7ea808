"""Stage records again that an earlier attempt has staged: whole files as they are, of others the rows that are wanted."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.model.attempt_directory import DATA, DATA_REVOKED
from kafka_ingest.model.offset_sets import by_partition, span_of, within
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.sinks.staged_parquet import check_listing, verify_footer


def staged_data(directory: Path, receipt: Receipt) -> Path:
    """Return where an attempt's files lie, also after they were revoked.

    Raises StagedOutputUnusableError unless they are what the attempt's receipt says.
    """
    found = next((data for name in (DATA, DATA_REVOKED) if (data := directory / name).is_dir()), None)
    if found is None:
        raise StagedOutputUnusableError(
            f"expected staged files in {directory / DATA}, found none: they were cleaned up"
        )
    check_listing(found, receipt)
    for file in receipt.files:
        verify_footer(found / file.name, file)
    return found


def restage(source: Path, receipt: Receipt, target: Path, ranges: Sequence[OffsetRange]) -> list[WrittenFile]:
    """Stage the records of ranges in an attempt's directory, durably, and return the files that hold them."""
    data = staged_data(source, receipt)
    shutil.rmtree(target / DATA, ignore_errors=True)
    make_directory_durably(target / DATA)
    written: list[WrittenFile] = []
    for file in receipt.files:
        spans = [span for span, _ in file.spans]
        wanted = within(spans, ranges)
        if span_of(wanted) == span_of(spans):
            shutil.copyfile(data / file.name, target / DATA / file.name)
            written.append(file)
        elif wanted:
            written += rows_of(data / file.name, file, wanted, target / DATA)
    for each in written:
        sync(target / DATA / each.name)
    sync(target / DATA)
    return written


def rows_of(path: Path, file: WrittenFile, wanted: Sequence[OffsetRange], target: Path) -> list[WrittenFile]:
    """Write the rows of ranges into files of their own, one a partition, with the columns as they are."""
    table = pyarrow.parquet.ParquetFile(path).read()
    written: list[WrittenFile] = []
    for topic_partition, spans in by_partition(wanted).items():
        rows = pa.concat_tables([table.filter(records_in(span)) for span in spans])
        if not rows.num_rows:
            continue
        offsets = rows["kafka_offset"]
        # Two topics of a shared file may have partitions of one number.
        name = f"{len(written)}-{file.name}"
        pyarrow.parquet.write_table(rows, target / name, compression="zstd")
        written.append(
            WrittenFile.of_one(
                name=name,
                size_bytes=(target / name).stat().st_size,
                rows=rows.num_rows,
                topic_partition=topic_partition,
                smallest_offset=pc.min(offsets).as_py(),
                largest_offset=pc.max(offsets).as_py(),
                without_date=rows["kafka_timestamp"].null_count if "kafka_timestamp" in rows.column_names else 0,
            )
        )
    return written


def records_in(span: OffsetRange) -> pc.Expression:
    """Return the condition that a record lies in a range."""
    offset = pc.field("kafka_offset")
    is_of_partition = (pc.field("kafka_topic") == span.topic) & (pc.field("kafka_partition") == span.partition)
    return is_of_partition & (offset >= span.start_offset) & (offset < span.end_offset)
