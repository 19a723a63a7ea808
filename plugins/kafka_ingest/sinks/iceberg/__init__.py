"""``format: iceberg``: an Iceberg table in a directory or in a store, each batch visible by one commit.

The table is in a catalog, which is reached through an Airflow connection. Beside a table ``P`` there is
``P.kafka-ingest/``, as beside every output::

    P/metadata/                                     what readers see, and which batches were published or revoked
    P_late/kafka_batch=<batch>/kafka_late=true/     late rows, with on_late: dataset (:mod:`.tables.late_files`)
    P_dead_letters/                                 a table of records that could not be decoded, named as that one with
                                                    _dead_letters added (:mod:`.tables.dead_letters`)
    P/data/batches/<batch>/<attempt>/*.parquet      data files at their final place, also before a manifest names them
    P.kafka-ingest/staging/                         attempts without their data (:mod:`kafka_ingest.sinks.staged_files`)
    P.kafka-ingest/receipts/<day>/<batch>.json      what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
    P.kafka-ingest/marks/<day>/<batch>              marks that the table does not carry any more (:mod:`.marks`)
"""

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.iceberg.catalog_settings import FindCatalog
from kafka_ingest.sinks.iceberg.output import IcebergOutput
from kafka_ingest.sinks.iceberg.places import BATCHES, DATA, METADATA
from kafka_ingest.sinks.tables.dead_letters import letters_sink
from kafka_ingest.sinks.tables.late_files import LateFiles
from kafka_ingest.sinks.tables.publisher import TableParts
from kafka_ingest.sinks.tables.sink import table_sink

__all__ = ("BATCHES", "DATA", "GUARANTEE", "METADATA", "iceberg_dead_letters_sink", "iceberg_sink")

GUARANTEE = "Readers see a batch whole or not at all, once, in one snapshot of the table: one commit adds it."


def iceberg_dead_letters_sink(
    output: OutputLocation, find_catalog: FindCatalog, access: StoreAccess | None, options: TableOptions, as_files: Sink
) -> Sink:
    """Return the roles of the dead letters of a table, by their own place and name."""
    table = IcebergOutput(output, find_catalog, access, options)
    return letters_sink(table, access, table.open_or_create, as_files)


def iceberg_sink(
    output: OutputLocation,
    find_catalog: FindCatalog,
    access: StoreAccess | None = None,
    options: TableOptions = NO_TABLE_OPTIONS,
) -> Sink:
    table = IcebergOutput(output, find_catalog, access, options)
    return table_sink(TableParts.of(table, access, late=LateFiles(output.place, access)))
