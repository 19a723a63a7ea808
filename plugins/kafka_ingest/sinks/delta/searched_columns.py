"""The columns of a Delta table whose bounds readers look for, and those that a table names, since each file has some.

To make a dataset of a table (``to_pandas``, ``to_pyarrow_dataset``), delta-rs 1.6.6 takes a bound that a file lacks for
a null: no row seems to fit a condition, and the file is skipped. It does so for columns that were added after the file,
too. It looks for the columns that ``delta.dataSkippingStatsColumns`` names, by default for the first 32, and at no
bounds of a file that has none at all. So a new table names the columns that can have bounds; and a file has bounds of
all columns that are looked for, or none (:class:`FileStatistics`).
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

NAMED = "delta.dataSkippingStatsColumns"
NUMBER, DEFAULT_NUMBER = "delta.dataSkippingNumIndexedCols", 32
BOUNDED = frozenset({"string", "long", "integer", "short", "byte", "date", "timestamp"})
"""The types whose bounds are recorded. Numbers that may be NaN have none: engines take it for larger than all others,
and Parquet leaves it out of its statistics. Of decimals, truth values and times without a zone there are none either.
"""
NEVER = frozenset({"binary", "array", "map"})
"""The types of which no reader looks for bounds."""
A_NUMBER = re.compile(r"-?[0-9]{1,6}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMES = re.compile(rf"\s*({NAME.pattern}(\.{NAME.pattern})*)(\s*,\s*({NAME.pattern}(\.{NAME.pattern})*))*\s*")
"""What every reader takes for names in the property; delta-rs ignores all of them where it cannot read one."""

Fields = Iterable[Mapping[str, Any]]


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
        ``searched`` (name and type of :func:`searched`) or none at all, but counts of nulls; a column
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


def searched(
    fields: Fields, configuration: Mapping[str, str], partitioned_by: Collection[str] = ()
) -> dict[str, object]:
    """Return the columns, with their types, whose bounds some reader looks for in each file."""
    types = {each["name"]: each["type"] for each in fields}
    named = configuration.get(NAMED, "")
    if NAMES.fullmatch(named):
        names: Sequence[str] = [name.strip() for name in named.split(",")]
    else:
        said = configuration.get(NUMBER, "")
        number = int(said) if A_NUMBER.fullmatch(said) else DEFAULT_NUMBER
        names = [*types] if number < 0 else [*types][:number]
    found = {name: types[name] for name in names if name in types and name not in partitioned_by}
    return {name: kind for name, kind in found.items() if word(kind) not in NEVER}


def word(kind: object) -> object:
    """Return a type's name, whatever is in it."""
    return kind["type"] if isinstance(kind, Mapping) else kind


def with_bounds(columns: Mapping[str, object]) -> list[str]:
    """Return the columns that can have bounds in each file, and be named so that every reader understands it."""
    return [
        name for name, kind in columns.items() if isinstance(kind, str) and kind in BOUNDED and NAME.fullmatch(name)
    ]


def naming(columns: Sequence[str]) -> dict[str, str]:
    return {NAMED: ",".join(columns)}


def for_new_table(
    fields: Fields, properties: Mapping[str, str], partitioned_by: Collection[str], files: Collection[FileStatistics]
) -> dict[str, str]:
    """Return the property that a new table gets beside its own; none where these say what has statistics.

    What its first files have no bounds of, such as texts of kilobytes, is not named: later ones will have none either.
    """
    if NAMED in properties or NUMBER in properties:
        return {}
    columns = with_bounds(searched(fields, {NUMBER: "-1"}, partitioned_by))
    return naming([name for name in columns if all(file.can_bound(name) for file in files)])
