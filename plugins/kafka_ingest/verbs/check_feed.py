"""Checks of a feed: its schemas, its columns, its open batch; that Spark starts, and takes its expressions."""

import importlib.metadata
import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafka_ingest.assembly import assemble, schemas_of
from kafka_ingest.errors import (
    ColumnsChangedError,
    InstallationError,
    InvalidExpressionError,
    RefusedBatchError,
    SparkFailedError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.decoding import FieldDecoding
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.omissions import described
from kafka_ingest.model.place import MAX_WAIT_FOR_EXECUTORS, JobSettings
from kafka_ingest.model.schema_source import TOPIC, RegistrySource
from kafka_ingest.model.written_columns import side_by_side
from kafka_ingest.observing import feed_status
from kafka_ingest.settings.connections import FindConnection, spark_master
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.installation import Installation, installation
from kafka_ingest.spark_launch.java_options import DRIVER_JAVA_OPTIONS, launcher_options, with_fixed_meaning
from kafka_ingest.spark_launch.run_spark_submit import driver_environment, run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkRun, driver_java_options, submission_of
from kafka_ingest.spark_launch.start_failures import informative_lines
from kafka_ingest.spark_launch.workplace import PACKAGE_ROOT, equip, make_workplace, package_zip, remove_workplace


def schemas(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return what keys and values are read as, after asking for their schemas; and what some records may not fit."""
    decoding, topics = feed.decoding(), [topic.name for topic in feed.kafka.listed]
    if decoding.has_avro:
        installation().check_avro_jars()
    by_topic = [
        part.source.subject_of(TOPIC, name) != part.source.subject_of("", name)
        for name, part in decoding.parts.items()
        if isinstance(part.source, RegistrySource)
    ]
    if not topics and any(by_topic):
        return "not asked for: the subjects are those of topics that kafka.topic_pattern finds"
    frozen = schemas_of(find_connection, environment).frozen(decoding, topics or [feed.name], {})
    return "; ".join(
        f"{name}: {read_as(part)}" for name, part in frozen.parts.items() if decoding.parts[name].source is not None
    )


def read_as(part: FieldDecoding) -> str:
    misfits = [
        f"id {writer.schema_id}: {writer.misfit}"
        for writer in part.writers or ()
        if writer.misfit is not None and not writer.is_other
    ]
    written = f", written with {counted(len(part.writers), 'schema')}" if part.writers is not None else ""
    warning = f"; records of some become dead letters ({listing(misfits)})" if misfits else ""
    return f"{part.format}{written}{warning}"


def columns(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return how they go together; raises ColumnsChangedError where an attempt would be refused."""
    parts = assemble(feed, find_connection, environment)
    decoding, topics = feed.decoding(), [topic.name for topic in feed.kafka.listed]
    if decoding.has_sources:
        # Of topics that a pattern finds any name will do where the subject is not the topic's.
        decoding = parts.schemas.frozen(decoding, topics or [TOPIC], {})
    compared = parts.compare_columns(decoding)
    if compared.refused is not None:
        raise ColumnsChangedError(compared.refused)
    if compared.now is None:
        return "not known before records are written: a function makes them"
    never = parts.never_found()
    ended = f"; null in all rows of the newest batch: {'; '.join(described(never))}" if never else ""
    if compared.before is None:
        return f"{counted(len(compared.now), 'field')}; the output has none to compare them with"
    if not compared.new:
        return f"{counted(len(compared.now), 'field')}, as the output has them{ended}"
    does = "left out (on_new_fields: ignore)" if compared.left_out else "added (on_new_fields: add)"
    return f"these are new, and will be {does}:\n{side_by_side(compared.before, compared.now, compared.new)}{ended}"


def open_batch(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return the state of the feed's open batch; raises RefusedBatchError where what was written of it was refused."""
    control = assemble(feed, find_connection, environment).control
    known = control.feed(feed.name)
    found = feed_status.open_batch(known, control) if known is not None else None
    if found is None:
        return "none"
    if found["discarded"] is not None:
        raise RefusedBatchError(f"it was written, and is {found['state']} again: {found['discarded']}")
    return f"{found['batch_id']} is {found['state']}"


SAME_EVERYWHERE = {"file names": "UTF-8", "time zone": "UTC", "language": "en_US"}
"""What values and names mean to Java (:mod:`kafka_ingest.spark_launch.java_options`)."""


def driver(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return what the driver of a feed's Spark connection runs on.

    On other machines a Python worker is started, too, where the feed needs some. Raises InstallationError where that
    fails, or the driver differs from what a run needs, or the error with which Spark ended.
    """
    master = spark_master(find_connection(feed.spark.conn_id))
    has_workers = not master.is_local and uses_python(feed)
    wait = {MAX_WAIT_FOR_EXECUTORS: f"{feed.spark.max_wait_for_executors.total_seconds():.0f}"} if has_workers else {}
    workplace = make_workplace()
    try:
        answer, log = workplace.with_name(f"{workplace.name}.json"), workplace.with_name(f"{workplace.name}.log")
        equip(workplace, package_zip(), JobSettings([]))
        submission = submission_of(
            "doctor",
            ("--check", str(answer), *(["--workers"] if has_workers else [])),
            spark=SparkRun(master, {**feed.spark.conf, **wait}),
            work=0,
            installed=installation(),
            workplace=workplace,
        )
        run_spark_submit(submission, log, environment)
        found: dict[str, str] = json.loads(answer.read_text(encoding="utf-8"))
    finally:
        remove_workplace(workplace)
    answer.unlink()
    log.unlink()
    expected = {"Spark": importlib.metadata.version("pyspark"), **SAME_EVERYWHERE}
    if wrong := [f"{name} {value}, found {found[name]}" for name, value in expected.items() if found[name] != value]:
        raise InstallationError(
            f"connection {feed.spark.conn_id!r}: expected a driver with {'; '.join(wrong)}. Correct SPARK_HOME, "
            "spark-binary of the connection, or the options of Java."
        )
    runs_on = ", ".join(f"{name} {found[name]}" for name in ("Spark", "Java", "Python"))
    return f"its driver starts: {runs_on}{'; its Python workers start' if has_workers else ''}"


def uses_python(feed: Feed) -> bool:
    """Whether some of a feed's records may be read by Spark's Python workers."""
    decoding = feed.decoding()
    return decoding.has_json or decoding.has_protobuf or decoding.shape.transform is not None


PROGRAM = "kafka_ingest.writing.check_feed"


def expressions(feed: Feed, find_connection: FindConnection, environment: Mapping[str, str]) -> str:
    """Return what was checked; raises InvalidExpressionError where Spark or Python refuses it."""
    decoding, topics = feed.decoding(), [topic.name for topic in feed.kafka.listed]
    if decoding.has_sources:
        # Of topics that a pattern finds any name will do where the subject is not the topic's.
        decoding = schemas_of(find_connection, environment).frozen(decoding, topics or [TOPIC], {})
    document = json.dumps(decoding.as_document())
    installed = installation()
    done = subprocess.run(
        [str(installed.python), "-m", PROGRAM],
        input=document,
        env=environment_of(installed, environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SparkFailedError(
            f"feed {feed.name}: expected Spark to check its expressions, found that it ended with exit code "
            f"{done.returncode}:\n{informative_lines(done.stderr)}"
        )
    problem: str | None = json.loads(done.stdout.splitlines()[-1])
    if problem is not None:
        raise InvalidExpressionError(f"feed {feed.name}: {problem}. Correct the feed file.")
    shape = decoding.shape
    taken = [
        *(["where"] if shape.where is not None else []),
        *([f"{counted(len(shape.select), 'column')} of select"] if shape.select else []),
        *([f"transform {shape.transform}"] if shape.transform is not None else []),
    ]
    return f"Spark takes {', '.join(taken)}"


def environment_of(installed: Installation, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the program is started with: a Spark on this machine, with a Java as of a small batch's, and us."""
    search_path = [str(Path(PACKAGE_ROOT).parent), environment.get("PYTHONPATH", "")]
    home = installed.spark_home
    java = driver_java_options(0, installed, {}) if home is not None else ""
    arguments = [
        *("--master", "local[1]", "--conf", "spark.ui.enabled=false"),
        *("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.driver.bindAddress=127.0.0.1"),
        *(("--conf", f"{DRIVER_JAVA_OPTIONS}={java}") if java else ()),
        # Java takes an archive of classes for the same class path only.
        *("--driver-class-path", os.pathsep.join(map(str, installed.jars))),
        *(("--jars", ",".join(map(str, installed.avro_jars))) if installed.avro_jars else ()),
        "pyspark-shell",
    ]
    spark = (
        {"SPARK_HOME": str(home), "SPARK_LAUNCHER_OPTS": launcher_options(installed.java_options, home)} if home else {}
    )
    return {
        **driver_environment(environment),
        "PATH": installed.search_path,
        **with_fixed_meaning(installed.java_options.last),
        "PYTHONPATH": os.pathsep.join(filter(None, search_path)),
        "PYSPARK_SUBMIT_ARGS": shlex.join(arguments),
        **spark,
    }
