"""Records that could not be decoded, and which output they go to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.partition_term import TABLE
from kafka_ingest.model.place import DEAD_LETTERS, OutputLocation, Place
from kafka_ingest.model.table_options import OnNewColumns, TableOptions

PREVIEW_BYTES = 80
"""How much of a key or value is shown."""

SUFFIX = "_dead_letters"
"""What the name of their output adds to that of the feed's."""


ON_DISK, IN_STORE, IN_DATABASE = "parquet", "dead_letters", "postgresql_dead_letters"
IN_DELTA, IN_ICEBERG = f"delta{SUFFIX}", f"iceberg{SUFFIX}"
"""The formats of their outputs; those of tables are tables of the same kind."""

OF_CATALOG = frozenset({"catalog", TABLE})
"""The options that say which table of a catalog an output is."""
LETTERS_ADDED = TableOptions(OnNewColumns.ADD, decoded=True)
"""How dead letters go into a table: with all columns that they have."""
OF_TABLES: Mapping[str, str] = {"postgresql": IN_DATABASE, "delta": IN_DELTA, "iceberg": IN_ICEBERG}


def output_of_dead_letters(output: OutputLocation) -> OutputLocation:
    """Return where the dead letters of an output's batches are published: beside it, as files, or in a table."""
    uri, found = f"{output.uri}{SUFFIX}", OF_TABLES.get(output.format)
    if found == IN_DATABASE:
        return replace(output, format=found, uri=uri)
    if found is None:
        return replace(output, format=ON_DISK if output.is_local else IN_STORE, uri=uri, options=())
    options = {name: value for name, value in output.options if name in OF_CATALOG}
    named = {TABLE: f"{options[TABLE]}{SUFFIX}"} if TABLE in options else {}
    return OutputLocation.at(found, uri, LETTERS_ADDED.as_options() | options | named)


def where_they_are(output: OutputLocation) -> str:
    """Return where readers find the dead letters of an output: a directory or a place in a store, or a table."""
    letters = output_of_dead_letters(output)
    return f"table {dict(output.options).get('table')}{SUFFIX}" if letters.format == IN_DATABASE else str(letters)


def directory_of_dead_letters(output: Path) -> Path:
    """Return the same of an output in a directory."""
    return output.with_name(f"{output.name}{SUFFIX}")


def are_dead_letters(directory: Place) -> bool:
    """Whether a directory is the one below an attempt's from which its dead letters are published."""
    return directory.name == DEAD_LETTERS


def staged_dead_letters(attempt_directory: Place) -> Place:
    """Return the directory below an attempt's own from which its dead letters are published.

    Inside it, so that whatever removes an attempt removes its dead letters, too.
    """
    return attempt_directory / DEAD_LETTERS


@dataclass(frozen=True, slots=True, order=True)
class DecodingError:
    """Why a record could not be decoded: which part of it, ``key`` or ``value``, and a stable name of the cause."""

    part: str
    error_class: str


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be decoded: where it was, why, and the beginnings of its key and value.

    Of longer ones one byte more than :data:`PREVIEW_BYTES`.
    """

    topic_partition: TopicPartition
    offset: int
    timestamp: datetime | None
    cause: DecodingError
    error: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class DeadLettersOfFile:
    """How many dead letters a file holds of each cause, and its first ones of each."""

    counts: Mapping[DecodingError, int]
    samples: Sequence[DeadLetter]
