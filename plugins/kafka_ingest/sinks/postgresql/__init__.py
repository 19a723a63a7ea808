"""``format: postgresql``: a table in PostgreSQL; one transaction adds a batch's rows and its mark.

Spark stages Parquet files beside the feed's path, on a disk or in a store. Before COMMITTING the commit copies them
into a table of their own, as Arrow batches by ADBC. The transaction that decides is short and all on the server: the
batch's mark first, whose primary key makes a rival wait, then ``INSERT … SELECT``. For a table ``shop.orders``::

    shop.orders                            what readers see
    shop.orders_kafka_batches              which batches were published or revoked: the marks
    shop.kafka_ingest_<batch>_<attempt>    a staged attempt's rows; gone with the transaction (:mod:`.copied_rows`)
    shop.orders_p20260131, orders_default  range partitions, with partition_by (:mod:`.time_partitions`)
    shop.orders_late                       rows of hours that were complete before, with on_late: dataset, in the same
    shop.orders_dead_letters               records that could not be decoded, of the same transaction
    P.kafka-ingest/staging/, receipts/     attempts and kept receipts, as beside every output
"""

from dataclasses import replace

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.dead_letters import SUFFIX
from kafka_ingest.model.place import OutputLocation, Place
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink, Within
from kafka_ingest.sinks.postgresql.database import FindDatabase
from kafka_ingest.sinks.postgresql.dead_letters import letters_sink
from kafka_ingest.sinks.postgresql.output import CONN_ID, PostgresqlOutput
from kafka_ingest.sinks.tables.publisher import TableParts, TablePublisher
from kafka_ingest.sinks.tables.sink import table_sink

__all__ = ("CONN_ID", "GUARANTEE", "postgresql_dead_letters_sink", "postgresql_sink")

GUARANTEE = "Readers see a batch whole or not at all, once: one transaction adds its rows."


def postgresql_sink(
    output: OutputLocation,
    find_database: FindDatabase,
    access: StoreAccess | None = None,
    options: TableOptions = NO_TABLE_OPTIONS,
) -> Sink:
    """Return the roles of a table; ``access`` leads to the store where batches are staged, None on a disk."""
    table = PostgresqlOutput(output, find_database, access, options)

    def publish_within(directory: Place, published: PublishedReceipt, complete: Within) -> None:
        completing = PostgresqlOutput(output, find_database, access, options, complete)
        TablePublisher(TableParts.of(completing, access)).publish(directory, published)

    sink = table_sink(TableParts.of(table, access, table.forget), lacks=table.lacks)
    within = replace(sink, in_transaction=table.in_transaction, publish_within=publish_within, in_one=table.in_one)
    return replace(within, lost=table.lost, remark=table.remark, refused=table.refused, check_late=table.check_late)


def postgresql_dead_letters_sink(
    letters: OutputLocation, find_database: FindDatabase, access: StoreAccess | None = None
) -> Sink:
    """Return the roles of the dead letters of a table, by where they would be as files."""
    of_rows = replace(letters, uri=letters.uri.removesuffix(SUFFIX))
    table = PostgresqlOutput(of_rows, find_database, access)
    return letters_sink(letters.place, of_rows.place, table.letters, access)
