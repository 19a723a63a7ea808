"""What a table records of its files' columns, by which readers skip files."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """How many files it has, and in how many of them some reader takes a column's missing bounds for nulls.

    ``complete`` are the columns that the table can name as those with bounds, since each file has some.
    """

    files: int
    lacking: Mapping[str, int]
    complete: tuple[str, ...]
