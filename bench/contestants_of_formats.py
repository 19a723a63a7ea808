"""Those that decode values into columns: this project, Spark Structured Streaming, and Flink."""

import json
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec

from contestant import (
    FLINK,
    FLINK_HEAP,
    PARQUET,
    Contestant,
    Job,
    Start,
    flink,
    missing_flink,
    missing_spark,
    no_conf,
    prepare_feed,
    spark_submit,
    start_ours,
    zstd_1,
)
from order_values import AVRO, AVRO_SCHEMA, FLINK_COLUMNS, FORMATS, JSON, MESSAGE, PROTOBUF, REGISTERED, SPARK_SCHEMA

from environment import ROOT
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

REGISTRY = "schemas"
FLINK_AVRO = FLINK / "avro"
SPARK_AVRO = ROOT / ".jvm" / "avro"
OUR_VALUES: Mapping[str, Mapping[str, str]] = {
    JSON: {"format": JSON, "schema": SPARK_SCHEMA},
    AVRO: {"format": AVRO, "registry": REGISTRY},
    PROTOBUF: {"format": PROTOBUF, "registry": REGISTRY, "message": MESSAGE},
}


def ours(form: str) -> Contestant:
    """Return this project with values of a format; a value that does not fit is a dead letter."""
    value = OUR_VALUES[form]

    def prepare(job: Job) -> None:
        prepare_feed(job, {"format": PARQUET}, {"value": value, "columns": "flatten"})

    def start(job: Job) -> Start:
        found = start_ours(job)
        if form not in REGISTERED:
            return found
        connection = json.dumps({"conn_type": "http", "host": job.registry_url})
        return replace(found, environment={**found.environment, f"AIRFLOW_CONN_{REGISTRY.upper()}": connection})

    def missing() -> str | None:
        if form == PROTOBUF and find_spec("ptars") is None:
            return "expected ptars in .venv, found none: pip install -r requirements-protobuf.txt"
        return missing_spark()

    return Contestant(
        f"kafka-ingest-{form}",
        f"`kafka-ingest run` with values of format {form}{with_registry(form)}: what does not fit is a dead letter",
        start,
        prepare,
        missing,
        is_ours=True,
        decodes=form,
    )


def available_now(form: str, schema: str, *, defaults: bool = False) -> Contestant:
    """Return Spark Structured Streaming with `from_json` or `from_avro`: with defaults, or as available-now-zstd."""
    more_jars = [SPARK_AVRO] if form == AVRO else []
    conf, consumer = (no_conf, {}) if defaults else (zstd_1, READ_DEFAULTS)
    start = spark_submit(
        "available_now.py", conf, consumer, more_jars=more_jars, value={"format": form, "schema": schema}
    )
    without_id = "; the schema is given and the schema ids are cut off" if form in REGISTERED else ""
    return Contestant(
        f"available-now{'-defaults' if defaults else ''}-{form}",
        f"available-now{'' if defaults else '-zstd'} with `from_{form}`{without_id}",
        start,
        missing=missing_spark,
        decodes=form,
    )


def flink_decoding(form: str) -> Contestant:
    """Return Flink with its own format, otherwise as flink; it asks the registry itself."""

    def start(job: Job) -> Start:
        options = {"value.format": "json"}
        if form == AVRO:
            options = {"value.format": "avro-confluent", "value.avro-confluent.url": job.registry_url}
        more_jars = [FLINK_AVRO] if form == AVRO else []
        return flink(job, FLINK_HEAP, more_jars=more_jars, value={"columns": FLINK_COLUMNS, "options": options})

    def missing() -> str | None:
        if form == AVRO and not any(FLINK_AVRO.glob("*.jar")):
            return (
                f"expected Flink's jar for Avro in {FLINK_AVRO.relative_to(ROOT)}, found none: make bench installs it"
            )
        return missing_flink()

    return Contestant(
        f"flink-{form}",
        f"flink with its format {'avro-confluent' if form == AVRO else form}",
        start,
        missing=missing,
        decodes=form,
    )


def with_registry(form: str) -> str:
    """Return what to say of a format's schemas."""
    return " and a schema registry" if form in REGISTERED else ""


DECODING = (
    *(ours(form) for form in FORMATS),
    available_now(JSON, SPARK_SCHEMA, defaults=True),
    available_now(AVRO, AVRO_SCHEMA, defaults=True),
    available_now(JSON, SPARK_SCHEMA),
    available_now(AVRO, AVRO_SCHEMA),
    flink_decoding(JSON),
    flink_decoding(AVRO),
)
"""Protobuf has no peer: Spark's module for it cannot be resolved, and Flink's needs a Java class that `protoc` made of
each message."""
