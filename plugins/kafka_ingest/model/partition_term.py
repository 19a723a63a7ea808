"""How a table is partitioned: by a column with few values, or by the day or the hour of a record's time, in UTC."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from kafka_ingest.model.batch_column import BATCH_COLUMN

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
EXPECTED = f"{', '.join(VALUES)}, day({TIME}) or hour({TIME})"


class Transform(StrEnum):
    """How a partition's value is made from a column's. The names are those of Iceberg."""

    IDENTITY = "identity"
    DAY = "day"
    HOUR = "hour"


OWN_COLUMN = {Transform.DAY: "kafka_date", Transform.HOUR: "kafka_hour"}
"""The column of a table whose format knows no transforms: a date, or text such as 2026-01-31T05."""


@dataclass(frozen=True, slots=True)
class PartitionTerm:
    """One of the terms that a table is partitioned by."""

    column: str
    transform: Transform = Transform.IDENTITY

    @classmethod
    def parse(cls, text: str) -> "PartitionTerm":
        """Read a term as a feed file has it; raises ValueError where it is none."""
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"expected {EXPECTED}, found {text!r}")
        term = cls(found[2], Transform(found[1])) if found[1] else cls(found[3])
        if term.column not in ((TIME,) if found[1] else VALUES):
            raise ValueError(f"expected {EXPECTED}, found {text!r}")
        return term

    def __str__(self) -> str:
        """Return the term as a feed file has it."""
        return self.column if self.transform is Transform.IDENTITY else f"{self.transform}({self.column})"

    @property
    def is_of_time(self) -> bool:
        """Whether it is a day or an hour, of which a batch may have any number."""
        return self.transform is not Transform.IDENTITY

    @property
    def own_column(self) -> str:
        """The column that holds the term's value where the format knows no transforms."""
        return OWN_COLUMN.get(self.transform, self.column)

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
    columns = [term.column for term in terms]
    if len(set(columns)) < len(columns):
        raise ValueError(f"expected each column once, found {', '.join(map(str, terms))}")
    return terms
