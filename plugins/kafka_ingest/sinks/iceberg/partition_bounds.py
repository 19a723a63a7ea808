"""Whether a table keeps the bounds by which its files have partitions. Importing this imports pyiceberg and pyarrow."""

from collections.abc import Iterator

from pyiceberg.io.pyarrow import MetricModeTypes, compute_statistics_plan
from pyiceberg.table import Table


def missing_bounds(table: Table) -> Iterator[str]:
    """Yield the columns of partitions whose bounds the table's properties leave out.

    The library takes a file's partition from the bounds that it keeps: without them, all rows would be in partition
    null, and queries by the column would find none.
    """
    sources = {field.source_id for field in table.spec().fields}
    try:
        collectors = compute_statistics_plan(table.schema(), table.properties)
    except ValueError as error:
        yield f"properties write.metadata.metrics: {error}"
        return
    for collector in (collectors[each] for each in sorted(sources)):
        if collector.mode.type in {MetricModeTypes.NONE, MetricModeTypes.COUNTS}:
            yield (
                f"write.metadata.metrics of {collector.column_name}: {collector.mode.type.value}, expected full: the "
                "table is partitioned by it"
            )
