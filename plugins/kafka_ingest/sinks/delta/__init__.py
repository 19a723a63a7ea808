"""``format: delta``: a Delta table in a directory or in S3, each batch visible by one commit to its log.

Beside a table ``P`` there is ``P.kafka-ingest/``, as beside every output::

    P/_delta_log/                                 what readers see, and which batches were published or revoked
    P/batches/<batch>/<attempt>/*.parquet         data files at their final place, also before the log names them
    P.kafka-ingest/staging/                       attempts without their data (:mod:`kafka_ingest.sinks.staged_files`)
    P.kafka-ingest/receipts/<day>/<batch>.json    what was published, kept (:mod:`kafka_ingest.sinks.kept_receipts`)
"""

from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.model.place import Place
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.delta.inspector import DeltaInspector
from kafka_ingest.sinks.delta.library import check_installed
from kafka_ingest.sinks.delta.parts import DeltaParts
from kafka_ingest.sinks.delta.publisher import DeltaPublisher, check_no_other_files
from kafka_ingest.sinks.delta.remover import DeltaRemover
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.usable_places import check_usable

GUARANTEE = "Readers see a batch whole or not at all, once, in one version of the table: one commit to its log adds it."


def examine(output: Place, access: S3Access | None = None) -> None:
    """Raise InstallationError without the library, OutputNotUsableError for an unusable table.

    On a disk it creates nothing; in a store one empty object, by which it sees whether the store can be used.
    """
    check_installed()
    check_usable(output, access)
    log = TableLog(output, access)
    log.check_writable()
    check_no_other_files(output, log, access)


def delta_sink(output: Place, access: S3Access | None = None) -> Sink:
    """Return the roles of the table in a directory, or in a store that ``access`` leads to."""
    parts = DeltaParts.at(output, access)
    return Sink(
        staging=parts.staging,
        publisher=DeltaPublisher(parts),
        archive=parts.archive,
        inspector=DeltaInspector(parts),
        remover=DeltaRemover(parts),
        # A file that the log names cannot be moved, and delta-rs has no commit that only removes one from the log.
        salvage=None,
        places=(parts.output, parts.beside),
    )
