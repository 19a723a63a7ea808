"""The plan of a fleet finds its feeds among Kafka's topics, and the steps after it know them by what it remembered."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from tests.unit.test_topics_of_files import Kafka, a_topic, kafka

from kafka_ingest.airflow_tasks import fleet_tasks
from kafka_ingest.airflow_tasks.dags import maintenance_dag
from kafka_ingest.airflow_tasks.dags.maintenance_dag import MaintainFleetOperator
from kafka_ingest.airflow_tasks.fleet_tasks import FleetPlanOperator, parts_by_name
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.plan_batch import PlanOutcome, PlanResult
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import KafkaUnavailableError
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.files_for_dags import Fleet, files_for_dags, fleets_of

__all__ = ["kafka"]

ONE = "{name: one, fleet: shop, kafka: {topics: [one]}, sink: {format: parquet, path: /data/one}}"


class Airflow:
    """What a task asks of Airflow; ``planned`` are the feeds that were planned."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.planned: list[str] = []
        self.failing = ""
        monkeypatch.setattr(fleet_tasks, "find_connection_in_task", find_connection_from_shell)
        monkeypatch.setattr(fleet_tasks, "planned", self.plan_one)
        monkeypatch.setattr(FleetPlanOperator, "skip", lambda *_, **__: None)

    def plan_one(self, parts: Any, *_: object, **__: object) -> PlanOutcome:
        """Plan one feed."""
        self.planned.append(parts.feed.name)
        if parts.feed.name == self.failing:
            raise KafkaUnavailableError("no broker answers")
        return PlanOutcome(PlanResult.NOTHING_NEW, None, None)

    def plan(self, **conf: object) -> dict[str, Any]:
        """Run the plan task, and return its XCom."""
        self.planned.clear()
        run = SimpleNamespace(conf=conf, dag_id="shop", run_id="1")
        operator = FleetPlanOperator(task_id="plan", fleet=fleet())
        return operator.execute({"dag_run": run, "ti": None}) or {}  # type: ignore[typeddict-item]


def fleet() -> Fleet:
    """Return the fleet as its DAG has it."""
    [found] = fleets_of(files_for_dags("shop"))
    return found


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    """What a task asks of Airflow."""
    return Airflow(monkeypatch)


def test_the_plan_finds_the_feeds_of_topics_and_the_steps_after_it_know_them(
    kafka: Kafka, airflow: Airflow, tmp_path: Path
) -> None:
    (tmp_path / "feeds" / "one.yaml").write_text(ONE)
    assert (airflow.plan(), sorted(airflow.planned)) == ({}, ["one", "shop-orders", "shop-refunds"])
    kafka.topics["shop.New"] = a_topic("shop.New")
    airflow.plan()
    assert sorted(airflow.planned) == ["one", "shop-New", "shop-orders", "shop-refunds"]
    assert sorted(parts_by_name(fleet(), ["one", "shop-New", "gone"])) == ["one", "shop-New"]


def test_a_topic_that_stops_and_a_feed_that_fails_leave_the_others_alone(kafka: Kafka, airflow: Airflow) -> None:
    airflow.plan()
    kafka.topics["shop.Orders"] = a_topic("shop.Orders")
    airflow.failing = "shop-refunds"
    failed = airflow.plan()["failed"]
    assert {name: (each["code"], each["may_retry"]) for name, each in failed.items()} == {
        "shop-refunds": ("KAFKA_UNAVAILABLE", True),
        "shop.yaml#shop.Orders": ("INVALID_FEED", False),
    }
    assert "shop-orders" in airflow.planned


def test_a_run_for_some_feeds_asks_kafka_for_no_topics(kafka: Kafka, airflow: Airflow) -> None:
    airflow.plan()
    kafka.is_down = True
    airflow.plan(feeds=["shop-orders"])
    assert airflow.planned == ["shop-orders"]
    with pytest.raises(AirflowFailException, match=r"found shop-gone; it has shop\.yaml, shop-orders, shop-refunds"):
        airflow.plan(feeds=["shop-gone"])
    airflow.plan(feeds=["shop-gone", "shop-refunds"], retry={"shop-gone": 1})
    assert airflow.planned == ["shop-refunds"]


def test_kafka_that_does_not_answer_fails_the_file_and_not_the_feeds_that_have_their_own(
    kafka: Kafka, airflow: Airflow, tmp_path: Path
) -> None:
    kafka.is_down = True
    with pytest.raises(KafkaUnavailableError):
        airflow.plan()
    (tmp_path / "feeds" / "one.yaml").write_text(ONE)
    assert {name: each["code"] for name, each in airflow.plan()["failed"].items()} == {"shop.yaml": "KAFKA_UNAVAILABLE"}
    assert airflow.planned == ["one"]

    kafka.is_down = False
    airflow.plan(feeds=["shop.yaml"], retry={"shop.yaml": 1})
    assert sorted(airflow.planned) == ["shop-orders", "shop-refunds"]


@pytest.mark.usefixtures("kafka")
def test_each_feed_of_a_topic_is_maintained_and_one_that_fails_leaves_the_others_alone(
    airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.plan()
    done: list[str] = []

    def maintain(parts: FeedParts, _: str) -> None:
        done.append(parts.feed.name)
        if parts.feed.name == "shop-orders":
            raise KafkaUnavailableError("no broker answers")

    monkeypatch.setattr(maintenance_dag, "find_connection_in_task", find_connection_from_shell)
    monkeypatch.setattr(maintenance_dag, "steps_of", lambda *_, **__: ["clean"])
    monkeypatch.setattr(maintenance_dag, "STEPS", {"clean": maintain})
    context: Any = {"dag_run": SimpleNamespace(dag_id="maintain_feeds", run_id="1")}
    assert MaintainFleetOperator(task_id="shop.fleet", fleet="shop").execute(context) == 0, "none was planned"
    monkeypatch.setattr(SqlControlTables, "feed", lambda *_: object())
    with pytest.raises(AirflowException, match="else was done: shop-orders: KAFKA_UNAVAILABLE: no broker answers"):
        MaintainFleetOperator(task_id="shop.fleet", fleet="shop").execute(context)
    assert done == ["shop-orders", "shop-refunds"]


@pytest.mark.usefixtures("kafka")
def test_the_feeds_of_topics_are_maintained_in_the_pool_that_their_file_names(tmp_path: Path) -> None:
    shop = tmp_path / "feeds" / "shop.yaml"
    shop.write_text(shop.read_text().replace("feed:", "feed:\n  airflow: {pool: kafka, owner: data}", 1))
    task = maintenance_dag.maintenance_dag().get_task("shop.fleet")
    assert (task.pool, task.owner) == ("kafka", "data")


@pytest.mark.usefixtures("kafka")
def test_the_maintenance_has_one_task_for_a_fleet_however_many_feeds_it_has(tmp_path: Path) -> None:
    feeds = tmp_path / "feeds"
    for name in ("one", "two"):
        (feeds / f"{name}.yaml").write_text(ONE.replace("one", name))
    (feeds / "alone.yaml").write_text(ONE.replace("one", "alone").replace("fleet: shop", "schedule: null"))
    assert sorted(maintenance_dag.maintenance_dag().task_ids) == ["alone.clean", "alone.headroom", "shop.fleet"]


@pytest.mark.usefixtures("kafka")
def test_feeds_of_a_fleet_that_share_an_output_are_cleaned_by_its_task_and_their_files_are_red_ones(
    airflow: Airflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    airflow.plan()
    for name in ("one", "two"):
        same = ONE.replace("one", name).replace(f"/data/{name}", "/data/same")
        (tmp_path / "feeds" / f"{name}.yaml").write_text(same)
    tasks = ["feed_error__one.yaml", "feed_error__two.yaml", "shop.fleet"]
    assert sorted(maintenance_dag.maintenance_dag().task_ids) == tasks
    done: list[tuple[str, bool]] = []

    def steps_of(feed: Feed, *, is_shared: bool) -> list[str]:
        done.append((feed.name, is_shared))
        return []

    monkeypatch.setattr(maintenance_dag, "find_connection_in_task", find_connection_from_shell)
    monkeypatch.setattr(maintenance_dag, "steps_of", steps_of)
    monkeypatch.setattr(SqlControlTables, "feed", lambda *_: object())
    context: Any = {"dag_run": SimpleNamespace(dag_id="maintain_feeds", run_id="1")}
    assert MaintainFleetOperator(task_id="shop.fleet", fleet="shop").execute(context) == 4
    assert sorted(done) == [("one", True), ("shop-orders", False), ("shop-refunds", False), ("two", True)]
