"""`make bench-feeds`: what reading feed files, starting a task and the command line take with many feeds.

See README.md.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import yaml
from contestant import BIN
from measured_on import commit, machine_in_short
from places import run_in_a_directory
from talking import BenchmarkError, say

from embedded_broker import EmbeddedBroker
from environment import ROOT, child_environment
from order_events import create_topic

VERSION = 1
SIZES = (1, 100, 500, 2_000)
REPETITIONS = 5
FEED = "feed0000"
"""The one that is asked for. It alone has a topic."""

OTHERWISE = "called.otherwise"
"""A feed whose file is not called after it: its name has to be looked for."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run of a step took; the processor time is of its process and what that started."""

    seconds: float
    cpu_s: float


def dag_file(file: str, dag_id: str = "", task_id: str = "") -> list[str]:
    """Return the command that reads a DAG file as Airflow does: all of it, or where it starts one task."""
    return [sys.executable, str(Path(__file__).with_name("read_dag_file.py")), file, dag_id, task_id]


STEPS: Mapping[str, list[str]] = {
    "read DAG files: ingest_feeds": dag_file("ingest_feeds.py"),
    "read DAG files: maintain_feeds": dag_file("maintain_feeds.py"),
    "read DAG files: backfill_offsets": dag_file("backfill_offsets.py"),
    "task start: a feed's": dag_file("ingest_feeds.py", FEED, "plan"),
    "task start: a feed's, file called otherwise": dag_file("ingest_feeds.py", OTHERWISE, "plan"),
    "task start: maintenance": dag_file("maintain_feeds.py", "maintain_feeds", f"{FEED}.clean"),
    "task start: backfill": dag_file("backfill_offsets.py", "backfill_offsets", "chunk.write"),
    "`kafka-ingest feeds`": [str(BIN / "kafka-ingest"), "feeds", "--json"],
    "`kafka-ingest status`": [str(BIN / "kafka-ingest"), "status", "--json"],
    "`kafka-ingest status FEED`": [str(BIN / "kafka-ingest"), "status", FEED, "--json"],
    "`kafka-ingest plan FEED`": [str(BIN / "kafka-ingest"), "plan", FEED, "--json"],
}
"""A DAG file's seconds are those of reading it; a command's are the whole process's."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-feeds ARGS=…", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="FEEDS", help=f"default: {SIZES}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    if options.repetitions < 1 or min(options.sizes) < 1:
        parser.error("expected --repetitions and --sizes of 1 or more")
    return run_in_a_directory(partial(compare, options))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Measure all sizes in turn, and print what was found."""
    found = measure_all(directory, sorted(set(options.sizes)), options.repetitions)
    machine = f"{machine_in_short()}, commit {commit(ROOT)}"
    if options.json:
        rows = [
            {"step": step, "feeds": size, "measured": [asdict(each) for each in measured]}
            for (step, size), measured in found.items()
        ]
        print(json.dumps({"version": VERSION, "machine": machine, "rows": rows}))
    else:
        print("\n".join([machine, "", *table("seconds", found, lambda each: each.seconds)]))
        print("\n".join(["", *table("processor seconds", found, lambda each: each.cpu_s)]))


def measure_all(home: Path, sizes: Sequence[int], repetitions: int) -> dict[tuple[str, int], list[Measured]]:
    """Return the measurements of each step and number of feeds, taken in turn.

    The first of each finds nothing in any cache.
    """
    found: dict[tuple[str, int], list[Measured]] = {}
    with EmbeddedBroker(home / "kafka") as broker:
        create_topic(broker.bootstrap_servers, FEED, 3)
        environments = {size: with_feeds(home / str(size), size, broker.bootstrap_servers) for size in sizes}
        for repetition in range(repetitions + 1):
            started = time.monotonic()
            for step, command in STEPS.items():
                for size, environment in environments.items():
                    measured = run(command, environment)
                    if repetition:
                        found.setdefault((step, size), []).append(measured)
            say(f"{repetition} of {repetitions} in {time.monotonic() - started:.0f} s, load {os.getloadavg()[0]:.1f}")
    return found


def with_feeds(home: Path, number: int, bootstrap_servers: str) -> dict[str, str]:
    """Write ``number`` feed files, one of them not named after its feed, and return the environment that uses them."""
    (home / "feeds").mkdir(parents=True)
    for each in range(number):
        write_feed(home / "feeds" / f"feed{each:04d}.yaml", f"feed{each:04d}", each)
    write_feed(home / "feeds" / "team-a.yaml", OTHERWISE, number)
    environment = child_environment(home, bootstrap_servers) | {
        "KAFKA_INGEST_FEEDS": str(home / "feeds"),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "plugins"), str(ROOT / "dev")]),
    }
    run([str(BIN / "kafka-ingest"), "db", "upgrade", "--create"], environment)
    return environment


def write_feed(path: Path, name: str, number: int) -> None:
    """Write a feed file of the usual length."""
    document = {
        "name": name,
        "schedule": f"{number % 60} * * * *",
        "kafka": {"conn_id": "kafka_default", "topics": [name], "group": f"{name}-ingest"},
        "start": "earliest",
        "limits": {"max_records": 5_000_000, "min_records": 1, "max_wait": "6h"},
        "sink": {"format": "parquet", "path": f"team{number % 40}/{name}", "staging_retention": "7d"},
        "spark": {"conn_id": "spark_default", "conf": {"spark.driver.memory": "2g"}},
        "airflow": {"retries": 3, "execution_timeout": "12h", "owner": "data", "tags": ["orders"]},
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def run(command: Sequence[str], environment: Mapping[str, str]) -> Measured:
    """Run a step in a separate process; raises BenchmarkError where it fails."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, env=dict(environment), capture_output=True, text=True, check=False)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise BenchmarkError(
            f"expected {' '.join(command)} to succeed, found:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    marked = done.stdout.partition("MEASURED")[2]
    if marked:
        return Measured(**json.loads(marked))
    return Measured(seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def table(unit: str, found: Mapping[tuple[str, int], Sequence[Measured]], of: Callable[[Measured], float]) -> list[str]:
    """Return the medians by number of feeds, and how many times as long each takes with the most as with the fewest."""
    sizes = sorted({size for _, size in found})
    lines = [
        f"| {unit} by feeds | {' | '.join(f'{size:,}' for size in sizes)} | ratio |",
        f"|---|{'--:|' * (len(sizes) + 1)}",
    ]
    for step in STEPS:
        measured = [[of(each) for each in found[step, size]] for size in sizes]
        # Each repetition's own: the machine's hours differ.
        ratio = statistics.median(last / first for first, last in zip(measured[0], measured[-1], strict=True))
        cells = " | ".join(f"{statistics.median(each):.2f}" for each in measured)
        lines.append(f"| {step} | {cells} | {ratio:.1f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
