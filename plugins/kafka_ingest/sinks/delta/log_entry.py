"""The entry that appends a batch to a Delta table: one new file of its log, which only one writer can create.

It is written for the version after the one that was read, so nothing came in between: where another writer was first,
it is read and tried again. https://github.com/delta-io/delta/blob/master/PROTOCOL.md.

The data files that it names are in ``P/batches/<batch>/<attempt>/``, staged and published alike. Not hidden: VACUUM
never deletes from hidden directories, not even what OPTIMIZE replaced.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kafka_ingest.foundation.foreign_json import (
    ENOUGH_BYTES,
    ForeignJsonError,
    read_as_ours,
    read_foreign_object,
    whole,
)
from kafka_ingest.foundation.storage import Opened, create, read_at_most
from kafka_ingest.sinks.delta.table_fit import FileStatistics

BATCH_KEY, FINGERPRINT_KEY = "kafka_ingest.batch_id", "kafka_ingest.plan_fingerprint"
PROOF_KEY = "userMetadata"
"""What a commit calls its batch's proof: the only thing that DESCRIBE HISTORY shows besides what it does."""

BATCHES = "batches"
LOG, LAST_CHECKPOINT = "_delta_log", "_last_checkpoint"
NOT_IN_PATHS = re.compile(r"\\|%[0-9A-Fa-f]{2}")
"""What delta-rs reads as another path than the one that it writes."""


def entry_name(version: int) -> str:
    return f"{version:020d}.json"


def noted_checkpoint(log: Opened) -> int:
    """Return the version of the newest checkpoint as a log notes it; 0 where it notes none that can be read.

    That is a hint, which may be late, or name one that is gone.
    """
    try:
        with read_as_ours():
            return max(0, whole(read_foreign_object(read_at_most(log / LAST_CHECKPOINT, ENOUGH_BYTES)), "version"))
    except (FileNotFoundError, ForeignJsonError):
        return 0


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A data file that becomes part of a table; ``path`` is relative to it, and not escaped."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    modification_time: int
    statistics: FileStatistics


def write_entry(
    folder: Opened,
    version: int,
    files: Sequence[AddedFile],
    transaction: tuple[str, int],
    said: Mapping[str, str],
    searched: Mapping[str, object],
) -> bool:
    """Append files and an application's transaction to a table, durably, as its next version.

    ``said`` is noted in the entry; readers look for the bounds of the ``searched`` columns. Returns False, and changes
    nothing, where another writer has made that version. After an OSError it is unknown whether this one was made.
    """
    return write_version(folder, version, actions(version, files, transaction, said, searched))


def write_version(folder: Opened, version: int, actions: Iterable[Mapping[str, Any]]) -> bool:
    lines = (json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in actions)
    try:
        create(folder / entry_name(version), "\n".join(lines).encode())
    except FileExistsError:
        return False
    return True


def actions(
    version: int,
    files: Sequence[AddedFile],
    transaction: tuple[str, int],
    said: Mapping[str, str],
    searched: Mapping[str, object],
) -> Iterator[dict[str, Any]]:
    now, (app_id, number) = round(time.time() * 1000), transaction
    yield {
        "commitInfo": {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": "[]"},
            "readVersion": version - 1,
            "isBlindAppend": True,
            "engineInfo": "kafka_ingest",
            **said,
        }
    }
    for file in files:
        yield {
            "add": {
                "path": quote(file.path, safe="/="),
                "partitionValues": dict(file.partition_values),
                "size": file.size,
                "modificationTime": file.modification_time,
                "dataChange": True,
                "stats": file.statistics.recorded(searched),
            }
        }
    yield {"txn": {"appId": app_id, "version": number, "lastUpdated": now}}
