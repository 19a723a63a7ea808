"""The place of attempts, on a disk or in another file system: what Spark receives, what it writes, and its receipt.

Every sink stages plain Parquet, so there is one implementation for all ways of publishing. For an output ``P``::

    P.kafka-ingest/staging/<batch>/<attempt>/     plan.json, data/, receipt.json, failure.txt

Staged files are compared with their receipt by names, sizes, and the rows that their footers count.
"""

import errno
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path, PurePosixPath
from uuid import UUID

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.foreign_json import ENOUGH_BYTES
from kafka_ingest.foundation.storage import (
    Opened,
    flush,
    make_folder,
    names_in,
    opened,
    read_at_most,
    read_end,
    refuse_links,
    remote_sizes,
    remove_if_empty,
    remove_tree,
    size_below,
    write_new,
    write_whole,
)
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.dead_letters import are_dead_letters
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.model.partition_term import LATE_FOLDER
from kafka_ingest.model.place import DATA, DOCUMENT, FAILURE, RECEIPT, Place
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.written_columns import KAFKAS_OWN, WrittenColumns, side_by_side, written_columns
from kafka_ingest.sinks.usable_places import storage_errors


def file_sizes(directory: Path, folders: Collection[str] = ()) -> dict[str, int]:
    """Return name → size in bytes of everything in a directory; empty where there is none.

    ``folders`` are read, and names of files in them begin with the folder's.
    """
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return {}
    sizes: dict[str, int] = {}
    for entry in entries:
        if entry.name in folders and entry.is_dir(follow_symlinks=False):
            below = [name.removeprefix(f"{entry.name}/") for name in folders if name.startswith(f"{entry.name}/")]
            inside = file_sizes(Path(entry.path), below)
            sizes |= {f"{entry.name}/{name}": size for name, size in inside.items()}
        else:
            sizes[entry.name] = entry.stat().st_size
    return sizes


def folders_in(receipt: Receipt) -> list[str]:
    parents = {str(folder) for file in receipt.files for folder in PurePosixPath(file.name).parents}
    return sorted(parents - {"."})


def batch_sizes(directory: Path, receipt: Receipt | None) -> dict[str, int]:
    return file_sizes(directory, folders_in(receipt) if receipt is not None else ())


def folders_of(data: Opened, receipt: Receipt) -> list[Opened]:
    """Return the directories that hold a receipt's files, the innermost first; none where it has no files."""
    return [*(data / name for name in reversed(folders_in(receipt))), data] if receipt.files else []


def check_listing(data: Opened, receipt: Receipt, *others: Path) -> None:
    """Raise StagedOutputUnusableError unless exactly the receipt's files exist, with their sizes.

    Some of them may be in ``others``, which need not exist.
    """
    expected, found = {file.name: file.size_bytes for file in receipt.files}, staged_sizes(data, receipt)
    for other in others:
        found |= batch_sizes(other, receipt)
    if found != expected:
        raise StagedOutputUnusableError(
            f"attempt {receipt.attempt} of batch {receipt.batch_id}: {difference(expected, found)} in {data}"
        )


def staged_sizes(data: Opened, receipt: Receipt) -> dict[str, int]:
    return batch_sizes(data, receipt) if isinstance(data, Path) else remote_sizes(data)


def difference(expected: dict[str, int], found: dict[str, int]) -> str:
    problems = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    problems += [f"{name} is not in the receipt" for name in sorted(found.keys() - expected.keys())]
    problems += [
        f"{name} has {found[name]:,} bytes instead of {expected[name]:,}"
        for name in sorted(expected.keys() & found.keys())
        if found[name] != expected[name]
    ]
    return listing(problems)


def verify_footer(path: Opened, expected: WrittenFile, columns: WrittenColumns | None) -> None:
    """Raise StagedOutputUnusableError where a file's footer cannot be read, counts other rows or has other types.

    ``columns``: those of decoded rows; None where they are not known. A file may have more, of the table's partitions.
    """
    # A third of a second for pyarrow, which only a commit should pay.
    from kafka_ingest.sinks.parquet_contents import staged_footer, struct_of  # noqa: PLC0415

    with staged_footer(path) as footer:
        rows, found = footer.num_rows, written_columns(struct_of(footer.schema.to_arrow_schema()))
    if rows != expected.rows:
        raise StagedOutputUnusableError(f"{path}: expected {counted(expected.rows, 'row')}, its footer says {rows:,}")
    promised = {**{name: kind for name, kind in KAFKAS_OWN.items() if name in found}, **(columns or {})}
    if wrong := [name for name, kind in promised.items() if found.get(name) != kind]:
        raise StagedOutputUnusableError(
            f"{path}: expected the types that were decided when the attempt was opened, found others:\n"
            f"{side_by_side(promised, found, wrong, before_is='decided')}"
        )


DATA_PUBLISHED = "data.published"
DATA_REVOKED = "data.revoked"
DATA_LATE = "data.late"
"""Where late rows wait between the step that publishes a batch and the one that follows it."""
MOST_OF_FAILURE = 4 * 1024 * 1024


class StagedFiles:
    """The folder ``staging`` of one output, with the data of its attempts.

    ``of_table``: where a table has the data files of its batches, staged and published alike; dead letters are no rows
    of it. ``is_published``: whether those of a batch's attempt are. Other data is in the attempt's directory, which
    publishing moves and revoking renames. ``forget`` removes what is kept of an attempt elsewhere.
    """

    def __init__(
        self,
        folder: Place,
        access: StoreAccess | None = None,
        of_table: Place | None = None,
        is_published: Callable[[UUID, int], bool] = lambda *_: False,
        forget: Callable[[UUID, int], None] = lambda *_: None,
    ) -> None:
        self.folder = folder
        self._access = access
        self._of_table = of_table
        self._is_published = is_published
        self._forget = forget

    def data_place(self, directory: Place) -> Place:
        """Return where the data of the attempt in a directory is written, and stays until it is published."""
        if self._of_table is None or are_dead_letters(directory):
            return directory / DATA
        return self._of_table / directory.parent.name / directory.name

    def has_batch_column(self, directory: Place) -> bool:
        """Whether each row carries its batch's id, which no path tells readers of a table."""
        return self._of_table is not None and not are_dead_letters(directory)

    def _data_of(self, directory: Place, receipt: Receipt) -> Opened:
        """Return where the files of an attempt are, revoked or not; raises StagedOutputUnusableError."""
        from kafka_ingest.sinks.restaged_parquet import staged_data  # noqa: PLC0415 - see restage

        places = self.data_place(directory), directory / DATA_REVOKED
        return staged_data([self._open(place) for place in places], receipt)

    def _to_remove(self, directory: Place) -> list[Place]:
        """Return what must be removed with an attempt's directory; of a published one late rows, which were copied."""
        if not self.has_batch_column(directory):
            return []
        data = self.data_place(directory)
        is_published = self._is_published(UUID(directory.parent.name), int(directory.name))
        return [data / LATE_FOLDER if is_published else data]

    def _open(self, place: Place) -> Opened:
        return opened(place, self._access)

    def attempt_directory(self, batch_id: UUID, attempt: int) -> Place:
        return self.folder / str(batch_id) / str(attempt)

    def check_mounted(self) -> None:
        """Raise FileNotFoundError where the folder is missing: then missing files below it prove nothing."""
        # The first plan created it, before the first attempt. In other file systems a folder without files may not
        # exist, and one that is not available does not answer, or says that the bucket is missing.
        if not isinstance(self.folder, Path):
            names_in(self._open(self.folder))
        elif not self.folder.is_dir():
            raise FileNotFoundError(
                errno.ENOENT,
                "expected it since the feed's first plan; mount it, or create it again if it is lost",
                str(self.folder),
            )

    def open_attempt(self, directory: Place, document: bytes) -> None:
        with storage_errors(directory):
            self.check_mounted()
            self._refuse_links(directory, self.data_place(directory))
            make_folder(self._open(directory))
            write_new(self._open(directory / DOCUMENT), document)

    def _refuse_links(self, *places: Place) -> None:
        """Refuse a link to elsewhere in the place of a batch or an attempt: what is written is removed again."""
        for place in map(self._open, places):
            refuse_links(place, place.parent.parent)

    def read_receipt(self, directory: Place) -> bytes | None:
        """Return the attempt's receipt as stored, None where there is none; of one that is too large its beginning."""
        with storage_errors(directory):
            self.check_mounted()
            try:
                return read_at_most(self._open(directory / RECEIPT), ENOUGH_BYTES)
            except FileNotFoundError:
                return None

    def write_receipt(self, directory: Place, content: bytes) -> None:
        with storage_errors(directory):
            write_new(self._open(directory / RECEIPT), content)

    def read_failure(self, directory: Place) -> str | None:
        """Return Spark's output when the attempt failed, None where there is none; of a long one its beginning."""
        with storage_errors(directory):
            try:
                return read_at_most(self._open(directory / FAILURE), MOST_OF_FAILURE).decode(errors="replace")
            except FileNotFoundError:
                return None

    def note_failure(self, directory: Place, found: str) -> None:
        with storage_errors(directory):
            write_whole(self._open(directory / FAILURE), found.encode())

    def end_of_failure(self, directory: Place, most: int) -> tuple[str, bool] | None:
        """Return the end of Spark's output, of so many bytes, and whether there may be more before it."""
        with storage_errors(directory):
            try:
                content = read_end(self._open(directory / FAILURE), most)
            except FileNotFoundError:
                return None
        return content.decode(errors="replace"), len(content) == most

    def verify(self, directory: Place, receipt: Receipt) -> None:
        place = self.data_place(directory)
        with storage_errors(place):
            self.check_mounted()
            data = self._open(place)
            check_listing(data, receipt)
            for file in receipt.files:
                verify_footer(data / file.name, file, receipt.columns)
                flush(data / file.name)
            for folder in folders_of(data, receipt):
                flush(folder)

    def check_restageable(self, directory: Place, receipt: Receipt) -> None:
        with storage_errors(directory):
            self.check_mounted()
            self._data_of(directory, receipt)

    def restage(
        self, source: Place, receipt: Receipt, target: Place, ranges: Sequence[OffsetRange]
    ) -> list[WrittenFile]:
        # A third of a second for pyarrow, which only a restore should pay.
        from kafka_ingest.sinks.restaged_parquet import restage  # noqa: PLC0415

        with storage_errors(target):
            self.check_mounted()
            attempt = target.parent if are_dead_letters(target) else target
            batch_id = attempt.parent.name if self._of_table is not None else None
            data = self._data_of(source, receipt)
            return restage(data, receipt, self._open(self.data_place(target)), ranges, batch_id=batch_id)

    def size_bytes(self, directory: Place) -> int:
        with storage_errors(directory):
            self.check_mounted()
            return sum(size_below(self._open(place)) for place in (directory, *self._to_remove(directory)))

    def remove(self, directory: Place) -> None:
        """Remove an attempt's directory, and its data that is not published, or was copied to be.

        Raises ValueError on a directory that is none of this output's attempts.
        """
        if directory.parent.parent != self.folder:
            raise ValueError(f"expected the directory of an attempt below {self.folder}, found {directory}")
        with storage_errors(directory):
            self.check_mounted()
            elsewhere = self._to_remove(directory)
            self._refuse_links(directory, *elsewhere)
            # The data first: without its attempt it would never be found.
            self._forget(UUID(directory.parent.name), int(directory.name))
            for place in elsewhere:
                remove_tree(self._open(place))
                remove_if_empty(self._open(place.parent))
            remove_tree(self._open(directory))
            remove_if_empty(self._open(directory.parent))  # no other attempt is left
