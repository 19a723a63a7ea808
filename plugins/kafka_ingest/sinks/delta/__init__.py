"""``format: delta``: a Delta table in a directory or in a store, each batch visible by one commit to its log.

Beside a table ``P`` there is ``P.kafka-ingest/``, as beside every output::

    P/_delta_log/                                 what readers see, and which batches were published or revoked
    P_late/kafka_batch=<batch>/kafka_late=true/   late rows, with on_late: dataset (:mod:`.tables.late_files`)
    P_dead_letters/                               a table of what could not be decoded (:mod:`.tables.dead_letters`)
    P/batches/<batch>/<attempt>/*.parquet         data files at their final place, also before the log names them
    P.kafka-ingest/staging/                       attempts without their data (:mod:`kafka_ingest.sinks.staged_files`)
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
"""

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import Place
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.delta.log_entry import BATCHES, LOG
from kafka_ingest.sinks.delta.mended_statistics import DeltaStatistics
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.tables.dead_letters import letters_sink
from kafka_ingest.sinks.tables.late_files import LateFiles
from kafka_ingest.sinks.tables.publisher import TableParts
from kafka_ingest.sinks.tables.sink import table_sink

__all__ = ("BATCHES", "GUARANTEE", "LOG", "delta_dead_letters_sink", "delta_sink")

GUARANTEE = "Readers see a batch whole or not at all, once, in one version of the table: one commit to its log adds it."


def delta_dead_letters_sink(output: Place, access: StoreAccess | None, options: TableOptions, as_files: Sink) -> Sink:
    """Return the roles of the dead letters of a table, by their own place."""
    log = TableLog(output, access, options)
    return letters_sink(log, access, log.open_or_create, as_files)


def delta_sink(output: Place, access: StoreAccess | None = None, options: TableOptions = NO_TABLE_OPTIONS) -> Sink:
    log = TableLog(output, access, options)
    return table_sink(TableParts.of(log, access, late=LateFiles(output, access)), DeltaStatistics(log))
