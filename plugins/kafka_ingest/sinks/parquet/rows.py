"""All rows of a directory of Parquet files, whoever wrote or moved them."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kafka_ingest.model.place import local
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.batch_folders import PUBLISHED
from kafka_ingest.sinks.parquet.directory import ParquetDirectory

if TYPE_CHECKING:
    from kafka_ingest.sinks.found_offsets import FoundOffsets

NOT_YET = frozenset({FilesState.STAGED, FilesState.BROKEN, FilesState.REVOKED})


class ParquetRows:
    """Reads all files below the directory, also those that are in no batch's folder."""

    are_newest_states = False

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield nothing: a rename says nothing, and the receipt all."""
        yield from ()

    def add_to(self, found: "FoundOffsets") -> None:
        for folder, _, names in os.walk(self._directory.output, onerror=raise_it):
            below = Path(folder).relative_to(self._directory.output)
            batch = next((part.removeprefix(PUBLISHED) for part in below.parts if part.startswith(PUBLISHED)), None)
            known = {BATCH_COLUMN: batch} if batch is not None else {}
            for name in sorted(name for name in names if name.endswith(".parquet")):
                found.add_file(str(below / name), Path(folder) / name, known)

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether a batch's files are not where an interrupted commit leaves them."""
        receipt = published.receipt
        attempt = self._directory.staging.attempt_directory(receipt.batch_id, receipt.attempt)
        return self._directory.found(receipt, local(attempt)).state not in NOT_YET


def raise_it(error: OSError) -> NoReturn:
    """Raise what a folder cannot be listed for: its rows are not missing."""
    raise error
