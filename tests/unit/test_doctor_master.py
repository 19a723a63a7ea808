"""What doctor says of a Spark master: what is wrong with it, and which secret travels to it unprotected."""

import json
from typing import Any

import pytest

from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.settings.connections import ConnectionFields, fields_from_json
from kafka_ingest.settings.feed import Feed
from kafka_ingest.verbs.check_installation import master

KAFKA = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka:9092", "sasl.password": "hunter2"}}
REMOTE = {"conn_type": "spark", "host": "spark://spark", "port": 7077}


def feed(**conf: str) -> Feed:
    return Feed.model_validate(
        {
            "name": "orders",
            "kafka": {"topics": ["orders"]},
            "sink": {"format": "parquet", "path": "/data/orders", "shared": True},
            "spark": {"conf": {key.replace("__", "."): value for key, value in conf.items()}},
        }
    )


def found(feed: Feed, *, kafka: dict[str, Any] | None = KAFKA, spark: dict[str, Any] = REMOTE) -> str:
    def find(conn_id: str) -> ConnectionFields:
        document = spark if conn_id == "spark_default" else kafka
        if document is None:
            raise MissingConnectionError(f"no {conn_id}")
        return fields_from_json(conn_id, json.dumps(document))

    return master(feed, find)


@pytest.fixture(autouse=True)
def _site_without_settings(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))


def test_a_missing_kafka_connection_is_not_the_masters_fault() -> None:
    assert found(feed(), kafka=None) == "spark://spark:7077"


def test_a_secret_that_travels_unprotected_is_named_with_the_settings_that_are_off() -> None:
    said = found(feed())
    assert "unprotected, since spark.authenticate and spark.network.crypto.enabled are off" in said
    assert "hunter2" not in said


def test_each_setting_counts_for_itself() -> None:
    assert "since spark.network.crypto.enabled is off" in found(feed(spark__authenticate="true"))
    assert found(feed(spark__authenticate="true", spark__network__crypto__enabled="true")) == "spark://spark:7077"


def test_what_the_sites_spark_is_set_to_counts(tmp_path: Any) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# spark.authenticate false\nspark.authenticate   true\nspark.network.crypto.enabled=true\n"
    )
    assert found(feed()) == "spark://spark:7077"


def test_nothing_travels_to_a_local_master_and_nothing_secret_without_a_secret() -> None:
    assert found(feed(), spark={"conn_type": "spark", "host": "local[*]"}) == "local[*]"
    assert found(feed(), kafka={"conn_type": "kafka", "extra": {"bootstrap.servers": "k:1"}}) == "spark://spark:7077"
