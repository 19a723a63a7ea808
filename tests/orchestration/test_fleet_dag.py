"""A fleet's DAG: all of its feeds in each task, and what one of them does leaves the others alone."""

import sqlite3
from contextlib import closing

from tests.orchestration.conftest import Airflow, commits_in, lineage_into
from tests.project import Project, positions_of

from embedded_broker import EmbeddedBroker
from environment import airflow_home
from order_events import PARTITIONS, create_topic, order_events, produce


def test_a_fleet_is_one_run_whose_feeds_are_committed_each_and_that_is_red_where_one_failed(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    for name in ("a", "b"):
        project.write_feed(topic, name=name, fleet="shop", limits={"max_records": 100} if name == "b" else {})
    project.write_feed("no-such-topic", name="gone", fleet="shop")
    project.write_feed(topic, name="other", fleet="shop", schedule="@daily")
    events = list(order_events(150, seed=1))
    produce(broker.bootstrap_servers, topic, events)

    run = airflow.run("shop")

    states = {task: state for task, (state, _) in run["tasks"].items()}
    expected = dict.fromkeys(("plan", "write", "commit", "next_batch"), "success") | {"report": "failed"}
    assert (run["state"], states) == ("failed", expected), airflow.log[-4000:]
    assert "1 of 3 feeds of fleet shop failed: gone: UNKNOWN_TOPIC feed gone: topic 'no-such-topic'" in airflow.log
    assert project.positions("a") == positions_of(events)
    assert len(project.positions("b")) == 100
    assert project.positions("other") == []
    assert len(airflow.announced) == 2
    [(_, conf)] = airflow.triggered
    assert conf == {"feeds": ["b"], "retry": {}}

    lineage = project.home / "lineage.jsonl"
    second = airflow.run("shop", conf=conf, **lineage_into(lineage))
    assert second["state"] == "success", airflow.log[-4000:]
    assert [second["tasks"][task][0] for task in ("next_batch", "report")] == ["skipped", "skipped"]
    assert project.positions("b") == positions_of(events)
    [of_batch] = commits_in(lineage, "b.commit")
    assert [each["name"] for each in of_batch["outputs"]] == [str(project.output / "b")]
    assert of_batch["run"]["facets"]["parent"]["job"]["name"] == "shop.commit"
    [of_task] = commits_in(lineage, "shop.commit")
    assert of_task["inputs"] == [], "no output is made of another feed's topics"
    assert project.group_offsets("b") == project.stored_offsets("b")
    third = airflow.run("shop", conf={"feeds": ["b"]})
    assert {task: state for task, (state, _) in third["tasks"].items()} == {
        "plan": "success",
        **dict.fromkeys(("write", "commit", "next_batch", "report"), "skipped"),
    }
    assert airflow.run("feed_error__other.yaml")["state"] == "failed"
    assert "feed other: expected schedule '@hourly', as feed a of fleet shop has it" in airflow.log


def test_the_feeds_of_a_fleets_topics_are_found_by_its_plan_and_announced_by_one_alias(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    for name in ("a", "b"):
        create_topic(broker.bootstrap_servers, f"{topic}.{name}", PARTITIONS)
        produce(broker.bootstrap_servers, f"{topic}.{name}", list(order_events(20, seed=1)))
    project.write_shop(topic)

    run = airflow.run("shop")

    assert run["state"] == "success", airflow.log[-4000:]
    assert [len(project.positions(f"shop-{name}")) for name in ("a", "b")] == [20, 20]
    with closing(sqlite3.connect(airflow_home(project.home) / "airflow.db")) as database:
        events = database.execute(
            "SELECT asset.name, alias.name FROM asset_event JOIN asset ON asset.id = asset_id "
            "JOIN asset_alias_asset_event ON event_id = asset_event.id JOIN asset_alias AS alias ON alias.id = alias_id"
        ).fetchall()
    assert sorted(events) == [(f"kafka_ingest/shop-{name}", "kafka_ingest/shop") for name in ("a", "b")]
    assert airflow.run("shop", conf={"feeds": ["shop-a"]})["tasks"]["plan"][0] == "success"
    assert airflow.run("shop", conf={"feeds": ["shop-c"]})["state"] == "failed"
    assert "expected names of feeds of this fleet, found shop-c; it has shop.yaml, shop-a, shop-b" in airflow.log
    maintained = airflow.run("maintain_feeds")
    assert maintained["tasks"] == {"shop.fleet": ["success", 1]}, airflow.log[-4000:]
