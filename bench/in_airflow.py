"""`make bench-airflow`: what a run in Airflow takes above `kafka-ingest run`, and where that goes. See README.md."""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from contestant import BIN
from places import run_in_a_directory
from talking import BenchmarkError, say

from airflow_server import AirflowServer, running, until
from embedded_broker import EmbeddedBroker
from environment import child_environment, output
from order_events import create_topic, order_events, produce

VERSION = 1
RECORDS, PARTITIONS = 2_000, 6
REPETITIONS = 5
FEED = "orders"
TASKS = ("plan", "write", "commit")
"""The task after them triggers the DAG again where records are left; it is nothing that a batch waits for."""


@dataclass(frozen=True, slots=True)
class Step:
    """A part of a run in Airflow, in seconds."""

    name: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-airflow ARGS=…", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    if options.repetitions < 1:
        parser.error("expected 1 repetition or more")
    return run_in_a_directory(partial(compare, options))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Measure in turn, and print what was found."""
    by_hand, in_airflow = measure(directory, options.repetitions)
    if options.json:
        runs = [{step.name: step.seconds for step in steps} for steps in in_airflow]
        print(
            json.dumps(
                {"version": VERSION, "records": RECORDS, "kafka-ingest run": by_hand, "in_airflow": runs}, indent=1
            )
        )
    else:
        print(as_markdown(by_hand, in_airflow))


def measure(home: Path, repetitions: int) -> tuple[list[float], list[list[Step]]]:
    """Return the seconds of each run by hand, and the steps of each run in Airflow; each reads as many new records."""
    (home / "feeds").mkdir()
    (home / "feeds" / f"{FEED}.yaml").write_text(
        yaml.safe_dump(
            {
                "name": FEED,
                "kafka": {"topics": [FEED], "group": f"{FEED}-ingest"},
                "limits": {"max_records": "unlimited"},
                "sink": {"format": "parquet", "path": FEED},
                "schedule": None,
            }
        )
    )
    with EmbeddedBroker(home / "kafka") as broker:
        create_topic(broker.bootstrap_servers, FEED, PARTITIONS)
        environment = child_environment(home, broker.bootstrap_servers) | {"KAFKA_INGEST_FEEDS": str(home / "feeds")}
        kafka_ingest(environment, "db", "upgrade", "--create")
        with running(home, broker.bootstrap_servers, environment) as airflow:
            until(lambda: airflow.has_dag(FEED), lambda: "no DAG")
            by_hand: list[float] = []
            in_airflow: list[list[Step]] = []
            for repetition in range(repetitions + 1):
                more_records(broker, 2 * repetition)
                steps = triggered(airflow)
                more_records(broker, 2 * repetition + 1)
                seconds = kafka_ingest(environment, "run", FEED, "--json")
                if repetition:  # the first ones find nothing in any cache
                    in_airflow.append(steps)
                    by_hand.append(seconds)
                whole = sum(step.seconds for step in steps)
                say(f"{repetition} of {repetitions}: in Airflow {whole:.2f} s, by hand {seconds:.2f} s")
        batches = json.loads(answer(environment, "batches", FEED, "--limit", "1000", "--json"))["batches"]
    rows = [batch["rows"] for batch in batches]
    if rows != [RECORDS] * (2 * repetitions + 2):
        raise BenchmarkError(
            f"expected {2 * repetitions + 2} batches of {RECORDS:,} records, found {rows} in {output(home)}"
        )
    return by_hand, in_airflow


def more_records(broker: EmbeddedBroker, seed: int) -> None:
    """Let as many records arrive as a batch shall have."""
    produce(broker.bootstrap_servers, FEED, order_events(RECORDS, seed=seed))


def triggered(airflow: AirflowServer) -> list[Step]:
    """Trigger a run and return what it consisted of, until its commit had ended."""
    before = time.time()
    run_id = airflow.trigger(FEED, {})
    until(lambda: airflow.run_state(FEED, run_id) in {"success", "failed"}, lambda: airflow.tasks(FEED, run_id))
    if airflow.run_state(FEED, run_id) != "success":
        raise BenchmarkError(f"expected run {run_id} to succeed, found {airflow.tasks(FEED, run_id)}")
    return steps_of({task["task_id"]: task for task in airflow.task_instances(FEED, run_id)}, before)


def steps_of(tasks: Mapping[str, Mapping[str, Any]], triggered_at: float) -> list[Step]:
    """Return how long each task waited for its turn, then for a process, and ran.

    From the trigger to the commit's end.
    """
    steps = []
    free = triggered_at
    for name in TASKS:
        queued, started, ended = (instant(tasks[name][key]) for key in ("queued_when", "start_date", "end_date"))
        steps += [
            Step(f"{name}: until the scheduler queues it", queued - free),
            Step(f"{name}: until its process works", started - queued),
            Step(f"{name}: works", ended - started),
        ]
        free = ended
    return steps


def instant(text: str) -> float:
    """Return a time as Airflow writes it as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def kafka_ingest(environment: Mapping[str, str], *arguments: str) -> float:
    """Run a command and return its seconds."""
    started = time.monotonic()
    answer(environment, *arguments)
    return time.monotonic() - started


def answer(environment: Mapping[str, str], *arguments: str) -> str:
    """Run a command and return what it says."""
    done = subprocess.run(
        [str(BIN / "kafka-ingest"), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(
            f"expected kafka-ingest {' '.join(arguments)} to succeed, found:\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def as_markdown(by_hand: Sequence[float], in_airflow: Sequence[Sequence[Step]]) -> str:
    """Return the table."""
    whole = [sum(step.seconds for step in steps) for steps in in_airflow]
    lines = [f"| {RECORDS:,} records | median s | min s | max s |", "|---|--:|--:|--:|"]
    rows: list[tuple[str, Sequence[float]]] = [
        ("**a run in Airflow, from trigger to committed**", whole),
        *((steps[0].name, [step.seconds for step in steps]) for steps in zip(*in_airflow, strict=True)),
        ("**`kafka-ingest run`**", by_hand),
        ("**above it**", [above - below for above, below in zip(whole, by_hand, strict=True)]),
    ]
    lines += [
        f"| {name} | {statistics.median(found):.2f} | {min(found):.2f} | {max(found):.2f} |" for name, found in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
