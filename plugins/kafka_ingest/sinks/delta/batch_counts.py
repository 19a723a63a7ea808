"""Count what a Delta table holds of a batch, from the position columns of its rows. Importing this imports pyarrow."""

from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedLook
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.sinks import table_counts
from kafka_ingest.sinks.delta.table_rows import TableRows
from kafka_ingest.sinks.parquet_contents import POSITION, partitions_of


def look_at_batch(folder: str, place: Opened, receipt: Receipt, rows: TableRows, *, closely: bool) -> PublishedLook:
    """Return what readers see of a batch. ``folder`` is its place in the table."""
    named = {file.name for file in receipt.files if f"{folder}/{file.name}" in rows.files}
    moved = rows.read_rewritten(list(POSITION), receipt.batch_id)
    lost = f"the table {rows.output} does not name it any more, nor hold all of its rows elsewhere"
    return table_counts.look_at_batch(place, receipt, named, moved, lost=lost, closely=closely)


def is_in_rewritten(rows: TableRows, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
    """Whether a batch's record is in a file that was rewritten."""
    return any(
        topic_partition in partitions_of(table.filter(pc.equal(table["kafka_offset"], pa.scalar(offset, pa.int64()))))
        for table in rows.read_rewritten(list(POSITION), batch_id)
    )
