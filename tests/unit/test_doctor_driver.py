"""What doctor asks of Spark's driver: on other machines, whether Python workers start where the feeds need them."""

import json
from pathlib import Path
from typing import Any

import pyspark
import pytest

from kafka_ingest.settings.connections import ConnectionFields, fields_from_json
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.verbs import check_feed, check_installation

JSON: dict[str, Any] = {"value": {"format": "json"}, "spark": {"conf": {"spark.pyspark.python": "/opt/python"}}}
ON_MASTER = "Spark connection spark_default"


def feed(name: str, **more: Any) -> Feed:
    """Return a feed with more settings than it needs."""
    sink = {"format": "parquet", "path": f"/data/{name}", "shared": True}
    return Feed.model_validate({"name": name, "kafka": {"topics": [name]}, "sink": sink, **more})


@pytest.mark.parametrize(
    ("host", "feeds", "workers"),
    [
        ("spark://spark:7077", [feed("orders")], False),
        ("spark://spark:7077", [feed("orders"), feed("refunds", **JSON)], True),
        ("local[*]", [feed("refunds", **JSON)], False),
    ],
)
def test_a_python_worker_is_started_on_other_machines_where_a_feed_needs_one(
    host: str, feeds: list[Feed], *, workers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[SparkSubmission] = []

    def start(submission: SparkSubmission, log: Path, environment: Any) -> None:  # noqa: ARG001
        started.append(submission)
        found = {"Spark": pyspark.__version__, "Java": "17", "Python": "3.11", **check_feed.SAME_EVERYWHERE}
        Path(submission.arguments[1]).write_text(json.dumps(found))
        log.touch()

    def find(conn_id: str) -> ConnectionFields:
        return fields_from_json(conn_id, json.dumps({"conn_type": "spark", "host": host}))

    monkeypatch.setattr(check_feed, "run_spark_submit", start)
    monkeypatch.setattr(check_installation, "questions", lambda *_: {})
    monkeypatch.setattr(check_installation, "java_version", lambda: "17")
    files = [FeedFile(Path(f"{each.name}.yaml"), feed=each) for each in feeds]

    checks = {check.about: check for check in check_installation.examine(files, find, {})}

    assert checks[ON_MASTER].error is None
    assert ("its Python workers start" in checks[ON_MASTER].found) == workers
    [submission] = started
    assert ("--workers" in submission.arguments) == workers
    assert ("spark.kafkaIngest.maxWaitForExecutors" in submission.conf) == workers
    assert ("spark.pyspark.python" in submission.conf) == (feeds[-1].name == "refunds")
