"""Whether Spark's driver starts, and on what: with the arguments and the environment of a run."""

import importlib.metadata
import json
from collections.abc import Mapping

from kafka_ingest.errors import InstallationError
from kafka_ingest.model.job_settings import JobSettings
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

    Raises InstallationError where that differs from what a run needs, or the error with which Spark ended.
    """
    master = spark_master(find_connection(feed.spark.conn_id))
    workplace = make_workplace()
    try:
        answer, log = workplace.with_name(f"{workplace.name}.json"), workplace.with_name(f"{workplace.name}.log")
        equip(workplace, package_zip(), JobSettings({}))
        submission = submission_of(
            "doctor",
            ("--check", str(answer)),
            spark=SparkRun(master, feed.spark.conf),
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
    return f"its driver starts: {', '.join(f'{name} {found[name]}' for name in ('Spark', 'Java', 'Python'))}"
