"""``format: parquet``: a directory of Parquet files, one sub-directory per batch, made visible by one rename.

Beside an output ``P`` there is ``P.kafka-ingest/``, on the same file system and never under ``P``, because DuckDB and
Polars read hidden directories too::

    P/kafka_batch=<batch>/*.parquet               published, all that readers see; with partition_by in folders there
    P_late/kafka_batch=<batch>/kafka_late=true/   published right after that: rows of hours that were complete before
    P.kafka-ingest/staging/                       attempts (:mod:`kafka_ingest.sinks.staged_files`)
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
    P.kafka-ingest/receipts/<day>/<batch>.revoked what never will be published
    P.kafka-ingest/receipts/<day>/<batch>.removed what was, and was removed since: who, when and why
    P.kafka-ingest/removed/, lost/                what was taken out of readers' sight (:mod:`.publisher`)
"""

from pathlib import Path

from kafka_ingest.model.place import local
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.batch_folders import PublishedDeadLetters
from kafka_ingest.sinks.contents import OutputContents
from kafka_ingest.sinks.parquet.directory import ParquetDirectory, ParquetInspector, ParquetRows
from kafka_ingest.sinks.parquet.publisher import ParquetPublisher, ParquetRemover

GUARANTEE = "Readers see a batch whole or not at all, once, in the place of its files: one rename makes it visible."


def parquet_sink(output: Path, options: TableOptions = NO_TABLE_OPTIONS) -> Sink:
    """Return the roles of the output in a local or mounted directory; ``options`` say how its files are divided."""
    directory = ParquetDirectory.at(output)
    remover = ParquetRemover(directory)
    return Sink(
        staging=directory.staging,
        publisher=ParquetPublisher(directory, options.partition_by),
        archive=directory.receipts,
        inspector=ParquetInspector(directory),
        remover=remover,
        salvage=remover,
        places=(directory.output, directory.beside, directory.late),
        dead_letters=PublishedDeadLetters(directory.receipts, directory.place_of, local),
        contents=OutputContents(output, directory.receipts, lambda: ParquetRows(directory)),
    )
