"""Whether staged files can become part of a table: the libraries compare neither nulls nor whose rows they hold.

A table's metadata say the partition of a file, and queries that skip files believe it. So it is taken from the
statistics in the file's footer, and from no name of a file or folder. Importing this imports pyarrow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import BATCH_COLUMN, NEVER_NULL
from kafka_ingest.sinks.parquet_contents import staged_footer


def check_files(
    data: Opened,
    receipt: Receipt,
    differences: Callable[[pa.Schema], Iterable[str]],
    partition_by: Sequence[PartitionTerm],
    *,
    own_columns: bool = False,
    alike: bool = False,
) -> None:
    """Raise StagedOutputUnusableError unless each staged file has the table's columns, and rows of this batch alone.

    ``differences`` says how a file's columns differ from the table's. Each file holds one partition of it;
    ``own_columns``: values of terms that are no columns are in columns of their own. ``alike``: the columns are those
    of all files; where they differ, not all files are of one attempt.
    """
    first: pa.Schema | None = None
    for file in receipt.files:
        metadata = footer(data / file.name)
        schema = metadata.schema.to_arrow_schema()
        problems = list(differences(schema))
        if alike and first is not None and not schema.equals(first):
            problems.append(f"expected the columns of {receipt.files[0].name}, found others")
        first = schema if first is None else first
        problems = problems or list(wrong_values(metadata, str(receipt.batch_id)))
        if problems := problems or list(wrong_partitions(metadata, partition_by, own_columns=own_columns)):
            raise StagedOutputUnusableError(f"{data / file.name}: {listing(problems)}")


def schema_of_files(data: Opened, receipt: Receipt) -> pa.Schema | None:
    """Return the columns that all files of a receipt have, as :func:`check_files` has seen; None without a file."""
    return footer(data / receipt.files[0].name).schema.to_arrow_schema() if receipt.files else None


def wrong_values(metadata: "pyarrow.parquet.FileMetaData", batch_id: str) -> Iterator[str]:
    """Yield what is impossible in a file, by the statistics of its row groups."""
    for number in range(metadata.num_columns):
        name = metadata.schema.column(number).path
        if name not in NEVER_NULL:
            continue
        groups = [metadata.row_group(group).column(number).statistics for group in range(metadata.num_row_groups)]
        if any(group is None or group.null_count is None or group.null_count for group in groups):
            yield f"column {name} holds nulls"
        if name == BATCH_COLUMN:
            found = {str(each) for group in groups if group is not None for each in (group.min, group.max)}
            if found != {batch_id}:
                yield f"{name}: expected {batch_id} alone, found {listing(sorted(found))}"


def footer(path: Opened) -> "pyarrow.parquet.FileMetaData":
    """Return a file's footer; raises StagedOutputUnusableError where it is damaged."""
    with staged_footer(path) as found:
        return found


def values_of(metadata: pyarrow.parquet.FileMetaData, column: str) -> set[Any]:
    """Return the bounds of a column in all row groups, and None where it holds nulls.

    Raises ValueError where a row group does not say them.
    """
    number = next((n for n in range(metadata.num_columns) if metadata.schema.column(n).path == column), None)
    if number is None:
        raise ValueError(f"column {column}: expected one, found none")
    found: set[Any] = set()
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index).column(number)
        statistics: Any = group.statistics
        if statistics is None or statistics.null_count is None:
            raise ValueError(f"column {column}: expected statistics in each row group, found none in one")
        if statistics.null_count:
            found.add(None)
        if statistics.null_count < group.num_values:
            if not statistics.has_min_max:
                raise ValueError(f"column {column}: expected bounds in each row group, found none in one")
            found |= {statistics.min, statistics.max}
    return found


def partition_of(metadata: pyarrow.parquet.FileMetaData, term: PartitionTerm) -> str | None:
    """Return the one value of a term in a file, as text; raises ValueError where its rows are of several partitions."""
    found = {term.text_of(value) for value in values_of(metadata, term.column)}
    if len(found) != 1:
        raise ValueError(f"{term}: expected rows of one partition, found {', '.join(sorted(map(str, found)))}")
    [value] = found
    return value


def wrong_partitions(
    metadata: pyarrow.parquet.FileMetaData, terms: Sequence[PartitionTerm], *, own_columns: bool
) -> Iterator[str]:
    """Yield why a file cannot be one of a partition; ``own_columns``: the values are in columns of their own, too."""
    for term in terms:
        try:
            expected = partition_of(metadata, term)
            if not own_columns or not term.is_of_time:
                continue
            found = {None if value is None else str(value) for value in values_of(metadata, term.own_column)}
            if found != {expected}:
                yield f"column {term.own_column}: expected {expected} alone, found {', '.join(map(str, found))}"
        except ValueError as error:
            yield str(error)


def partition_values(
    path: Opened, metadata: pyarrow.parquet.FileMetaData, terms: Sequence[PartitionTerm], *, own_columns: bool
) -> list[str | None]:
    """Return the value of each term in a file, as text; raises StagedOutputUnusableError where it cannot be one's."""
    if problems := list(wrong_partitions(metadata, terms, own_columns=own_columns)):
        raise StagedOutputUnusableError(f"{path}: {listing(problems)}")
    return [partition_of(metadata, term) for term in terms]
