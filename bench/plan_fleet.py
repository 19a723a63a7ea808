"""`make bench-fleet-plan`: what the plan of a fleet takes: nothing new, then with new records. See README.md."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import yaml
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from contestant import BIN
from many_partitions import FILES_BESIDE_THE_LOGS, PATIENCE_S, allow_open_files, produce, wait_until_led
from measured_on import commit, machine_in_short
from places import run_in_a_directory
from talking import BenchmarkError, say

from embedded_broker import EmbeddedBroker
from environment import ROOT, child_environment, control_tables

PARTITIONS = 6
TOPICS_AT_ONCE = 250
"""The controller refuses much larger requests."""

FLEET = "bench"
PLANNED = """
import sys, time
from kafka_ingest.cli.run_command import plan_all, runs_of
from kafka_ingest.settings.run_request import RunRequest
began = time.perf_counter()
runs = runs_of([], sys.argv[1])
batches = plan_all(runs, RunRequest())
errors = [each.failure for each in runs if each.error is not None]
print(time.perf_counter() - began, time.process_time(), len(runs), len(batches), len(errors), *errors[:3])
"""
"""The plan step of `kafka-ingest run --fleet`, from its feed files on; Spark would take the rest."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-fleet-plan ARGS=…", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=(1_000, 2_000), metavar="FEEDS")
    parser.add_argument("--due", type=int, default=500, help="feeds with new records at last; default: 500")
    parser.add_argument("--repetitions", type=int, default=3, help="default: 3")
    options = parser.parse_args()
    return run_in_a_directory(partial(compare, options))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Plan fleets of each size, and print what was found."""
    allow_open_files(max(options.sizes) * PARTITIONS + FILES_BESIDE_THE_LOGS)
    lines = [
        f"{machine_in_short()}, commit {commit(ROOT)}",
        "",
        f"| feeds of {PARTITIONS} partitions | with new records | median s | min s | max s | processor s | load |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for size in options.sizes:
        home = directory / str(size)
        home.mkdir()
        lines += measure(home, size, min(options.due, size), options.repetitions)
    print("\n".join(lines))


def measure(home: Path, size: int, due: int, repetitions: int) -> Iterator[str]:
    """Yield the lines of one size: all feeds idle, then some of them due."""
    names = [f"feed{number:05d}" for number in range(size)]
    with fleet_of(home, names) as (environment, bootstrap_servers):
        began = time.monotonic()
        planned(environment, size, 0)
        say(f"{size:,} feeds: the first plan took {time.monotonic() - began:.1f} s")
        yield row(environment, home, size, 0, repetitions)
        for name in names[:due]:
            produce(bootstrap_servers, name, dict.fromkeys(range(PARTITIONS), 1), linger_ms=5)
        yield row(environment, home, size, due, repetitions)


@contextmanager
def fleet_of(home: Path, names: Sequence[str]) -> Iterator[tuple[dict[str, str], str]]:
    """Run a broker with a topic for each feed, and yield the environment of commands, and where the broker is."""
    (home / "feeds").mkdir()
    for name in names:
        document = {
            "name": name,
            "fleet": FLEET,
            "schedule": None,
            "kafka": {"topics": [name], "group": f"{name}-ingest"},
            "sink": {"format": "parquet", "path": name},
        }
        (home / "feeds" / f"{name}.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    with (
        EmbeddedBroker(home / "kafka") as broker,
        AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}) as admin,
    ):
        for first in range(0, len(names), TOPICS_AT_ONCE):
            new = [NewTopic(each, num_partitions=PARTITIONS) for each in names[first : first + TOPICS_AT_ONCE]]
            for made in admin.create_topics(new, operation_timeout=PATIENCE_S, request_timeout=PATIENCE_S).values():
                made.result()
        for each in names:
            wait_until_led(admin, each, PARTITIONS)
        environment = child_environment(home, broker.bootstrap_servers) | {
            "KAFKA_INGEST_FEEDS": str(home / "feeds"),
            "PYTHONPATH": str(ROOT / "plugins"),
        }
        subprocess.run([str(BIN / "kafka-ingest"), "db", "upgrade", "--create"], env=environment, check=True)
        yield environment, broker.bootstrap_servers


def row(environment: dict[str, str], home: Path, size: int, due: int, repetitions: int) -> str:
    """Return a line of the table; each plan finds the control tables as they were before the first one."""
    kept = shutil.copy(control_tables(home), home / "before.db")
    found: list[tuple[float, float]] = []
    for _ in range(repetitions):
        shutil.copy(kept, control_tables(home))
        found.append(planned(environment, size, due))
    seconds, cpu = ([each[place] for each in found] for place in (0, 1))
    shown = " | ".join(f"{each:.1f}" for each in (statistics.median(seconds), min(seconds), max(seconds)))
    say(f"{size:,} feeds, {due:,} due: {shown}")
    return f"| {size:,} | {due:,} | {shown} | {statistics.median(cpu):.1f} | {os.getloadavg()[0]:.1f} |"


def planned(environment: dict[str, str], size: int, due: int) -> tuple[float, float]:
    """Plan the fleet in a process of its own, and return its seconds, and those of processors."""
    done = subprocess.run(
        [sys.executable, "-c", PLANNED, FLEET], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BenchmarkError(f"expected a plan, found:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    seconds, cpu, feeds, batches, errors, *why = done.stdout.split(maxsplit=5)
    if (int(feeds), int(batches), int(errors)) != (size, due, 0):
        raise BenchmarkError(f"expected {size} feeds, {due} batches and no error, found {feeds}, {batches}, {why}")
    return float(seconds), float(cpu)


if __name__ == "__main__":
    sys.exit(main())
