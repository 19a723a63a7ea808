"""Whether Spark starts, with the arguments and the environment of a run, and takes the expressions of a feed file."""

import importlib.metadata
import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafka_ingest.assembly import schemas_of
from kafka_ingest.errors import InstallationError, InvalidExpressionError, SparkFailedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.attempt_directory import MAX_WAIT_FOR_EXECUTORS, JobSettings
from kafka_ingest.model.schema_source import TOPIC
from kafka_ingest.settings.connections import FindConnection, spark_master
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.installation import Installation, installation
from kafka_ingest.spark_launch.java_options import DRIVER_JAVA_OPTIONS, launcher_options, with_fixed_meaning
from kafka_ingest.spark_launch.run_spark_submit import driver_environment, run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkRun, driver_java_options, submission_of
from kafka_ingest.spark_launch.start_failures import informative_lines
from kafka_ingest.spark_launch.workplace import PACKAGE_ROOT, equip, make_workplace, package_zip, remove_workplace

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
