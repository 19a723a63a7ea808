"""The places of a Parquet directory: what its roles share, and which file is whose."""

import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.place import local
from kafka_ingest.model.published_output import FilePlace, FilesState, FoundFiles
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks.batch_folders import PUBLISHED
from kafka_ingest.sinks.beside_output import BESIDE_OUTPUT, beside
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.parquet.listed_output import ListedOutput
from kafka_ingest.sinks.staged_files import DATA_REVOKED, StagedFiles
from kafka_ingest.sinks.staged_parquet import batch_sizes, difference

IN_WORDS = (
    f"OUTPUT/{PUBLISHED}<batch>/<file>, or staged by an attempt, "
    f"OUTPUT{BESIDE_OUTPUT}/staging/<batch>/<attempt>/data/<file>"
)
"""Where data files are, for a message; with sink.partition_by in folders there."""


@dataclass(frozen=True, slots=True)
class ParquetDirectory:
    """What readers see, and the folder beside it."""

    output: Path
    beside: Path
    staging: StagedFiles
    listed: ListedOutput

    @classmethod
    def at(cls, output: Path) -> "ParquetDirectory":
        folder = beside(output)
        return cls(output, folder, StagedFiles(folder / "staging"), ListedOutput(output, folder / "listed.json"))

    @property
    def receipts(self) -> KeptReceipts:
        return KeptReceipts(self.beside / "receipts", self.staging.check_mounted, self.is_there)

    def place_of(self, batch_id: UUID) -> Path:
        return self.output / f"{PUBLISHED}{batch_id}"

    def is_there(self, batch_id: UUID) -> bool:
        """Whether readers see a directory of a batch."""
        return os.path.lexists(self.place_of(batch_id))

    def found(self, receipt: Receipt, attempt_directory: Path) -> FoundFiles:
        """Return what exists of a batch whose receipt is kept, by names and sizes; I/O errors are left alone."""
        target = self.place_of(receipt.batch_id)
        if not receipt.files:
            return FoundFiles(FilesState.INTACT)
        if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
            return FoundFiles(FilesState.CHANGED, f"{target} is not a directory")
        expected = {file.name: file.size_bytes for file in receipt.files}
        sizes = batch_sizes(target, receipt)
        if sizes:
            text = f"{difference(expected, sizes)} in {target}"
            return FoundFiles(FilesState.INTACT) if sizes == expected else FoundFiles(FilesState.CHANGED, text)
        return self._found_elsewhere(receipt, expected, attempt_directory)

    def _found_elsewhere(self, receipt: Receipt, expected: dict[str, int], attempt_directory: Path) -> FoundFiles:
        target = self.place_of(receipt.batch_id)
        data, revoked = attempt_directory / DATA, attempt_directory / DATA_REVOKED
        if revoked.is_dir():
            return FoundFiles(FilesState.REVOKED, f"its files are in {revoked}")
        if data.is_dir():
            sizes = batch_sizes(data, receipt)
            if sizes == expected:
                return FoundFiles(FilesState.STAGED, f"its files are in {data}")
            return FoundFiles(
                FilesState.BROKEN, f"its files are not in {target}, and {difference(expected, sizes)} in {data}"
            )
        return FoundFiles(FilesState.GONE, f"its files are not in {target}")


def file_place(path: Path) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the sink stores none there."""
    guesses: list[FilePlace] = []
    for folder in path.parents:  # the nearest first
        if folder.name.startswith(PUBLISHED):
            guesses += guess(folder.parent, folder.name.removeprefix(PUBLISHED), None)
        match folder.parts:
            case (*above, name, "staging", batch_id, attempt, data) if (
                name.endswith(BESIDE_OUTPUT) and attempt.isdecimal() and data.startswith(DATA)
            ):
                guesses += guess(Path(*above, name.removesuffix(BESIDE_OUTPUT)), batch_id, int(attempt))
    return next((found for found in guesses if is_at(path, found)), None)


def guess(output: Path, batch_id: str, attempt: int | None) -> list[FilePlace]:
    """Return the place for these names; none where one of them is no batch id."""
    try:
        return [FilePlace(OutputLocation.local("parquet", output), UUID(batch_id), attempt)]
    except ValueError:
        return []


def is_at(path: Path, place: FilePlace) -> bool:
    """Whether the sink puts files of that batch and attempt there."""
    directory = ParquetDirectory.at(place.output.path)
    if place.attempt is None:
        folder = directory.place_of(place.batch_id)
        return folder in path.parents and all("=" in each for each in path.parent.relative_to(folder).parts)
    attempt = local(directory.staging.attempt_directory(place.batch_id, place.attempt))
    return attempt in path.parents[1:] and all("=" in each for each in path.parent.relative_to(attempt).parts[1:])
