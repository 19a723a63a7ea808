"""``format: kafka``: another topic, in this or another cluster; one transaction adds a batch's records and its mark.

Spark stages Parquet files beside the feed's path. The commit produces their rows by a transactional producer, and the
batch's mark in the same transaction. For a topic ``orders_clean``::

    orders_clean                                  what readers see, with ``isolation.level=read_committed``
    orders_clean.kafka_ingest                     which batches were published or revoked: the marks (:mod:`.marks`)
    P_late/kafka_batch=<batch>/kafka_late=true/   late rows, with on_late: dataset (:mod:`.tables.late_files`)
    P.kafka-ingest/staging/, receipts/            attempts and kept receipts, as beside every output

Each batch has a ``transactional.id`` of its own, so that whoever publishes or revokes it fences whoever else does
(:mod:`.commits`), and batches of a backfill are published beside those of the schedule.
"""

from dataclasses import replace
from importlib import import_module

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.ports.outputs import Sink
from kafka_ingest.sinks.kafka_topic.cluster import FindKafka
from kafka_ingest.sinks.tables.late_files import LateFiles
from kafka_ingest.sinks.tables.publisher import TableParts
from kafka_ingest.sinks.tables.sink import TableInspector, table_sink

TOPIC = "topic"
"""The option of an output that has its topic's name."""
GUARANTEE = (
    "Readers with isolation.level=read_committed see each partition's records of a batch whole or not at all, once: "
    "they are one transaction, whose end reaches the partitions within moments of each other."
)


def kafka_sink(
    output: OutputLocation,
    find_kafka: FindKafka,
    access: StoreAccess | None = None,
    options: TableOptions = NO_TABLE_OPTIONS,
) -> Sink:
    """Return the roles of a topic; ``access`` leads to the store where batches are staged, None on a disk.

    No record says which one it was, and none can be taken out again, so nothing inspects or removes them. What writes
    to topics, or counts their records, is imported for feeds that do so only.
    """
    topic = import_module(f"{__name__}.commits").KafkaTopic(output, find_kafka, options)
    parts = TableParts.of(topic, access, late=LateFiles(output.place, access))
    contents = import_module(f"{__name__}.contents").TopicContents(parts, topic)
    roles = {"contents": contents, "most_rows": topic.most_rows, "rows_by_hour": TableInspector(parts).rows_by_hour}
    return replace(table_sink(parts, lacks=topic.lacks), inspector=None, remover=None, replacer=None, **roles)
