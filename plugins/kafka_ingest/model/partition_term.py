"""How an output is partitioned: by a column with few values, or by the day or the hour of a time, in UTC.

Tables are by Kafka's own columns (``day(kafka_timestamp)``). Folders of a directory have names of the feed's own, and
may be by any column of the rows (``dt: day(ordered_at)``): files hold that column, too, so a name is none of theirs.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.written_columns import BATCH_COLUMN

TIME = "kafka_timestamp"
VALUES = ("kafka_topic", "kafka_partition", "kafka_topic_id", BATCH_COLUMN)
"""Columns of which a batch has few values. Any other would make a file for each record."""

MOST_FILES = 10_000
"""In how many files of one partition each a batch may be: each is named in the table's metadata, and read to check it.

Never more than it has records, so a smaller batch always has few enough.
"""

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""How the folder of records without a value is called."""
LONGEST_NAME = 255
"""What a file system takes; a topic's name has up to 249 characters."""

FORM = re.compile(r"(?:(day|hour)\((\w+)\)|(\w+))")
OF_FOLDER = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,59}): (?:(day|hour)\((\w+(?:\.\w+)*)\)|(\w+(?:\.\w+)*))", re.ASCII)
EXPECTED = f"{', '.join(VALUES)}, day({TIME}) or hour({TIME})"
EXPECTED_OF_FOLDER = (
    f"a name of up to 60 of a-z, A-Z, 0-9 and _ with a column, day(COLUMN) or hour(COLUMN), such as dt: day({TIME})"
)
LONGEST_TEXT = 64
"""Of bytes, for a folder's name: a producer chooses them, and a disk takes 255, of which some are written as three."""


class Transform(StrEnum):
    """How a partition's value is made from a column's. The names are those of Iceberg."""

    IDENTITY = "identity"
    DAY = "day"
    HOUR = "hour"


KINDS = {
    Transform.IDENTITY: ("string", "boolean", "int", "bigint", "date"),
    Transform.DAY: ("timestamp", "timestamp_ntz", "date"),
    Transform.HOUR: ("timestamp", "timestamp_ntz"),
}
"""The types of columns that rows can be divided by: of others two values may be called alike, or no day is known."""

OWN_COLUMN = {Transform.DAY: "kafka_date", Transform.HOUR: "kafka_hour"}
"""The column of a table whose format knows no transforms: a date, or text such as 2026-01-31T05."""


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One of the terms that an output is partitioned by. ``name``: of a folder's own; a table's term has none."""

    column: str
    transform: Transform = Transform.IDENTITY
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> "PartitionTerm":
        """Read a term as a feed file has it; raises ValueError where it is none."""
        if ": " in text:
            return cls._of_folder(text)
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"expected {EXPECTED}, found {text!r}")
        term = cls(found[2], Transform(found[1])) if found[1] else cls(found[3])
        if term.column not in ((TIME,) if found[1] else VALUES):
            raise ValueError(f"expected {EXPECTED}, found {text!r}")
        return term

    @classmethod
    def _of_folder(cls, text: str) -> "PartitionTerm":
        found = OF_FOLDER.fullmatch(text)
        if found is None:
            raise ValueError(f"expected {EXPECTED_OF_FOLDER}, found {text!r}")
        name, transform, of_transform, column = found.groups()
        if column == BATCH_COLUMN:
            raise ValueError(f"expected another column than {BATCH_COLUMN}: each batch has a folder of its own already")
        return cls(of_transform or column, Transform(transform or Transform.IDENTITY), name)

    def __str__(self) -> str:
        value = self.column if self.transform is Transform.IDENTITY else f"{self.transform}({self.column})"
        return f"{self.name}: {value}" if self.name else value

    @property
    def is_of_time(self) -> bool:
        """Whether it is a day or an hour, of which a batch may have any number."""
        return self.transform is not Transform.IDENTITY

    @property
    def own_column(self) -> str:
        """The column that holds the term's value where the format knows no transforms."""
        return self.name or OWN_COLUMN.get(self.transform, self.column)

    @property
    def is_kafkas(self) -> bool:
        """Whether it is by one of Kafka's columns that tables are partitioned by, with few values."""
        return self.column == TIME if self.is_of_time else self.column in VALUES

    def text_of(self, value: object) -> str | None:
        """Return the partition of a column's value as text, None for null; times are in UTC."""
        if not isinstance(value, datetime):
            return None if value is None else str(value)
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return at.date().isoformat() if self.transform is Transform.DAY else at.isoformat(timespec="hours")[:13]


def folder_of(column: str, value: str | None) -> str | None:
    """Return the folder's name for a partition, as other writers name theirs; None where a disk takes none so long."""
    name = f"{column}={NO_VALUE if value is None else value}"
    return name if len(name) <= LONGEST_NAME else None


def terms_of(texts: Iterable[str]) -> tuple[PartitionTerm, ...]:
    """Read terms as a feed file has them; raises ValueError where one is none, or a column comes twice."""
    terms = tuple(PartitionTerm.parse(text) for text in texts)
    columns = [term.name.lower() or term.column for term in terms]
    if len(set(columns)) < len(columns):
        raise ValueError(f"expected each column once, found {', '.join(map(str, terms))}")
    return terms


def misfits(terms: Iterable[PartitionTerm], written: Mapping[str, str]) -> Iterator[str]:
    """Yield why rows with these columns (types by paths) cannot be divided into folders by terms."""
    for term in terms:
        kind, expected = written.get(term.column, ""), KINDS[term.transform]
        if term.name.lower() in {path.lower() for path in written}:
            yield f"{term.name}: a folder's name in sink.partition_by; readers would take the one for the other"
        if not term.is_kafkas and kind not in expected:
            what = f"of type {kind}" if kind else "none"
            yield f"{term.column}: found {what}, sink.partition_by ({term}) needs one of type {', '.join(expected)}"


LATE = "kafka_late"
LATE_FOLDER = f"{LATE}=true"
"""The folder of late rows, above all others: by their names a receipt tells such files from the others."""
SUFFIX = "_late"
"""What the name of their dataset adds to that of the output."""
TABLE = "table"
"""The option of an output that names its table, in a catalog or a database."""


def is_late(name: str) -> bool:
    """Whether a data file of a receipt holds late rows."""
    return name.startswith(f"{LATE_FOLDER}/")


def output_of_late_rows(output: OutputLocation) -> OutputLocation:
    """Return where an output's late rows are: files beside it, or in PostgreSQL a table in the same schema."""
    in_files = output.format != "postgresql"
    options = {name: f"{each}{SUFFIX}" if name == TABLE else each for name, each in output.options if not in_files}
    return OutputLocation.at("parquet" if in_files else output.format, f"{output.uri}{SUFFIX}", options)


def place_of_late_rows(output: Path) -> Path:
    return output.with_name(f"{output.name}{SUFFIX}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows(PartitionTerm):
    """Divides rows by whether their hour or day was complete, as all from ``first`` to ``before`` were."""

    column: str = TIME
    name: str = LATE
    first: datetime
    before: datetime

    @property
    def is_kafkas(self) -> bool:
        return True
