"""One try to commit a change to a table, and which old snapshots leave it. Importing this imports pyiceberg.

PyIceberg's own commit tries again without asking whether the batch was published since, and after a conflict it
deletes the manifests that it wrote, although the change may have landed. Here nothing is deleted after a failure: the
caller reads what the table has.

Each batch is a snapshot, and the library reads and writes all of them with each commit. A table says how long it keeps
them by the property that Iceberg has for it; without that property they stay. Only those leave that were appended one
to the other, and that every later one was appended to: all of their rows are in the newest snapshot, so no data file is
left behind. Where rows were removed or rewritten since, the data files would be, so all snapshots stay for
``expire_snapshots``, which deletes these, too.
"""

import contextlib
import time
from collections.abc import Sequence
from itertools import pairwise, takewhile

from pyiceberg.io import FileIO
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotsUpdate,
    TableUpdate,
)
from pyiceberg.utils.properties import property_as_bool, property_as_int

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


MAX_AGE_MS, KEPT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
COLLECTED = "gc.enabled"
"""Whether any engine may delete files of the table."""
AT_ONCE = 20
"""So many leave together: one commit more for as many batches, and none that a long history holds up."""


def leaving(metadata: TableMetadata, now_ms: int) -> list[Snapshot]:
    """Return the snapshots that are to leave together, oldest first, and last the one that follows; or none."""
    try:
        age_ms, kept = property_as_int(metadata.properties, MAX_AGE_MS), property_as_int(metadata.properties, KEPT, 1)
    except ValueError:
        return []  # what another program means by it is not known
    if age_ms is None or not only_main(metadata) or metadata.properties.get(COLLECTED, "true").lower() != "true":
        return []
    chain = history(metadata)
    if len(chain) < len(metadata.snapshots) or not all(map(is_append, chain)):
        return []
    old = takewhile(lambda each: each.timestamp_ms < now_ms - age_ms, chain[: -max(1, kept or 1)])
    return chain[: AT_ONCE + 1] if sum(1 for _ in old) >= AT_ONCE else []


def only_main(metadata: TableMetadata) -> bool:
    """Whether no branch and no tag needs a snapshot, and the main branch has no rule of its own for them."""
    main = metadata.refs.get(MAIN_BRANCH)
    ruled = main is None or main.max_snapshot_age_ms is not None or main.min_snapshots_to_keep is not None
    return not ruled and len(metadata.refs) == 1


def history(metadata: TableMetadata) -> list[Snapshot]:
    """Return the newest snapshot and those it goes back to, oldest first."""
    by_id = {each.snapshot_id: each for each in metadata.snapshots}
    found: list[Snapshot] = []
    following = metadata.current_snapshot_id
    while following is not None and (snapshot := by_id.pop(following, None)) is not None:
        found.append(snapshot)
        following = snapshot.parent_snapshot_id
    return found[::-1]


def is_append(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND


def delete_their_files(io: FileIO, snapshots: Sequence[Snapshot]) -> None:
    """Delete the lists of manifests of all but the last, and the manifests that its successor does not have.

    What stays is found by ``remove_orphan_files``.
    """
    for snapshot, following in pairwise(snapshots):
        with contextlib.suppress(OSError):
            left = {each.manifest_path for each in snapshot.manifests(io)}
            needed = {each.manifest_path for each in following.manifests(io)}
            for path in (*sorted(left - needed), snapshot.manifest_list):
                io.delete(path)
