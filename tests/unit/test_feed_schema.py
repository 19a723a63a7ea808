"""The JSON Schema of feed files takes what the model takes, and refuses wrong keys."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from tests.unit.test_documents import PAGES, ROOT

import feed_keys
from kafka_ingest.cli.set_up import FEED_FILE
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import read_feed_file
from kafka_ingest.settings.feed_schema import MEANINGS, SINCE, feed_schema
from kafka_ingest.settings.plain_yaml import read_plain_yaml
from kafka_ingest.settings.topics_file import KEYS

OF_FEED, OF_DEFAULTS = Draft202012Validator(feed_schema()), Draft202012Validator(feed_schema(of_defaults=True))
WHOLE = feed_schema()
OF_PART = Draft202012Validator({"$defs": WHOLE["$defs"], **WHOLE["$defs"]["Feed"], "required": []})
ORDERS = "{name: orders, kafka: {topics: [orders]}, sink: {format: parquet, path: orders}}"


def problems(validator: Draft202012Validator, text: str) -> list[str]:
    document = json.loads(json.dumps(read_plain_yaml(text)))  # whose keys are texts, as those of JSON
    return [error.message for error in validator.iter_errors(document)]


def blocks() -> list[tuple[str, str]]:
    """Return each YAML block of the pages that is a feed file, a part of one, or defaults; and the files there are."""
    found = [
        (f"{page.name} {number}", text)
        for page in PAGES
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", page.read_text(), flags=re.DOTALL))
    ]
    of_feeds = [
        (where, text)
        for where, text in found
        if (keys := re.findall(r"^(\w+):", text, flags=re.MULTILINE))
        and {*keys} <= Feed.model_fields.keys() | KEYS
        and len({*keys}) == len(keys)  # else it shows one key in several ways
    ]
    files = [(path.name, path.read_text()) for path in (ROOT / "dags" / "feeds").glob("*.yaml")]
    return [*of_feeds, *files, ("init", FEED_FILE)]


@pytest.mark.parametrize(("where", "text"), blocks(), ids=[where for where, _ in blocks()])
def test_each_feed_file_that_is_shown_is_valid_by_the_schema(where: str, text: str) -> None:
    keys = {*read_plain_yaml(text)}
    is_whole = "for_each_topic" in keys or keys >= {"name", "kafka", "sink"}
    found = problems(OF_FEED if is_whole else OF_PART, text)
    assert [] in (found, problems(OF_DEFAULTS, text)), f"{where}: {found}"


def test_each_recipe_of_the_cookbook_can_be_used(tmp_path: Path) -> None:
    defaults = ""
    for number, (where, text) in enumerate(each for each in blocks() if each[0].startswith("cookbook.md")):
        if "name:" not in text:
            defaults = text  # of the next one
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "_defaults.yaml").write_text(defaults)
        (folder / "feed.yaml").write_text(text)
        assert read_feed_file(folder / "feed.yaml").error is None, where
        defaults = ""


def test_most_of_what_the_pages_show_is_looked_at() -> None:
    assert len(blocks()) > 10


@pytest.mark.parametrize(
    "text",
    [
        ORDERS,
        "{name: a, kafka: {topics: [b], topic_pattern: null}, sink: {path: a}}",
        "{name: a, kafka: {topics: [b, {name: c, start: latest}]}, sink: {path: a}, value: {schema: id int}}",
        "{name: a, kafka: {topic_pattern: 'a.*'}, sink: {path: a}, columns: null, limits: {max_records: unlimited}}",
        "{name: a, kafka: {topics: [b]}, sink: {path: a}, start: {offsets: {b: {0: 12, 1: 0}}, otherwise: latest}}",
        "{name: a, kafka: {topics: [b]}, sink: {path: a}, spark: {conf: {spark.cores.max: 2}}, key: json}",
        "{name: a, kafka: {topics: [b]}, sink: {path: a}, limits: {max_records: '5_000_000'}}",
        "{for_each_topic: 'a.*', feed: {name: '{topic}'}, overrides: {a: null, b: {sink: {path: c}}}}",
        "{name: a, kafka: {topics: [b]}, sink: {path: a}, value: {format: avro, registry: r, version: latest}}",
    ],
)
def test_what_a_feed_file_may_say_is_valid_also_where_defaults_say_the_rest(text: str) -> None:
    """The text of digits is what an editor that reads YAML 1.2 makes of 5_000_000."""
    assert problems(OF_FEED, text) == []


@pytest.mark.parametrize(
    "wrong",
    [
        "{nme: orders, kafka: {topics: [orders]}, sink: {format: parquet, path: orders}}",
        "{name: orders, kafka: {topic: [orders]}, sink: {format: parquet, path: orders}}",
        "{name: orders, kafka: {topics: [orders], topic_pattern: o}, sink: {format: parquet, path: orders}}",
        "{name: orders, kafka: {topics: [{name: orders, begin: latest}]}, sink: {format: parquet, path: orders}}",
        "{name: orders, kafka: {}, sink: {format: parquet, path: orders}}",
        "{name: orders, kafka: {topics: [orders]}, sink: {format: parquet, pth: orders}}",
        "{name: orders, kafka: {topics: [orders]}, sink: {format: parquet, path: orders, catalog: lake}}",
        "{name: orders, kafka: {topics: [orders]}, sink: {format: orc, path: orders}}",
        "{name: orders, kafka: {topics: [orders]}, sink: {format: kafka, path: orders}}",
        ORDERS[:-1] + ", on_data_loss: skip}",
        ORDERS[:-1] + ", limits: {max_wait: 90}}",
        ORDERS[:-1] + ", limits: {max_records: 0}}",
        ORDERS[:-1] + ", value: {format: json, shema: id int}}",
        ORDERS[:-1] + ", select: [{name: id, type: int}]}",
        ORDERS[:-1] + ", start: {group: g}}",
        "{for_each_topic: 'a.*', sink: {format: delta}}",
        "{for_each_topic: 'a.*', feed: {name: '{topic}', fleet: a}}",
        "{for_each_topic: 'a.*', feed: {kafka: {topics: [a]}}}",
        "{for_each_topic: 'a.*', feed: {name: '{topic}'}, overrides: {a: {sinc: {}}}}",
    ],
)
def test_a_wrong_key_or_value_is_not_valid(wrong: str) -> None:
    assert problems(OF_FEED, wrong) != []


PARTS = {
    "iceberg": {"sink": {"format": "iceberg", "path": "a", "catalog": "lake", "table": "shop.orders"}},
    "postgresql": {"sink": {"format": "postgresql", "path": "a", "conn_id": "w", "table": "shop.orders"}},
    "kafka": {"sink": {"format": "kafka", "path": "a", "conn_id": "w", "topic": "b"}},
    "avro": {"value": {"format": "avro", "registry": "r"}},
    "protobuf": {"value": {"format": "protobuf", "registry": "r"}},
    "group": {"start": {"group": "g", "otherwise": "latest"}},
    "time": {"start": {"timestamp": "2026-01-31T00:00:00Z"}},
    "pattern": {"kafka": {"topic_pattern": "a.*"}},
    "select": {"select": [{"name": "a", "type": "int", "sql": "1"}]},
    "notify": {"alerts": {"held": True, "notify": [{"notifier": "a.b"}]}},
    "": {"start_when": {"records": 1}, "spark": {}},
}


@pytest.mark.parametrize(
    ("part", "key", "right", "wrong"),
    [
        ("", "name", ["orders", "1.a_b-C"], ["", "_a", "a b", "a" * 201, "maintain_feeds", "feed_error__a"]),
        ("", "fleet", ["shop", "operate_feeds"], ["", "shop/eu", "operate_feed"]),
        ("", "schedule", ["@midnight", " 0 */2 * * 1-5", "0 0 * * * 30", None], ["", "hourly", "* * *", "1h"]),
        ("", "start_when.or_older_than", ["10s", "1m", "90s"], ["9s", "0s", "1w"]),
        ("", "control_retention", ["7d", "10d", "168h", "10080m", "604800s", "36500d"], ["1d", "6d", "99h", "9999m"]),
        ("", "kafka.topics", [["orders"], [{"name": "orders"}, "a.b_c-1"]], [[], ["a", "a"], ["a b"], ["."], [".."]]),
        ("", "kafka.topics", [["a" * 249]], [["a" * 250], [{"name": ""}], [{"name": "ü"}], "orders"]),
        ("", "kafka.group", ["a b", None], ["", "  "]),
        ("", "where", ["value is not null"], [" "]),
        ("", "transform", ["shop.orders:cleaned", "a:b"], ["shop.orders", "a.b:c.d", "1:a"]),
        ("", "sink.path", ["a", "/a/b", "a..b/...", ".a", "a b"], ["", " ", ".", "..", "a/../b", "~/a", "/", "../a"]),
        ("", "spark.conf", [{"spark.cores.max": 2}, {}], [{"cores": 2}]),
        ("pattern", "kafka.topic_pattern", ["a.*", " a"], ["", " ", "ä.*"]),
        ("group", "start.group", ["g"], [""]),
        ("time", "start.timestamp", ["2026-01-31 00:00:00+02:00"], ["2026", "yesterday", ""]),
        ("avro", "value.subject", ["{topic}-value"], ["", " "]),
        ("avro", "value.version", [1, "latest"], [0, -1]),
        ("protobuf", "value.message", ["Order", "shop.Order"], ["", "shop.", "1a"]),
        ("select", "select.0.name", ["a", "an amount"], ["", " "]),
        ("select", "select.0.sql", ["1"], [""]),
        ("iceberg", "sink.table", ["a.b", "a-1.b.c"], ["a", "a.", "a b.c"]),
        ("iceberg", "sink.catalog", ["lake"], [""]),
        ("postgresql", "sink.table", ["a.b"], ["a", "a.b.c", "1.b"]),
        ("kafka", "sink.topic", ["b", "c" * 230], ["", "c" * 231, "a/b"]),
        ("notify", "alerts.notify.0.notifier", ["a.b", "a.b.C"], ["a", "a.", "a b.c"]),
    ],
)
def test_the_schema_takes_and_refuses_values_as_the_model_does(
    part: str, key: str, right: list[Any], wrong: list[Any]
) -> None:
    for value in right + wrong:
        document = json.loads(json.dumps(read_plain_yaml(ORDERS) | PARTS[part]))
        *above, last = [int(step) if step.isdigit() else step for step in key.split(".")]
        reduce(lambda node, step: node[step], above, document)[last] = value
        by_schema = OF_FEED.is_valid(document)
        try:
            Feed.model_validate(document)
        except ValidationError:
            by_model = False
        else:
            by_model = True
        assert (by_schema, by_model) == (value in right,) * 2, value


def test_a_text_with_a_placeholder_is_valid_in_a_file_for_many_topics() -> None:
    sink = "{format: iceberg, catalog: lake, table: 'shop.{table}', path: 'a/{table}'}"
    feed = f"{{name: '{{topic}}', sink: {sink}, transform: 'shop.{{table}}:cleaned'}}"
    assert problems(OF_FEED, f"{{for_each_topic: '(?P<table>.*)', feed: {feed}}}") == []


def test_defaults_may_lack_everything_and_have_nothing_that_is_a_feed_s_own() -> None:
    for right in ("{}", "{sink: {format: iceberg, catalog: lake}, kafka: {conn_id: eu}}", "{value: {format: avro}}"):
        assert problems(OF_DEFAULTS, right) == []
    for wrong in ("{name: a}", "{kafka: {topics: [a]}}", "{kafka: {group: a}}", "{sink: {path: a}}", "{sinc: {}}"):
        assert problems(OF_DEFAULTS, wrong) != []


def test_a_default_is_valid_by_its_own_key() -> None:
    of_keys: list[dict[str, Any]] = [each.get("properties", {}) for each in WHOLE["$defs"].values()]
    with_default = [each for keys in of_keys for each in keys.values() if each.get("default") is not None]
    assert len(with_default) > 30
    for each in with_default:
        Draft202012Validator({**each, "$defs": WHOLE["$defs"]}).validate(each["default"])


def test_each_meaning_is_that_of_a_key() -> None:
    described = {row[4] for row in feed_keys.rows(feed_keys.WHOLE)}
    assert {*MEANINGS.values()} == described
    assert SINCE.keys() <= MEANINGS.keys()


def test_the_page_of_keys_is_as_the_model_has_them() -> None:
    assert feed_keys.page() == feed_keys.PAGE.read_text(), "python dev/feed_keys.py writes it"
    assert len(feed_keys.tables()) == len(feed_keys.TABLE.findall(feed_keys.PAGE.read_text()))
