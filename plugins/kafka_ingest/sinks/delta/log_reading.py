"""What the log of a Delta table says, without the list of its files.

The library reads that list for each look: seconds, where a year of small batches was not compacted. A look and a
commit need the newest protocol and metadata and the application transactions: three columns of the newest checkpoint,
and the entries since. https://github.com/delta-io/delta/blob/master/PROTOCOL.md. Importing this imports pyarrow.
"""

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BytesIO
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet

from kafka_ingest.foundation.foreign_json import (
    MOST_BYTES,
    ForeignJsonError,
    read_as_ours,
    read_foreign_json,
    said,
    whole,
)
from kafka_ingest.foundation.storage import Opened, names_from, open_to_read, read_at_most, read_each, refuse_links
from kafka_ingest.sinks.delta.log_entry import entry_name, noted_checkpoint
from kafka_ingest.sinks.delta.table_fit import TableForm

NULLS = {"struct": (), "array": ("containsNull",), "map": ("valueContainsNull",)}
PARTS = {"struct": (), "array": ("elementType",), "map": ("keyType", "valueType")}


def schema_in(text: str) -> Mapping[str, Any]:
    """Return the schema in a metadata action; raises ForeignJsonError, KeyError, TypeError or AttributeError."""
    schema: Mapping[str, Any] = read_foreign_json(text)
    check_type({**schema, "type": "struct"})
    return schema


def check_type(kind: object) -> None:
    """Raise an error unless something is a type: a name, or a structure, list or map of types."""
    if isinstance(kind, str):
        return
    if not isinstance(kind, Mapping):
        raise ForeignJsonError(f"expected the type of a column, found {str(kind)[:100]}")
    name = said(kind, "type")
    for flag in NULLS[name]:
        check_is(bool, kind[flag], flag)
    for part in PARTS[name]:
        check_type(kind[part])
    for field in kind["fields"] if name == "struct" else ():
        said(field, "name")
        check_is(bool, field["nullable"], "nullable")
        check_is(dict, field["metadata"], "metadata")
        check_type(field["type"])


def check_is(kind: type, value: object, name: str) -> None:
    """Raise ForeignJsonError on a value of another type."""
    if not isinstance(value, kind):
        raise ForeignJsonError(f"expected {name} of a column to be of type {kind.__name__}, found {str(value)[:100]!r}")


ENTRY = re.compile(r"(\d{20})\.json")
CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
"""Of one file, of several numbered ones, or of the second kind, which no table has that can be written."""
COLUMNS = (
    *(f"protocol.{each}" for each in ("minReaderVersion", "minWriterVersion", "readerFeatures", "writerFeatures")),
    *(f"metaData.{each}" for each in ("schemaString", "partitionColumns", "configuration")),
    *("txn.appId", "txn.version"),
)
"""Those of a checkpoint that are read, of hundreds of megabytes after a year; the library leaves out empty ones."""
MOST_OF_ENTRY, MOST_OF_LINE = 2 * MOST_BYTES, MOST_BYTES // 4
"""In bytes: a compaction of 300,000 files, and the metadata of 50,000 columns."""
MOST_OF_CHECKPOINT = 4 * MOST_BYTES
"""Of what is read of it, in bytes as its end counts them: the transactions of 5,000,000 batches."""
AT_ONCE = 100
"""So many entries are asked for together: as many as come between two checkpoints, unless a table asks otherwise."""
READ = tuple(f"{each}." for each in COLUMNS)
READINGS = 3
"""How often a reading begins again, since a clean-up of the log has deleted what it had found."""
FILE = b'{"add":', b'{"remove":'
"""How an entry's lines on files begin: most of its bytes, of which nothing is needed."""


class LogReading:
    """A table at one version: what was read of its log. I/O errors, and ValueError for a damaged log, are left."""

    def __init__(self, folder: Opened, checkpoint: int = -1) -> None:
        self._folder = folder
        self._protocol: Mapping[str, Any] = {}
        self._metadata: Mapping[str, Any] = {}
        self._transactions: dict[str, int] = {}
        self.version = self._checkpoint = checkpoint

    @classmethod
    def of(cls, folder: Opened) -> "LogReading | None":
        """Return the newest version of the table whose log is in a folder, None where there is none.

        Raises FileNotFoundError where an entry is missing.
        """
        for _ in range(READINGS - 1):
            with suppress(FileNotFoundError):
                return cls._read(folder)
        return cls._read(folder)

    @classmethod
    @read_as_ours()
    def _read(cls, folder: Opened) -> "LogReading | None":
        names = names_from(folder, f"{noted_checkpoint(folder):020d}")
        if not (checkpoints := complete(names)):
            names = names_from(folder, "")  # what names the newest checkpoint is a hint only
            checkpoints = complete(names)
        newest = max(checkpoints, default=-1)
        last = max(map(version_of, names), default=-1)
        if last < 0:
            return None
        reading = cls(folder, newest)
        for name in checkpoints.get(newest, ()):
            reading._take_checkpoint(name)
        # A listing may miss what is written at the same time, so each entry is read by its name.
        for first in range(newest + 1, last + 1, AT_ONCE):
            names = list(map(entry_name, range(first, min(first + AT_ONCE, last + 1))))
            for content in read_each(folder, names, MOST_OF_ENTRY + 1):
                reading._take_entry(content)
        reading.update()
        return reading

    @read_as_ours()
    def update(self) -> None:
        """Read what others have committed since."""
        while True:
            try:
                content = read_at_most(self._folder / entry_name(self.version + 1), MOST_OF_ENTRY + 1)
            except FileNotFoundError:
                return
            self._take_entry(content)

    def names_later(self, version: int) -> bool:
        """Whether the log names a later version than one, of which a clean-up may have deleted the entries since.

        The next entry is then missing, although it is not the next one to write.
        """
        return any(version_of(name) > version for name in names_from(self._folder, f"{version + 1:020d}"))

    @property
    def since_checkpoint(self) -> int:
        """How many entries each reading has to read."""
        return self.version - self._checkpoint

    @property
    def form(self) -> TableForm:
        if not (self._protocol and self._metadata):
            raise ForeignJsonError(f"version {self.version} has no protocol or no metadata")
        return form_in(self._protocol, self._metadata)

    def transaction_version(self, app_id: str) -> int | None:
        return self._transactions.get(app_id)

    def _take_checkpoint(self, name: str) -> None:
        path = self._folder / name
        refuse_links(path, self._folder)
        if name.endswith(".json"):
            self._take(read_at_most(path, MOST_OF_ENTRY + 1))
            return
        with open_to_read(path) as source, pyarrow.parquet.ParquetFile(source) as file:
            check_unpacked(name, file.metadata)
            actions = file.read(columns=list(COLUMNS))
        for column in actions.column_names:
            found = actions[column].drop_null()
            if column == "txn":
                of_both = (pc.struct_field(found, each).to_pylist() for each in ("appId", "version"))
                self._take_transactions(zip(*of_both, strict=True))
            else:
                for action in found.to_pylist(maps_as_pydicts="strict"):
                    self._take_action({column: action})

    def _take_entry(self, content: bytes) -> None:
        """Take the next version's entry; an empty one, which a power cut may leave, says nothing."""
        try:
            self._take(content)
        except ValueError as error:
            raise ValueError(f"{entry_name(self.version + 1)} is no entry of a log: {error}") from error
        self.version += 1

    def _take(self, content: bytes) -> None:
        if len(content) > MOST_OF_ENTRY:
            raise ForeignJsonError(f"expected at most {MOST_OF_ENTRY:,} bytes, found more")
        lines = BytesIO(content)
        for line in lines:
            # The last one is read in any case: an entry may be cut off.
            if line.strip() and (lines.tell() == len(content) or not line.startswith(FILE)):
                self._take_action(read_foreign_json(line, MOST_OF_LINE))

    def _take_action(self, action: Mapping[str, Any]) -> None:
        if "txn" in action:
            self._take_transactions([(action["txn"]["appId"], action["txn"]["version"])])
        elif "protocol" in action:
            self._protocol = action["protocol"]
        elif "metaData" in action:
            self._metadata = action["metaData"]

    def _take_transactions(self, found: Iterable[tuple[str, int]]) -> None:
        for each in found:
            transaction = dict(zip(("appId", "version"), each, strict=True))
            self._transactions[said(transaction, "appId")] = whole(transaction, "version")


@read_as_ours()
def form_in(protocol: Mapping[str, Any], metadata: Mapping[str, Any]) -> TableForm:
    """Return what both actions say; raises ForeignJsonError where they lack what the protocol requires."""
    configuration: Mapping[str, Any] = metadata.get("configuration") or {}
    return TableForm(
        reader_version=whole(protocol, "minReaderVersion"),
        writer_version=whole(protocol, "minWriterVersion"),
        reader_features=names_in(protocol.get("readerFeatures")),
        writer_features=names_in(protocol.get("writerFeatures")),
        partition_columns=names_in(metadata["partitionColumns"]),
        # A property may have no value.
        configuration={name: said(configuration, name) for name in configuration if configuration[name] is not None},
        schema=schema_in(said(metadata, "schemaString")),
    )


def check_unpacked(name: str, metadata: pyarrow.parquet.FileMetaData) -> None:
    """Raise ForeignJsonError where what is read of a checkpoint is larger than any table's."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    read = sum(each.total_uncompressed_size for each in chunks if f"{each.path_in_schema}.".startswith(READ))
    if read > MOST_OF_CHECKPOINT:
        raise ForeignJsonError(f"{name}: expected at most {MOST_OF_CHECKPOINT:,} bytes to be read, found {read:,}")


def names_in(found: list[str] | None) -> tuple[str, ...]:
    """Return the texts in a list; raises ForeignJsonError on anything else."""
    if all(isinstance(each, str) for each in found or ()):
        return tuple(found or ())
    raise ForeignJsonError(f"expected a list of names, found {str(found)[:100]}")


def version_of(name: str) -> int:
    found = ENTRY.fullmatch(name) or CHECKPOINT.fullmatch(name)
    return int(found[1]) if found else -1


def complete(names: list[str]) -> dict[int, list[str]]:
    """Return version → files of a checkpoint of which none is missing; of several of one version, either says all."""
    found: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if match := CHECKPOINT.fullmatch(name):
            version, expected = int(match[1]), int(match[2] or 1)
            parts[version, expected] = group = [*parts.get((version, expected), ()), name]
            if len(group) >= expected:
                found[version] = group[-expected:]
    return found
