"""Files that a table names and that cannot be read, by name. Importing this imports pyarrow."""

import contextlib
from collections.abc import Iterator

import pyarrow as pa

from kafka_ingest.errors import OutputConflictError
from kafka_ingest.foundation.storage import Opened


@contextlib.contextmanager
def read_to_replace(path: Opened | str) -> Iterator[None]:
    """Raise OutputConflictError where a file with rows that may be replaced is damaged or missing.

    Errors of the storage itself are left to the caller: trying again helps there.
    """
    try:
        yield
    except (pa.ArrowException, ValueError, OSError) as error:
        # Arrow raises OSError for a damaged file, too, but only the system's errors have a number.
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, FileNotFoundError):
            raise
        raise OutputConflictError(
            f"expected a readable file of the table, which may hold rows that are to be replaced, found that {path} "
            f"cannot be read: {error}. Nothing was replaced. `kafka-ingest coverage FEED --verify` says which batches "
            "that concerns. Restore the file from a backup. If it cannot be, take it out of the table (for Delta: "
            "delete it, then FSCK REPAIR TABLE), and replace the batches' ranges, which reads their records again."
        ) from error
