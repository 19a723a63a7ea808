"""The places of a Parquet directory: what its roles share, which file is whose, and all rows that are there."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

from kafka_ingest.foundation.durable_files import make_directory_durably, sync
from kafka_ingest.model.completion import IN_OUTPUT, CompletionRules, Period
from kafka_ingest.model.partition_term import (
    LATE_FOLDER,
    SUFFIX,
    TIME,
    PartitionTerm,
    Transform,
    is_late,
    place_of_late_rows,
)
from kafka_ingest.model.place import DATA, OutputLocation, local
from kafka_ingest.model.published_output import FilePlace, FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.sinks.batch_folders import PUBLISHED, FolderInspector, sizes_in
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.staged_files import DATA_LATE, DATA_REVOKED, StagedFiles, batch_sizes, difference
from kafka_ingest.sinks.usable_places import BESIDE_OUTPUT, beside, storage_errors

if TYPE_CHECKING:
    from kafka_ingest.sinks.found_offsets import FoundOffsets

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

    @classmethod
    def at(cls, output: Path) -> "ParquetDirectory":
        folder = beside(output)
        return cls(output, folder, StagedFiles(folder / "staging"))

    @property
    def receipts(self) -> KeptReceipts:
        return KeptReceipts(self.beside / "receipts", self.staging.check_mounted, self.is_there)

    @property
    def late(self) -> Path:
        return place_of_late_rows(self.output)

    def place_of(self, batch_id: UUID) -> Path:
        return self.output / f"{PUBLISHED}{batch_id}"

    def late_place_of(self, batch_id: UUID) -> Path:
        return self.late / f"{PUBLISHED}{batch_id}"

    def file(self, batch_id: UUID, name: str) -> Path:
        return (self.late_place_of(batch_id) if is_late(name) else self.place_of(batch_id)) / name

    def visible(self) -> set[str]:
        """Return the ids of the batches that readers see; none where there is no output. I/O errors are left alone."""
        try:
            with os.scandir(self.output) as entries:
                names = [entry.name for entry in entries]
        except FileNotFoundError:
            return set()
        return {name.removeprefix(PUBLISHED) for name in names if name.startswith(PUBLISHED)}

    def is_there(self, batch_id: UUID) -> bool:
        return os.path.lexists(self.place_of(batch_id)) or os.path.lexists(self.late_place_of(batch_id))

    def visible_sizes(self, batch_id: UUID, receipt: Receipt | None) -> dict[str, int]:
        """Return the names and sizes of a batch's files where readers find them, those of late rows, too."""
        return batch_sizes(self.place_of(batch_id), receipt) | batch_sizes(self.late_place_of(batch_id), receipt)

    def found(self, receipt: Receipt, attempt_directory: Path) -> FoundFiles:
        """Return what exists of a batch whose receipt is kept, by names and sizes; I/O errors are left alone."""
        target = self.place_of(receipt.batch_id)
        if not receipt.files:
            return FoundFiles(FilesState.INTACT)
        if os.path.lexists(target) and (target.is_symlink() or not target.is_dir()):
            return FoundFiles(FilesState.CHANGED, f"{target} is not a directory")
        expected = {file.name: file.size_bytes for file in receipt.files}
        sizes = self.visible_sizes(receipt.batch_id, receipt)
        aside = batch_sizes(attempt_directory / DATA_LATE, receipt)
        if sizes == expected:
            return FoundFiles(FilesState.INTACT)
        if aside and sizes | aside == expected and not (attempt_directory / DATA_REVOKED).exists():
            return FoundFiles(FilesState.STAGED, f"its late rows are in {attempt_directory / DATA_LATE}")
        if sizes:
            return FoundFiles(FilesState.CHANGED, f"{difference(expected, sizes)} in {target}")
        return self._found_elsewhere(receipt, expected, attempt_directory)

    def _found_elsewhere(self, receipt: Receipt, expected: dict[str, int], attempt_directory: Path) -> FoundFiles:
        target = self.place_of(receipt.batch_id)
        data, revoked = attempt_directory / DATA, attempt_directory / DATA_REVOKED
        if revoked.is_dir():
            return FoundFiles(FilesState.REVOKED, f"its files are in {revoked}")
        if data.is_dir():
            sizes = batch_sizes(data, receipt) | batch_sizes(attempt_directory / DATA_LATE, receipt)
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
            output, name = folder.parent, folder.name.removeprefix(PUBLISHED)
            if is_late(path.relative_to(folder).as_posix()):
                guesses += guess(output.with_name(output.name.removesuffix(SUFFIX)), name, None)
            guesses += guess(folder.parent, folder.name.removeprefix(PUBLISHED), None)
        match folder.parts:
            case (*above, name, "staging", batch_id, attempt, data) if (
                name.endswith(BESIDE_OUTPUT) and attempt.isdecimal() and data.startswith(DATA)
            ):
                guesses += guess(Path(*above, name.removesuffix(BESIDE_OUTPUT)), batch_id, int(attempt))
    return next((found for found in guesses if is_at(path, found)), None)


def guess(output: Path, batch_id: str, attempt: int | None) -> list[FilePlace]:
    try:
        return [FilePlace(OutputLocation.local("parquet", output), UUID(batch_id), attempt)]
    except ValueError:
        return []


def is_at(path: Path, place: FilePlace) -> bool:
    directory = ParquetDirectory.at(place.output.path)
    if place.attempt is None:
        folder = directory.place_of(place.batch_id)
        folder = folder if folder in path.parents else directory.late_place_of(place.batch_id)
        return folder in path.parents and all("=" in each for each in path.parent.relative_to(folder).parts)
    attempt = local(directory.staging.attempt_directory(place.batch_id, place.attempt))
    return attempt in path.parents[1:] and all("=" in each for each in path.parent.relative_to(attempt).parts[1:])


def write_success_files(
    output: Path, rules: CompletionRules, terms: Iterable[PartitionTerm], periods: Sequence[Period]
) -> None:
    """Write ``complete/dt=2026-01-31/_SUCCESS`` of each, named as the output's own folders are; safe to repeat.

    Where the rules say so then also ``P/dt=2026-01-31/_SUCCESS``, below the folders of all times that are no shorter.
    Raises OutputUnavailableError.
    """
    unit = Transform(rules.by.value)
    own = [term for term in terms if term.name and term.column == TIME and term.transform in {Transform.DAY, unit}]
    beside_it = [term for term in own if term.transform is unit][:1] or [PartitionTerm(TIME, unit, unit.value)]
    directory = ParquetDirectory.at(output)
    with storage_errors(directory.beside):
        # A disk that is not mounted is not to get folders of its own.
        directory.beside.stat()
        write_success(directory.beside / "complete", beside_it, periods)
        if rules.success_file == IN_OUTPUT:
            write_success(output, own, periods)


def write_success(above: Path, terms: Sequence[PartitionTerm], periods: Sequence[Period]) -> None:
    for each in periods:
        folder = above.joinpath(*(f"{term.name}={term.text_of(each.began_at)}" for term in terms))
        make_directory_durably(folder)
        (folder / "_SUCCESS").touch()
        sync(folder)


class ParquetInspector(FolderInspector):
    """Answers what readers of the output, and of its late rows, see of a batch."""

    def __init__(self, directory: ParquetDirectory) -> None:
        super().__init__(directory.receipts, directory.place_of, local)
        self._directory = directory

    def _there(self, batch_id: UUID, receipt: Receipt | None) -> Collection[str]:
        # Readers see nothing of what is no directory.
        folders = (self._directory.place_of(batch_id), self._directory.late_place_of(batch_id))
        return {name for folder in folders for name in sizes_in(folder, receipt)}

    def _file(self, batch_id: UUID, name: str) -> Path:
        return self._directory.file(batch_id, name)


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
        self._add_below(self._directory.output, found)
        if (late := self._directory.late).is_dir():
            # It may be another feed's output, which has no such folders.
            for batch in sorted(each for each in late.iterdir() if (each / LATE_FOLDER).is_dir()):
                self._add_below(batch / LATE_FOLDER, found, above=late.parent)

    def _add_below(self, top: Path, found: "FoundOffsets", above: Path | None = None) -> None:
        for folder, _, names in os.walk(top, onerror=raise_it):
            below = f"{folder}/".removeprefix(f"{above or top}/")  # for a million folders, a path would take long
            parts = below.split("/")
            batch = next((part.removeprefix(PUBLISHED) for part in parts if part.startswith(PUBLISHED)), None)
            known = {BATCH_COLUMN: batch} if batch is not None else {}
            for name in sorted(name for name in names if name.endswith(".parquet")):
                found.add_file(f"{below}{name}", Path(folder, name), known)

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether a batch's files are not where an interrupted commit leaves them."""
        receipt = published.receipt
        attempt = self._directory.staging.attempt_directory(receipt.batch_id, receipt.attempt)
        return self._directory.found(receipt, local(attempt)).state not in NOT_YET


def raise_it(error: OSError) -> NoReturn:
    """Raise what a folder cannot be listed for: its rows are not missing."""
    raise error
