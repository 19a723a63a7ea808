"""A file for many topics by the command line: a dry run, and what is found by name once a plan has remembered it."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import FakeKafkaCluster, FakeTopic, log, topic
from tests.project import empty_control_tables
from typer.testing import CliRunner

from kafka_ingest.cli.app import app_of
from kafka_ingest.cli.run_command import runs_of
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import InvalidBackfillError, KafkaUnavailableError
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed_file import read_feed_file
from kafka_ingest.verbs import topics_of_files
from kafka_ingest.verbs.topics_of_files import plan_topics

SHOP = r"""
fleet: shop
for_each_topic: 'shop\.(?P<table>[a-zA-Z]+)'
feed:
  name: "shop-{table}"
  sink: {format: parquet, path: "/data/shop/{table}"}
overrides: {shop.orders: {limits: {max_records: 5}}, shop.audit: null}
"""


class Kafka(FakeKafkaCluster):
    """Kafka, of which one topic may not be seen."""

    def visible_topics(self, topics: Any) -> Any:
        return self.describe_topics(topics), {name: "no right" for name in topics if name == "shop.secret"}


@pytest.fixture
def kafka(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """Kafka with topics of a shop, beside a folder of feed files and empty control tables."""
    control = tmp_path / "control.sqlite"
    control.write_bytes(empty_control_tables())
    (tmp_path / "feeds").mkdir()
    (tmp_path / "feeds" / "shop.yaml").write_text(SHOP)
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(tmp_path / "feeds"))
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_INGEST", json.dumps({"conn_type": "sqlite", "host": str(control)}))
    names = ("shop.orders", "shop.refunds", "shop.audit", "else")
    cluster = Kafka({name: a_topic(name) for name in names})
    monkeypatch.setattr(topics_of_files, "kafka_at", lambda *_: cluster)
    return cluster


def a_topic(name: str) -> FakeTopic:
    """Return a topic with one empty partition."""
    return topic(log(0, 0), topic_id=f"id-{name}")


def answer(*arguments: str) -> tuple[int, Any]:
    """Run a command, and return its exit code and what it says."""
    done = CliRunner().invoke(app_of(), [*arguments, "--json"])
    return done.exit_code, json.loads(done.stdout)


def planned(tmp_path: Path) -> list[str]:
    """Plan the file, and return its feeds."""
    found = plan_topics(read_feed_file(tmp_path / "feeds" / "shop.yaml"), find_connection_from_shell)
    return sorted(found.feeds.values())


def test_a_dry_run_shows_what_a_file_comes_to_and_remembers_nothing(kafka: Kafka, tmp_path: Path) -> None:
    code, found = answer("feeds", "shop")
    expected = {
        "file": "shop.yaml",
        "new": [{"topic": "shop.orders", "feed": "shop-orders"}, {"topic": "shop.refunds", "feed": "shop-refunds"}],
        "known": [],
        "gone": [],
        "made_again": [],
        "left": [],
        "left_out": ["shop.audit"],
        "stopped": [],
        "unknown_overrides": [],
    }
    assert (code, found) == (0, {"version": 1, "files": [expected]})
    assert answer("feeds", "shop") == (0, {"version": 1, "files": [expected]})
    pattern = r"shop\.(?P<table>[a-zA-Z]+)"
    listed = answer("feeds")[1]["for_each_topic"]
    assert listed == [{"file": str(tmp_path / "feeds" / "shop.yaml"), "fleet": "shop", "pattern": pattern}]
    shown = CliRunner().invoke(app_of(), ["feeds", "shop"]).stdout
    assert [word in shown for word in ("shop-orders", "new", "left out")] == [True] * 3
    assert answer("feeds", "other")[1]["error"]["code"] == "UNKNOWN_FEED"

    assert planned(tmp_path) == ["shop-orders", "shop-refunds"]
    kafka.topics["shop.Orders"] = a_topic("shop.Orders")
    del kafka.topics["shop.refunds"]
    code, again = answer("feeds", "shop.yaml")
    [file] = again["files"]
    assert code == 2
    assert ([each["topic"] for each in file["known"]], file["new"]) == (["shop.orders", "shop.refunds"], [])
    assert file["gone"] == [{"topic": "shop.refunds", "feed": "shop-refunds"}]
    assert [each["topic"] for each in file["stopped"]] == ["shop.Orders"]


@pytest.mark.usefixtures("kafka")
def test_a_file_that_is_new_takes_no_topic_from_the_one_whose_feed_it_is(tmp_path: Path) -> None:
    planned(tmp_path)
    (tmp_path / "feeds" / "new.yaml").write_text(SHOP.replace("/data/shop", "/data/new").replace("shop.audit", "x"))
    code, found = answer("feeds", "shop")
    new, shop = found["files"]
    assert [each["topic"] for each in shop["known"]] == ["shop.orders", "shop.refunds"]
    assert {each["topic"]: each["feed"] for each in new["stopped"]} == {"shop.orders": None, "shop.refunds": None}
    assert [each["topic"] for each in new["new"]] == ["shop.audit"]
    assert code == 2


def test_a_topic_that_may_not_be_seen_is_not_gone(kafka: Kafka, tmp_path: Path) -> None:
    kafka.topics["shop.secret"] = a_topic("shop.secret")
    planned(tmp_path)
    del kafka.topics["shop.secret"]
    [file] = answer("feeds", "shop")[1]["files"]
    assert ("shop-secret" in {each["feed"] for each in file["known"]}, file["gone"]) == (True, [])


def test_a_feed_of_a_topic_is_found_by_its_name_once_a_plan_has_remembered_it(kafka: Kafka, tmp_path: Path) -> None:
    assert answer("feeds", "--show", "shop-orders")[0] == 2
    planned(tmp_path)
    code, shown = answer("feeds", "--show", "shop-orders")
    assert code == 0
    values = {each["key"]: (each["value"], each["from"]["line"]) for each in shown["values"]}
    assert values == {
        "name": ("shop-orders", 5),
        "sink.format": ("parquet", 6),
        "sink.path": ("/data/shop/orders", 6),
        "kafka.topics": (["shop.orders"], None),
        "fleet": ("shop", 2),
        "limits.max_records": (5, 7),
    }
    [run] = runs_of(["shop-orders"])
    assert run.feed_parts.feed.limits.max_records == 5
    assert [each["feed"] for each in answer("status")[1]["feeds"]] == ["shop-orders", "shop-refunds"]
    kafka.is_down = True
    assert [each.name for each in runs_of(["shop-orders", "shop-refunds"]) if each.error is None] == [
        "shop-orders",
        "shop-refunds",
    ]


@pytest.mark.usefixtures("kafka")
def test_what_plans_remember_is_read_once_for_all_feeds_that_a_run_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(tmp_path)
    read, topic_memory = [], SqlControlTables.topic_memory
    monkeypatch.setattr(SqlControlTables, "topic_memory", lambda control: read.append(1) or topic_memory(control))
    runs = runs_of(["shop-orders", "shop-refunds", "shop-other"])
    assert [each.error is None for each in runs] == [True, True, False]
    assert len(read) == 1


def test_a_run_of_the_fleet_finds_new_topics_and_says_which_one_stops(kafka: Kafka) -> None:
    assert [run.name for run in runs_of([], "shop")] == ["shop-orders", "shop-refunds"]
    kafka.topics |= {name: a_topic(name) for name in ("shop.Orders", "shop.new")}
    runs = runs_of([], "shop")
    assert [run.name for run in runs if run.error is None] == ["shop-new", "shop-orders", "shop-refunds"]
    [stopped] = [run for run in runs if run.error is not None]
    assert "by the case of its letters alone" in str(stopped.error)
    after = {run.name: run.feed_parts.plan_settings.found_after for run in runs if run.error is None}
    assert [name for name, since in after.items() if since is not None] == ["shop-new"]
    [known] = runs_of(["shop-new"])
    assert known.feed_parts.plan_settings.found_after == after["shop-new"]
    kafka.is_down = True
    [failed] = runs_of([], "shop")
    assert failed.name == "shop.yaml"
    assert isinstance(failed.error, KafkaUnavailableError), "another run may succeed"


def test_a_fleet_without_topics_yet_has_nothing_to_run(kafka: Kafka) -> None:
    kafka.topics.clear()
    assert answer("run", "--fleet", "shop") == (0, {"version": 1, "feeds": []})
    assert answer("run", "--fleet", "other")[1]["error"]["code"] == "UNKNOWN_FEED"


def test_no_copy_goes_into_the_output_of_a_topics_feed(kafka: Kafka, tmp_path: Path) -> None:
    planned(tmp_path)
    [run] = runs_of(["shop-orders"])
    fields = {"feed": "shop-orders", "mode": "copy", "output": "/data/shop/refunds/a", "offset_ranges": ["a:0=0-5"]}
    request = BackfillForm.of(fields).request(run.feed_parts.feed, anywhere=True)
    with pytest.raises(InvalidBackfillError, match="holds the output of feed shop-refunds"):
        run.feed_parts.plan_backfill(request, actor=None)
    assert kafka.questions.count("topic_names") == 1


@pytest.mark.usefixtures("kafka")
def test_a_feed_that_gets_another_name_is_found_by_it_before_the_next_plan(tmp_path: Path) -> None:
    planned(tmp_path)
    shop = tmp_path / "feeds" / "shop.yaml"
    shop.write_text(SHOP.replace("shop.audit: null", "shop.refunds: {name: first}"))
    assert [run.error for run in runs_of(["first", "shop-orders"])] == [None, None]
    [unknown, gone] = runs_of(["other", "shop-refunds"])
    assert [type(run.error).__name__ for run in (unknown, gone)] == ["UnknownFeedError", "UnknownFeedError"]
