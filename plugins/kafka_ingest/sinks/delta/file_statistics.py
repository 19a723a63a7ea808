"""What is known of a file's columns, and what of it a commit records, so that no reader skips the file wrongly."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Rows of a file, its columns, and of those of which it is known: how many nulls, and bounds as JSON has them."""

    rows: int
    columns: Collection[str]
    nulls: dict[str, int] = field(default_factory=dict)
    smallest: dict[str, Any] = field(default_factory=dict)
    largest: dict[str, Any] = field(default_factory=dict)

    def can_bound(self, column: str) -> bool:
        """Whether bounds of a column are known, or not needed."""
        return column in self.smallest or column not in self.columns or self.nulls.get(column) == self.rows

    def recorded(self, searched: Mapping[str, object]) -> str:
        """Return the statistics as the Delta protocol writes them, for readers that look for some columns' bounds.

        delta-rs takes a bound that is missing beside others for a null, and skips the file. So there are all of
        ``searched`` (name and type of :func:`.searched_columns.searched`) or none at all, but counts of nulls; a column
        of nulls alone needs none.
        """
        lacking = [name for name, kind in searched.items() if name not in self.columns and isinstance(kind, str)]
        nulls = self.nulls | dict.fromkeys(lacking, self.rows)
        found: dict[str, Any] = {"numRecords": self.rows, "nullCount": nulls}
        # Those of fields within others are not known.
        if all(isinstance(kind, str) for kind in searched.values()) and all(map(self.can_bound, searched)):
            found |= {"minValues": self.smallest, "maxValues": self.largest}
        # As they are: of an escaped character beyond U+FFFFF delta-rs, DuckDB and Polars make another one.
        return json.dumps(found, ensure_ascii=False)
