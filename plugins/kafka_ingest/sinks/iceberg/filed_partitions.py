"""Under which partitions a change has filed a batch's files: as the manifests say that it wrote, before its commit.

The library takes a file's partition from bounds that a table's properties may shorten, and files rows without a value
under that of the others. Readers that skip files believe it. Importing this imports pyiceberg.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, ManifestEntryStatus
from pyiceberg.table.snapshots import Snapshot

from kafka_ingest.errors import StagedOutputUnusableError
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.partition_term import PartitionTerm, Transform

FIRST_DAY, FIRST_HOUR = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def check_filed(
    snapshot: Snapshot, io: FileIO, expected: Mapping[str, Sequence[str | None]], terms: Sequence[PartitionTerm]
) -> None:
    """Raise StagedOutputUnusableError unless a snapshot adds each file under the partition that its rows are of.

    ``expected``: place of a file → the text of each term's value, by the file's own footer.
    """
    found = {file.file_path: file for file in added_files(snapshot, io)}
    wrong = [
        f"{path}: expected in partition {list(map(str, values))}, found {'nowhere' if file is None else file.partition}"
        for path, values in expected.items()
        if (file := found.get(path)) is None
        or [file.partition[number] for number in range(len(terms))]
        != [filed(term, value) for term, value in zip(terms, values, strict=True)]
    ]
    if wrong:
        raise StagedOutputUnusableError(f"the library filed files otherwise than their rows say: {listing(wrong)}")


def added_files(snapshot: Snapshot, io: FileIO) -> Iterator[DataFile]:
    """Yield the files that a snapshot adds."""
    for manifest in snapshot.manifests(io):
        if manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(io):
            if entry.status is ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot.snapshot_id:
                yield entry.data_file


def filed(term: PartitionTerm, value: str | None) -> str | int | None:
    """Return the value by which Iceberg files what a term's text says: days and hours are counted from 1970."""
    match term.transform:
        case _ if value is None:
            return None
        case Transform.DAY:
            return (date.fromisoformat(value) - FIRST_DAY).days
        case Transform.HOUR:
            return (datetime.fromisoformat(f"{value}:00+00:00") - FIRST_HOUR) // timedelta(hours=1)
        case Transform.IDENTITY:
            return int(value) if term.column == "kafka_partition" else value
