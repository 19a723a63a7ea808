"""Those that decode JSON into columns: this project, and Spark Structured Streaming with ``from_json``."""

from contestant import (
    PARQUET,
    Contestant,
    Job,
    missing_spark,
    prepare_feed,
    spark_submit,
    start_ours,
    zstd_1,
)

from kafka_ingest.writing.read_ranges import READ_DEFAULTS

VALUE_SCHEMA = "order_id bigint, customer string, amount double, note string"
"""Of the values that are produced (`produce_topic.py`)."""


def prepare(job: Job) -> None:
    """Make a feed that decodes its values into a struct."""
    prepare_feed(job, {"format": PARQUET}, {"value": {"format": "json", "schema": VALUE_SCHEMA}})


JSON = (
    Contestant(
        "kafka-ingest-json",
        "`kafka-ingest run` with `value: {format: json, schema: …}`: values that do not fit are dead letters",
        start_ours,
        prepare,
        missing_spark,
        is_ours=True,
        decodes=True,
    ),
    Contestant(
        "available-now-json",
        "available-now-zstd with `from_json` and the same schema: values that do not fit become nulls",
        spark_submit("available_now.py", zstd_1, READ_DEFAULTS, value_schema=VALUE_SCHEMA),
        missing=missing_spark,
        decodes=True,
    ),
)
