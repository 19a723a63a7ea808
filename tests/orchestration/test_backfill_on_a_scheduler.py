"""Backfills as a user of Airflow makes them: a form, a real scheduler, a failed chunk that is cleared, a paused DAG."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.orchestration.conftest import java_like_spark
from tests.project import Project
from tests.statsd_server import StatsdServer

from airflow_server import AirflowServer, RestError, running, until
from embedded_broker import EmbeddedBroker
from order_events import order_events, produce


def java_that_fails(home: Path, after: int) -> tuple[Path, Path, Path]:
    """Return a JAVA_HOME whose Spark fails for the batch after ``after`` others while a file exists, and that file.

    It is a stand-in otherwise, and waits while the other file exists.
    """
    fails, waits = home / "java-fails", home / "java-waits"
    fails.touch()
    # Which batch that is, the first look at it decides: its staging directory is among the arguments.
    fail = f"""\
batch=$(echo "$*" | grep -oE 'staging/[0-9a-f-]{{36}}' | head -1)
mkdir -p "{home}/seen"
if [ ! -e "{home}/seen/$(basename "$batch")" ]; then
  before=$(ls "{home}/seen" | wc -l)
  echo "$before" > "{home}/seen/$(basename "$batch")"
fi
if [ -e "{fails}" ] && [ "$(cat "{home}/seen/$(basename "$batch")")" -eq {after} ]; then
  echo 'made to fail' >&2; exit 3
fi
while [ -e "{waits}" ]; do sleep 0.1; done"""
    return java_like_spark(home / "java", fail), fails, waits


@pytest.fixture
def statsd() -> Iterator[StatsdServer]:
    with StatsdServer() as server:
        yield server


def sums(lines: list[str]) -> Counter[str]:
    """Add up a feed's counters, and take the last value of each gauge; timers count how often they were sent."""
    found: Counter[str] = Counter()
    for line in lines:
        name, value, kind = re.split("[:|]", line.removeprefix("airflow.kafka_ingest."))
        if ".orders" not in name:
            continue
        name = name.replace(".orders", "")
        number = 1 if kind == "ms" else int(value)
        found[name] = number if kind == "g" else found[name] + number
    return found


def check_each_task_has_sent_its_metrics(sent: Counter[str], *, rows: int) -> None:
    """Check what came from the processes of a feed's tasks and of a backfill's, one attempt of which has failed."""
    assert sent["rows"] == rows
    assert sent["attempts"] - sent["failed_attempts"] == sent["batches"] == sent["batch_duration"] > 1
    assert sent["failed_attempts"] >= 1
    assert sent["bytes"] > 0
    assert sent["lag"] > 0
    assert sent.keys() >= {"freshness", "holds", "open_gaps", "low_headroom_partitions", "dead_letters", "filtered"}
    steps = {name for name in sent if name.startswith("step_duration.")}
    assert steps == {f"step_duration.{step}" for step in ("plan", "plan_backfill", "write", "commit")}


DAILY_SUMS = """
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, DayWindow, PartitionedAssetTimetable, RollupMapper, StartOfDayMapper

hours = Asset("kafka_ingest/orders/hours")
of_a_day = RollupMapper(upstream_mapper=StartOfDayMapper(), window=DayWindow())
with DAG("daily_sums", schedule=PartitionedAssetTimetable(assets=hours, default_partition_mapper=of_a_day)):
    EmptyOperator(task_id="sum_up")
"""


def consumers_in(folder: Path) -> str:
    """Write a DAG that runs on complete days of the feed, and return Airflow's setting by which it is found."""
    folder.mkdir()
    (folder / "daily_sums.py").write_text(DAILY_SUMS)
    bundle = "airflow.dag_processing.bundles.local.LocalDagBundle"
    folders = {"dags-folder": {}, "consumers": {"path": str(folder)}}
    return json.dumps([{"name": name, "classpath": bundle, "kwargs": path} for name, path in folders.items()])


def read_the_rest_and_wait_for_its_day(airflow: AirflowServer, day: datetime) -> None:
    """Run the feed, and wait for the one run of the DAG that waits for all hours of a day."""
    rest = airflow.trigger("orders", {})
    days = lambda: airflow.call("GET", "/api/v2/dags/daily_sums/dagRuns")["dag_runs"]  # noqa: E731 - asked again
    until(lambda: [each["state"] for each in days()] == ["success"], lambda: (airflow.tasks("orders", rest), days()))
    until(lambda: airflow.run_state("orders", rest) == "success", lambda: airflow.tasks("orders", rest))
    assert [each["partition_key"] for each in days()] == [f"{day:%Y-%m-%d}"]


def read_once(project: Project, ends: dict[int, int]) -> bool:
    """Whether every offset below these is in the output exactly once."""
    found = Counter((row["kafka_partition"], row["kafka_offset"]) for row in project.rows())
    return found == Counter((partition, offset) for partition, end in ends.items() for offset in range(end))


def test_a_backfill_is_triggered_with_a_form_and_a_failed_chunk_is_cleared_alone_while_live_runs_continue(
    project: Project, broker: EmbeddedBroker, topic: str, statsd: StatsdServer
) -> None:
    complete = {"by": "hour", "delay": "1s", "idle_after": "1s"}
    project.write_feed(topic, start="latest", schedule=None, complete=complete)
    produce(broker.bootstrap_servers, topic, list(order_events(600, seed=8)))
    project.run()
    began = project.stored_offsets()
    java_home, fails, waits = java_that_fails(project.home, after=1)
    ranges = [f"{topic}:{partition}=0-{end}" for partition, end in began.items() if end]

    inherited = project.environment | {
        "JAVA_HOME": str(java_home),
        "KAFKA_INGEST_BACKFILL_CHUNKS": "1",
        # No file changes: the DAG processor need not read them again.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        # Airflow's own are more than the socket keeps.
        "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "kafka_ingest",
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": consumers_in(project.home / "consumers"),
        **statsd.settings,
    }
    # Killed at the end: all that was asked of it has ended.
    with running(project.home, project.bootstrap_servers, inherited, grace_s=0) as airflow:
        dags = ("backfill_offsets", "orders", "daily_sums")
        until(lambda: all(map(airflow.has_dag, dags)), lambda: "no DAGs")

        # The form refuses what it can see to be wrong; nothing is started.
        for wrong in (
            {"feed": "refunds", "open_gaps": True},
            {"feed": "orders", "offset_ranges": ["orders"]},
            {"feed": "orders", "max_records": 0, "open_gaps": True},
            {"feed": "orders", "mode": "rewrite", "open_gaps": True},
            {"open_gaps": True},
        ):
            with pytest.raises(RestError) as refused:
                airflow.trigger("backfill_offsets", wrong)
            assert refused.value.status == 400

        run_id = airflow.trigger(
            "backfill_offsets",
            {"feed": "orders", "offset_ranges": ranges, "max_records": 400, "reason": "from the start"},
        )
        tasks = lambda: airflow.tasks("backfill_offsets", run_id)  # noqa: E731 - asked again and again
        until(lambda: "up_for_retry" in tasks().values(), tasks)
        [failed] = [task for task, state in tasks().items() if state == "up_for_retry"]
        assert failed.startswith("chunk.write[")

        # A concurrent live run, asked for fewer records than there are, and its DAG paused at once.
        yesterday = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
        quarters = (round(yesterday.timestamp() * 1000) + number * 900_000 for number in range(96))
        produce(broker.bootstrap_servers, topic, list(order_events(96, seed=9, timestamps_ms=quarters)))
        waits.touch()
        live = airflow.trigger("orders", {"max_records": 60})
        until(
            lambda: airflow.tasks("orders", live).get("plan") in {"running", "success"},
            lambda: airflow.tasks("orders", live),
        )
        airflow.pause("orders", paused=True)
        waits.unlink()

        fails.unlink()
        airflow.clear("backfill_offsets", run_id, "chunk.write", int(failed[len("chunk.write[") : -1]))
        until(lambda: airflow.run_state("backfill_offsets", run_id) in {"success", "failed"}, tasks)

        assert set(tasks().values()) == {"success"}
        # Airflow starts no further task of a DAG that is paused: the live batch stays open until the DAG is unpaused.
        open_batch = project.status()["open_batch"]
        assert open_batch is not None
        airflow.pause("orders", paused=False)
        until(lambda: airflow.run_state("orders", live) in {"success", "failed"}, lambda: airflow.tasks("orders", live))
        assert airflow.run_state("orders", live) == "success"
        assert (
            project.kafka_ingest("batches", "orders", "--limit", "1", "--json").document["batches"][0]["batch_id"]
            == (open_batch["batch_id"])
        )
        assert sum(project.stored_offsets().values()) == sum(began.values()) + 60, "it took what it was asked for"

        read_the_rest_and_wait_for_its_day(airflow, yesterday)

    after = project.stored_offsets()
    check_each_task_has_sent_its_metrics(sums(statsd.received()), rows=sum(after.values()))
    assert project.group_offsets() == after
    assert read_once(project, after)
    project.run()
    ends = {entry["partition"]: entry["high_watermark"] for entry in project.status()["partitions"]}
    assert read_once(project, ends)
    verified = project.kafka_ingest("coverage", "orders", "--verify", "--json")
    assert (verified.exit_code, verified.document["verified"]["differences"]) == (0, [])
