"""What a snapshot of a Delta table records of its files' columns. Importing this imports pyarrow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kafka_ingest.model.published_output import TableStatistics
from kafka_ingest.sinks.delta.searched_columns import with_bounds

if TYPE_CHECKING:
    from deltalake import DeltaTable


def statistics_of(table: "DeltaTable", searched: Mapping[str, object]) -> TableStatistics:
    """Return how many of a snapshot's files lack bounds for which readers look, and which columns have all."""
    actions = pa.table(table.get_add_actions(flatten=False))
    bounds = actions.schema.field("min").type if "min" in actions.column_names else pa.struct([])
    files = actions.to_pylist()
    lacking = {
        each.name: sum(lacks(file, each.name, is_counted=isinstance(searched[each.name], str)) for file in files)
        for each in bounds
        if each.name in searched
    }
    complete = with_bounds({name: kind for name, kind in searched.items() if not lacking.get(name)})
    return TableStatistics(len(files), {name: count for name, count in lacking.items() if count}, tuple(complete))


def lacks(file: Mapping[str, Any], column: str, *, is_counted: bool) -> bool:
    """Whether a bound of a column is missing beside those of others; nulls alone need none."""
    if file["min"] is None or None not in (file["min"][column], (file["max"] or {}).get(column)):
        return False
    return not is_counted or (file["null_count"] or {}).get(column) != file["num_records"]
