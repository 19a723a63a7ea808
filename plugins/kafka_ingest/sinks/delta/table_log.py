"""The log of one Delta table: its commits decide what was published, and what was revoked.

The mark of a batch is an application transaction of the Delta protocol (action ``txn``): its id is the batch's, its
version says which. A commit carries it together with the files, so both are there or neither. Look and commit are of
one version: a commit makes the version after the one that was read, or none, if another one came first.

Looks and appends read no list of files (:mod:`.log_reading`, :mod:`.log_entry`), and take as long for a year of
batches as for a day. Whatever needs the list, or changes columns, is the library's.
"""

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.durable_files import sync
from kafka_ingest.foundation.storage import Opened, names_from, names_in, opened, refuse_links
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import Place
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.table_options import HOW_TO_TAKE_IT, NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, WrittenColumns
from kafka_ingest.sinks.delta.columns import (
    NOT_IN_NAMES,
    Fields,
    columns_of,
    differences_of_file,
    listed,
    named,
    new_schema,
    nullable,
    raw_schema,
    to_add,
    without_nulls,
)
from kafka_ingest.sinks.delta.library import brief, check_installed, delta_lake, failures
from kafka_ingest.sinks.delta.log_entry import (
    BATCH_KEY,
    BATCHES,
    FINGERPRINT_KEY,
    LOG,
    NOT_IN_PATHS,
    PROOF_KEY,
    AddedFile,
    noted_checkpoint,
    write_entry,
    write_version,
)
from kafka_ingest.sinks.delta.table_fit import (
    NAMED,
    TableForm,
    for_new_table,
    form_of,
    naming,
    oldest_s,
    why_not_read,
    why_not_written,
)
from kafka_ingest.sinks.delta.table_rows import DeltaRows
from kafka_ingest.sinks.tables.decoded_columns import last_names, names_of_columns, refuse_misfits, wrong_names
from kafka_ingest.sinks.tables.table_format import (
    REMOVED_KEY,
    CleanUp,
    Mark,
    Outcome,
    ReplacedFile,
    Staged,
    refuse_strangers,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import CommitProperties, DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

    from kafka_ingest.sinks.delta.log_reading import LogReading

    Replacing = Callable[[DeltaTable], Sequence[AddAction | RemoveAction]]

log = logging.getLogger(__name__)

TRIES = 5
MOST_RIVALS = 100
"""So many commits may come first while one batch is committed. Each is another writer's success."""
CREATION_PAUSES_S = (0.1, 0.3, 0.9, 2.7)
"""How long another writer's creation of the table is waited for, between looks."""
CHECKPOINT_INTERVAL, DEFAULT_INTERVAL = "delta.checkpointInterval", 100
"""After how many entries a checkpoint is due: a property of the table, and the library's default."""
CLEAN_UP = "delta.enableExpiredLogCleanup"
PLAIN = re.compile(r"[A-Za-z0-9._=/-]+")
"""A path that the log holds as it is: other characters are escaped there, by one writer so and by another so."""
BEING_WRITTEN = "#"
"""delta-rs writes ``NAME#1`` (or a higher number, next to others that do so), and then gives it its name."""


VERSIONS = {Outcome.PUBLISHED: 1, Outcome.REVOKED: 2}
"""The version of a batch's application transaction says how it ended."""
OUTCOMES = {version: outcome for outcome, version in VERSIONS.items()}


class TableLog:
    """The log below ``_delta_log`` of a table in a directory, or in a store that ``access`` leads to.

    It is a :class:`.TableFormat`, and its own commits.
    """

    check_installed = staticmethod(check_installed)

    def __init__(
        self, output: Place, access: StoreAccess | None = None, options: TableOptions = NO_TABLE_OPTIONS
    ) -> None:
        self.output = output
        self.data_folder = output / BATCHES
        self.says = f"the log of {output} says"
        self.options = options
        self.own_columns = any(term.is_of_time for term in options.partition_by)
        self._access = access
        self._folder = output / LOG
        self._storage_options = access.for_delta() if access is not None else None
        self._keeps_reading = False
        self._kept: LogReading | None = None
        self._rows: tuple[int, DeltaRows] | None = None

    @property
    def commits(self) -> "TableLog":
        return self

    def opened(self, place: Place) -> Opened:
        return opened(place, self._access)

    def is_there(self) -> bool:
        """Whether there is a table; on a disk no library is asked."""
        if isinstance(self._folder, Path):
            return self._folder.is_dir() and has_entry(self._folder)
        return self._now() is not None

    def open(self) -> "DeltaTable | None":
        """Return the table with the list of its files as it is now, None where there is none."""
        if self._now() is None:  # which bounds what the library reads
            return None
        with self.named_errors():
            table: DeltaTable = delta_lake().DeltaTable(self._uri, storage_options=self._storage_options)
            return table

    @contextmanager
    def one_reading(self) -> Iterator[None]:
        """Read the newest checkpoint once within this; each further look reads the entries that came since."""
        self._keeps_reading = True
        try:
            yield
        finally:
            self._keeps_reading, self._kept = False, None

    def _now(self) -> "LogReading | None":
        with self.named_errors():
            if self._kept is not None:
                self._kept.update()
                return self._kept
            if isinstance(self._folder, Path) and not self.is_there():
                return None
            from kafka_ingest.sinks.delta.log_reading import LogReading  # noqa: PLC0415 - pyarrow, in the task only

            folder = self.opened(self._folder)
            refuse_links(folder, folder.parent)
            found = LogReading.of(folder)
        self._kept = found if self._keeps_reading else None
        return found

    @property
    def _uri(self) -> str:
        """What the library calls the table: without the connection's id."""
        place = self.output
        return str(place) if isinstance(place, Path) else f"{place.scheme}://{place.bucket}/{place.key}"

    def mark(self, batch_id: UUID) -> Mark | None:
        table = self._now()
        return self.mark_in(table, batch_id) if table is not None else None

    def mark_in(self, table: "DeltaTable | LogReading", batch_id: UUID) -> Mark | None:
        with self.named_errors():
            version = table.transaction_version(str(batch_id))
        if version is None:
            return None
        if version not in OUTCOMES:
            raise OutputConflictError(
                f"{self.output}: expected version 1 or 2 of application transaction {batch_id}, found {version}: "
                "another program uses this batch's id. No offset was moved."
            )
        return Mark(batch_id, OUTCOMES[version])

    def form(self) -> TableForm | None:
        table = self._now()
        return self._form_of(table) if table is not None else None

    def rows(self) -> DeltaRows:
        """Return what the table holds now; of one version the list of files is read once."""
        now = self._now()
        if now is None:
            return DeltaRows(self)
        if self._rows is None or self._rows[0] != now.version:
            self._rows = now.version, DeltaRows(self)  # of a later one, if it has come since
        return self._rows[1]

    def published(self) -> set[str]:
        return self.rows().published()

    def check_usable(self) -> None:
        if isinstance(self.output, Path) and (wrong := NOT_IN_PATHS.search(str(self.output))) is not None:
            raise OutputNotUsableError(
                "expected a path without '\\' and without '%' before two hexadecimal digits, which Delta's library "
                f"reads as another path, found {wrong[0]!r} in {self.output}. Give the feed another sink.path."
            )
        self._check_no_other_files()
        self.check_writable()

    def _check_no_other_files(self) -> None:
        """Raise OutputNotUsableError where a directory that is no table holds another output's files."""
        if isinstance(self.output, Path):
            if (self.output / LOG).exists() or not self.output.is_dir():
                return
        elif self.is_there():
            return
        # A log that is there now was made by another writer a moment ago, or is a store's empty folder: none of these.
        names = (name for name in names_in(self.opened(self.output)) if name != LOG)
        refuse_strangers(names, self.output, "a Delta", "VACUUM")

    def check_writable(self) -> None:
        """Raise OutputNotUsableError where this version cannot write an existing table without harming its readers."""
        if (form := self.form()) is not None:
            self._check_fits(form)

    def check_can_remove(self, *, replacing: bool = False) -> None:
        self.check_writable()
        set_to_true = {name for name, value in self._configuration().items() if value.lower() == "true"}
        if "delta.appendOnly" in set_to_true:
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table whose rows may be deleted, found delta.appendOnly=true. "
                "Nothing was changed; unset that property where rows are to be removed."
            )
        if replacing and "delta.enableChangeDataFeed" in set_to_true:
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table without a change data feed, found "
                "delta.enableChangeDataFeed=true: its readers would take rows that only move to another file for "
                "changed ones. Nothing was changed; unset that property, or copy the ranges elsewhere."
            )

    def _configuration(self) -> Mapping[str, str]:
        form = self.form()
        return form.configuration if form is not None else {}

    def clean_up(self) -> CleanUp:
        return CleanUp("VACUUM", oldest_s(self._configuration()))

    def columns_left_out(self) -> tuple[str, ...]:
        form = self.form() if self.options.may_lack else None
        return self.options.left_out(form.columns) if form is not None else ()

    def columns(self, _written: WrittenColumns) -> dict[str, str]:
        form = self.form()
        return listed(form.fields) if form is not None else {}

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        yield from wrong_names(last_names(written), NOT_IN_NAMES)
        if (form := self.form()) is not None:
            yield from without_nulls(form.fields, names_of_columns(written))

    def check_files(self, staged: Staged) -> None:
        # A third of a second, for commits.
        from kafka_ingest.sinks.delta.add_actions import columns_of_files, schema_of  # noqa: PLC0415
        from kafka_ingest.sinks.tables.staged_checks import check_files  # noqa: PLC0415 - see above

        unknown, decoded = self.columns_left_out(), self.options.decoded

        def differences(found: "pa.Schema") -> list[str]:
            return list(differences_of_file(schema_of(found), self.options, unknown))

        terms = self.options.partition_by
        check_files(staged.data, staged.receipt, differences, terms, own_columns=self.own_columns, alike=decoded)
        if decoded:
            form = self.form()
            columns = columns_of_files(staged.data, staged.receipt)
            self._check_columns(form.fields if form is not None else (), columns)

    def _check_columns(self, there: Fields, columns: Fields) -> None:
        """Raise ColumnsChangedError where files with these columns would be misread in a table with those."""
        names = [field["name"] for field in columns]
        wrong = [*wrong_names(named(columns), NOT_IN_NAMES), *without_nulls(there, names)]
        refuse_misfits(str(self.output), listed(there), listed(columns), wrong)

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        from kafka_ingest.sinks.delta.replaced_files import replaced_files  # noqa: PLC0415 - see check_files
        from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows  # noqa: PLC0415 - see check_files

        if self.is_there():
            yield from replaced_files(self.rows(), ReplacedRows.of(replaced))

    def check_readable(self, table: "DeltaTable") -> None:
        """Raise OutputNotUsableError where the table's rows do not follow from its files alone."""
        if problems := list(why_not_read(form_of(table))):
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table whose Parquet files are its rows, found {listing(problems)}."
            )

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        files, columns = self._added(staged) if staged is not None else ((), ())
        return self._land(mark, files, columns, self._replacing(replaced) if replaced else None)

    def _added(self, staged: Staged) -> tuple[Sequence[AddedFile], Fields]:
        """Return what is added of files, and the columns of decoded records; raw ones have those of the raw format."""
        if not staged.receipt.files:
            return (), ()
        from kafka_ingest.sinks.delta.add_actions import added_files, columns_of_files  # noqa: PLC0415

        files = added_files(staged.folder, staged.data, staged.receipt, self.options.partition_by)
        return files, columns_of_files(staged.data, staged.receipt) if self.options.decoded else ()

    def _replacing(self, replaced: Sequence[ReplacedRange]) -> "Replacing":
        from kafka_ingest.sinks.delta.replaced_files import actions_for  # noqa: PLC0415 - see check_files
        from kafka_ingest.sinks.tables.replaced_rows import ReplacedRows  # noqa: PLC0415 - see check_files

        self.check_can_remove(replacing=True)
        wanted = ReplacedRows.of(replaced)
        return lambda table: actions_for(DeltaRows(self, table), wanted)

    def _land(self, mark: Mark, files: Sequence[AddedFile], columns: Fields, replacing: "Replacing | None") -> Mark:
        """Commit a mark with files of these columns; after each try the table is read again.

        A commit may have landed although it failed. ``replacing`` returns what else the commit does to the snapshot
        that it is given.
        """
        failure: Exception | None = None
        rivals = tries = 0
        while rivals < MOST_RIVALS:
            table = self._open_or_create(columns, files)
            if (found := self.mark_in(table, mark.batch_id)) is not None:
                return found
            if tries == TRIES:
                break
            form = self._form_of(table)
            self._check_fits(form)
            self._check_columns(form.fields, columns)
            try:
                if files and self._add_columns(table.version, form, columns):
                    # A commit of its own: the library has none that changes columns and adds files. A crash after it
                    # leaves columns without values, which harm no reader; the look and the files need a new reading.
                    tries += 1
                elif replacing is not None:
                    tries += 1
                    if self._replace(table.version, mark, files, replacing, form.searched):
                        return mark
                elif not self._append(table, mark, files, form):
                    rivals += 1
                elif not table.names_later(table.version + 1):
                    self._checkpoint_if_due(table, form)
                    return mark
                # Otherwise the next look says whether it is in the table, or below a checkpoint that came first.
                self._kept = None  # which may be of a version whose successors are deleted
            except failures() as error:
                failure = error
                tries += 1
                self._kept = None
        raise OutputUnavailableError(
            f"{self.output}: {tries + rivals} tries to commit batch {mark.batch_id} to the table failed, and its log "
            f"does not have it: {brief(failure) or 'others came first'}. No offset was moved; run this again."
        ) from failure

    def _append(self, table: "LogReading", mark: Mark, files: Sequence[AddedFile], form: TableForm) -> bool:
        """Commit to a version that was read; whether no other commit came first."""
        if table.names_later(table.version):
            return False
        transaction = str(mark.batch_id), VERSIONS[mark.outcome]
        folder = self.opened(self._folder)
        return write_entry(folder, table.version + 1, files, transaction, said_of(mark), form.searched)

    def _replace(
        self,
        version: int,
        mark: Mark,
        files: Sequence[AddedFile],
        replacing: "Replacing",
        searched: Mapping[str, object],
    ) -> bool:
        """Commit files and what ``replacing`` does to the version that was read; whether it is still the newest.

        Where another commit comes in between, the library fails.
        """
        table = self.open()
        if table is None or table.version() != version:
            return False
        table.create_write_transaction(
            [*(action_of(file, searched) for file in files), *replacing(table)],
            "append",
            table.schema(),
            commit_properties=properties(mark),
        )
        return True

    def _checkpoint_if_due(self, table: "LogReading", form: TableForm) -> None:
        """Sum up the log where it has grown, so that readings stay short; entries that are old enough are deleted.

        The commit does not depend on it: where it fails, the next one tries it again.
        """
        if table.since_checkpoint + 1 < interval_of(form):
            return
        try:
            whole = self.open()
            if whole is None:
                return
            with self.named_errors():
                whole.create_checkpoint()
        except OutputUnavailableError as error:
            self._say_later("No checkpoint was made", error)
            return
        # Not to be said later: the checkpoint is what readers use from now on, and a disk reports a failure once.
        with self.named_errors():
            self.make_durable()
        if form.configuration.get(CLEAN_UP, "true").lower() == "true":
            try:
                with self.named_errors():
                    whole.cleanup_metadata()
            except OutputUnavailableError as error:
                self._say_later("The log was not cleaned up", error)

    def _say_later(self, what: str, error: OutputUnavailableError) -> None:
        cause = brief(error.__cause__ if isinstance(error.__cause__, Exception) else error)
        log.warning("%s in %s: %s. A later commit tries it again.", what, self.output, cause)

    def delete_rows(self, batch_id: UUID) -> None:
        """Its own files leave the table, also lost ones; one that OPTIMIZE made of several batches is rewritten."""
        failure: Exception | None = None
        for attempt in range(TRIES + 1):
            rows = self.rows()
            rows.refuse_links_of(batch_id)  # the library reads them, and keeps what is not of the batch
            if not rows.is_visible(batch_id):
                return
            table = self.open()
            if attempt == TRIES or table is None:
                break
            try:
                said = delta_lake().CommitProperties(custom_metadata={REMOVED_KEY: str(batch_id)})
                own = [path for path in rows.files if path.startswith(f"{BATCHES}/{batch_id}/")]
                if own and all(map(PLAIN.fullmatch, own)) and not rows.count_elsewhere(batch_id):
                    leaving: list[AddAction | RemoveAction] = [removed(rows, path) for path in own]
                    table.create_write_transaction(leaving, "append", table.schema(), commit_properties=said)
                    continue
                # An id in its canonical form holds no quote.
                table.delete(f"{BATCH_COLUMN} = '{batch_id}'", commit_properties=said)
            except failures() as error:
                failure = error
        raise OutputUnavailableError(
            f"{self.output}: {TRIES} tries to delete the rows of batch {batch_id} failed: {brief(failure)}. It is "
            "recorded as removed; run this again."
        ) from failure

    def _add_columns(self, version: int, form: TableForm, columns: Fields) -> bool:
        """Commit the columns that a version lacks, where the feed allows it; whether there were any.

        Where another writer changed the columns since the reading, the library refuses it.
        """
        own = columns_of(self.options)
        missing = [nullable(name, own[name]) for name in self.options.to_add(own, form.columns)]
        missing += to_add(form.fields, columns)
        if not missing:
            return False
        table = self.open()
        if table is None or table.version() != version:
            return True  # the columns may be there by now
        if NAMED not in form.configuration:
            from kafka_ingest.sinks.delta.add_actions import statistics_of  # noqa: PLC0415 - see _now

            # First: files without the new columns have no bounds of them, and readers would look for some.
            if complete := statistics_of(table, form.searched).complete:
                self.name_columns(table, complete)
                return True
        field = delta_lake().Field.from_json
        table.alter.add_columns([field(json.dumps(each)) for each in missing])
        return True

    def name_columns(self, table: "DeltaTable", columns: Sequence[str]) -> None:
        """Name the columns with bounds, as the next version of the one that was read; nothing, where others came first.

        Not by the library: it would let the table have a feature that it does not use, which is then refused.
        """
        from kafka_ingest.sinks.delta.log_reading import LogReading  # noqa: PLC0415 - see _now

        folder, version, found = self.opened(self._folder), table.version(), table.metadata()
        if LogReading(folder).names_later(version):
            return
        said = {"timestamp": round(time.time() * 1000), "operation": "SET TBLPROPERTIES", "engineInfo": "kafka_ingest"}
        metadata = {
            "id": str(found.id),
            **({"name": found.name} if found.name else {}),
            **({"description": found.description} if found.description else {}),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": found.partition_columns,
            "configuration": found.configuration | naming(columns),
            "createdTime": found.created_time,
        }
        write_version(folder, version + 1, [{"commitInfo": said}, {"metaData": metadata}])

    def make_durable(self) -> None:
        """Flush the log to disk, since delta-rs does not: everything that a reader needs since the last checkpoint."""
        if not isinstance(self._folder, Path) or not isinstance(self.output, Path):
            return  # a put is durable once it is answered
        if not self._folder.is_dir():
            return
        # By their names alone: there may be 100,000.
        for name in names_from(self._folder, f"{noted_checkpoint(self._folder):020d}"):
            if BEING_WRITTEN not in name and (path := self._folder / name).is_file():  # one that is, goes at any moment
                with suppress(FileNotFoundError):  # another program's clean-up: what needed it is summed up by now
                    sync(path)
        sync(self._folder)
        sync(self.output)

    def open_or_create(self, staged: Staged) -> None:
        """Make the table for staged files, where it is not there."""
        files, columns = self._added(staged)
        self._open_or_create(columns, files)

    def _open_or_create(self, columns: Fields, files: Sequence[AddedFile]) -> "LogReading":
        """Return the table, which is made where there is none.

        The library refuses to make a table that another writer is making, from when that one's entry begins to be
        written: some stores list it under a temporary name first. So it is looked for again, for some seconds.
        """
        failure: Exception | None = None
        for pause_s in (*CREATION_PAUSES_S, None):
            if (table := self._now()) is not None:
                return table
            if pause_s is None:
                break
            try:
                self._create(columns, files)
            except failures() as error:
                failure = error
                time.sleep(pause_s)
        raise OutputUnavailableError(
            f"{self.output}: the Delta table could not be made: {brief(failure)}. No offset was moved; run this again."
        ) from failure

    def _create(self, columns: Fields, files: Sequence[AddedFile]) -> None:
        """Make the table without a row, or fail where another writer was first."""
        library = delta_lake()
        schema = new_schema(columns, self.options) if columns else raw_schema(self.options)
        partitions = [term.own_column for term in self.options.partition_by]
        properties, statistics = dict(self.options.properties), [file.statistics for file in files]
        library.DeltaTable.create(
            self._uri,
            library.Schema.from_json(json.dumps(schema)),
            storage_options=self._storage_options,
            mode="error",
            partition_by=partitions or None,
            configuration=for_new_table(schema["fields"], properties, partitions, statistics) | properties,
            raise_if_key_not_exists=False,  # a feed's own properties
            # Two creators: one of them is refused, instead of making the table a second time.
            commit_properties=library.CommitProperties(max_commit_retries=0),
        )

    def _form_of(self, table: "LogReading") -> TableForm:
        with self.named_errors():
            return table.form

    def _check_fits(self, form: TableForm) -> None:
        if problems := list(why_not_written(form, self.options)):
            lacks = f" {HOW_TO_TAKE_IT}" if columns_of(self.options).keys() - form.columns else ""
            raise OutputNotUsableError(
                f"{self.output}: expected a Delta table that can be appended to without Spark, found "
                f"{listing(problems)}. Nothing was written and no offset was moved. Change the table back, or give the "
                f"feed another sink.path; docs/sinks.md says which tables can be used.{lacks}"
            )

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Give an error of the library its name: it proves nothing about the data."""
        try:
            yield
        except failures() as error:
            raise OutputUnavailableError(
                f"the log of the Delta table {self.output} could not be read: {brief(error)}. No offset was moved; "
                "run this again when the storage is available again, or with the log repaired."
            ) from error


def has_entry(folder: Path) -> bool:
    """Whether a log has an entry; of many only some are read."""
    with os.scandir(folder) as found:
        return any(each.name.endswith(".json") for each in found)


def said_of(mark: Mark) -> dict[str, str]:
    said = {BATCH_KEY: str(mark.batch_id), FINGERPRINT_KEY: mark.fingerprint, PROOF_KEY: mark.proof}
    return {key: value for key, value in said.items() if value}


def properties(mark: Mark) -> "CommitProperties":
    """Return what a commit of the library carries in addition to its files; it fails where another one came first."""
    library = delta_lake()
    transaction = library.Transaction(str(mark.batch_id), VERSIONS[mark.outcome], round(time.time() * 1000))
    made: CommitProperties = library.CommitProperties(
        custom_metadata=said_of(mark), app_transactions=[transaction], max_commit_retries=0
    )
    return made


def action_of(file: AddedFile, searched: Mapping[str, object]) -> "AddAction":
    """Return what makes a file part of a table whose readers look for the bounds of some columns."""
    action: AddAction = delta_lake().transaction.AddAction(
        path=file.path,
        size=file.size,
        partition_values=dict(file.partition_values),
        modification_time=file.modification_time,
        data_change=True,
        stats=file.statistics.recorded(searched),
    )
    return action


def removed(rows: DeltaRows, path: str) -> "RemoveAction":
    """Return the action that takes a file out of the table, whose name is plain."""
    action: RemoveAction = delta_lake().transaction.RemoveAction(
        path=path,
        size=rows.files[path],
        partition_values=rows.partition_values(path),
        deletion_timestamp=round(time.time() * 1000),
        data_change=True,
    )
    return action


def interval_of(form: TableForm) -> int:
    """Return after how many entries a checkpoint is due."""
    asked = form.configuration.get(CHECKPOINT_INTERVAL, "")
    return int(asked) if re.fullmatch(r"0*[1-9][0-9]{0,8}", asked) else DEFAULT_INTERVAL
