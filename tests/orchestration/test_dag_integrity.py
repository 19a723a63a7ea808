"""What Airflow makes of the DAG files, without running a task."""

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.orchestration.airflow_forks import airflow_forks
from tests.project import Project

from kafka_ingest.verbs.form import FIELDS

ROOT = Path(__file__).resolve().parents[2]
DESCRIBE = Path(__file__).with_name("describe_dags.py")


def describe(project: Project, dags: Path = ROOT / "dags", **environment: str) -> dict[str, Any]:
    answer = airflow_forks().run(project, DESCRIBE, dags, **environment)
    assert answer.exit_code == 0, answer.stderr[-3000:]
    return json.loads(answer.stdout.partition("RESULT")[2])


def feed_dags(found: dict[str, Any]) -> list[str]:
    """Return the names of the DAGs that feed files made."""
    return sorted(found["dags"].keys() - {"backfill_offsets", "check_feeds", "maintain_feeds", "operate_feed"})


@pytest.fixture
def offline(tmp_path: Path) -> Project:
    """A project whose broker and databases do not exist: reading DAG files must not need them."""
    return Project(tmp_path / "project", "127.0.0.1:1")


def test_every_dag_file_imports_without_a_broker_a_database_or_a_connection(offline: Project) -> None:
    offline.write_feed("orders")
    for name in ("AIRFLOW_CONN_KAFKA_DEFAULT", "AIRFLOW_CONN_SPARK_DEFAULT", "AIRFLOW_CONN_KAFKA_INGEST"):
        del offline.environment[name]

    found = describe(offline)

    assert found["import_errors"] == {}
    assert feed_dags(found) == ["orders"]
    assert found["opened"] == [], "reading a DAG file does not pay for Spark or Arrow"


def test_a_feeds_dag_is_plan_write_commit_next_batch(offline: Project) -> None:
    offline.write_feed("orders", airflow={"retries": 2, "owner": "data", "tags": ["sales"], "pool": "kafka"})

    dag = describe(offline)["dags"]["orders"]

    assert dag["tasks"] == {"plan": ["write"], "write": ["commit"], "commit": ["next_batch"], "next_batch": []}
    assert dag["retries"] == {"plan": 2, "write": 2, "commit": 2, "next_batch": 2}
    assert dag["tags"] == ["kafka_ingest", "sales"]
    assert dag["owner"] == "data"
    assert dag["pools"] == ["kafka"]
    assert dag["params"] == {"max_records": None, "end_timestamp": None, "end_offsets": None}
    assert "name: orders" in dag["doc"].partition("```yaml\n")[2]


def test_a_feeds_dag_never_catches_up_by_dates_nor_runs_twice_at_once(offline: Project) -> None:
    offline.write_feed("orders", schedule="*/5 * * * *")

    dag = describe(offline)["dags"]["orders"]

    assert dag["catchup"] is False
    assert dag["max_active_runs"] == 1
    assert dag["run_types"] == ["manual", "operator_triggered", "scheduled"]
    assert dag["schedule"] == "*/5 * * * *"


def test_what_is_written_is_committed_before_another_feed_begins(offline: Project) -> None:
    offline.write_feed("orders")

    assert set(describe(offline)["dags"]["orders"]["weights"].values()) == {"upstream"}


def test_only_the_batch_id_is_rendered_so_nothing_that_reaches_spark_is_stored_by_airflow(offline: Project) -> None:
    offline.write_feed("orders")

    rendered = describe(offline)["dags"]["orders"]["rendered"]

    assert rendered["write"] == rendered["commit"] == rendered["next_batch"] == ["batch_id"]


def test_one_broken_feed_file_never_takes_the_other_feeds_dags_down(offline: Project) -> None:
    offline.write_feed("orders")
    offline.write_feed("refunds", name="refunds")
    (offline.feeds / "broken.yaml").write_text("name: broken\nkafka: [")
    (offline.feeds / "typo.yaml").write_text(
        "name: typo\nkafka: {topics: [t], gruop: g}\nsink: {format: parquet, path: t}"
    )

    found = describe(offline)

    assert found["import_errors"] == {}
    assert feed_dags(found) == ["feed_error__broken.yaml", "feed_error__typo.yaml", "orders", "refunds"]
    typo = found["dags"]["feed_error__typo.yaml"]
    assert "kafka.gruop: unknown key" in typo["doc"]
    assert "feed-error" in typo["tags"]


def test_a_broken_file_is_red_on_its_own_schedule_and_not_paused_as_new_dags_are(offline: Project) -> None:
    offline.write_feed("daily", name="daily", schedule="@daily", nmae="x")
    (offline.feeds / "broken.yaml").write_text("name: [")

    dags = describe(offline)["dags"]

    found = {name: (dag["schedule"], dag["paused_at_first"], dag["catchup"]) for name, dag in dags.items()}
    assert found["feed_error__daily.yaml"] == ("@daily", False, False)
    assert found["feed_error__broken.yaml"] == ("@hourly", False, False)


def test_no_feed_file_takes_the_other_feeds_dags_down_whatever_is_in_it(offline: Project) -> None:
    offline.write_feed("orders")
    smallest = "name: {0}\nkafka: {{topics: [t]}}\nsink: {{format: parquet, path: {0}}}\n"
    pattern = "name: p\nkafka: {topic_pattern: '%s'}\nsink: {format: parquet, path: p}\n"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
        for before, name in zip("abcdefgh", "bcdefghi", strict=True)
    )
    contents = {
        "number": smallest.format("number") + f"limits: {{max_records: 0x{'f' * 4000}}}\n",
        "digits": smallest.format("digits") + f"limits: {{max_records: {'9' * 5000}}}\n",
        "bool": smallest.format("bool") + "schedule: !!bool abc\n",
        "timestamp": smallest.format("timestamp") + "start: !!timestamp abc\n",
        "repetition": pattern % "a{1,99999999999}",
        "parentheses": pattern % ("(" * 5000 + ")" * 5000),
        "bomb": bomb,
        "deep": "[" * 100_000,
        "bytes": "\udcff\udcfe",
        "odd\n\udce9": "name: [",
    }
    for name, text in contents.items():
        (offline.feeds / f"{name}.yaml").write_bytes(os.fsencode(text))
    (offline.feeds / "dangling.yaml").symlink_to(offline.home / "absent")
    (offline.feeds / "folder.yaml").mkdir()
    (offline.feeds / "device.yaml").symlink_to("/dev/zero")
    os.mkfifo(offline.feeds / "pipe.yaml")

    found = describe(offline)

    assert found["import_errors"] == {}
    names = feed_dags(found)
    assert names[-1] == "orders"
    assert len(names) == len(contents) + 5
    assert all(len(found["dags"][name]["doc"]) < 5_000 for name in names[:-1])


def test_of_two_files_of_one_name_the_one_named_after_it_keeps_its_dag_and_both_are_red(offline: Project) -> None:
    offline.write_feed("orders")
    (offline.feeds / "copy.yaml").write_text((offline.feeds / "orders.yaml").read_text())
    offline.write_feed("refunds", name="refunds")

    found = describe(offline)

    # Whether the control tables know it is asked when it is planned: reading DAG files needs no database.
    assert feed_dags(found) == ["feed_error__copy.yaml", "feed_error__orders.yaml", "orders", "refunds"]
    assert "orders.yaml" in found["dags"]["feed_error__copy.yaml"]["doc"]


def test_two_feeds_that_share_a_group_each_keep_their_dag_and_are_red_beside(offline: Project) -> None:
    offline.write_feed("a", name="a", kafka={"topics": ["a"], "group": "g"})
    offline.write_feed("b", name="b", kafka={"topics": ["b"], "group": "g"})

    found = describe(offline)

    assert feed_dags(found) == ["a", "b", "feed_error__a.yaml", "feed_error__b.yaml"]
    maintained = found["dags"]["maintain_feeds"]["tasks"]
    assert sorted(maintained) == [
        *["a.clean", "a.headroom", "b.clean", "b.headroom", "feed_error__a.yaml", "feed_error__b.yaml"]
    ], "neither moves the group"


def test_a_folder_of_feed_files_that_is_not_there_is_a_dag_that_says_so(offline: Project) -> None:
    found = describe(offline, KAFKA_INGEST_FEEDS=str(offline.home / "absent_feeds"))

    assert found["import_errors"] == {}
    [name] = feed_dags(found)
    assert "absent_feeds" in found["dags"][name]["doc"]
    assert list(found["dags"]["maintain_feeds"]["tasks"]) == [name]


@pytest.mark.parametrize("path", sorted((ROOT / "dags").glob("*.py")), ids=lambda path: path.name)
def test_a_dag_file_is_wiring_without_input_or_output_at_the_top_level(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert not imported & {"confluent_kafka", "sqlalchemy", "pyspark", "requests", "kafka_ingest.assembly"}


def test_a_feed_named_like_something_in_the_dag_file_takes_no_other_feed_down(offline: Project) -> None:
    names = ["dag", "dag_of", "error_dag", "files", "orders"]
    for name in names:
        offline.write_feed("topic", name=name)

    found = describe(offline)

    assert found["import_errors"] == {}
    assert feed_dags(found) == names


def test_broken_files_with_similar_names_each_have_a_dag(offline: Project) -> None:
    for name in ("a b.yaml", "a_b.yaml"):
        (offline.feeds / name).write_text("nothing: here")

    assert len(feed_dags(describe(offline))) == 2


def test_every_feed_that_can_be_used_is_looked_after_once_a_day_in_its_own_pool(offline: Project) -> None:
    offline.write_feed("orders", airflow={"pool": "kafka"})
    offline.write_feed("refunds", name="re.funds", kafka={"topics": ["refunds"]})
    (offline.feeds / "broken.yaml").write_text("name: broken\nkafka: [")

    dag = describe(offline)["dags"]["maintain_feeds"]

    of_orders = ["orders.clean", "orders.headroom", "orders.mirror"]
    of_refunds = ["re.funds.clean", "re.funds.headroom"]
    assert sorted(dag["tasks"]) == ["feed_error__broken.yaml", *of_orders, *of_refunds], "without a group, no mirror"
    assert set(map(tuple, dag["tasks"].values())) == {()}, "one that fails holds no other up"
    assert dag["pools"] == ["default_pool", "kafka"]
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("@daily", False, 1)


def test_a_feed_with_a_control_retention_is_folded_after_its_clean_up_whatever_becomes_of_that(
    offline: Project,
) -> None:
    offline.write_feed("orders", control_retention="365d")
    offline.write_feed("refunds", name="refunds")

    tasks = describe(offline)["dags"]["maintain_feeds"]["tasks"]

    assert tasks["orders.clean"] == ["orders.fold"]
    assert [task for task in tasks if task.endswith(".fold")] == ["orders.fold"]


def test_feeds_are_looked_at_every_five_minutes_by_one_task_that_the_next_run_repeats(offline: Project) -> None:
    offline.write_feed("orders", alerts={"lag": 5, "notify": [{"notifier": "no.such.Notifier"}]})

    found = describe(offline)

    assert (found["import_errors"], feed_dags(found)) == ({}, ["orders"])
    dag = found["dags"]["check_feeds"]
    assert (dag["tasks"], dag["retries"]) == ({"check": []}, {"check": 0})
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("*/5 * * * *", False, 1)


def test_backfills_are_run_by_hand_chunk_by_chunk_some_at_a_time(offline: Project) -> None:
    offline.write_feed("orders")
    offline.write_feed("refunds", name="refunds")

    dag = describe(offline)["dags"]["backfill_offsets"]
    more = describe(offline, KAFKA_INGEST_BACKFILL_CHUNKS="5")["dags"]["backfill_offsets"]

    assert dag["tasks"] == {
        "plan": ["chunk.commit", "chunk.write"],
        "chunk.write": ["chunk.commit"],
        "chunk.commit": [],
    }
    assert (dag["schedule"], dag["run_types"]) == ("None", ["manual", "operator_triggered"])
    assert (dag["at_a_time"]["chunk.write"], more["at_a_time"]["chunk.write"]) == (2, 5)
    assert dag["rendered"]["chunk.write"] == dag["rendered"]["chunk.commit"] == ["batch_id"]


def test_decisions_are_offered_for_each_feed_that_has_a_file_and_are_tried_once(offline: Project) -> None:
    offline.write_feed("orders")
    offline.write_feed("refunds", name="re.funds", nmae="x")
    (offline.feeds / "not a name.yaml").write_text("name: [")

    dag = describe(offline)["dags"]["operate_feed"]
    without = describe(offline, KAFKA_INGEST_FEEDS=str(offline.home / "absent"))["dags"]["operate_feed"]

    assert dag["tasks"] == {"operate": []}
    assert dag["retries"] == {"operate": 0}
    assert (dag["schedule"], dag["run_types"]) == ("None", ["manual", "operator_triggered"])
    assert dag["rendered"] == {"operate": []}, "what is typed into the form is no template"
    assert dag["schemas"]["feed"]["enum"] == ["orders", "re.funds", None]
    assert "enum" not in without["schemas"]["feed"]
    of_action = dag["schemas"]["action"]
    assert [*of_action["values_display"]] == of_action["enum"], "each action is explained where it is chosen"
    fields = {"feed", "reason", *frozenset().union(*FIELDS.values())}
    ticks = dict.fromkeys(("show_values", "keep_group", "lost_output", "create"), False)
    assert dag["params"] == dict.fromkeys(fields) | ticks | {"action": "plan", "dry_run": True}


def test_help_texts_of_forms_hold_no_code_which_airflow_draws_over_the_text(offline: Project) -> None:
    offline.write_feed("orders")

    helps = [
        schema["description_md"]
        for dag in describe(offline)["dags"].values()
        for schema in dag["schemas"].values()
        if "description_md" in schema
    ]

    assert len(helps) > 30
    assert [text for text in helps if "`" in text] == []


@pytest.mark.parametrize("name", ["maintain_feeds", "backfill_offsets", "operate_feed", "check_feeds"])
def test_a_feed_cannot_take_the_place_of_one_of_the_projects_own_dags(offline: Project, name: str) -> None:
    offline.write_feed("orders", name=name)

    found = describe(offline)

    assert feed_dags(found) == [f"feed_error__{name}.yaml"]
    assert "one of the project's own DAGs" in found["dags"][f"feed_error__{name}.yaml"]["doc"]
