"""Publish in a table: one commit adds a batch's files and its mark; an empty one with another mark revokes it.

With the parts of a table that its roles share, and which batch a data file of a table belongs to.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import (
    ColumnsChangedError,
    OutputConflictError,
    OutputUnavailableError,
    StagedOutputUnusableError,
)
from kafka_ingest.foundation.counting import are, counted
from kafka_ingest.foundation.storage import Opened, changed_at, flush, opened, renew
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.dead_letters import are_dead_letters
from kafka_ingest.model.gap import Removal
from kafka_ingest.model.partition_term import is_late
from kafka_ingest.model.place import OutputLocation, Place, below
from kafka_ingest.model.proof import proof_of
from kafka_ingest.model.published_output import FilePlace, FilesState, FoundFiles, PublishedReceipt
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.kept_receipts import KeptReceipts, being_abandoned, how_to_abandon, published_already
from kafka_ingest.sinks.staged_files import (
    DATA_LATE,
    StagedFiles,
    check_listing,
    difference,
    folders_of,
    staged_sizes,
)
from kafka_ingest.sinks.tables.decoded_columns import BEFORE_COMMITTING, WHILE_COMMITTING, say_how_to_go_on
from kafka_ingest.sinks.tables.late_files import LateFiles
from kafka_ingest.sinks.tables.table_format import CleanUp, Mark, Outcome, Staged, TableFormat, TableRows
from kafka_ingest.sinks.usable_places import beside, check_usable, make_usable, storage_errors


@dataclass(frozen=True, slots=True)
class TableParts:
    """The table, and the folder beside it. ``access`` leads to the store, None on a disk."""

    table: TableFormat
    output: Place
    beside: Place
    access: StoreAccess | None
    staging: StagedFiles
    receipts: KeptReceipts
    late: LateFiles | None = None
    """Late rows, where they are files; None where the table's own commit has them."""

    @classmethod
    def of(
        cls,
        table: TableFormat,
        access: StoreAccess | None = None,
        forget: Callable[[UUID, int], None] = lambda *_: None,
        late: LateFiles | None = None,
    ) -> "TableParts":
        """Return the parts of a table; it is not read before a question needs it."""
        folder: Place = beside(table.output)

        def is_published(batch_id: UUID, attempt: int) -> bool:
            """Whether an attempt's data is published: by its receipt, or, where that was lost, by the table."""
            return receipts.is_of_attempt(batch_id, attempt) or table.commits.rows().names_files_of(batch_id, attempt)

        staging = StagedFiles(folder / "staging", access, table.data_folder, is_published, forget)
        receipts = KeptReceipts(
            opened(folder / "receipts", access),
            staging.check_mounted,
            lambda batch_id: (
                table.commits.rows().is_visible(batch_id) or (late is not None and late.is_there(batch_id))
            ),
        )
        return cls(table, table.output, folder, access, staging, receipts, late)

    def place_of(self, receipt: Receipt) -> Place:
        return self.staging.data_place(self.staging.attempt_directory(receipt.batch_id, receipt.attempt))

    def path(self, receipt: Receipt, name: str) -> Place:
        """Return where a file of a batch was published."""
        if self.late is not None and is_late(name):
            return self.late.folder(receipt.batch_id) / name
        return self.place_of(receipt) / name

    def files_there(self, receipt: Receipt) -> dict[str, int]:
        """Return the names and sizes of a batch's files that are where they were published."""
        found = staged_sizes(self.opened(self.place_of(receipt)), receipt)
        if self.late is None or not receipt.late_rows:
            return found
        return {name: size for name, size in found.items() if not is_late(name)} | self.late.sizes(receipt)

    def late_files(self, receipt: Receipt) -> set[str]:
        """Return the names of a batch's files that are beside the table."""
        return {file.name for file in receipt.files if file.is_late and self.late is not None}

    def of_table(self, staged: Staged) -> Staged:
        """Return what the table's own commit has of an attempt."""
        return staged if self.late is None else staged.part(late=False)

    def staged(self, directory: Place, receipt: Receipt) -> Staged:
        place = self.staging.data_place(directory)
        is_at_its_place = self.table.data_folder is not None and not are_dead_letters(directory)
        folder = below(place, self.output) if is_at_its_place else ""
        return Staged(folder, self.opened(place), receipt)

    def opened(self, place: Place) -> Opened:
        return opened(place, self.access)


def place_in_table(path: Path, table_format: str, folders: tuple[str, ...]) -> FilePlace | None:
    """Return which batch's data file an absolute path names, None where the format stores none there.

    ``folders`` are between a table and its batches.
    """
    above = path.parts
    # Below an attempt there may be folders of partitions, which may be called anything.
    ends = reversed(range(len(folders), len(above) - 2))
    found = next(
        (end for end in ends if is_attempt(*above[end : end + 2]) and above[:end][-len(folders) :] == folders), None
    )
    if found is None:
        return None
    output, batch_id, attempt = Path(*above[: found - len(folders)]), UUID(above[found]), int(above[found + 1])
    folder = beside(output)
    if not (folder / "staging").is_dir():
        return None
    # Published and staged files are in one place: the kept receipt shows which attempt was published.
    is_published = KeptReceipts(folder / "receipts").is_of_attempt(batch_id, attempt)
    return FilePlace(OutputLocation.local(table_format, output), batch_id, None if is_published else attempt)


def is_attempt(batch: str, attempt: str) -> bool:
    try:
        UUID(batch)
    except ValueError:
        return False
    return attempt.isdecimal()


class TablePublisher:
    """Makes batches visible in a table."""

    def __init__(self, parts: TableParts) -> None:
        self._parts = parts
        self._table = parts.table
        self._output = parts.output
        self._staging = parts.staging
        self._receipts = parts.receipts

    def examine(self) -> None:
        """Raise InstallationError without the library, OutputNotUsableError for an unusable table.

        On a disk it creates nothing; in a store one empty object, by which it sees whether the store can be used.
        """
        self._table.check_installed()
        check_usable(self._output, self._parts.access)
        with storage_errors(self._output):
            self._table.check_usable()

    def prepare(self) -> None:
        self.examine()
        with storage_errors(self._output):
            make_usable(self._output, (self._parts.beside, self._staging.folder, self._receipts.folder))

    def known_batches(self, since: UUID | None = None) -> list[str]:
        """Return the ids of the batches that were ever published here, oldest first; ``since``: from this id on.

        With ``since`` by the receipts: each is kept before its batch is committed to the table. Without it also by the
        table itself, so that a lost receipt shows.
        """
        with storage_errors(self._receipts.folder):
            kept = self._receipts.batch_ids(since)
        if since is not None:
            return sorted(kept)
        with storage_errors(self._output):
            return sorted(kept | self._table.published())

    def published_receipts(self) -> Iterator[PublishedReceipt]:
        names = self.known_batches()
        if not names:
            return
        with storage_errors(self._output):
            rows = self._table.commits.rows()

        def found(published: PublishedReceipt, removal: Removal | None) -> FoundFiles:
            with storage_errors(self._output):
                if removal is None:
                    return found_files(self._parts, rows, published.receipt)
                mark = rows.mark(published.plan.batch_id) if published.plan.replaces else None
            return FoundFiles(FilesState.EXPIRED, str(removal), is_marked=mark is not None and not is_revoked(mark))

        yield from self._receipts.published(names, found)

    def data_needs(self, directory: Place) -> DataNeeds:
        self._table.check_installed()
        with storage_errors(self._output):
            without = self._table.columns_left_out()
        return DataNeeds(
            self._staging.data_place(directory),
            batch_column=self._staging.has_batch_column(directory),
            without=without,
            partition_by=self._table.options.partition_by if self._table.data_folder is not None else (),
            own_columns=self._table.own_columns,
        )

    def check_records(self, *, decoded: bool) -> None:
        if decoded != self._table.options.decoded:
            planned, found = ("raw", "decoded") if decoded else ("decoded", "raw")
            raise ColumnsChangedError(
                f"{self._output}: expected {planned} records, for which the batch was planned, found that the feed "
                f"file makes {found} ones now, with other columns. Nothing was written and no offset was moved. Change "
                "the feed file back; or abandon the batch, and the next run plans one for what the feed file says."
            )

    def columns_there(self, written: WrittenColumns) -> WrittenColumns | None:
        self._table.check_installed()
        with storage_errors(self._output):
            return self._table.columns(written) or None

    def misfits(self, written: WrittenColumns) -> list[str]:
        self._table.check_installed()
        with storage_errors(self._output):
            return list(self._table.misfits(written))

    def can_take(self, directory: Place, receipt: Receipt) -> None:
        batch_id = receipt.batch_id
        with storage_errors(self._output), self._table.one_reading():
            self._staging.check_mounted()
            self.prepare()
            if self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            commits = self._table.commits
            if (mark := commits.mark(batch_id)) is not None:
                raise OutputConflictError(
                    f"batch {batch_id} is WRITTEN, but {commits.says} that it was {mark.outcome.value}. Nothing "
                    "was done. Were the control tables restored from an older backup?"
                )
            staged = self._parts.staged(directory, receipt)
            check_listing(staged.data, receipt)
            with say_how_to_go_on(BEFORE_COMMITTING):
                commits.check_files(self._parts.of_table(staged))
            self._check_safe(staged)
            if self._parts.late is not None and receipt.late_rows:
                self._parts.late.can_take(directory, receipt)

    def publish(self, directory: Place, published: PublishedReceipt) -> None:
        batch_id = published.receipt.batch_id
        with storage_errors(self._output), self._table.one_reading():
            self._staging.check_mounted()
            if self._receipts.removal(batch_id) is not None:
                return  # it was published, and removed since: older control tables may not know
            commits = self._table.commits
            mark = commits.mark(batch_id)
            if is_revoked(mark) or self._receipts.is_withdrawn(batch_id):
                raise being_abandoned(batch_id)
            if mark is not None and not self._receipts.is_kept(batch_id):
                raise OutputConflictError(
                    f"{commits.says} that batch {batch_id} was published, but its receipt is not kept beside it, "
                    "so its plan is unknown. No offset was moved; restore the receipts from a backup."
                )
            # Where one is kept, this compares the two, by the plan's fingerprint among others.
            self._receipts.keep(published)
            if mark is None:
                mark = self._add(directory, published)
            if is_revoked(mark):
                raise being_abandoned(batch_id)
            if mark.fingerprint and mark.fingerprint != published.plan.fingerprint:
                raise OutputConflictError(
                    f"{self._output}: expected batch {batch_id} published by plan {published.plan.fingerprint}, found "
                    f"plan {mark.fingerprint}. No offset was moved; find what else writes to this table."
                )
            commits.make_durable()
            if self._parts.late is not None and published.receipt.late_rows:
                self._publish_late(self._parts.late, directory, published.receipt.part(late=True))

    def _publish_late(self, late: LateFiles, directory: Place, receipt: Receipt) -> None:
        """Ask for a removal before and after: a publisher may be held up in between, and the batch expire."""
        if self._receipts.removal(receipt.batch_id) is not None:
            return
        try:
            late.publish(directory, receipt)
        except OutputConflictError:
            if self._receipts.removal(receipt.batch_id) is None:
                raise
        if self._receipts.removal(receipt.batch_id) is not None:
            late.remove(receipt.batch_id)

    def _check_safe(self, staged: Staged) -> None:
        if staged.receipt.files:
            files = [staged.data / file.name for file in staged.receipt.files]
            check_safe_from(self._table.commits.clean_up(), files)

    def _add(self, directory: Place, published: PublishedReceipt) -> Mark:
        receipt, staged = published.receipt, self._parts.staged(directory, published.receipt)
        try:
            # Also after a crash: what was verified then may be missing now, or nearly so old that it soon is.
            check_listing(staged.data, receipt)
            self._check_safe(staged)
            if self._parts.late is not None and receipt.late_rows:
                self._parts.late.set_aside(staged.data, directory, receipt.part(late=True))
            if receipt.files and self._table.data_folder is not None:
                self._flush_folders(staged)
            proof = proof_of(published.plan, receipt).as_text()
            mark = Mark(receipt.batch_id, Outcome.PUBLISHED, published.plan.fingerprint, proof)
            with say_how_to_go_on(f"{WHILE_COMMITTING}{how_to_abandon(receipt.batch_id)}."):
                return self._table.commits.land(mark, self._parts.of_table(staged), published.plan.replaces)
        except StagedOutputUnusableError as error:
            if (found := self._table.commits.mark(receipt.batch_id)) is not None:
                return found
            raise OutputConflictError(
                f"{error}; they were intact when the commit began. Nothing was published and no offset was moved. "
                f"Either restore them and run the commit again, or {how_to_abandon(receipt.batch_id)}."
            ) from error

    def _flush_folders(self, staged: Staged) -> None:
        """Make the files' names durable, up to the table's directory."""
        for folder in folders_of(staged.data, staged.receipt):
            flush(folder)
        above = staged.data.parent
        while isinstance(above, Path) and above != self._output:
            flush(above)
            above = above.parent

    def revoke(self, _directory: Place, batch_id: UUID) -> None:
        with storage_errors(self._output):
            self._staging.check_mounted()
            if not is_revoked(self._table.commits.land(Mark(batch_id, Outcome.REVOKED))):
                raise published_already(batch_id)
            self._table.commits.make_durable()
            self._receipts.withdraw(batch_id)


def is_revoked(mark: Mark | None) -> bool:
    return mark is not None and mark.outcome is Outcome.REVOKED


def found_files(parts: TableParts, rows: TableRows, receipt: Receipt) -> FoundFiles:
    """Return what exists of one batch of many. I/O errors are left to the caller."""
    mark, data = rows.mark(receipt.batch_id), parts.opened(parts.place_of(receipt))
    if mark is not None and mark.outcome is Outcome.REVOKED:
        return FoundFiles(FilesState.REVOKED, f"{parts.table.commits.says} so")
    if not receipt.files:
        return FoundFiles(FilesState.INTACT)
    if mark is None:
        expected, there = {file.name: file.size_bytes for file in receipt.files}, staged_sizes(data, receipt)
        if not there:
            return FoundFiles(FilesState.GONE, f"its files are not in {data}, and the table does not name it")
        state = FilesState.STAGED if there == expected else FilesState.BROKEN
        return FoundFiles(state, f"its files are in {data}, {difference(expected, there) or 'all of them'}")
    return published_files(parts, rows, receipt)


def published_files(parts: TableParts, rows: TableRows, receipt: Receipt) -> FoundFiles:
    """Return what exists of a batch that its mark calls published."""
    there, late = parts.files_there(receipt), parts.late_files(receipt)
    expected = {file.name: file.size_bytes for file in receipt.files}
    lacking = {name: expected[name] for name in late if there.get(name) != expected[name]}
    directory = parts.staging.attempt_directory(receipt.batch_id, receipt.attempt)
    if parts.late is not None and lacking and lacking.items() <= parts.late.aside(directory, receipt).items():
        return FoundFiles(FilesState.STAGED, f"its late rows are in {directory / DATA_LATE}")
    names = rows.own_files_of_all.of(receipt.batch_id, receipt.attempt) | (late - lacking.keys())
    own = [file for file in receipt.files if file.name in names]
    missing = {file.name: file.size_bytes for file in own if there.get(file.name) != file.size_bytes}
    if missing:
        left = {name: size for name, size in there.items() if name in missing}
        said = f"{difference(missing, left)} where they were published, and readers look for them"
        return FoundFiles(FilesState.CHANGED, said)
    count = sum(file.rows for file in own)
    if len(own) < len(receipt.files):
        count += rows.count_elsewhere(receipt.batch_id)
    if count == receipt.rows:
        return FoundFiles(FilesState.INTACT, rows=count)
    state = FilesState.CHANGED if count else FilesState.GONE
    return FoundFiles(state, f"the output holds {count:,} of its {counted(receipt.rows, 'row')}", count)


def check_safe_from(clean_up: CleanUp, files: Sequence[Opened]) -> None:
    """Raise OutputUnavailableError where files are so old that a clean-up could take them; they are renewed.

    It deletes old files that the table does not name: what it has listed, even if a file changes afterwards. So files
    that are nearly that old are committed only once a clean-up that saw them as old must have ended.
    """
    now = time.time()
    old = [path for path in files if now - changed_at(path) > clean_up.oldest_s]
    for path in old:
        renew(path)
    if old:
        raise OutputUnavailableError(
            f"{old[0].parent}: {counted(len(old), 'staged file')} {are(len(old))} older than "
            f"{clean_up.oldest_s / 86_400:.3g} days, so that {clean_up.program} may take them while they are "
            "committed. They were renewed. No offset was moved; run this again when no "
            f"{clean_up.program} of this table is under way that began before now."
        )
