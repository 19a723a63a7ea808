"""Whether staged files can become part of a table: the libraries compare neither nulls nor whose rows they hold.

Importing this imports pyarrow.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.batch_column import BATCH_COLUMN, NEVER_NULL
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.arrow_types import staged_footer
from kafka_ingest.sinks.tables.file_partition import wrong_partitions


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
