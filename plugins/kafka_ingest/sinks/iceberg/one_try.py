"""One try to commit a change to a table, and nothing else. Importing this imports pyiceberg.

PyIceberg's own commit tries again without asking whether the batch was published since, and after a conflict it
deletes the manifests that it wrote, although the change may have landed. Here nothing is deleted after a failure: the
caller reads what the table has.
"""

import contextlib
import time

from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool

from kafka_ingest.sinks.iceberg.old_snapshots import delete_their_files, leaving

DELETE_OLD = "write.metadata.delete-after-commit.enabled"


class OneTry(Transaction):
    """Changes to one snapshot of a table. The catalog takes all of them, or none if another snapshot came first."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)
        self._applied: tuple[tuple[TableUpdate, ...], TableMetadata] = ((), table.metadata)

    @property
    def table_metadata(self) -> TableMetadata:
        """The metadata as the changes so far make it.

        The library computes it each time it is asked, some twenty times for an append, with copies of all snapshots:
        2 s of a commit to a table that has 2,000 of them.
        """
        if self._applied[0] is not self._updates:
            self._applied = (self._updates, super().table_metadata)
        return self._applied[1]

    def commit_once(self) -> None:
        """Ask the catalog once; after any exception it is unknown whether the changes landed."""
        read = self._table.metadata
        # Another writer's change of columns makes no snapshot, and the mapping of names is one of those that were read.
        requirements = (
            *self._requirements,
            AssertTableUUID(uuid=read.table_uuid),
            AssertCurrentSchemaId(current_schema_id=read.current_schema_id),
        )
        response = self._table.catalog.commit_table(self._table, requirements, self._updates)
        delete_old_metadata(self._table, response.metadata)


def drop_old_snapshots(table: Table) -> None:
    """Take out the snapshots that a table does not keep any longer, where there are many, in a commit of its own.

    Not in that of a batch: a catalog may let a user append who must not do this. After any exception it is unknown
    whether it landed; then their files stay.
    """
    old = leaving(table.metadata, time.time_ns() // 1_000_000)
    if not old:
        return
    read = table.metadata
    requirements = (
        AssertTableUUID(uuid=read.table_uuid),
        AssertRefSnapshotId(ref=MAIN_BRANCH, snapshot_id=read.current_snapshot_id),
    )
    update = RemoveSnapshotsUpdate(snapshot_ids=[each.snapshot_id for each in old[:-1]])
    now = table.catalog.commit_table(table, requirements, (update,)).metadata
    delete_old_metadata(table, now)
    # No requirement of a commit excludes that a tag was set since: its snapshot is gone, its files must stay.
    if now.metadata_log and now.metadata_log[-1].metadata_file == table.metadata_location:
        delete_their_files(table.io, old)


def delete_old_metadata(table: Table, now: TableMetadata) -> None:
    """Delete the metadata files that a commit dropped from the table's log of them, where the table asks for it."""
    if not property_as_bool(now.properties, DELETE_OLD, default=False):
        return
    kept = {entry.metadata_file for entry in now.metadata_log}
    for entry in table.metadata.metadata_log:
        if entry.metadata_file not in kept:
            # What stays is found by remove_orphan_files; so is what is not this table's, which is not deleted.
            with contextlib.suppress(OSError):
                table.io.delete(entry.metadata_file)
