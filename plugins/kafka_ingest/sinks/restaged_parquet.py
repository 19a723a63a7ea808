"""Stage records of an earlier attempt again: whole files as they are, of others the requested rows."""

from collections.abc import Sequence
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import (
    Opened,
    copy_file,
    flush,
    is_folder,
    make_folder,
    open_to_read,
    open_to_write,
    remove_tree,
    size_of,
)
from kafka_ingest.model.offsets import OffsetRange, by_partition, intersect, span_of
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.staged_files import check_listing, verify_footer


def staged_data(places: Sequence[Opened], receipt: Receipt) -> Opened:
    """Return which of these places holds an attempt's files.

    Raises StagedOutputUnusableError unless they match the attempt's receipt.
    """
    found = next((data for data in places if is_folder(data)), None)
    if found is None:
        raise StagedOutputUnusableError(f"expected staged files in {places[0]}, found none: they were cleaned up")
    check_listing(found, receipt)
    for file in receipt.files:
        verify_footer(found / file.name, file, receipt.columns)
    return found


def restage(
    data: Opened, receipt: Receipt, target: Opened, ranges: Sequence[OffsetRange], *, batch_id: str | None
) -> list[WrittenFile]:
    """Stage the records of ranges in another directory, durably, and return the files that hold them.

    ``batch_id`` is the new value of the rows' ``kafka_batch``, None where they have no such column.
    """
    remove_tree(target)
    make_folder(target)
    written: list[WrittenFile] = []
    for file in receipt.files:
        spans = [span for span, _ in file.spans]
        wanted = intersect(spans, ranges)
        if wanted:
            make_folder((target / file.name).parent)
        if batch_id is None and span_of(wanted) == span_of(spans):
            copy_file(data / file.name, target / file.name)
            written.append(file)
        elif wanted:
            written += rows_of(data / file.name, file, wanted, target, batch_id)
    for each in written:
        flush(target / each.name)
    for folder in {(target / each.name).parent for each in written} | {target}:
        flush(folder)
    return written


def rows_of(
    path: Opened, file: WrittenFile, wanted: Sequence[OffsetRange], target: Opened, batch_id: str | None
) -> list[WrittenFile]:
    """Write the rows of ranges into new files, one per partition, with the columns as they are."""
    with open_to_read(path) as staged, pyarrow.parquet.ParquetFile(staged) as file_staged:
        table = file_staged.read()
    if batch_id is not None and BATCH_COLUMN in table.schema.names:  # letters of an earlier version have none
        column = table.schema.get_field_index(BATCH_COLUMN)
        table = table.set_column(column, BATCH_COLUMN, pa.array([batch_id] * len(table), pa.string()))
    written: list[WrittenFile] = []
    for topic_partition, spans in by_partition(wanted).items():
        rows = pa.concat_tables([table.filter(records_in(span)) for span in spans])
        if not rows.num_rows:
            continue
        offsets = rows["kafka_offset"]
        # Two topics of a shared file may have partitions of one number.
        place = PurePosixPath(file.name)
        name = str(place.with_name(f"{len(written)}-{place.name}"))
        with open_to_write(target / name) as new:
            pyarrow.parquet.write_table(rows, new, compression="zstd")
        written.append(
            WrittenFile.of_one(
                name=name,
                size_bytes=size_of(target / name),
                rows=rows.num_rows,
                topic_partition=topic_partition,
                smallest_offset=pc.min(offsets).as_py(),
                largest_offset=pc.max(offsets).as_py(),
                without_date=rows["kafka_timestamp"].null_count if "kafka_timestamp" in rows.column_names else 0,
            )
        )
    return written


def copy_with_batch(batch_id: str, source: Opened, target: Opened) -> None:
    """Copy a file of one batch with the column that says so."""
    with open_to_read(source) as staged, pyarrow.parquet.ParquetFile(staged) as file:
        table = file.read()
    with open_to_write(target) as new:
        ids = pa.array([batch_id] * len(table), pa.string())
        pyarrow.parquet.write_table(table.append_column(BATCH_COLUMN, ids), new, compression="zstd")


def records_in(span: OffsetRange) -> pc.Expression:
    offset = pc.field("kafka_offset")
    is_of_partition = (pc.field("kafka_topic") == span.topic) & (pc.field("kafka_partition") == span.partition)
    return is_of_partition & (offset >= span.start_offset) & (offset < span.end_offset)
