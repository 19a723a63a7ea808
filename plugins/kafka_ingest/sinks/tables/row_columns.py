"""The columns by which a row of a table is found, with their types. Importing this imports pyarrow."""

import pyarrow as pa

from kafka_ingest.model.batch_column import BATCH_COLUMN

TYPES: dict[str, pa.DataType] = {
    "kafka_topic": pa.string(),
    "kafka_partition": pa.int32(),
    "kafka_offset": pa.int64(),
    BATCH_COLUMN: pa.string(),
}
