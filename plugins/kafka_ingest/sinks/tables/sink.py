"""The roles of a table."""

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.tables.inspector import TableInspector
from kafka_ingest.sinks.tables.output import TableOutput
from kafka_ingest.sinks.tables.parts import TableParts
from kafka_ingest.sinks.tables.publisher import TablePublisher
from kafka_ingest.sinks.tables.remover import TableRemover
from kafka_ingest.sinks.tables.replacer import TableReplacer


def table_sink(table: TableOutput, access: StoreAccess | None = None) -> Sink:
    """Return the roles of a table; ``access`` leads to its store, None on a disk."""
    parts = TableParts.of(table, access)
    return Sink(
        staging=parts.staging,
        publisher=TablePublisher(parts),
        archive=parts.archive,
        inspector=TableInspector(parts),
        remover=TableRemover(parts),
        # A file that a table names cannot be moved; and rows are deleted by batch, not by file.
        salvage=None,
        replacer=TableReplacer(parts, table.replacement) if table.replacement is not None else None,
        places=(parts.output, parts.beside),
        statistics=table.statistics,
    )
