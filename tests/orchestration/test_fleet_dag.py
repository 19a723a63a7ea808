"""A fleet's DAG: all of its feeds in each task, and what one of them does leaves the others alone."""

from tests.orchestration.conftest import Airflow, commits_in, lineage_into
from tests.project import Project, positions_of

from embedded_broker import EmbeddedBroker
from order_events import order_events, produce


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
