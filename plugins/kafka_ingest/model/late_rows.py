"""Rows of hours or days that were complete when their attempt was opened, in a dataset of their own."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from kafka_ingest.model.partition_term import TIME, PartitionTerm

LATE = "kafka_late"
LATE_FOLDER = f"{LATE}=true"
"""The folder of late rows, above all others: by their names a receipt tells such files from the others."""
SUFFIX = "_late"
"""What the name of their dataset adds to that of the output."""


def is_late(name: str) -> bool:
    """Whether a data file of a receipt holds late rows."""
    return name.startswith(f"{LATE_FOLDER}/")


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
