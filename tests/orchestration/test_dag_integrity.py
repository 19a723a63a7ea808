"""What Airflow makes of the DAG files, without running a task."""

import ast
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.orchestration.airflow_forks import airflow_forks
from tests.project import Answer, Project

from kafka_ingest.verbs.operate_form import FIELDS

OWN = ("backfill_offsets", "check_feeds", "maintain_feeds", "operate_feed")
ROOT = Path(__file__).resolve().parents[2]
DESCRIBE = Path(__file__).with_name("describe_dags.py")


def describe(project: Project, dags: Path = ROOT / "dags", **environment: str) -> dict[str, Any]:
    return described(airflow_forks().run(project, DESCRIBE, dags, **environment))


def described(answer: Answer) -> dict[str, Any]:
    assert answer.exit_code == 0, answer.stderr[-3000:]
    return json.loads(answer.stdout.partition("RESULT")[2])


USABLE = sorted(["orders", "re.funds", "stock", "a", "b", *(LIKE_CODE := ["dag", "dag_of", "error_dag", "files"])])
PATTERN = "name: p\nkafka: {topic_pattern: '%s'}\nsink: {format: parquet, path: p}\n"
SMALLEST = "name: {0}\nkafka: {{topics: [t]}}\nsink: {{format: parquet, path: {0}}}\n"
BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
UNUSABLE = {
    "broken": "name: broken\nkafka: [",
    "typo": "name: typo\nkafka: {topics: [t], gruop: g}\nsink: {format: parquet, path: t}",
    "daily": SMALLEST.format("daily") + "schedule: '@daily'\nnmae: x\n",
    **{name: SMALLEST.format(name) for name in OWN},
    "a b": "nothing: here",
    "a_b": "nothing: here",
    "number": SMALLEST.format("number") + f"limits: {{max_records: 0x{'f' * 4000}}}\n",
    "digits": SMALLEST.format("digits") + f"limits: {{max_records: {'9' * 5000}}}\n",
    "bool": SMALLEST.format("bool") + "schedule: !!bool abc\n",
    "timestamp": SMALLEST.format("timestamp") + "start: !!timestamp abc\n",
    "repetition": PATTERN % "a{1,99999999999}",
    "parentheses": PATTERN % ("(" * 5000 + ")" * 5000),
    "bomb": BOMB,
    "deep": "[" * 100_000,
    "bytes": "\udcff\udcfe",
    "odd\n\udce9": "name: [",
}


@pytest.fixture(scope="module")
def offline(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Feeds, and files that are none, of a project without connections, broker or databases.

    Reading DAG files must not need them.
    """
    made = Project(tmp_path_factory.mktemp("offline") / "project", "127.0.0.1:1")
    for name in ("KAFKA_DEFAULT", "SPARK_DEFAULT", "KAFKA_INGEST"):
        del made.environment[f"AIRFLOW_CONN_{name}"]
    made.write_feed(
        "orders",
        schedule="*/5 * * * *",
        control_retention="365d",
        airflow={"retries": 2, "owner": "data", "tags": ["sales"], "pool": "kafka"},
        alerts={"lag": 5, "notify": [{"notifier": "no.such.Notifier"}]},
    )
    made.write_feed("refunds", name="re.funds", kafka={"topics": ["refunds"]})
    for name in ("a", "b"):
        made.write_feed(name, name=name, kafka={"topics": [name], "group": "g"})
    for name in ("stock", *LIKE_CODE):
        made.write_feed("topic", name=name)
    (made.feeds / "copy.yaml").write_text((made.feeds / "stock.yaml").read_text())
    for name, text in UNUSABLE.items():
        (made.feeds / f"{name}.yaml").write_bytes(os.fsencode(text))
    (made.feeds / "dangling.yaml").symlink_to(made.home / "absent")
    (made.feeds / "folder.yaml").mkdir()
    (made.feeds / "device.yaml").symlink_to("/dev/zero")
    os.mkfifo(made.feeds / "pipe.yaml")
    return made


@pytest.fixture(scope="module")
def found(offline: Project) -> dict[str, Any]:
    """What is read by a process that has imported nothing before."""
    return described(offline.command(sys.executable, DESCRIBE, ROOT / "dags"))


@pytest.fixture(scope="module")
def dags(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return found["dags"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def without(offline: Project) -> dict[str, Any]:
    """What is read where the folder of feed files is not there, with another number of chunks at a time."""
    return describe(offline, KAFKA_INGEST_FEEDS=str(offline.home / "absent_feeds"), KAFKA_INGEST_BACKFILL_CHUNKS="5")


def red(dags: dict[str, Any]) -> set[str]:
    return {name for name in dags if name.startswith("feed_error__")}


def test_every_dag_file_imports_without_a_broker_a_database_or_a_connection(found: dict[str, Any]) -> None:
    assert found["import_errors"] == {}
    assert found["opened"] == [], "reading a DAG file does not pay for Spark or Arrow"


def test_a_feeds_dag_is_plan_write_commit_next_batch(dags: dict[str, Any]) -> None:
    dag = dags["orders"]
    assert dag["tasks"] == {"plan": ["write"], "write": ["commit"], "commit": ["next_batch"], "next_batch": []}
    assert dag["retries"] == {"plan": 2, "write": 2, "commit": 2, "next_batch": 2}
    assert dag["tags"] == ["kafka_ingest", "sales"]
    assert dag["owner"] == "data"
    assert dag["pools"] == ["kafka"]
    assert dag["params"] == {"max_records": None, "end_timestamp": None, "end_offsets": None}
    assert "name: orders" in dag["doc"].partition("```yaml\n")[2]


def test_a_feeds_dag_never_catches_up_by_dates_nor_runs_twice_at_once(dags: dict[str, Any]) -> None:
    dag = dags["orders"]
    assert dag["catchup"] is False
    assert dag["max_active_runs"] == 1
    assert dag["run_types"] == ["manual", "operator_triggered", "scheduled"]
    assert dag["schedule"] == "*/5 * * * *"


def test_what_is_written_is_committed_before_another_feed_begins(dags: dict[str, Any]) -> None:
    assert set(dags["orders"]["weights"].values()) == {"upstream"}


def test_only_the_batch_id_is_rendered_so_nothing_that_reaches_spark_is_stored_by_airflow(dags: dict[str, Any]) -> None:
    rendered = dags["orders"]["rendered"]
    assert rendered["write"] == rendered["commit"] == rendered["next_batch"] == ["batch_id"]


def test_no_file_takes_the_feeds_dags_down_whatever_is_in_it_or_its_name_and_each_is_red(dags: dict[str, Any]) -> None:
    files = 4 + len(UNUSABLE) + len(["copy", "stock", "a", "b"])
    assert (len(red(dags)), sorted(dags.keys() - red(dags) - set(OWN))) == (files, USABLE)
    assert all(len(dags[name]["doc"]) < 5_000 for name in red(dags))
    typo = dags["feed_error__typo.yaml"]
    assert "kafka.gruop: unknown key" in typo["doc"]
    assert "feed-error" in typo["tags"]


def test_a_broken_file_is_red_on_its_own_schedule_and_not_paused_as_new_dags_are(dags: dict[str, Any]) -> None:
    red_dags = {name: dags[name] for name in red(dags)}
    found = {name: (dag["schedule"], dag["paused_at_first"], dag["catchup"]) for name, dag in red_dags.items()}
    assert found["feed_error__daily.yaml"] == ("@daily", False, False)
    assert found["feed_error__broken.yaml"] == ("@hourly", False, False)


def test_of_two_files_of_one_name_the_one_named_after_it_keeps_its_dag_and_both_are_red(dags: dict[str, Any]) -> None:
    # Whether the control tables know it is asked when it is planned: reading DAG files needs no database.
    assert {"feed_error__copy.yaml", "feed_error__stock.yaml", "stock"} <= dags.keys()
    assert "copy" not in dags
    assert "stock.yaml" in dags["feed_error__copy.yaml"]["doc"]


def test_two_feeds_that_share_a_group_each_keep_their_dag_and_are_red_beside(dags: dict[str, Any]) -> None:
    assert {"a", "b", "feed_error__a.yaml", "feed_error__b.yaml"} <= dags.keys()
    maintained = dags["maintain_feeds"]["tasks"]
    of_both = sorted(task for task in maintained if task.startswith(("a.", "b.")))
    assert of_both == ["a.clean", "a.headroom", "b.clean", "b.headroom"], "neither moves the group"


def test_a_folder_of_feed_files_that_is_not_there_is_a_dag_that_says_so(without: dict[str, Any]) -> None:
    assert without["import_errors"] == {}
    [name] = without["dags"].keys() - set(OWN)
    assert "absent_feeds" in without["dags"][name]["doc"]
    assert list(without["dags"]["maintain_feeds"]["tasks"]) == [name]


@pytest.mark.parametrize("path", sorted((ROOT / "dags").glob("*.py")), ids=lambda path: path.name)
def test_a_dag_file_is_wiring_without_input_or_output_at_the_top_level(path: Path) -> None:
    tree = ast.parse(path.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}

    assert not imported & {"confluent_kafka", "sqlalchemy", "pyspark", "requests", "kafka_ingest.assembly"}


def test_every_feed_that_can_be_used_is_looked_after_once_a_day_in_its_own_pool(dags: dict[str, Any]) -> None:
    dag = dags["maintain_feeds"]
    of_orders = ["orders.clean", "orders.fold", "orders.headroom", "orders.mirror"]
    of_refunds = ["re.funds.clean", "re.funds.headroom"]
    assert sorted(each for each in dag["tasks"] if each.startswith("orders.")) == of_orders
    assert sorted(each for each in dag["tasks"] if each.startswith("re.")) == of_refunds, "without a group, no mirror"
    assert {each for each in dag["tasks"] if each.startswith("feed_error__")} == red(dags)
    assert {each.rpartition(".")[0] for each in dag["tasks"].keys() - red(dags)} == set(USABLE)
    assert dag["pools"] == ["default_pool", "kafka"]
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("@daily", False, 1)


def test_a_feed_with_a_control_retention_is_folded_after_its_clean_up_whatever_becomes_of_that(
    dags: dict[str, Any],
) -> None:
    tasks = dags["maintain_feeds"]["tasks"]
    assert tasks["orders.clean"] == ["orders.fold"]
    assert [task for task in tasks if task.endswith(".fold")] == ["orders.fold"]
    assert dags["maintain_feeds"]["trigger_rules"]["orders.fold"] == "all_done"
    compared = [task for task in dags["maintain_feeds"]["compared"] if task.startswith("orders.")]
    assert compared == ["orders.fold", "orders.mirror"], "what may be another feed's"
    assert {task for task, after in tasks.items() if after} == {"orders.clean"}, "one that fails holds no other up"


def test_feeds_are_looked_at_every_five_minutes_by_one_task_that_the_next_run_repeats(dags: dict[str, Any]) -> None:
    dag = dags["check_feeds"]
    assert (dag["tasks"], dag["retries"]) == ({"check": []}, {"check": 0})
    assert (dag["schedule"], dag["catchup"], dag["max_active_runs"]) == ("*/5 * * * *", False, 1)


def test_backfills_are_run_by_hand_chunk_by_chunk_some_at_a_time(dags: dict[str, Any], without: dict[str, Any]) -> None:
    dag, more = dags["backfill_offsets"], without["dags"]["backfill_offsets"]
    assert dag["tasks"] == {
        "plan": ["chunk.commit", "chunk.write"],
        "chunk.write": ["chunk.commit"],
        "chunk.commit": [],
    }
    assert (dag["schedule"], dag["run_types"]) == ("None", ["manual", "operator_triggered"])
    assert (dag["at_a_time"]["chunk.write"], more["at_a_time"]["chunk.write"]) == (2, 5)
    assert dag["rendered"]["chunk.write"] == dag["rendered"]["chunk.commit"] == ["batch_id"]


def test_decisions_are_offered_for_each_feed_that_has_a_file_and_are_tried_once(
    dags: dict[str, Any], without: dict[str, Any]
) -> None:
    dag = dags["operate_feed"]
    assert dag["tasks"] == {"operate": []}
    assert dag["retries"] == {"operate": 0}
    assert (dag["schedule"], dag["run_types"]) == ("None", ["manual", "operator_triggered"])
    assert dag["rendered"] == {"operate": []}, "what is typed into the form is no template"
    files = {*USABLE, *UNUSABLE, "copy", "dangling", "device", "folder", "pipe"}
    that_can_be_names = sorted(files - {"a b", "odd\n\udce9"})
    assert dag["schemas"]["feed"]["enum"] == [*that_can_be_names, None]
    assert "enum" not in without["dags"]["operate_feed"]["schemas"]["feed"]
    of_action = dag["schemas"]["action"]
    assert [*of_action["values_display"]] == of_action["enum"], "each action is explained where it is chosen"
    fields = {"feed", "reason", *frozenset().union(*FIELDS.values())}
    ticks = dict.fromkeys(("show_values", "keep_group", "lost_output", "create"), False)
    assert dag["params"] == dict.fromkeys(fields) | ticks | {"action": "plan", "dry_run": True}


def test_help_texts_of_forms_hold_no_code_which_airflow_draws_over_the_text(dags: dict[str, Any]) -> None:
    helps = [
        schema["description_md"]
        for dag in dags.values()
        for schema in dag["schemas"].values()
        if "description_md" in schema
    ]
    assert len(helps) > 30
    assert [text for text in helps if "`" in text] == []


@pytest.mark.parametrize("name", OWN)
def test_a_feed_cannot_take_the_place_of_one_of_the_projects_own_dags(dags: dict[str, Any], name: str) -> None:
    assert "one of the project's own DAGs" in dags[f"feed_error__{name}.yaml"]["doc"]
