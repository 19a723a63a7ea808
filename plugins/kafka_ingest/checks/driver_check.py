"""Whether Spark's driver, and Python workers elsewhere, start: with the arguments and the environment of a run."""

import importlib.metadata
import json
from collections.abc import Mapping

from kafka_ingest.errors import InstallationError
from kafka_ingest.model.attempt_directory import MAX_WAIT_FOR_EXECUTORS, JobSettings
from kafka_ingest.settings.connections import FindConnection, spark_master
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.package_zip import package_zip
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkRun, submission_of
from kafka_ingest.spark_launch.workplace import equip, make_workplace, remove_workplace

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
