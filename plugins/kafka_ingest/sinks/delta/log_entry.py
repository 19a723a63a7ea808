"""The entry that appends a batch to a Delta table: one new file of its log, which only one writer can create.

It is written for the version after the one that was read, so nothing came in between: where another writer was first,
it is read and tried again. https://github.com/delta-io/delta/blob/master/PROTOCOL.md.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from kafka_ingest.foundation.storage import Opened, create
from kafka_ingest.sinks.delta.places import entry_name
from kafka_ingest.sinks.delta.searched_columns import FileStatistics


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
