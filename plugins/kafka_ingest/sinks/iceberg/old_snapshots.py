"""Which old snapshots leave a table's metadata, and which of their files nothing needs afterwards.

Each batch is a snapshot, and the library reads and writes all of them with each commit. A table says how long it keeps
them by the property that Iceberg has for it; without that property they stay. Only those leave that were appended one
to the other, and that every later one was appended to: all of their rows are in the newest snapshot, so no data file is
left behind. Where rows were removed or rewritten since, the data files would be, so all snapshots stay for
``expire_snapshots``, which deletes these, too. Importing this imports pyiceberg.
"""

import contextlib
from collections.abc import Sequence
from itertools import pairwise, takewhile

from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.utils.properties import property_as_int

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
