"""Which partition of a table a staged file belongs to, by the statistics in its footer. Importing this imports pyarrow.

A table's metadata say the partition of a file, and queries that skip files believe it. So it is taken from the values
themselves, and from no name of a file or folder.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import PartitionTerm


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
    path: Opened,
    metadata: pyarrow.parquet.FileMetaData,
    terms: Sequence[PartitionTerm],
    *,
    own_columns: bool,
) -> list[str | None]:
    """Return the value of each term in a file, as text; raises StagedOutputUnusableError where it cannot be one's."""
    if problems := list(wrong_partitions(metadata, terms, own_columns=own_columns)):
        raise StagedOutputUnusableError(f"{path}: {listing(problems)}")
    return [partition_of(metadata, term) for term in terms]
