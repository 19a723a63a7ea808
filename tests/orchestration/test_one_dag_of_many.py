"""Starting a task builds the DAG that is asked for, and reads no other feed's file.

Reading DAG files builds all of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.orchestration.airflow_forks import airflow_forks
from tests.project import Project

ROOT = Path(__file__).resolve().parents[2]
PARSE = Path(__file__).with_name("parse_as_a_task.py")


def parse(project: Project, *starts: tuple[str, str | None, str | None]) -> dict[str, dict[str, Any]]:
    """Parse a DAG file as the start of a task does: file, DAG, task."""
    answer = airflow_forks().run(project, PARSE, ROOT / "dags", json.dumps(starts))
    assert answer.exit_code == 0, answer.stderr[-3000:]
    found = json.loads(answer.stdout.partition("RESULT")[2])
    assert all(each["import_errors"] == {} for each in found.values())
    return found


@pytest.fixture
def many(tmp_path: Path) -> Project:
    """A project with feeds of all kinds: files called after them, or not, contested and broken ones."""
    project = Project(tmp_path / "project", "127.0.0.1:1")
    for name in ("orders", "refunds", "eu.returns"):
        project.write_feed(name, name=name)
    project.write_feed("stock", name="stock").rename(project.feeds / "team-b.yaml")
    for name in ("first", "second"):
        project.write_feed("t", name=name, kafka={"topics": ["t"], "group": "g"})
    (project.feeds / "broken.yaml").write_text("name: broken\nkafka: [")
    project.write_shop("shop")
    return project


TASKS = ["commit", "next_batch", "plan", "write"]


def test_a_task_of_a_feed_is_started_without_a_look_at_the_other_feeds(many: Project) -> None:
    found = parse(
        many,
        ("ingest_feeds.py", "orders", "write"),
        ("ingest_feeds.py", "eu.returns", "plan"),
        ("ingest_feeds.py", "first", "plan"),
        ("ingest_feeds.py", "shop", "write"),
    )
    assert found["orders write"]["dags"] == {"orders": TASKS}
    assert found["orders write"]["opened"] == ["orders.yaml"]
    assert found["eu.returns plan"]["dags"] == {"eu.returns": TASKS}
    assert found["eu.returns plan"]["opened"] == ["eu.returns.yaml"]
    assert found["first plan"]["dags"] == {"first": TASKS}
    assert found["first plan"]["opened"] == ["first.yaml"]
    assert found["shop write"]["dags"] == {"shop": sorted([*TASKS, "report"])}


def test_a_red_dags_task_is_started_with_its_own_file_alone(many: Project) -> None:
    found = parse(
        many,
        ("ingest_feeds.py", "feed_error__broken.yaml", "feed_error"),
        ("ingest_feeds.py", "feed_error__first.yaml", "feed_error"),
    )
    broken, first = found["feed_error__broken.yaml feed_error"], found["feed_error__first.yaml feed_error"]
    assert (broken["dags"], broken["opened"]) == ({"feed_error__broken.yaml": ["feed_error"]}, ["broken.yaml"])
    assert first["dags"]["feed_error__first.yaml"] == ["feed_error"]
    assert first["opened"] == ["first.yaml"]


def test_a_feed_whose_file_is_called_otherwise_has_its_dag_too(many: Project) -> None:
    found = parse(many, ("ingest_feeds.py", "stock", "commit"), ("ingest_feeds.py", "gone", "commit"))
    assert found["stock commit"]["dags"] == {"stock": TASKS}
    assert found["gone commit"]["dags"] == {}


def test_a_task_of_the_maintenance_is_started_with_its_own_feed_alone(many: Project) -> None:
    found = parse(
        many,
        ("maintain_feeds.py", "maintain_feeds", "eu.returns.clean"),
        ("maintain_feeds.py", "maintain_feeds", "feed_error__broken.yaml"),
        ("maintain_feeds.py", "maintain_feeds", "feed_error__first.yaml"),
        ("maintain_feeds.py", "maintain_feeds", "shop.fleet"),
    )
    clean = found["maintain_feeds eu.returns.clean"]
    assert clean["dags"] == {"maintain_feeds": ["eu.returns.clean", "eu.returns.headroom", "eu.returns.mirror"]}
    assert clean["opened"] == ["eu.returns.yaml"]
    assert found["maintain_feeds feed_error__broken.yaml"]["opened"] == ["broken.yaml"]
    first = found["maintain_feeds feed_error__first.yaml"]
    assert "feed_error__first.yaml" in first["dags"]["maintain_feeds"]
    assert first["opened"] == ["first.yaml"]
    assert found["maintain_feeds shop.fleet"]["dags"] == {"maintain_feeds": ["shop.fleet"]}


def test_a_task_of_a_backfill_is_started_without_a_look_at_any_feed(many: Project) -> None:
    found = parse(
        many,
        ("backfill_offsets.py", "backfill_offsets", "chunk.write"),
        ("backfill_offsets.py", "backfill_offsets", None),
    )
    started = found["backfill_offsets chunk.write"]
    assert started["dags"] == {"backfill_offsets": ["chunk.commit", "chunk.write", "plan"]}
    assert (started["opened"], started["form"]) == ([], [None])
    [offered] = found["backfill_offsets None"]["form"]
    assert "orders" in offered, "`airflow dags test` writes what it reads into Airflow's database: that is the form"


@pytest.mark.parametrize("dag_file", ["backfill_offsets.py", "check_feeds.py", "maintain_feeds.py", "operate_feed.py"])
def test_where_airflow_asks_for_a_feeds_dag_no_other_dag_is_made_and_stored_half(many: Project, dag_file: str) -> None:
    found = parse(many, (dag_file, "orders", None))["orders None"]
    assert found["dags"] == {}
    assert found["opened"] == []


def test_where_no_dag_is_asked_for_all_are_built(many: Project) -> None:
    found = parse(many, ("ingest_feeds.py", None, None))["None None"]
    usable = ["shop", "orders", "refunds", "eu.returns", "stock", "first", "second"]
    red = [f"feed_error__{name}.yaml" for name in ("broken", "first", "second")]
    assert sorted(found["dags"]) == sorted([*usable, *red])
