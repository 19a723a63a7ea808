"""The backfill DAG, run by Airflow on real parts: chunk by chunk, beside a feed whose live position stays."""

import sys
from pathlib import Path

import pytest
from tests.kafka_faults import Record
from tests.kafka_faults import produce as send
from tests.orchestration.conftest import Airflow, commits_in, java_like_spark, lineage_into
from tests.project import Project

from embedded_broker import EmbeddedBroker
from order_events import order_events, produce

ROOT = Path(__file__).resolve().parents[2]


def states(run: dict) -> dict[str, str]:
    return {task: state for task, (state, _) in run["tasks"].items()}


def offsets(project: Project, partition: int) -> list[int]:
    return [row["kafka_offset"] for row in project.rows() if row["kafka_partition"] == partition]


@pytest.fixture
def behind(project: Project, broker: EmbeddedBroker, topic: str) -> Project:
    """A feed that began at the end of its topic: everything before is still to be read."""
    project.write_feed(topic, start="latest")
    produce(broker.bootstrap_servers, topic, list(order_events(200, seed=6)))
    project.run()
    assert project.rows() == []
    return project


def java_that_first(home: Path, command: str) -> Path:
    """Return a JAVA_HOME whose java runs a command before its first stand-in for Spark."""
    return java_like_spark(home / "java", f"if mkdir {home}/was-first 2>/dev/null; then {command} >&2; fi")


def test_ranges_are_read_in_chunks_as_mapped_tasks_with_their_lineage_and_the_live_position_stays(
    airflow: Airflow, behind: Project, topic: str
) -> None:
    events = behind.home / "lineage.jsonl"
    before = behind.stored_offsets(), behind.group_offsets()
    end = before[0][0]
    half = end // 2 + 1

    run = airflow.run(
        "backfill_offsets",
        # As a task that triggers it adds it, where OpenLineage's provider is installed.
        conf={"feed": "orders", "offset_ranges": [f"{topic}:0=0-{end}"], "max_records": half, "openlineage": {}},
        **lineage_into(events),
    )

    assert run["state"] == "success", airflow.log[-5000:]
    assert states(run) == {
        "plan": "success",
        "chunk.write[0]": "success",
        "chunk.write[1]": "success",
        "chunk.commit[0]": "success",
        "chunk.commit[1]": "success",
    }
    assert offsets(behind, 0) == list(range(end))
    assert [label.partition(", batch ")[0] for label in airflow.labels] == sorted(
        2 * [f"{topic}-0[0, {half})", f"{topic}-0[{half}, {end})"]
    )
    assert (behind.stored_offsets(), behind.group_offsets()) == before
    batches = behind.kafka_ingest("batches", "orders", "--kind", "backfill", "--json").document["batches"]
    assert [batch["committed_by"] for batch in batches] == [f"airflow:backfill_offsets/{run['run_id']}"] * 2
    assert "kafka_ingest/orders" in airflow.log, "the feed's Asset is announced"
    facets = [
        each["run"]["facets"]["kafkaIngest_batch"] for each in commits_in(events, "backfill_offsets.chunk.commit")
    ]
    assert {(each["batchId"], each["kind"]) for each in facets} == {(each["batch_id"], "backfill") for each in batches}


def test_a_chunk_that_fails_leaves_the_others_committed_and_says_how_to_continue(
    airflow: Airflow, behind: Project, broker: EmbeddedBroker, topic: str
) -> None:
    ends = behind.stored_offsets()
    # While the first chunk is being read, retention takes a record of the second one.
    delete = (
        f"from tests.kafka_faults import delete_records; delete_records('{broker.bootstrap_servers}', '{topic}', 1, 1)"
    )
    java = java_that_first(behind.home, f'PYTHONPATH={ROOT}:{ROOT}/dev {sys.executable} -c "{delete}"')
    ranges = [f"{topic}:0=0-{ends[0]}", f"{topic}:1=0-{ends[1]}"]

    run = airflow.run(
        "backfill_offsets",
        conf={"feed": "orders", "offset_ranges": ranges, "max_records": ends[0], "only": None},
        JAVA_HOME=str(java),
    )

    assert run["state"] == "failed"
    failed = [task for task, state in states(run).items() if state == "failed"]
    assert failed
    assert all(task.startswith("chunk.write") for task in failed)
    assert all(run["tasks"][task][1] == 1 for task in failed), "a range that is gone is not tried again"
    assert "RECORDS_DELETED" in airflow.log
    assert "kafka-ingest abandon" in airflow.log
    committed = [task for task, state in states(run).items() if task.startswith("chunk.commit") and state == "success"]
    assert committed
    assert behind.rows()


def test_a_copy_of_what_came_until_a_time_goes_to_its_own_output_and_is_not_made_twice(
    airflow: Airflow, behind: Project
) -> None:
    before = (
        behind.stored_offsets(),
        behind.group_offsets(),
        behind.kafka_ingest("coverage", "orders", "--json").document,
    )
    form = {"feed": "orders", "to_timestamp": "2999-01-01T00:00:00Z", "mode": "copy", "output": "again"}

    run = airflow.run("backfill_offsets", conf=form)
    again = airflow.run("backfill_offsets", conf={**form, "overlap": "refuse"})

    assert run["state"] == "success", airflow.log[-5000:]
    assert len(behind.rows("again")) == 200
    assert behind.rows() == []
    assert states(again)["plan"] == "failed"
    assert "RANGES_TAKEN: " in airflow.log
    assert len(behind.rows("again")) == 200
    after = (
        behind.stored_offsets(),
        behind.group_offsets(),
        behind.kafka_ingest("coverage", "orders", "--json").document,
    )
    assert after == before


def test_dead_letters_are_replayed_from_the_form_and_announced(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    send(broker.bootstrap_servers, topic, 0, [Record(b"{}"), Record(b"one"), Record(b"two")])
    project.write_feed(topic, value={"format": "json"})
    [batch] = project.run(JAVA_HOME=str(airflow.java_like_spark))
    assert [row["value"] for row in project.rows()] == [b"{}"]
    project.write_feed(topic, value="string")

    run = airflow.run(
        "backfill_offsets",
        conf={"feed": "orders", "mode": "replay", "batch_id": batch["batch_id"], "causes": ["NOT_JSON"]},
    )

    assert run["state"] == "success", airflow.log[-5000:]
    assert states(run) == {"plan": "success", "chunk.write[0]": "success", "chunk.commit[0]": "success"}
    assert [row["value"] for row in project.rows()] == [b"{}", b"one", b"two"]
    assert project.stored_offsets()[0] == 3
    [replayed] = project.kafka_ingest("batches", "orders", "--kind", "replay", "--json").document["batches"]
    assert replayed["batch_id"] in airflow.announced


def test_what_cannot_be_read_fails_the_first_task_at_once_and_plans_nothing(
    airflow: Airflow, behind: Project, topic: str
) -> None:
    end = behind.stored_offsets()[0]

    run = airflow.run("backfill_offsets", conf={"feed": "orders", "offset_ranges": [f"{topic}:0=0-{end + 1}"]})

    assert states(run)["plan"] == "failed"
    assert run["tasks"]["plan"][1] == 1, "a wrong form is not tried again"
    assert f"stored offset {end:,}" in airflow.log
    assert behind.kafka_ingest("batches", "orders", "--json").document["batches"] == []


def test_where_nothing_is_left_to_read_the_run_is_green_and_its_chunks_are_skipped(
    airflow: Airflow, behind: Project
) -> None:
    run = airflow.run("backfill_offsets", conf={"feed": "orders", "open_gaps": True})

    assert run["state"] == "success"
    assert states(run) == {"plan": "success", "chunk.write": "skipped", "chunk.commit": "skipped"}
    assert "nothing to read" in airflow.log
    assert behind.rows() == []


def test_what_a_run_that_died_has_claimed_is_named_and_another_run_continues_with_it(
    airflow: Airflow, behind: Project, topic: str
) -> None:
    end = behind.stored_offsets()[0]
    conf = {"feed": "orders", "offset_ranges": [f"{topic}:0=0-{end}"]}

    died = airflow.run(
        "backfill_offsets", "kafka_ingest.airflow_tasks.dags.backfill_dag.BackfillPlanOperator._log_decision", conf=conf
    )
    again = airflow.run("backfill_offsets", conf=conf)

    assert died == {}
    # It is another run: what the first one has claimed is not this one's, and "nothing to do" would be taken for done.
    assert states(again)["plan"] == "failed"
    assert "claimed by open backfills" in airflow.log
    [chunk] = behind.kafka_ingest("batches", "orders", "--json").document["batches"]
    assert chunk["state"] == "PLANNED"

    resumed = airflow.run("backfill_offsets", conf={"feed": "orders", "open_chunks": True})

    assert resumed["state"] == "success"
    assert offsets(behind, 0) == list(range(end))
