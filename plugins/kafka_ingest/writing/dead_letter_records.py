"""Read the records of a replay: dead letters, as they came, from the files that earlier batches published."""

import json
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from kafka_ingest.model.batch import AttemptDocument
from kafka_ingest.model.batch_column import BATCH_COLUMN
from kafka_ingest.model.place import Place, spark_path, spark_source
from kafka_ingest.writing.decoded_part import text

LETTERS = (
    "kafka_topic string, kafka_partition int, kafka_offset bigint, kafka_timestamp timestamp, key binary, "
    "value binary, kafka_headers array<struct<key: string, value: binary>>, kafka_topic_id string, "
    "kafka_timestamp_ms bigint, error_class string, kafka_batch string"
)
"""The raw format's columns, in its order, then the cause, and the batch from the path.

A file that lacks one, as another version may have written it, has nulls there.
"""

TAKEN_UP = "array<struct<batch: string, topic: string, partition: int, first: bigint, end: bigint, cause: string>>"


def root_of(file: Place, batch_id: UUID) -> Place:
    """Return the output of dead letters that a batch's file is in; there may be folders between it and the batch's."""
    folder = file.parent
    while not folder.name.endswith(str(batch_id)):
        if folder == folder.parent:
            raise ValueError(f"expected a file below the folder of batch {batch_id}, found {file}")
        folder = folder.parent
    return folder.parent


def dead_letter_records(spark: SparkSession, document: AttemptDocument) -> DataFrame:
    """Return the dead letters that the plan replays, in the raw format's columns (docs/output.md).

    Of each batch's files those letters that the plan names, by range and cause.
    """
    files = [path for _, of_batch in sorted(document.letters.items()) for path in of_batch]
    any_batch, (any_file, *_) = next(iter(document.letters.items()))
    letters = (
        spark.read.schema(LETTERS)
        .option("basePath", spark_path(root_of(any_file, any_batch)))
        .parquet(*(spark_source(path) for path in files))
    )
    taken_up = [
        {
            "batch": str(each.batch_id),
            "topic": each.topic_partition.topic,
            "partition": each.topic_partition.partition,
            "first": each.offset_range.start_offset,
            "end": each.offset_range.end_offset,
            "cause": cause,
        }
        for each in document.plan.replays
        for cause, _ in each.records
    ]
    # As one text that Spark parses: there may be thousands of ranges, too many for a condition.
    rows = spark.range(1).select(f.expr(f"inline(from_json({text(json.dumps(taken_up))}, {text(TAKEN_UP)}))"))
    is_taken_up = (
        "letters.kafka_batch = taken_up.batch and letters.kafka_topic = taken_up.topic "
        "and letters.kafka_partition = taken_up.partition and letters.kafka_offset >= taken_up.first "
        "and letters.kafka_offset < taken_up.`end` and letters.error_class = taken_up.cause"
    )
    found = letters.alias("letters").join(f.broadcast(rows.alias("taken_up")), f.expr(is_taken_up), "left_semi")
    found = found.drop("error_class", BATCH_COLUMN)
    return found.selectExpr("*", f"'{document.plan.batch_id}' as kafka_batch") if document.data.batch_column else found
