"""Those that write tables: this project, and Spark with the formats' own jars."""

import importlib.util
import json
from collections.abc import Callable, Mapping

from contestant import (
    FILES,
    PARQUET,
    ZSTD_1,
    Contestant,
    Job,
    Start,
    missing_spark,
    one_batch,
    our_environment,
    prepare_feed,
    spark_submit,
)
from contestants_of_json import JSON

from environment import ROOT
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

DELTA, ICEBERG = "delta", "iceberg"
LIBRARIES = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
SINKS: Mapping[str, Mapping[str, str]] = {
    DELTA: {"format": DELTA},
    ICEBERG: {"format": ICEBERG, "catalog": "lake", "table": "bench.orders"},
}
ICEBERG_ZSTD_1 = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": "1"}


def ours(writes: str) -> Contestant:
    """Return this project with a table; an Iceberg table's catalog is a SQLite file."""

    def prepare(job: Job) -> None:
        prepare_feed(job, SINKS[writes])

    def start(job: Job) -> Start:
        catalog = {"conn_type": "sqlite", "host": str(job.home / "catalog.db")}
        return Start(one_batch(job), our_environment(job) | {"AIRFLOW_CONN_LAKE": json.dumps(catalog)})

    def missing() -> str | None:
        library = LIBRARIES[writes]
        if importlib.util.find_spec(library) is None:
            return f"expected {library} in .venv, found none: make setup, then pip install -r requirements-{writes}.txt"
        return missing_spark()

    about = f"`kafka-ingest run` into a table of format {writes}"
    return Contestant(f"kafka-ingest-{writes}", about, start, prepare, missing, writes, is_ours=True)


def available_now(writes: str, conf: Callable[[Job], Mapping[str, str]]) -> Contestant:
    """Return Spark Structured Streaming with a table, zstd level 1 and the consumer's settings of kafka-ingest."""
    jars = ROOT / ".jvm" / writes

    def missing() -> str | None:
        if not any(jars.glob("*.jar")):
            return f"expected the jars of {writes} in {jars.relative_to(ROOT)}, found none: make bench installs them"
        return missing_spark()

    start = spark_submit("available_now.py", conf, READ_DEFAULTS, more_jars=[jars], writes=writes)
    about = f"Spark Structured Streaming, trigger availableNow, into a table of format {writes}"
    return Contestant(
        f"available-now-{writes}", f"{about}, otherwise as available-now-zstd", start, missing=missing, writes=writes
    )


def conf_of_delta(_: Job) -> Mapping[str, str]:
    """Return what Spark needs for Delta, as its documentation says."""
    return {
        **ZSTD_1,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def conf_of_iceberg(job: Job) -> Mapping[str, str]:
    """Return what Spark needs for Iceberg, with the catalog that needs no server: the directory itself."""
    catalog = "spark.sql.catalog.lake"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(job.output),
        **{f"{catalog}.table-default.{name}": value for name, value in ICEBERG_ZSTD_1.items()},
    }


TABLES = (
    ours(DELTA),
    ours(ICEBERG),
    available_now(DELTA, conf_of_delta),
    available_now(ICEBERG, conf_of_iceberg),
)
CONTESTANTS: Mapping[str, Contestant] = {**FILES, **{each.name: each for each in (*TABLES, *JSON)}}
"""All that take part, by their names."""
FILE_WRITERS = frozenset(name for name, each in CONTESTANTS.items() if each.writes == PARQUET and not each.decodes)
