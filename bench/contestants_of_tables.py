"""Those that write tables: this project, and Spark with the formats' own jars."""

import importlib.util
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from contestant import (
    FILES,
    FLINK,
    FLINK_HEAP,
    PARQUET,
    S3_JARS,
    ZSTD_1,
    Contestant,
    Job,
    Start,
    flink,
    missing_flink,
    missing_spark,
    one_batch,
    our_environment,
    prepare_feed,
    spark_submit,
)
from contestants_of_formats import DECODING, OUR_VALUES
from order_values import JSON
from s3_server import BUCKET

from environment import ROOT
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.writing.read_ranges import READ_DEFAULTS

DELTA, ICEBERG = "delta", "iceberg"
FLINK_ICEBERG = FLINK / "iceberg"
LIBRARIES = {DELTA: "deltalake", ICEBERG: "pyiceberg"}
SINKS: Mapping[str, Mapping[str, str]] = {
    DELTA: {"format": DELTA},
    ICEBERG: {"format": ICEBERG, "catalog": "lake", "table": "bench.orders"},
}
IN_S3 = " in S3, on a server on this machine"
CATALOG = "spark.sql.catalog.lake"
CONF_ZSTD_1: Mapping[str, Mapping[str, str]] = {
    DELTA: ZSTD_1,
    ICEBERG: {
        f"{CATALOG}.table-default.write.parquet.compression-codec": "zstd",
        f"{CATALOG}.table-default.write.parquet.compression-level": "1",
    },
}


def ours(writes: str, *, in_store: bool = False, form: str = "") -> Contestant:
    """Return this project with a table, of raw bytes or of values of a format; Iceberg's catalog is a SQLite file."""

    def prepare(job: Job) -> None:
        prepare_feed(job, SINKS[writes], {"value": OUR_VALUES[form], "columns": "flatten"} if form else {})

    def start(job: Job) -> Start:
        catalog = {"conn_type": "sqlite", "host": str(job.home / "catalog.db")}
        environment = our_environment(job) | {"AIRFLOW_CONN_LAKE": json.dumps(catalog)}
        if job.store is not None:
            environment["AIRFLOW_CONN_AWS_DEFAULT"] = connection_to(job.store)
        return Start(one_batch(job), environment)

    def missing() -> str | None:
        library = LIBRARIES[writes]
        if importlib.util.find_spec(library) is None:
            return f"expected {library} in .venv, found none: make setup, then pip install -r requirements-{writes}.txt"
        return missing_spark() or (missing_s3() if in_store else None)

    values = f" with values of format {form}" if form else ""
    about = f"`kafka-ingest run`{values} into a table of format {writes}{IN_S3 if in_store else ''}"
    return Contestant(
        name_of(f"kafka-ingest-{form}" if form else "kafka-ingest", writes, in_store=in_store),
        about,
        start,
        prepare,
        missing,
        writes,
        is_ours=True,
        in_store=in_store,
        decodes=form,
    )


def available_now(
    writes: str, conf: Callable[[Job], Mapping[str, str]], *, in_store: bool = False, defaults: bool = False
) -> Contestant:
    """Return Spark Structured Streaming with a table: as users start it, or tuned as available-now-zstd.

    ``conf`` is what Spark needs for the format. The checkpoint is on this machine's disk, also where the table is in
    S3: no request is counted for it.
    """
    jars = ROOT / ".jvm" / writes

    def missing() -> str | None:
        if not any(jars.glob("*.jar")):
            return f"expected the jars of {writes} in {jars.relative_to(ROOT)}, found none: make bench installs them"
        return missing_spark() or (missing_s3() if in_store else None)

    def whole_conf(job: Job) -> Mapping[str, str]:
        of_store = conf_of_store(job.store) if job.store is not None else {}
        return {**conf(job), **({} if defaults else CONF_ZSTD_1[writes]), **of_store}

    more_jars = [jars, S3_JARS] if in_store else [jars]
    consumer = {} if defaults else READ_DEFAULTS
    start = spark_submit("available_now.py", whole_conf, consumer, more_jars=more_jars, writes=writes)
    about = f"Spark Structured Streaming, trigger availableNow, into a table of format {writes}"
    otherwise = "defaults" if defaults else "otherwise as available-now-zstd"
    return Contestant(
        name_of("available-now-defaults" if defaults else "available-now", writes, in_store=in_store),
        f"{about}{IN_S3 if in_store else ''}, {otherwise}",
        start,
        missing=missing,
        writes=writes,
        in_store=in_store,
    )


def start_flink_iceberg(job: Job) -> Start:
    """Start Flink as it writes files, with Iceberg's jar, into the catalog that needs no server.

    Iceberg asks for Hadoop's classes where Flink's own are.
    """
    start = flink(job, FLINK_HEAP, more_jars=[FLINK_ICEBERG], writes=ICEBERG)
    hadoop = os.pathsep.join(str(jar) for jar in sorted((FLINK / "jars").glob("hadoop-*.jar")))
    return replace(start, environment={**start.environment, "HADOOP_CLASSPATH": hadoop})


def missing_flink_iceberg() -> str | None:
    """Say why Flink cannot write to Iceberg."""
    if not any(FLINK_ICEBERG.glob("*.jar")):
        return f"expected Iceberg's jar in {FLINK_ICEBERG.relative_to(ROOT)}, found none: make bench installs it"
    return missing_flink()


FLINK_TO_ICEBERG = Contestant(
    "flink-iceberg",
    "Flink SQL in batch mode into a table of format iceberg, otherwise as flink",
    start_flink_iceberg,
    missing=missing_flink_iceberg,
    writes=ICEBERG,
)


def name_of(actor: str, writes: str, *, in_store: bool) -> str:
    """Return a contestant's name."""
    return f"{actor}-{writes}{'-s3' if in_store else ''}"


def missing_s3() -> str | None:
    """Say why no table can be written to S3 here."""
    for library in ("s3fs", "moto"):
        if importlib.util.find_spec(library) is None:
            return f"expected {library} in .venv, found none: make bench installs it"
    if not any(S3_JARS.glob("hadoop-aws-*.jar")):
        return f"expected the jars for S3 in {S3_JARS.relative_to(ROOT)}, found none: make bench installs them"
    return None


def connection_to(store: S3Access) -> str:
    """Return the Airflow connection to an S3 server, in JSON form."""
    extra = {"endpoint_url": store.endpoint_url, "region_name": store.region}
    return json.dumps({"conn_type": "aws", "login": store.access_key, "password": store.secret_key, "extra": extra})


def conf_of_store(store: S3Access) -> Mapping[str, str]:
    """Return what Spark needs to reach an S3 server; all else is Hadoop's default."""
    return {f"spark.hadoop.{name}": value for name, value in store.for_hadoop(BUCKET).items()}


def conf_of_delta(_: Job) -> Mapping[str, str]:
    """Return what Spark needs for Delta, as its documentation says."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }


def conf_of_iceberg(job: Job) -> Mapping[str, str]:
    """Return what Spark needs for Iceberg, with the catalog that needs no server: the directory or bucket itself."""
    return {
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "hadoop",
        f"{CATALOG}.warehouse": job.place("s3a"),
    }


TABLES = (
    ours(DELTA),
    ours(ICEBERG),
    available_now(DELTA, conf_of_delta, defaults=True),
    available_now(ICEBERG, conf_of_iceberg, defaults=True),
    available_now(DELTA, conf_of_delta),
    available_now(ICEBERG, conf_of_iceberg),
    FLINK_TO_ICEBERG,
    ours(DELTA, in_store=True),
    ours(ICEBERG, in_store=True),
    ours(DELTA, in_store=True, form=JSON),
    available_now(DELTA, conf_of_delta, in_store=True),
    available_now(ICEBERG, conf_of_iceberg, in_store=True),
)
CONTESTANTS: Mapping[str, Contestant] = {**FILES, **{each.name: each for each in (*TABLES, *DECODING)}}
"""All that take part, by their names."""
FILE_WRITERS = frozenset(name for name, each in CONTESTANTS.items() if each.writes == PARQUET and not each.decodes)
