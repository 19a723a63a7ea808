"""The columns of a Delta table whose bounds readers look for, and those that a table names, since each file has some.

To make a dataset of a table (``to_pandas``, ``to_pyarrow_dataset``), delta-rs 1.6.6 takes a bound that a file lacks for
a null: no row seems to fit a condition, and the file is skipped. It does so for columns that were added after the file,
too. It looks for the columns that ``delta.dataSkippingStatsColumns`` names, by default for the first 32, and at no
bounds of a file that has none at all. So a new table names the columns that can have bounds; and a file has bounds of
all columns that are looked for, or none (:mod:`.file_statistics`).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka_ingest.sinks.delta.file_statistics import FileStatistics

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
    """Return the property that names some columns."""
    return {NAMED: ",".join(columns)}


def for_new_table(
    fields: Fields,
    properties: Mapping[str, str],
    partitioned_by: Collection[str],
    files: Collection[FileStatistics],
) -> dict[str, str]:
    """Return the property that a new table gets beside its own; none where these say what has statistics.

    What its first files have no bounds of, such as texts of kilobytes, is not named: later ones will have none either.
    """
    if NAMED in properties or NUMBER in properties:
        return {}
    columns = with_bounds(searched(fields, {NUMBER: "-1"}, partitioned_by))
    return naming([name for name in columns if all(file.can_bound(name) for file in files)])
