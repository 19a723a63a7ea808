"""The commands that give a Kafka user the least rights of a feed."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kafka_ingest.cli.app import app_of
from kafka_ingest.settings.connections import ConnectionFields, fields_from_json
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, read_feed_file
from kafka_ingest.verbs.doctor import PREFIXED, commands_of, literal_prefix


def find(conn_id: str) -> ConnectionFields:
    extra = {"bootstrap.servers": conn_id}
    return fields_from_json(conn_id, json.dumps({"conn_type": "kafka", "extra": extra}))


def found(**changes: Any) -> list[str]:
    sink = {"format": "parquet", "path": "/data/orders"}
    feed = Feed.model_validate({"name": "orders", "kafka": {"topics": ["orders"]}, "sink": sink, **changes})
    return commands_of(FeedFile(Path("orders.yaml"), feed=feed), "User:in gest", find)


def of(servers: str, *rights: str) -> list[str]:
    start = f"kafka-acls.sh --bootstrap-server {servers}:9092 --add --allow-principal 'User:in gest'"
    return [f"{start} {right}" for right in rights]


def test_a_feed_reads_its_topics_and_its_group_and_nothing_else() -> None:
    kafka = {"topics": ["orders", "refunds"], "group": "the orders"}
    assert found(kafka=kafka) == of(
        "kafka_default",
        "--operation Read --topic=orders",
        "--operation Read --topic=refunds",
        "--operation Read --group='the orders'",
    )


def test_an_alert_about_retention_asks_for_the_topics_settings() -> None:
    assert found(alerts={"headroom": "1d"}) == of(
        "kafka_default", "--operation Read --operation DescribeConfigs --topic=orders"
    )


def test_kafka_as_output_needs_its_topic_its_marks_and_its_transactions_over_its_own_connection() -> None:
    sink = {"format": "kafka", "conn_id": "other", "topic": "clean", "path": "/data/clean"}
    assert found(sink=sink)[1:] == of(
        "other",
        "--operation Write --operation DescribeConfigs --topic=clean",
        "--operation Create --operation Read --operation Write --operation DescribeConfigs --topic=clean.kafka_ingest",
        "--operation Write --transactional-id=kafka_ingest. --resource-pattern-type prefixed",
        "--operation DescribeConfigs --cluster",
        "--operation Read --group=kafka_ingest",
    )


def test_the_group_from_whose_offsets_a_feed_begins_is_described() -> None:
    start = {"group": "old", "otherwise": "earliest"}
    assert found(start=start)[1:] == of("kafka_default", "--operation Describe --group=old")


def test_a_file_for_many_topics_needs_what_its_pattern_selects_since_no_plan_finds_others(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{fleet: shop, for_each_topic: 'shop[.](?P<table>[a-z]+)', "
        "feed: {name: '{topic}', sink: {format: parquet, path: '/data/{topic}'}}}"
    )
    assert commands_of(read_feed_file(file), "User:in gest", find) == of(
        "kafka_default", "--operation Read --topic=shop --resource-pattern-type prefixed"
    )


def test_the_command_prints_them_for_all_files_or_one_and_needs_no_control_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "many.yaml").write_text(
        "{fleet: shop, for_each_topic: 'shop[.](?P<table>[a-z]+)', "
        "feed: {name: '{topic}', sink: {format: parquet, path: '/data/{topic}'}}}"
    )
    (tmp_path / "orders.yaml").write_text(
        "{name: orders, kafka: {topics: [orders]}, sink: {format: parquet, path: /data/o}}"
    )
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(tmp_path))
    extra = {"bootstrap.servers": "kafka"}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps({"conn_type": "kafka", "extra": extra}))
    monkeypatch.delenv("AIRFLOW_CONN_KAFKA_INGEST", raising=False)

    def printed(*names: str) -> list[str]:
        answer = CliRunner().invoke(app_of(), ["doctor", *names, "--acls", "me", "--json"])
        assert answer.exit_code == 0, answer.output
        return [line.partition("User:me ")[2] for line in json.loads(answer.stdout)["acls"]]

    of_many, of_one = f"--operation Read --topic=shop{PREFIXED}", "--operation Read --topic=orders"
    assert (printed("many"), printed("orders"), printed()) == ([of_many], [of_one], [of_many, of_one])


def test_of_names_with_placeholders_all_are_named_that_begin_so(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "{fleet: shop, for_each_topic: 'shop[.](?P<table>[a-z]+)', feed: {name: '{topic}', "
        "kafka: {group: 'lake-{table}'}, sink: {format: kafka, conn_id: other, topic: 'clean.{table}', "
        "path: '/data/{topic}'}}}"
    )
    read = read_feed_file(file)
    assert read.error is None
    found = [each.partition(" 'User:in gest' ")[2] for each in commands_of(read, "User:in gest", find)]
    assert found[1:4] == [
        "--operation Read --group=lake- --resource-pattern-type prefixed",
        "--operation Write --operation DescribeConfigs --topic=clean. --resource-pattern-type prefixed",
        f"--operation Create --operation Read --operation Write --operation DescribeConfigs --topic=clean.{PREFIXED}",
    ]


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        (r"shop\.(orders|refunds)", ""),
        (r"shop\.[a-z]+", "shop."),
        (r"shop\.?x", "shop"),
        ("shops*", "shop"),
        ("orders", "orders"),
        (".*", ""),
        ("(?i)shop", ""),
        (r"^shop\..*", "shop."),
        (r"sho\w", "sho"),
    ],
)
def test_of_a_pattern_the_plain_beginning_is_the_prefix(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix
    [command, *_] = found(kafka={"topic_pattern": pattern})
    assert re.search(rf"--topic={re.escape(prefix)} --res" if prefix else r"--topic='\*'$", command)
