"""`make bench-feeds-due`: how many feeds a minute a scheduler works off, and where the time goes. See README.md."""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from in_airflow import answer, instant
from measured_on import commit, machine_in_short
from places import run_in_a_directory
from talking import BenchmarkError, say

from airflow_server import AirflowServer, running
from embedded_broker import EmbeddedBroker
from environment import ROOT, child_environment
from order_events import PARTITIONS, create_topic, order_events, produce

VERSION = 1
FEEDS, IDLE, RECORDS = 60, 60, 2_000
MINUTES = 60
OWN_DAGS = 2
"""Besides the feeds': the maintenance's and the backfills'."""

MAINTENANCE = "maintain_feeds"
TASKS = ("plan", "write", "commit", "next_batch")


@dataclass(frozen=True, slots=True)
class Task:
    """One task instance that ran: seconds from being queued to its start, and at work."""

    feed: str
    name: str
    waited_s: float
    worked_s: float


@dataclass(frozen=True, slots=True)
class Round:
    """What became of all feeds that were due at once."""

    feeds: int
    records: int
    seconds: float
    tasks: Sequence[Task]


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-feeds-due ARGS=…", description=__doc__)
    parser.add_argument("--feeds", type=int, default=FEEDS, help=f"with {RECORDS:,} new records each; default: {FEEDS}")
    parser.add_argument("--idle", type=int, default=IDLE, help=f"without any; default: {IDLE}")
    parser.add_argument(
        "--minutes", type=int, default=MINUTES, help=f"stop after this many minutes; default: {MINUTES}"
    )
    parser.add_argument("--json", action="store_true", help="print every single task")
    options = parser.parse_args()
    if min(options.feeds, options.idle, options.minutes) < 1:
        parser.error("expected --feeds, --idle and --minutes of 1 or more")
    return run_in_a_directory(partial(compare, options))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Let the feeds be due, and print what was found."""
    rounds = measure(directory, options.feeds, options.idle, options.minutes * 60)
    machine = f"{machine_in_short()}, commit {commit(ROOT)}"
    if options.json:
        print(json.dumps({"version": VERSION, "machine": machine, "rounds": [asdict(each) for each in rounds]}))
    else:
        print("\n".join([machine, "", *as_markdown(rounds)]))


def measure(home: Path, busy: int, idle: int, timeout_s: float) -> list[Round]:
    """Return the round of the feeds with records, and that of those without; all of them are there in both."""
    (home / "feeds").mkdir()
    with_records = [f"busy{number:04d}" for number in range(busy)]
    without = [f"idle{number:04d}" for number in range(idle)]
    with EmbeddedBroker(home / "kafka") as broker:
        for number, name in enumerate(with_records + without):
            create_topic(broker.bootstrap_servers, name, PARTITIONS)
            write_feed(home / "feeds" / f"{name}.yaml", name)
            if number < busy:
                produce(broker.bootstrap_servers, name, order_events(RECORDS, seed=number))
        environment = child_environment(home, broker.bootstrap_servers) | {"KAFKA_INGEST_FEEDS": str(home / "feeds")}
        answer(environment, "db", "upgrade", "--create")
        with running(home, broker.bootstrap_servers, environment) as airflow:
            deadline = time.monotonic() + timeout_s
            # Once a day it has three tasks for each feed; today's would begin now.
            wait_for(deadline, "the maintenance's DAG", lambda: has_dag(airflow, MAINTENANCE))
            airflow.pause(MAINTENANCE, paused=True)
            wait_for(deadline, "all DAGs", lambda: total(airflow, "/api/v2/dags?limit=1") == busy + idle + OWN_DAGS)
            rounds = [
                due_at_once(airflow, names, records, deadline)
                for names, records in ((with_records, RECORDS), (without, 0))
            ]
        counted = json.loads(answer(environment, "batches", "--limit", "100000", "--json"))["batches"]
    if [batch["rows"] for batch in counted] != [RECORDS] * busy:
        raise BenchmarkError(f"expected {busy} batches of {RECORDS:,} records, found {counted}")
    return rounds


def write_feed(path: Path, name: str) -> None:
    """Write a feed file; its runs are triggered."""
    document = {
        "name": name,
        "schedule": None,
        "kafka": {"topics": [name], "group": f"{name}-ingest"},
        "sink": {"format": "parquet", "path": name},
    }
    path.write_text(yaml.safe_dump(document), encoding="utf-8")


def due_at_once(airflow: AirflowServer, names: Sequence[str], records: int, deadline: float) -> Round:
    """Trigger a run of each feed and return what they took, from the first trigger to the end of the last task."""
    started = time.time()
    runs = {name: airflow.trigger(name, {}) for name in names}
    say(f"{len(runs)} runs triggered within {time.time() - started:.0f} s, load {os.getloadavg()[0]:.1f}")
    wait_for(deadline, "the end of all runs", lambda: not unfinished(airflow))
    tasks, ends = [], []
    for name, run_id in runs.items():
        if airflow.run_state(name, run_id) != "success":
            raise BenchmarkError(f"expected run {run_id} of {name} to succeed, found {airflow.tasks(name, run_id)}")
        ran = [task for task in airflow.task_instances(name, run_id) if task["start_date"] and task["queued_when"]]
        tasks += [of_instance(name, task) for task in ran]
        ends += [instant(task["end_date"]) for task in ran]
    found = Round(len(runs), records, max(ends) - started, tasks)
    say(f"{found.feeds} feeds with {records:,} new records each in {found.seconds:.0f} s")
    return found


def of_instance(feed: str, task: dict[str, Any]) -> Task:
    """Return the times of a task instance."""
    queued, started, ended = (instant(task[key]) for key in ("queued_when", "start_date", "end_date"))
    return Task(feed, task["task_id"], started - queued, ended - started)


def has_dag(airflow: AirflowServer, dag_id: str) -> bool:
    """Whether the DAG processor has found a DAG, among however many."""
    return total(airflow, f"/api/v2/dags?dag_id_pattern={dag_id}&limit=1") > 0


def unfinished(airflow: AirflowServer) -> int:
    """Return how many runs of feeds have not ended."""
    of_all, of_maintenance = (
        total(airflow, f"/api/v2/dags/{dag_id}/dagRuns?state=queued&state=running&limit=1")
        for dag_id in ("~", MAINTENANCE)
    )
    return of_all - of_maintenance


def total(airflow: AirflowServer, path: str) -> int:
    """Return how many entries a list has."""
    return int(airflow.call("GET", path)["total_entries"])


def wait_for(deadline: float, what: str, happened: Callable[[], bool]) -> None:
    """Wait for something to happen."""
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {what} in time, did not find it: give it more --minutes")
        time.sleep(1)


def as_markdown(rounds: Sequence[Round]) -> list[str]:
    """Return the tables."""
    lines = ["| due at once | s | feeds a minute |", "|---|--:|--:|"]
    lines += [
        f"| {each.feeds} feeds, {each.records:,} new records each | {each.seconds:.0f} | "
        f"{60 * each.feeds / each.seconds:.1f} |"
        for each in rounds
    ]
    lines += [
        "",
        "| task | records | runs | waits, median s | works, median s | share of all work |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for each in rounds:
        whole = sum(task.worked_s for task in each.tasks)
        for name in TASKS:
            found = [task for task in each.tasks if task.name == name]
            if not found:
                continue
            waited, worked = [task.waited_s for task in found], [task.worked_s for task in found]
            share = sum(worked) / whole
            lines.append(
                f"| {name} | {each.records:,} | {len(found)} | {statistics.median(waited):.2f} | "
                f"{statistics.median(worked):.2f} | {share:.0%} |"
            )
    return lines


if __name__ == "__main__":
    sys.exit(main())
