"""Feed files: what they may say, what is made of it, and every refusal with the file, the field, expected and found."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tests.outputs import parquet_at

from kafka_ingest.errors import InvalidBackfillError, InvalidFeedError, UnknownFeedError
from kafka_ingest.model.offsets import Isolation, OffsetsPolicy
from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.planning.settings import AtOffsets, Earliest, FeedPlanSettings, Latest
from kafka_ingest.settings.backfill_form import copy_output
from kafka_ingest.settings.feed import Feed, Spark
from kafka_ingest.settings.feed_file import FeedFile, feed_of, read_feed_file
from kafka_ingest.settings.feed_files import (
    check_not_taken,
    feed_file_named,
    feeds_directory,
    read_feed_files,
)
from kafka_ingest.settings.setting_types import describe, models_in

ROOT = Path(__file__).resolve().parents[2]
NO_ENVIRONMENT: dict[str, str] = {}

SMALLEST = """\
name: orders
kafka: {topics: [orders]}
sink: {format: parquet, path: /data/orders}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder of feed files."""
    return tmp_path


ONLY = " with letters, digits and any of ._=- in its names"
LAKE = "CONTAINER@ACCOUNT.dfs.core.windows.net"
IN_POSTGRESQL = {"format": "postgresql", "path": "/data/raw", "conn_id": "warehouse", "table": "shop.orders"}
CURRENT = IN_POSTGRESQL | {"mode": "current"}


def document(name: str = "orders", **changes: Any) -> dict[str, Any]:
    """Return the smallest feed of that name with some top-level keys added or replaced."""
    return {"name": name, "kafka": {"topics": [name]}, "sink": {"format": "parquet", "path": f"/data/{name}"}} | changes


def write(folder: Path, name: str = "orders", **changes: Any) -> Path:
    """Write a feed file that is named after its feed."""
    path = folder / f"{name}.yaml"
    path.write_text(yaml.dump(document(name, **changes), Dumper=yaml.CSafeDumper))
    return path


def a_feed(**changes: Any) -> Feed:
    """Return a feed as it is read."""
    return Feed.model_validate(document(**changes))


def text_error(folder: Path, text: str) -> str:
    """Return why a file with this text cannot be used."""
    path = folder / "orders.yaml"
    path.write_text(text)
    return error_of(read_feed_file(path))


def field_error(folder: Path, **changes: Any) -> str:
    """Return why a feed with these top-level keys cannot be used."""
    return error_of(read_feed_file(write(folder, **changes)))


def error_of(file: FeedFile) -> str:
    """Return a file's error, which names the file."""
    assert file.feed is None
    assert isinstance(file.error, InvalidFeedError)
    assert str(file.error).startswith(f"{file.path}: ")
    return str(file.error).removeprefix(f"{file.path}: ")


def names(files: list[FeedFile]) -> list[str]:
    """Return the names of the feeds that can be used."""
    return [file.feed.name for file in files if file.feed is not None]


# ── What a feed file may say ──────────────────────────────────────────────────────────────────────────────────────────


def test_only_name_topics_and_sink_have_no_default(folder: Path) -> None:
    path = folder / "orders.yaml"
    path.write_text(SMALLEST)
    feed = read_feed_file(path).feed
    assert feed is not None
    assert feed.model_dump() == {
        "name": "orders",
        "fleet": None,
        "start_when": None,
        "schedule": "@hourly",
        "kafka": {
            "conn_id": "kafka_default",
            "topics": ({"name": "orders", "start": None},),
            "topic_pattern": None,
            "group": None,
            "isolation": Isolation.READ_COMMITTED,
            "offsets": OffsetsPolicy.AUTO,
        },
        "start": "earliest",
        "on_data_loss": "fail",
        "on_missing_topic": "stop",
        "on_topic_changed": "stop",
        "key": {"format": "raw"},
        "value": {"format": "raw"},
        "columns": "nested",
        "where": None,
        "select": None,
        "transform": None,
        "on_new_fields": "add",
        "on_never_found": None,
        "control_retention": None,
        "limits": dict.fromkeys(
            (
                *("max_records", "max_records_per_partition", "min_records", "max_wait", "skip_to_latest_when_behind"),
                *("max_dead_letters", "max_dead_letter_percent", "max_filtered_percent", "max_record_bytes"),
            )
        ),
        "sink": {"format": "parquet", "path": "/data/orders", "shared": False, "staging_retention": timedelta(days=7)}
        | {"partition_by": {}},
        "spark": {"conn_id": "spark_default", "conf": {}, "max_wait_for_executors": timedelta(minutes=10)},
        "keep_other_columns": False,
        "alerts": None,
        "complete": None,
        "airflow": {
            "retries": 3,
            "execution_timeout": timedelta(hours=12),
            "pool": "default_pool",
            "owner": "kafka_ingest",
            "tags": (),
        },
    }


@pytest.mark.parametrize(("written", "retention"), [("365d", timedelta(days=365)), ("168h", timedelta(days=7))])
def test_control_retention_is_a_duration(folder: Path, written: str, retention: timedelta) -> None:
    path = folder / "orders.yaml"
    path.write_text(f"{SMALLEST}\ncontrol_retention: {written}\n")
    feed = read_feed_file(path).feed
    assert feed is not None
    assert feed.control_retention == retention


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("6d", "expected 7d or more, found 6d"),
        ("365", "expected a duration such as"),
        ("0d", "expected a duration such as"),
    ],
)
def test_control_retention_of_less_than_a_week_is_refused(folder: Path, written: str, expected: str) -> None:
    path = folder / "orders.yaml"
    path.write_text(f"{SMALLEST}\ncontrol_retention: {written}\n")
    assert expected in str(read_feed_file(path).error)


@pytest.mark.parametrize(
    ("limits", "limit", "follows_speed"),
    [
        ({}, None, True),
        ({"max_records_per_partition": 5}, None, True),
        ({"max_records": None}, None, False),
        ({"max_records": "unlimited"}, None, False),
        ({"max_records": 7}, 7, False),
    ],
)
def test_a_file_that_says_nothing_of_max_records_leaves_it_to_the_feeds_speed(
    folder: Path, limits: dict[str, Any], limit: int | None, *, follows_speed: bool
) -> None:
    write(folder, limits=limits)
    (file,) = read_feed_files(folder)
    assert file.feed is not None
    settings = file.feed.plan_settings({"KAFKA_INGEST_DATA": "/data"})
    assert (settings.max_records, settings.limit_follows_speed) == (limit, follows_speed)


def test_every_feed_file_that_is_shipped_is_valid() -> None:
    files = read_feed_files(ROOT / "dags" / "feeds")
    assert [file.error for file in files if file.error is not None] == []
    assert "orders" in names(files)


def test_the_shipped_feed_orders_is_the_one_that_the_demo_reads() -> None:
    feed = feed_of(feed_file_named("orders", ROOT / "dags" / "feeds"))
    assert (feed.kafka.group, feed.limits.max_records, feed.sink.path) == ("orders-ingest", 5_000_000, "orders")


def test_numbers_may_be_grouped_by_underscores(folder: Path) -> None:
    path = folder / "orders.yaml"
    path.write_text(SMALLEST + "limits: {max_records: 5_000_000}\n")
    feed = read_feed_file(path).feed
    assert feed is not None
    assert feed.limits.max_records == 5_000_000


def test_a_feed_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        a_feed().name = "refunds"


@pytest.mark.parametrize(
    ("start", "rule"),
    [
        ("earliest", Earliest()),
        ("latest", Latest()),
        ({"offsets": {"orders": {0: 1200}}, "otherwise": "latest"}, AtOffsets({0: 1200}, Latest())),
        ({"offsets": {}, "otherwise": "latest"}, Latest()),
    ],
)
def test_the_feeds_start_is_the_rule_of_its_topics(start: object, rule: object) -> None:
    assert a_feed(start=start).start_rules() == {"orders": rule}


def test_a_topics_own_start_comes_before_the_feeds() -> None:
    feed = a_feed(kafka={"topics": ["orders", {"name": "refunds", "start": "latest"}]})
    assert feed.start_rules() == {"orders": Earliest(), "refunds": Latest()}


def test_topics_that_explicit_offsets_do_not_name_begin_by_the_other_rule() -> None:
    feed = a_feed(kafka={"topics": ["orders", "refunds"]}, start={"offsets": {"orders": {3: 7}}, "otherwise": "latest"})
    assert feed.start_rules() == {"orders": AtOffsets({3: 7}, Latest()), "refunds": Latest()}


def test_the_planner_sees_the_feeds_settings() -> None:
    feed = a_feed(
        kafka={"topics": ["orders"], "isolation": "read_uncommitted", "offsets": "dense"},
        limits={"max_records": 10, "max_records_per_partition": 5},
    )
    assert feed.plan_settings(NO_ENVIRONMENT) == FeedPlanSettings(
        name="orders",
        start_rules={"orders": Earliest()},
        isolation=Isolation.READ_UNCOMMITTED,
        offsets_policy=OffsetsPolicy.DENSE,
        output=parquet_at(Path("/data/orders")),
        max_records=10,
        max_records_per_partition=5,
    )


def test_spark_settings_become_texts_as_spark_writes_them() -> None:
    conf = {"spark.executor.instances": 2, "spark.dynamicAllocation.enabled": True, "spark.memory.fraction": 0.5}
    assert a_feed(spark={"conf": conf}).spark.conf == {
        "spark.executor.instances": "2",
        "spark.dynamicAllocation.enabled": "true",
        "spark.memory.fraction": "0.5",
    }


# ── Where the output goes ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_absolute_output_needs_no_environment() -> None:
    assert a_feed().output(NO_ENVIRONMENT).path == Path("/data/orders")


def test_a_relative_output_lies_under_the_data_folder() -> None:
    feed = a_feed(sink={"format": "parquet", "path": "lake/orders"})
    assert feed.output({"KAFKA_INGEST_DATA": "/mnt/data"}).path == Path("/mnt/data/lake/orders")


@pytest.mark.parametrize("environment", [{}, {"KAFKA_INGEST_DATA": ""}, {"KAFKA_INGEST_DATA": "data"}])
def test_a_relative_output_without_an_absolute_data_folder_is_refused(environment: dict[str, str]) -> None:
    feed = a_feed(sink={"format": "parquet", "path": "lake"})
    message = (
        rf"feed orders: sink.path 'lake' is relative.*found KAFKA_INGEST_DATA={environment.get('KAFKA_INGEST_DATA')!r}"
    )
    with pytest.raises(InvalidFeedError, match=message):
        feed.output(environment)


# ── One field is wrong ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # unknown keys, typos
        ({"nmae": "orders"}, "nmae: unknown key; did you mean name?"),
        ({"kafka": {"topics": ["orders"], "topic": "orders"}}, "kafka.topic: unknown key; did you mean topics?"),
        ({"limits": {"max_record": 5}}, "limits.max_record: unknown key; did you mean max_records?"),
        (
            {"kafka": {"topics": [{"name": "orders", "strat": "latest"}]}},
            "kafka.topics.0.strat: unknown key; did you mean start?",
        ),
        # missing
        ({"kafka": {}}, "kafka: expected either topics or topic_pattern, found neither"),
        ({"sink": {"format": "parquet"}}, "sink.path: missing"),
        ({"kafka": {"topics": [{"start": "latest"}]}}, "kafka.topics.0.name: missing"),
        # wrong type
        ({"kafka": "orders"}, "kafka: expected a mapping, found 'orders'"),
        ({"kafka": {"topics": "orders"}}, "kafka.topics: expected a list of topics, found 'orders'"),
        ({"limits": {"max_records": "many"}}, "limits.max_records: expected a whole number, found 'many'"),
        ({"limits": {"max_records": 1.5}}, "limits.max_records: expected a whole number, found '1.5'"),
        ({"limits": {"max_records": True}}, "limits.max_records: expected a whole number, found true"),
        ({"airflow": {"retries": "3"}}, "airflow.retries: expected a whole number, found '3'"),
        ({"airflow": {"tags": "orders"}}, "airflow.tags: expected a list, found 'orders'"),
        ({"schedule": 5}, "schedule: expected text, found 5, as YAML reads it without quotes; write it in quotes"),
        # wrong value
        ({"limits": {"max_records": 0}}, "limits.max_records: expected a number from 1 on, found 0"),
        (
            {"limits": {"max_records_per_partition": 0}},
            "limits.max_records_per_partition: expected a number from 1 on, found 0",
        ),
        ({"airflow": {"retries": -1}}, "airflow.retries: expected a number from 0 on, found -1"),
        (
            {"kafka": {"topics": []}},
            "kafka.topics: expected at least 1 entry, found []",
        ),
        (
            {"kafka": {"topics": ["orders"], "isolation": "serializable"}},
            "kafka.isolation: expected 'read_committed' or 'read_uncommitted', found 'serializable'",
        ),
        ({"on_data_loss": "ignore"}, "on_data_loss: expected 'fail', 'record_gap' or 'hold', found 'ignore'"),
        ({"sink": {"path": "/data/x"}}, "sink.format: missing"),
        ({"sink": "orders"}, "sink: expected a mapping, found 'orders'"),
        ({"sink": {"format": "delta", "path": "/data/x", "retention": "3d"}}, "sink.retention: unknown key"),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "table_properties": {}}},
            "sink.table_properties: unknown key, which another format has",
        ),
        (
            {"sink": {"format": "delta", "path": "hdfs://lake/o"}},
            "sink.path: expected a local or mounted path, found 'hdfs://lake/o': Delta tables are written on disks",
        ),
        *(
            (
                {"sink": {"format": "delta", "path": f"abfss://{path}"}},
                f"sink.path: expected abfss://{LAKE}/NAME or abfss://CONNECTION@{LAKE}/NAME{ONLY}, found 'abfss://",
            )
            for path in (
                "lake/orders",
                "azure_lake@lake/orders",
                "lake@shop.blob.core.windows.net/orders",
                "lake@shop.dfs.core.chinacloudapi.cn/orders",
                "lake@shop.dfs.core.windows.net",
                "lake@shop.dfs.core.windows.net:8080/orders",
                "key:secret@lake@shop.dfs.core.windows.net/orders",
            )
        ),
        *(
            (
                {"sink": {"format": "delta", "path": path}},
                f"sink.path: expected s3://BUCKET/NAME or s3://CONNECTION@BUCKET/NAME{ONLY}, found {path!r}",
            )
            for path in (
                "s3://lake",
                "s3://lake/",
                "s3://lake//orders",
                "s3://lake/../orders",
                "s3://lake/orders/",
                "s3://lake/my orders",
                "s3://lake/orders*",
                "S3://lake/orders",
                "s3://key:secret@lake/orders",
            )
        ),
        (
            {"sink": {"format": "csv", "path": "/data/x"}},
            "sink.format: expected 'parquet', 'delta', 'iceberg', 'postgresql' or 'kafka', found 'csv'",
        ),
        (
            {"sink": {"format": "iceberg", "path": "/data/x", "catalog": "lake", "table": "orders"}},
            "sink.table: expected a namespace and a table of letters, digits, '_', '-', such as lake.orders",
        ),
        ({"sink": {"format": "iceberg", "path": "/data/x", "table": "lake.orders"}}, "sink.catalog: missing"),
        (
            {"sink": {"format": "postgresql", "path": "/data/x", "conn_id": "warehouse", "table": "orders"}},
            "sink.table: expected a schema and a table of letters, digits and '_', the table's name of up to 49",
        ),
        ({"sink": {"format": "postgresql", "path": "/data/x", "table": "shop.orders"}}, "sink.conn_id: missing"),
        (
            {"sink": IN_POSTGRESQL | {"null_keys": "stop"}},
            "expected null_keys with mode: current only, found mode: app",
        ),
        (
            {"sink": IN_POSTGRESQL | {"partition_by": ["kafka_topic"]}},
            "expected [day(kafka_timestamp)] or [hour(kafka_timestamp)], of which PostgreSQL makes range partitions, f",
        ),
        (
            {"sink": CURRENT | {"partition_by": ["day(kafka_timestamp)"]}},
            "expected partition_by with mode: append only",
        ),
        ({"sink": CURRENT | {"on_refused": "dead_letter"}}, "expected on_refused: stop with mode: current, found dead"),
        ({"sink": CURRENT | {"on_new_columns": "ignore"}}, "expected on_new_columns stop or add with mode: current"),
        (
            {"sink": CURRENT, "value": {"format": "json", "schema": "id int"}, "columns": "flatten"},
            "expected records with their key and value, of which sink.mode: current makes rows, found columns: flatten",
        ),
        ({"start_when": {}}, "start_when: expected records, or_older_than, or both, found neither"),
        ({"start_when": {"records": 0}}, "start_when.records"),
        ({"start_when": {"or_older_than": "5s"}}, "start_when.or_older_than: expected 10s or more, found 5s"),
        (
            {"start_when": {"records": 1}, "schedule": "@continuous"},
            "expected start_when beside a cron expression or null, found schedule '@continuous'",
        ),
        (
            {"start_when": {"records": 9}, "limits": {"min_records": 5, "max_wait": "1d"}},
            "expected start_when without limits.min_records, found both",
        ),
        (
            {"sink": CURRENT, "select": [{"name": "key", "type": "binary", "sql": "key"}]},
            "sink.mode: current makes rows, found a select of key; use keep_other_columns: true with select",
        ),
        (
            {"sink": {"format": "kafka", "path": "/data/x", "conn_id": "other", "topic": "no topic"}},
            "sink.topic: expected a topic of up to 230 letters, digits, '.', '_' and '-', found 'no topic'",
        ),
        (
            {"sink": {"format": "kafka", "path": "/data/x", "conn_id": "o", "topic": "t"}, "value": {"format": "json"}},
            "expected raw records for sink.format: kafka, found that they are decoded or filtered",
        ),
        (
            {"sink": {"format": "kafka", "path": "/data/x", "conn_id": "o", "topic": "t"}}
            | {"select": [{"name": "a", "type": "int", "sql": "1"}]},
            "expected raw records for sink.format: kafka, found that they are decoded or filtered",
        ),
        (
            {"sink": {"format": "delta", "path": "/data/x", "on_new_columns": "rename"}},
            "sink.on_new_columns: expected 'add', 'ignore' or 'stop', found 'rename'",
        ),
        (
            {"sink": {"format": "delta", "path": "/data/x", "partition_by": ["value"]}},
            "sink.partition_by: expected kafka_topic, kafka_partition, kafka_topic_id, kafka_batch, day(kafka",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": ["kafka_topic"]}},
            "sink.partition_by: expected a mapping, found ['kafka_topic']",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"dt": "month(kafka_timestamp)"}}},
            "with a column, day(COLUMN) or hour(COLUMN), such as dt: day(kafka_timestamp), found 'dt: month(kafka_t",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"../dt": "kafka_topic"}}},
            "sink.partition_by: expected a name of up to 60 of a-z",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"kafka_topic": "kafka_topic"}}},
            "expected names of folders that no column has, as Kafka's have kafka_, found kafka_topic",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"Value": "kafka_topic"}}},
            "expected names of folders that no column has, as Kafka's have kafka_, found Value",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"by": "kafka_batch"}}},
            "sink.partition_by: expected another column than kafka_batch: each batch has a folder of its own already",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"dt": "kafka_topic", "DT": "country"}}},
            "sink.partition_by: expected each column once, found DT: country, dt: kafka_topic",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "partition_by": {"land": "country"}}},
            "expected sink.partition_by to name Kafka's columns, kafka_topic, kafka_partition, ",
        ),
        (
            {"sink": {"format": "delta", "path": "/data/x", "partition_by": ["dt: day(kafka_timestamp)"]}},
            "sink.partition_by: expected kafka_topic, kafka_partition, kafka_topic_id, kafka_batch, day(kafka",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "on_new_columns": "add"}},
            "sink.on_new_columns: unknown key",
        ),
        (
            {"sink": {"format": "parquet", "path": "/data/x", "table": "lake.orders"}},
            "sink.table: unknown key",
        ),
        (
            {"kafka": {"topics": ["orders", "orders"]}},
            "kafka.topics: expected each topic once, found orders more than once",
        ),
        # starts
        ({"start": "newest"}, "start: expected 'earliest' or 'latest', found 'newest'"),
        (
            {"start": {"offsets": {"refunds": {0: 5}}, "otherwise": "latest"}},
            "start.offsets names refunds, expected only topics of this feed, without a start of their own: orders",
        ),
        (
            {"kafka": {"topics": [{"name": "a", "start": {"offsets": {"b": {0: 5}}, "otherwise": "latest"}}, "b"]}},
            "start.offsets names b, expected only topics of this feed, without a start of their own: a",
        ),
        ({"start": {"offsets": {"orders": {0: -1}}, "otherwise": "latest"}}, "expected a number from 0 on, found -1"),
        ({"start": {"offsets": {"orders": {-1: 5}}, "otherwise": "latest"}}, "expected a number from 0 on, found -1"),
        ({"start": {"offsets": {"orders": {0: "5"}}, "otherwise": "latest"}}, "expected a whole number, found '5'"),
        ({"start": {"offsets": {"orders": {0: 5}}}}, "start.otherwise: missing"),
        # outputs
        (
            {"sink": {"format": "parquet", "path": "s3://lake/orders"}},
            "sink.path: expected a local or mounted path, found 's3",
        ),
        (
            {"sink": {"format": "parquet", "path": "../orders"}},
            "sink.path: expected a path without '..', found '../orders'",
        ),
        ({"sink": {"format": "parquet", "path": ""}}, "sink.path: expected a path without '..', found ''"),
        # Spark
        (
            {"spark": {"conf": {"driver.memory": "2g"}}},
            "spark.conf: expected Spark settings, which start with 'spark.', found",
        ),
        (
            {"spark": {"conf": {"spark.driver.memory": None}}},
            "spark.conf.spark.driver.memory: expected text",
        ),
        ({"spark": {"conf": ["spark.driver.memory"]}}, "spark.conf: expected a mapping, found ["),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected_and_found(
    folder: Path, changes: dict[str, Any], message: str
) -> None:
    assert message in field_error(folder, **changes)


def test_a_wrong_entry_of_a_list_is_named_once(folder: Path) -> None:
    assert field_error(folder, kafka={"topics": ["or ders"]}) == (
        "kafka.topics.0.name: expected a topic name (letters, digits, '.', '_', '-', at most 249), found 'or ders'"
    )


def test_everything_that_is_wrong_is_named_at_once(folder: Path) -> None:
    message = field_error(folder, nmae="x", limits={"max_records": 0}, sink={"format": "parquet"})
    assert all(part in message for part in ("nmae: unknown key", "limits.max_records: ", "sink.path: missing"))


@pytest.mark.parametrize("name", ["", "-orders", "or ders", "orders/eu", "ördrs", "a" * 201, "../orders"])
def test_a_name_that_cannot_be_a_dag_id_and_a_folder_is_refused(folder: Path, name: str) -> None:
    path = write(folder, kafka={"topics": ["orders"]})
    path.write_text(yaml.safe_dump(document() | {"name": name}))
    assert (
        f"name: expected up to 200 letters, digits, '_', '.' and '-', beginning with a letter or digit, found {name!r}"
        in (error_of(read_feed_file(path)))
    )


def test_a_name_that_would_be_taken_for_a_broken_files_dag_is_refused(folder: Path) -> None:
    assert "name: expected a name that does not begin with 'feed_error__'" in (
        error_of(read_feed_file(write(folder, "feed_error__orders.yaml")))
    )


@pytest.mark.parametrize("name", ["", ".", "..", "or ders", "orders*", "ördrs", "a" * 250])
def test_a_topic_name_that_kafka_would_not_have_is_refused(folder: Path, name: str) -> None:
    message = field_error(folder, kafka={"topics": [name]})
    assert (
        f"kafka.topics.0.name: expected a topic name (letters, digits, '.', '_', '-', at most 249), found {name!r}"
        in message
    )


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.ansi.enabled",
        "spark.sql.session.timeZone",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.legacy.whatever.comes",
        "spark.sql.files.ignoreCorruptFiles",
        "spark.sql.nobody.has.decided.this",
    ],
)
def test_a_spark_setting_that_changes_what_values_mean_is_refused(folder: Path, key: str) -> None:
    message = field_error(folder, spark={"conf": {key: "true"}})
    assert f"spark.conf: {key!r} changes what values, types or names mean" in message


@pytest.mark.parametrize("option", ["-Duser.timezone=Asia/Tokyo", "-Duser.language=tr", "-Dfile.encoding=ISO-8859-1"])
@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_an_option_of_java_that_changes_what_values_mean_is_refused(folder: Path, key: str, option: str) -> None:
    message = field_error(folder, spark={"conf": {key: f"-Xss2m {option} -Xint"}})
    assert f"spark.conf: {option!r} changes what values mean" in message


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.shuffle.partitions", "64"),
        ("spark.sql.adaptive.enabled", "false"),
        ("spark.sql.files.maxPartitionBytes", "64m"),
        ("spark.sql.extensions", "shop.Functions"),
        ("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog"),
        ("spark.driver.extraJavaOptions", "-Xss2m -Duser.home=/home/etl"),
    ],
)
def test_a_spark_setting_that_changes_no_value_is_taken_and_frozen_with_each_attempt(key: str, value: str) -> None:
    assert a_feed(spark={"conf": {key: value}}).decoding().settings.feed == {key: value}


@pytest.mark.parametrize(
    "key",
    [
        "spark.kafka.sasl.jaas.config",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.ssl.keyPassword",
        "spark.hadoop.AUTH_TOKEN",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.azure.credentials",
        "spark.hadoop.fs.azure.account.key.shop.dfs.core.windows.net",
    ],
)
def test_a_secret_among_the_spark_settings_is_refused_and_not_repeated(folder: Path, key: str) -> None:
    message = field_error(folder, spark={"conf": {key: "hunter2"}})
    assert f"spark.conf: {key!r} looks like a secret" in message
    assert "hunter2" not in message


def test_a_secret_that_is_not_even_a_text_is_not_repeated_either(folder: Path) -> None:
    assert "hunter2" not in field_error(folder, spark={"conf": {"spark.ssl.keyPassword": ["hunter2"]}})


@pytest.mark.parametrize("schedule", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_schedule_that_no_date_fits_is_refused_since_the_feed_would_never_run(folder: Path, schedule: str) -> None:
    message = field_error(folder, schedule=schedule)
    assert (
        f"schedule: expected a cron expression that some date fits (for runs by hand: null), found {schedule!r}"
        in message
    )


@pytest.mark.parametrize("schedule", ["0 0 29 2 *", "0 0 29 2 MON"])
def test_a_schedule_of_leap_days_is_taken(folder: Path, schedule: str) -> None:
    assert read_feed_file(write(folder, schedule=schedule)).error is None


@pytest.mark.parametrize("schedule", ["every hour", "61 * * * *", "", "@often"])
def test_a_schedule_that_airflow_would_not_take_is_refused(folder: Path, schedule: str) -> None:
    # Airflow's own error names neither the file nor the field, and leaves the feed without any DAG.
    assert "schedule: expected" in field_error(folder, schedule=schedule)


@pytest.mark.parametrize(
    "schedule", ["@hourly", "@daily", "@continuous", "@once", "*/5 * * * *", "0 6 * * MON-FRI", None]
)
def test_a_schedule_that_airflow_takes_is_taken(folder: Path, schedule: str | None) -> None:
    assert read_feed_file(write(folder, schedule=schedule)).error is None


def test_a_tag_that_airflow_would_not_take_is_refused(folder: Path) -> None:
    # Airflow raises while the DAG is made, and takes the DAGs of all feeds down.
    assert "airflow.tags" in field_error(folder, airflow={"tags": ["x" * 101]})


def test_an_empty_consumer_group_is_refused(folder: Path) -> None:
    assert "kafka.group: expected" in field_error(folder, kafka={"topics": ["orders"], "group": ""})


def test_the_root_of_the_file_system_is_no_output(folder: Path) -> None:
    assert "sink.path: expected" in field_error(folder, sink={"format": "parquet", "path": "/"})


# ── The file is wrong ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a mapping with name, kafka and sink, found an empty file"),
        ("# nothing yet\n", "found an empty file"),
        ("- name: orders\n", "found list"),
        ("orders\n", "found str"),
        ("name: [orders\n", "cannot be read as YAML"),
        ("name: orders\n\tkafka: x\n", "cannot be read as YAML"),
        ("name: orders\x00\n", "cannot be read as YAML"),
        ("name: !!python/object/apply:os.getcwd []\n", "cannot be read as YAML"),
        ("name: !!timestamp abc\n", "cannot be read as YAML"),
        (SMALLEST + "name: refunds\n", "key 'name' comes twice"),
        (SMALLEST + "limits: {max_records: 5, max_records: 6}\n", "key 'max_records' comes twice"),
        ("{[a]: b}\n", "cannot be read as YAML"),
        (SMALLEST + "start: {timestamp: 2026-13-45}\n", "start.timestamp: expected a time with a zone"),
        (SMALLEST + "---\n" + SMALLEST, "expected one document"),
        (SMALLEST.replace("/data/orders", "{{ var.value.root }}"), "cannot be read as YAML"),
    ],
)
def test_a_file_that_is_not_a_feed_is_refused_with_the_reason(folder: Path, text: str, message: str) -> None:
    assert message in text_error(folder, text)


def test_a_repeated_key_is_found_with_its_line(folder: Path) -> None:
    assert "line 4" in text_error(folder, SMALLEST + "name: refunds\n")


def test_a_file_that_is_not_utf_8_is_refused(folder: Path) -> None:
    path = folder / "orders.yaml"
    path.write_bytes(b"name: \xff\xfe\n")
    assert "cannot be read as YAML" in error_of(read_feed_file(path))


def test_a_named_pipe_is_refused_instead_of_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "orders.yaml")
    assert "expected a file, found something else" in error_of(read_feed_file(folder / "orders.yaml"))


@pytest.mark.parametrize("path", ["s3://bucket/orders", "s3a:/bucket/orders", "/data/or\nders"])
def test_a_path_that_no_file_system_here_has_is_refused(folder: Path, path: str) -> None:
    assert "sink.path: expected" in field_error(folder, sink={"format": "parquet", "path": path})


@pytest.mark.parametrize("character", ["\0", "\x1b", "\x85", "\ud800"])
def test_a_character_that_cannot_be_stored_is_refused_wherever_it_is(folder: Path, character: str) -> None:
    written = f'{{topics: [orders], group: "\\u{ord(character):04x}"}}'
    message = text_error(folder, SMALLEST.replace("{topics: [orders]}", written))
    assert f"line 2: expected text that can be stored, found the character U+{ord(character):04X}" in message


def test_a_file_that_cannot_be_opened_is_refused_with_the_reason(folder: Path) -> None:
    (folder / "orders.yaml").symlink_to(folder / "absent")
    assert "No such file or directory" in error_of(read_feed_file(folder / "orders.yaml"))


def test_a_device_is_refused_before_it_is_read(folder: Path) -> None:
    (folder / "orders.yaml").symlink_to("/dev/zero")
    assert "expected a file, found something else" in error_of(read_feed_file(folder / "orders.yaml"))


def test_a_file_that_is_too_large_is_refused_before_all_of_it_is_read(folder: Path) -> None:
    with (folder / "orders.yaml").open("wb") as file:
        file.truncate(10**12)
    assert "expected at most 1,048,576 bytes, found more" in error_of(read_feed_file(folder / "orders.yaml"))


def test_a_file_that_is_removed_between_listing_and_reading_is_not_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "orders")
    write(folder, "refunds")

    def removed_first(path: Path) -> FeedFile:
        (folder / "orders.yaml").unlink(missing_ok=True)
        return read_feed_file(path)

    monkeypatch.setattr("kafka_ingest.settings.feed_files.read_feed_file", removed_first)
    assert [(file.path.name, file.error) for file in read_feed_files(folder)] == [("refunds.yaml", None)]


def test_an_unforeseen_error_is_that_files_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, "orders", schedule="@daily")
    write(folder, "refunds", schedule="1 2 3 4 5")

    def out_of_memory(_: str) -> bool:
        raise MemoryError

    monkeypatch.setattr("kafka_ingest.settings.feed.croniter.is_valid", out_of_memory)
    files = read_feed_files(folder)
    assert names(files) == ["orders"]
    assert "cannot be used: MemoryError" in error_of(files[1])


def test_a_file_name_that_is_no_text_is_shown_with_escapes(folder: Path) -> None:
    # A lone surrogate can neither be printed nor stored; DAGs are.
    path = Path(os.fsdecode(os.fsencode(folder) + b"/\xe9.yaml"))
    path.write_text("name: [")
    [file] = read_feed_files(folder)
    assert f"{folder}/\\xe9.yaml: cannot be read" in str(file.error)


# ── Patterns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "a{1,99999999999}",
            "expected a regular expression, found 'a{1,99999999999}': the repetition number is too large",
        ),
        ("(" * 3_000 + ")" * 3_000, "expected a regular expression"),
        ("orders(", "expected a regular expression, found 'orders('"),
        ("a" * 10_001, "expected a pattern of at most 10,000 characters, found 10,001"),
        (r"[\x00-\U0010ffff]", "without characters by their number"),
        (r"a\\\u0041", "without characters by their number"),
        ("[ä-ü]", "expected a regular expression of printable ASCII"),
        (" ", "expected a regular expression"),
    ],
)
def test_a_pattern_that_python_cannot_compile_in_no_time_is_refused(folder: Path, pattern: str, message: str) -> None:
    assert message in field_error(folder, kafka={"topic_pattern": pattern})


@pytest.mark.parametrize("pattern", [r"orders\.(eu|us)\..*", r"(?i)(?!test-)\w+\\u", r"[\w.-]+", "(a+)+$"])
def test_other_patterns_are_taken(folder: Path, pattern: str) -> None:
    assert read_feed_file(write(folder, kafka={"topic_pattern": pattern})).error is None


def test_no_pattern_is_matched_while_files_are_read_since_it_may_backtrack_forever(folder: Path) -> None:
    start = {"offsets": {"a" * 200 + "!": {0: 5}}, "otherwise": "latest"}
    assert read_feed_file(write(folder, kafka={"topic_pattern": "(a+)+b"}, start=start)).error is None


def test_explicit_offsets_of_a_topic_that_the_pattern_does_not_match_are_refused_when_the_feed_is_planned() -> None:
    feed = a_feed(
        kafka={"topic_pattern": "orders.*"},
        start={"offsets": {"orders-eu": {0: 5}, "refunds": {0: 5}}, "otherwise": "latest"},
    )
    with pytest.raises(
        InvalidFeedError, match=r"feed orders: start.offsets names refunds, expected only topics that kaf"
    ):
        feed.plan_settings(NO_ENVIRONMENT)


# ── Words ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"kafka": {"topics": ["orders"], "gruop": "g"}}, "kafka.gruop: unknown key; did you mean group?"),
        ({"group": "g"}, "group: unknown key; did you mean kafka.group or start.group?"),
        ({"max_record": 5}, "max_record: unknown key; did you mean limits.max_records?"),
        ({"start": {"offsets": {}, "otherwis": "latest"}}, "start.otherwis: unknown key; did you mean otherwise?"),
        ({"whatever": 1}, "whatever: unknown key"),
    ],
)
def test_an_unknown_key_says_what_may_have_been_meant(folder: Path, changes: dict[str, Any], hint: str) -> None:
    assert hint in field_error(folder, **changes)


def test_a_topic_called_no_is_explained(folder: Path) -> None:
    assert text_error(folder, SMALLEST.replace("[orders]", "[no]")) == (
        "kafka.topics.0.name: expected text, found false, as YAML reads it without quotes; write it in quotes"
    )


WRONG = [None, True, 5, -5, 10**30, 1.5, "", "x", "x" * 300, [], [[]], [None], {}, {"x": 1}, {5: 5}]


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_every_refusal_is_in_this_projects_words(value: object) -> None:
    fields = [[name] for name in Feed.model_fields]
    for part in ("kafka", "limits", "sink", "spark", "airflow"):
        fields += [
            [part, name] for inner in models_in(Feed.model_fields[part].annotation) for name in inner.model_fields
        ]
    for where in fields:
        whole: dict[str, Any] = document()
        inner = whole if len(where) == 1 else whole.setdefault(where[0], {})
        inner[where[-1]] = value
        try:
            Feed.model_validate(whole)
        except ValidationError as error:
            for text in describe(error, Feed):
                assert re.search("expected|unknown key|missing", text), text
                assert not re.search("should|valid |instance|tuple|parse", text), text


def test_many_problems_are_a_short_message(folder: Path) -> None:
    message = field_error(folder, kafka={"topics": ["/"] * 20_000})
    assert message.count("expected a topic name") == 20
    assert message.endswith("; and 19,980 more")


def test_a_long_value_is_a_short_message(folder: Path) -> None:
    assert len(field_error(folder, schedule="x" * 500_000)) < 5_000


def test_a_folder_with_the_name_of_a_feed_file_is_refused(folder: Path) -> None:
    (folder / "orders.yaml").mkdir()
    assert "cannot be read" in error_of(read_feed_file(folder / "orders.yaml"))


# ── Many files ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_feed_files_are_read_in_the_order_of_their_names(folder: Path) -> None:
    write(folder, "b")
    write(folder, "a")
    write(folder, "c").rename(folder / "c.yml")
    (folder / "README.md").write_text("no feed")
    assert names(read_feed_files(folder)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "text", ["", "name: [", "{{ jinja }}: x", "name: {{ jinja }}", "name: orders", "a: &a [*a]", "? {a: b}\n: c\n"]
)
def test_one_broken_file_never_affects_the_others(folder: Path, text: str) -> None:
    write(folder, "orders")
    write(folder, "refunds")
    (folder / "broken.yaml").write_text(text)
    files = read_feed_files(folder)
    assert names(files) == ["orders", "refunds"]
    assert [file.path.name for file in files if file.error is not None] == ["broken.yaml"]


def test_a_folder_that_is_not_there_is_refused_with_the_variable_to_set(folder: Path) -> None:
    with pytest.raises(InvalidFeedError, match=r"found none at .*/absent. Set KAFKA_INGEST_FEEDS"):
        read_feed_files(folder / "absent")


def test_an_empty_folder_has_no_feeds(folder: Path) -> None:
    assert read_feed_files(folder) == []


def test_the_folder_of_feed_files_is_named_or_in_airflows_folder_of_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = {"AIRFLOW_HOME": str(tmp_path)}
    assert feeds_directory({**home, "KAFKA_INGEST_FEEDS": "/etc/feeds"}) == Path("/etc/feeds")
    assert feeds_directory({**home, "AIRFLOW__CORE__DAGS_FOLDER": "/srv/dags"}) == Path("/srv/dags/feeds")
    monkeypatch.chdir(tmp_path)
    assert feeds_directory(home) == tmp_path / "dags" / "feeds"
    (tmp_path / "airflow.cfg").write_text("[core]\ndags_folder = /opt/team/dags\nx = 100%\n")
    assert feeds_directory(home) == Path("/opt/team/dags/feeds")
    (tmp_path / "airflow.cfg").write_text("dags_folder")
    assert feeds_directory(home) == tmp_path / "dags" / "feeds"
    monkeypatch.chdir(ROOT)
    assert feeds_directory(home) == ROOT / "dags" / "feeds"


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ({}, {"name": "orders"}, "name 'orders'"),
        ({}, {"sink": {"format": "parquet", "path": "/data/orders"}}, "sink.path '/data/orders'"),
        ({}, {"sink": {"format": "parquet", "path": "/data/./orders/"}}, "sink.path '/data/orders'"),
        ({}, {"sink": {"format": "parquet", "path": "//data/orders"}}, "sink.path '/data/orders'"),
        (
            {"kafka": {"topics": ["orders"], "group": "g"}},
            {"kafka": {"topics": ["refunds"], "group": "g"}},
            "kafka.group 'g'",
        ),
    ],
)
def test_two_feeds_that_share_a_name_an_output_or_a_group_are_both_in_error_and_no_other(
    folder: Path, first: dict[str, Any], second: dict[str, Any], what: str
) -> None:
    write(folder, "orders", **first)
    (folder / "second.yaml").write_text(yaml.safe_dump(document("refunds") | second))
    write(folder, "unharmed")
    files = read_feed_files(folder)
    assert names(files) == ["unharmed"]
    assert [error_of(file).partition(". ")[0] for file in files if file.error is not None] == [
        f"{what} is also that of {other}" for other in (folder / "second.yaml", folder / "orders.yaml")
    ]


@pytest.mark.parametrize("path", ["/data/orders_dead_letters", "/data/orders_dead_letters/refunds"])
def test_where_one_feeds_dead_letters_go_no_other_may_write(folder: Path, path: str) -> None:
    write(folder, "orders", value="json")
    write(folder, "refunds", sink={"format": "parquet", "path": path})
    first, second = read_feed_files(folder)
    assert error_of(first).partition(". ")[0] == error_of(second).partition(". ")[0]
    assert f"the dead letters of orders go to '/data/orders_dead_letters', and sink.path {path!r}" in error_of(first)
    write(folder, "orders")
    assert names(read_feed_files(folder)) == ["orders", "refunds"]


def test_the_tables_beside_one_feeds_table_in_postgresql_are_no_other_feeds(folder: Path) -> None:
    def sink(table: str, **other: object) -> dict[str, Any]:
        return {"format": "postgresql", "path": f"/data/{table}", "conn_id": "warehouse", "table": table, **other}

    for added, there_are in (
        ("dead_letters", {"on_refused": "dead_letter"}),
        ("default", {"partition_by": ["day(kafka_timestamp)"]}),
        ("kafka_batches", None),
    ):
        write(folder, "refunds", sink=sink(f"shop.orders_{added}"))
        write(folder, "orders", sink=sink("shop.orders", **(there_are or {})))
        first, second = read_feed_files(folder)
        assert f"its table 'shop.orders_{added}' is also that of {folder / 'refunds.yaml'}" in error_of(first)
        assert f"sink.table 'shop.orders_{added}' is also that of {folder / 'orders.yaml'}" in error_of(second)
        write(folder, "orders", sink=sink("shop.orders"))
        assert names(read_feed_files(folder)) == (["orders", "refunds"] if there_are is not None else [])


def test_the_table_of_one_feeds_late_rows_is_no_other_feeds(folder: Path) -> None:
    place = {"format": "postgresql", "conn_id": "warehouse", "path": "/data/orders"}
    write(folder, "orders", sink=place | {"table": "shop.orders"}, complete={"by": "hour", "on_late": "dataset"})
    write(folder, "refunds", sink=place | {"path": "/data/orders_late", "table": "shop.orders_late"})
    first, _ = read_feed_files(folder)
    assert f"its table 'shop.orders_late' is also that of {folder / 'refunds.yaml'}" in error_of(first)
    write(folder, "refunds", sink=place | {"path": "/data/orders_late", "table": "shop.refunds"})
    assert names(read_feed_files(folder)) == ["orders", "refunds"]


def test_where_one_feeds_late_rows_go_no_other_may_write(folder: Path) -> None:
    write(folder, "orders", complete={"by": "hour", "on_late": "dataset"})
    write(folder, "refunds", sink={"format": "parquet", "path": "/data/orders_late"})
    said = "the late rows of orders go to '/data/orders_late', and sink.path '/data/orders_late'"
    assert all(said in error_of(file) for file in read_feed_files(folder))
    write(folder, "orders", complete={"by": "hour"})
    assert names(read_feed_files(folder)) == ["orders", "refunds"]


def contested(folder: Path) -> list[tuple[str, str, list[str]]]:
    """Return the file, the name and the rivals' names of each feed that may run if the control tables know it."""
    return [
        (file.path.name, file.contested.name, [rival.name for rival in file.rivals])
        for file in read_feed_files(folder)
        if file.contested is not None
    ]


def test_feeds_that_share_an_output_or_a_group_may_run_if_the_control_tables_know_them(folder: Path) -> None:
    write(folder, "a", kafka={"topics": ["a"], "group": "g"})
    write(folder, "b", kafka={"topics": ["b"], "group": "g"})
    write(folder, "c", sink={"format": "parquet", "path": "/data/b"})
    assert contested(folder) == [("a.yaml", "a", ["b"]), ("b.yaml", "b", ["a", "c"]), ("c.yaml", "c", ["b"])]
    assert error_of(read_feed_files(folder)[0]) == (
        f"kafka.group 'g' is also that of {folder / 'b.yaml'}. Two feeds may not share it; until one is changed, only "
        "a feed that the control tables know, and none of the others, runs."
    )


def test_of_files_of_one_name_the_one_that_is_named_after_it_may_run(folder: Path) -> None:
    write(folder, "orders")
    (folder / "copy.yaml").write_text((folder / "orders.yaml").read_text())
    assert contested(folder) == [("orders.yaml", "orders", ["orders"])]
    assert "until one is changed, this file is off" in error_of(read_feed_files(folder)[0])


def test_of_files_of_one_name_that_are_all_named_otherwise_none_may_run(folder: Path) -> None:
    write(folder, "orders").rename(folder / "first.yaml")
    (folder / "second.yaml").write_text((folder / "first.yaml").read_text())
    assert contested(folder) == []
    assert names(read_feed_files(folder)) == []


@pytest.mark.parametrize(
    ("schedule", "due"),
    [
        ("'*/5 * * * *'", "*/5 * * * *"),
        ("'@daily'", "@daily"),
        ("null", "@hourly"),
        ("'@once'", "@hourly"),
        ("'@continuous'", "@hourly"),
        ("every hour", "@hourly"),
        ("[1]", "@hourly"),
    ],
)
def test_a_broken_file_is_due_on_its_own_schedule_where_that_has_times(folder: Path, schedule: str, due: str) -> None:
    path = folder / "orders.yaml"
    path.write_text(SMALLEST + f"schedule: {schedule}\nnmae: x\n")
    assert read_feed_file(path).schedule == due


def test_a_file_that_cannot_be_read_is_due_each_hour(folder: Path) -> None:
    (folder / "orders.yaml").write_text("name: [")
    assert read_feed_file(folder / "orders.yaml").schedule == "@hourly"


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    "copy", ["/data/orders", "/data/orders/copy", "/data/orders.kafka-ingest", "/data", "/data/orders_dead_letters"]
)
def test_a_copy_may_not_lie_in_a_feeds_output_whether_the_file_can_be_used_or_not(
    folder: Path, copy: str, *, broken: bool
) -> None:
    write(folder, "orders", **({"nmae": "x"} if broken else {}))
    environment = {"KAFKA_INGEST_FEEDS": str(folder)}
    with pytest.raises(InvalidBackfillError, match=r"holds the (output|dead letters) of feed orders, /data/orders"):
        check_not_taken(Path(copy), environment)
    check_not_taken(Path("/data/copy"), environment)


def test_a_copy_may_not_go_to_the_table_of_a_feed_from_any_directory(folder: Path) -> None:
    write(folder, "orders", sink=IN_POSTGRESQL)
    feed, environment = a_feed(sink=IN_POSTGRESQL | {"table": "shop.other"}), {"KAFKA_INGEST_FEEDS": str(folder)}
    with pytest.raises(InvalidBackfillError, match=r"found shop\.orders, that of feed orders.*Nothing was planned"):
        copy_output(feed, "/elsewhere/orders", environment)
    assert dict(copy_output(feed, "/elsewhere/again", environment).options)["table"] == "shop.again"


def test_a_table_of_the_newest_states_is_planned_and_copied_as_the_feed_says() -> None:
    feed = a_feed(sink=CURRENT | {"deleted": "remove", "null_keys": "dead_letter"}, where="value is not null")
    options = {"mode": "current", "deleted": "remove", "conn_id": "warehouse"}
    assert dict(feed.output({}).options).items() >= options.items()
    assert dict(copy_output(feed, "/elsewhere/again", {}).options).items() >= options.items()
    where = feed.decoding().shape.where or ""
    assert re.fullmatch(r"if\(value is not null, if\(\(key is null or .*raise_error.*, false\)", where)


def test_a_topic_is_not_copied_to(folder: Path) -> None:
    sink = {"format": "kafka", "path": "/data/raw", "conn_id": "kafka_other", "topic": "orders_clean"}
    with pytest.raises(InvalidBackfillError, match=r"found topic orders_clean: copies are made of files and tables"):
        copy_output(a_feed(sink=sink), "/elsewhere/orders", {"KAFKA_INGEST_FEEDS": str(folder)})


def test_feeds_without_a_group_share_nothing(folder: Path) -> None:
    write(folder, "orders")
    write(folder, "refunds")
    assert names(read_feed_files(folder)) == ["orders", "refunds"]


def test_feeds_that_share_in_a_chain_are_all_off(folder: Path) -> None:
    # a and b share a group, b and c a name: nobody can know whose stored offsets are meant by c's name.
    write(folder, "a", kafka={"topics": ["a"], "group": "g"})
    write(folder, "b", kafka={"topics": ["b"], "group": "g"})
    write(folder, "c").write_text(yaml.safe_dump(document("c") | {"name": "b"}))
    assert names(read_feed_files(folder)) == []


@pytest.mark.parametrize("root", ["/data", "/data/", "/data/lake/.."])
def test_a_relative_and_an_absolute_path_of_one_output_are_shared(
    folder: Path, root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_INGEST_DATA", root)
    write(folder, "orders")
    write(folder, "refunds", sink={"format": "parquet", "path": "orders"})
    assert names(read_feed_files(folder)) == []


@pytest.mark.parametrize(
    ("inner", "of_orders", "of_refunds"),
    [
        (
            "/data/orders/eu",
            "in sink.path '/data/orders' is the output of {refunds}, '/data/orders/eu'",
            "sink.path '/data/orders/eu' is in the output of {orders}, '/data/orders'",
        ),
        (
            "/data/orders.kafka-ingest",
            (
                "sink.path '/data/orders' and that of {refunds}, '/data/orders.kafka-ingest': one is where the other "
                "stages"
            ),
            (
                "sink.path '/data/orders.kafka-ingest' and that of {orders}, '/data/orders': one is where the other "
                "stages"
            ),
        ),
    ],
)
def test_an_output_inside_another_feeds_output_is_refused_and_not_called_the_same(
    folder: Path, inner: str, of_orders: str, of_refunds: str
) -> None:
    # Nothing but published files may lie under an output's path.
    paths = {"orders": write(folder, "orders")}
    paths["refunds"] = write(folder, "refunds", sink={"format": "parquet", "path": inner})
    errors = [error_of(file).partition(". Two feeds")[0] for file in read_feed_files(folder)]
    assert errors == [text.format(**paths) for text in (of_orders, of_refunds)]


# ── One feed by name ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feed_is_found_by_its_name_and_not_by_its_files(folder: Path) -> None:
    write(folder, "orders").rename(folder / "something-else.yaml")
    assert feed_of(feed_file_named("orders", folder)).name == "orders"


def test_an_unknown_feed_is_refused_with_those_there_are(folder: Path) -> None:
    write(folder, "orders")
    write(folder, "refunds")
    with pytest.raises(UnknownFeedError, match=rf"one of the feeds in {folder}: orders, refunds; found 'order'\.$"):
        feed_of(feed_file_named("order", folder))


def test_a_feed_whose_file_is_broken_is_refused_with_what_is_wrong_in_it(folder: Path) -> None:
    write(folder, "orders", nmae="x")
    write(folder, "refunds")
    with pytest.raises(InvalidFeedError, match="nmae: unknown key"):
        feed_of(feed_file_named("orders", folder))


def test_a_broken_file_is_found_by_the_name_in_it_too(folder: Path) -> None:
    write(folder, "orders", nmae="x").rename(folder / "something-else.yaml")
    with pytest.raises(InvalidFeedError, match=r"something-else\.yaml: nmae: unknown key"):
        feed_of(feed_file_named("orders", folder))


def test_an_unknown_feed_is_not_mistaken_for_a_broken_file_that_mentions_the_word(folder: Path) -> None:
    write(folder, "orders", kafka={"topics": []})
    with pytest.raises(UnknownFeedError, match=r"found 'kafka'. These files cannot be used: .*/orders.yaml"):
        feed_of(feed_file_named("kafka", folder))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.memory", "lots"),
        ("spark.driver.memory", "2gb"),
        ("spark.driver.memory", "0g"),
        ("spark.driver.memory", 512),
        ("spark.executor.memory", "2 gigabytes"),
        ("spark.executor.cores", "two"),
        ("spark.cores.max", 0),
        ("spark.authenticate", "yes"),
    ],
)
def test_what_spark_would_refuse_once_it_is_started_is_refused_in_the_feed_file(key: str, value: object) -> None:
    message = f"expected {key} to be "
    with pytest.raises(ValidationError, match=message):
        Spark.model_validate({"conf": {key: value}})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.driver.memory", "2560m"),
        ("spark.driver.memory", "2G"),
        ("spark.executor.memory", "2gb"),
        ("spark.executor.cores", 4),
        ("spark.authenticate", True),
        ("spark.some.other.setting", "lots"),
    ],
)
def test_what_spark_takes_is_left_to_it(key: str, value: object) -> None:
    assert Spark.model_validate({"conf": {key: value}}).conf.keys() == {key}


# ── Tables ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sink",
    [
        {"format": "delta", "path": "/data/orders"},
        {"format": "delta", "path": "s3://lake/orders"},
        {"format": "iceberg", "path": "/data/orders", "catalog": "lake", "table": "shop.orders"},
    ],
    ids=["delta", "delta in S3", "iceberg"],
)
def test_what_a_feed_says_about_new_columns_is_an_option_of_its_output_unless_it_is_the_default(
    sink: dict[str, object],
) -> None:
    unsaid, stop, add = (
        a_feed(sink=sink | said).output({}) for said in ({}, {"on_new_columns": "stop"}, {"on_new_columns": "add"})
    )
    assert unsaid.as_document() == stop.as_document()
    assert dict(add.options) == dict(unsaid.options) | {"on_new_columns": "add"}


def test_what_a_feed_partitions_by_is_an_option_of_its_output_and_of_its_copies() -> None:
    terms = ["kafka_topic", "hour(kafka_timestamp)"]
    feed = a_feed(sink={"format": "delta", "path": "/data/orders", "partition_by": terms})
    assert dict(feed.output({}).options) == {"partition_by": "kafka_topic, hour(kafka_timestamp)"}
    copy = type(feed.sink).model_validate(feed.sink.of_copy("/data/copy"))
    assert copy.options == feed.sink.options


DELTA = {"format": "delta", "path": "/data/orders"}
ICEBERG = {"format": "iceberg", "path": "/data/orders", "catalog": "lake", "table": "shop.orders"}


def test_properties_of_a_new_table_are_options_of_its_output_and_of_its_copies() -> None:
    properties = {"delta.logRetentionDuration": "interval 7 days", "delta.checkpointInterval": 10, "owner": "shop"}
    feed = a_feed(sink=DELTA | {"table_properties": properties})
    options = feed.output({}).options
    assert dict(options) == {
        "table_properties.delta.checkpointInterval": "10",
        "table_properties.delta.logRetentionDuration": "interval 7 days",
        "table_properties.owner": "shop",
    }
    assert dict(TableOptions.of(dict(options)).properties) == {name: str(value) for name, value in properties.items()}
    assert type(feed.sink).model_validate(feed.sink.of_copy("/data/copy")).options == feed.sink.options
    compressed = {"write.metadata.compression-codec": "gzip"}
    assert dict(a_feed(sink=ICEBERG | {"table_properties": compressed}).sink.table_properties) == compressed


@pytest.mark.parametrize(
    ("sink", "name", "value", "said"),
    [
        (DELTA, "delta.enableDeletionVectors", True, "expected no delta.enableDeletionVectors"),
        (DELTA, "Delta.columnMapping.mode", "name", "expected no Delta.columnMapping.mode"),
        (DELTA, "delta.setTransactionRetentionDuration", "interval 1 day", "expected no delta.setTransaction"),
        (DELTA, "delta.deletedFileRetentionDuration", "interval 5 minutes", "expected hours, days or weeks"),
        (DELTA, "delta.logRetentionDuration", "interval 0 seconds", "expected hours, days or weeks"),
        (DELTA, "DELTA.checkpointInterval", 5, "expected no DELTA.checkpointInterval"),
        (DELTA, "delta.checkpointInterval", True, "expected a whole number"),
        (DELTA, "fs.s3a.access.key", "hush", "expected no secret"),
        (ICEBERG, "metadata_location", "/elsewhere", "expected no metadata_location"),
        (ICEBERG, "commit.manifest-merge.enabled", "maybe", "expected true or false for commit.manifest-merge"),
        (ICEBERG, "commit.manifest.target-size-bytes", "8MB", "expected a whole number for commit.manifest.target"),
        (ICEBERG, "history.expire.max-snapshot-age-ms", "5d", "expected a whole number for history.expire"),
        (ICEBERG, "write.metadata.compression-codec", "zstd", "expected none or gzip for write.metadata.compression"),
        (ICEBERG, "write.avro.compression-codec", "lz4", "expected no write.avro.compression-codec"),
        (DELTA, "kafka_ingest.batch", "1", "expected no kafka_ingest.batch"),
        (ICEBERG, "format-version", 3, "expected no format-version"),
        (ICEBERG, "write.data.path", "/elsewhere", "expected no write.data.path"),
        (ICEBERG, "write.metadata.metrics.default", "none", "expected no write.metadata.metrics.default"),
        (ICEBERG, "s3.endpoint", "http://store", "expected no s3.endpoint"),
        (ICEBERG, "owner.password", "hush", "expected no secret, found owner.password"),
        (ICEBERG, "a b", "1", "expected names of letters"),
        (ICEBERG, "comment", "two\nlines", "expected a printable text"),
        (ICEBERG, "comment", None, "expected"),
    ],
    ids=str,
)
def test_a_property_with_which_batches_could_not_be_committed_is_refused(
    tmp_path: Path, sink: dict[str, object], name: str, value: object, said: str
) -> None:
    error = field_error(tmp_path, sink=sink | {"table_properties": {name: value}})
    assert "sink.table_properties" in error
    assert said in error
    assert "hush" not in error


# ── In an object store ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "sink", [{"format": "delta"}, {"format": "iceberg", "catalog": "lake", "table": "shop.orders"}], ids=str
)
@pytest.mark.parametrize("path", ["s3://lake/orders", "s3://aws_lake@lake.eu/raw/topic=orders-1/v1.0"])
def test_a_table_may_be_in_s3_and_is_there_for_every_environment(path: str, sink: dict[str, str]) -> None:
    feed = a_feed(sink={**sink, "path": path})
    for environment in ({}, {"KAFKA_INGEST_DATA": "/data"}):
        output = feed.output(environment)
        assert (str(output.place), output.is_local) == (path, False)
        assert {**dict(output.options), "format": output.format} == sink
        assert feed.plan_settings(environment).relative_path is None


def test_complete_hours_are_by_default_ten_minutes_late_and_idle_after_an_hour() -> None:
    rules = a_feed(complete={"by": "hour"}).complete_rules()

    assert (rules.by, rules.delay, rules.idle_after) == ("hour", timedelta(minutes=10), timedelta(hours=1))
    assert (rules.on_late, rules.success_file) == ("announce", False)


@pytest.mark.parametrize(
    ("complete", "expected"),
    [
        ({}, "complete.by"),
        ({"by": "week"}, "complete.by"),
        ({"by": "hour", "delay": "0s"}, "complete.delay"),
        ({"by": "hour", "on_late": "drop"}, "complete.on_late"),
        ({"by": "hour", "success_file": "yes"}, "complete.success_file"),
    ],
)
def test_what_complete_does_not_take_is_named(folder: Path, complete: dict[str, str], expected: str) -> None:
    assert expected in field_error(folder, complete=complete)


@pytest.mark.parametrize(
    ("partition_by", "is_refused"),
    [
        ({}, True),
        ({"dt": "day(kafka_timestamp)"}, True),
        ({"hr": "hour(kafka_timestamp)", "p": "kafka_partition"}, False),
    ],
)
def test_a_success_file_in_the_output_needs_folders_by_the_same_time(
    folder: Path, partition_by: dict[str, str], *, is_refused: bool
) -> None:
    complete = {"by": "hour", "success_file": "in_output"}
    sink = {"format": "parquet", "path": "/data/orders", "partition_by": partition_by}
    if is_refused:
        expected = "expected sink.partition_by with folders by hour(kafka_timestamp), which get the file _SUCCESS"
        assert expected in field_error(folder, complete=complete, sink=sink)
    else:
        assert a_feed(complete=complete, sink=sink).complete_rules().success_file == "in_output"


def test_late_rows_have_a_dataset_beside_all_outputs_but_tables_of_keys_and_of_long_names(folder: Path) -> None:
    complete = {"by": "hour", "on_late": "dataset"}

    assert a_feed(complete=complete).late_by == "hour"
    assert a_feed(complete={"by": "hour"}).late_by is None
    warehouse = {"format": "postgresql", "path": "/data/orders", "conn_id": "warehouse", "table": "shop.orders"}
    assert a_feed(complete=complete, sink=warehouse).late_by == "hour"
    topic = {"format": "kafka", "path": "/data/orders", "conn_id": "other", "topic": "copy"}
    iceberg = {"format": "iceberg", "path": "/data/orders", "catalog": "lake", "table": "shop.orders"}
    for sink in (topic, iceberg, {"format": "delta", "path": "s3://lake@bucket/orders"}):
        assert a_feed(complete=complete, sink=sink).late_by == "hour"
    for sink, found in (
        (warehouse | {"mode": "current"}, "mode: current, whose rows are of keys"),
        (warehouse | {"table": f"shop.{'o' * 47}"}, "a table with a name of more than 46 characters"),
    ):
        assert f"beside which late rows can be, found dataset with {found}" in field_error(
            folder, complete=complete, sink=sink
        )


def test_a_success_file_beside_a_table_is_refused(folder: Path) -> None:
    sink = {"format": "delta", "path": "/data/orders"}

    assert "expected complete.success_file with a directory" in field_error(
        folder, complete={"by": "day", "success_file": True}, sink=sink
    )
