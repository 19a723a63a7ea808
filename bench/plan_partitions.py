"""`make bench-plan`: how long planning takes, and how much memory, for feeds of many partitions. See README.md."""

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from confluent_kafka import libversion
from control_databases import DATABASES, NewDatabase, control_databases
from many_partitions import broker_with_topics, records_in, topic_of
from measured_on import commit, file_system, machine_in_short
from one_step import STEPS, Measured, Task
from places import directory_for_data, run_in_a_directory
from sqlalchemy import create_engine, text
from step_process import in_a_process_of_its_own
from talking import BenchmarkError, say

from embedded_broker import JARS
from environment import ROOT

SIZES = (100, 1_000, 10_000)
REPETITIONS = 3
PLANNING_S, PLANNING_MB = 5.0, 500.0
COMMIT, COMMIT_S = "commit: stored offsets", 1.5
JUDGED_PARTITIONS = 10_000
"""The limits on planning and moving the stored offsets are for feeds of up to this many partitions."""

SHARE_OF_A_BATCH = 0.4
"""Of all records there are: so the first two plans both have to share out a limit, and both read every partition."""

REPORTED = tuple(step for step in STEPS if step != "write")
"""The steps that are reported. Writing is Spark's; here it only leads from a plan to a commit."""

STEP_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement; ``load`` is the machine's, over the minute before."""

    step: str
    database: str
    partitions: int
    repetition: int
    load: float
    measured: Measured


def main() -> int:
    options = parse_options()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> int:
    """Measure, and print what was found; exit code 1 where it was not measured or is over a limit."""
    machine, rows = measure_all(options, directory)
    check_same_work(rows)
    found, within = verdict(rows)
    if options.json:
        print(json.dumps({"version": 1, "machine": machine, "within": within, "rows": [asdict(row) for row in rows]}))
    else:
        about = [f"- {name}: {value}" for name, value in machine.items()]
        print("\n".join([*table(rows), "", *growth(rows), "", *about, "", found]))
    return 0 if within else 1


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="make bench-plan ARGS=…", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="PARTITIONS", help=f"default: {SIZES}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES, help="default: both")
    parser.add_argument(
        "--directory", type=directory_for_data, help="where broker and databases keep their data; default: /tmp"
    )
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    if min(options.sizes) < 1:
        parser.error(f"expected --sizes of 1 or more, found {min(options.sizes)}")
    if options.repetitions < 1:
        parser.error(f"expected --repetitions of 1 or more, found {options.repetitions}")
    return options


def measure_all(options: argparse.Namespace, directory: Path) -> tuple[dict[str, str], list[Row]]:
    """Return the machine and the measurements: all sizes in turn, then all of them again."""
    sizes, started = sorted(set(options.sizes)), time.monotonic()
    say(f"a Kafka broker with {len(sizes)} topics and two kinds of control tables, in {directory}")
    with (
        control_databases(options.databases, directory) as databases,
        broker_with_topics(sizes, directory / "kafka", say) as bootstrap_servers,
    ):
        loads = [os.getloadavg()[0]]
        machine = about_this_machine(databases, directory)
        rows: list[Row] = []
        for repetition in range(1, options.repetitions + 1):
            for partitions in sizes:
                for kind, new_database in databases.items():
                    life = life_of_a_feed(new_database, bootstrap_servers, partitions, directory)
                    of_life = [Row(step, kind, partitions, repetition, load, found) for step, load, found in life]
                    rows += of_life
                    loads += [row.load for row in of_life]
                    shown = ", ".join(
                        f"{row.step} {row.measured.seconds:.2f} s" for row in of_life if row.step in REPORTED
                    )
                    say(f"{repetition} of {options.repetitions}, {partitions:,} partitions, {kind}: {shown}")
    say(f"measured in {time.monotonic() - started:.0f} s")
    busy = (
        f"{min(loads):.1f} to {max(loads):.1f} on {os.cpu_count()} processors, this benchmark and its servers included"
    )
    return {**machine, "load": busy}, [row for row in rows if row.step in REPORTED]


def life_of_a_feed(
    new_database: NewDatabase, bootstrap_servers: str, partitions: int, directory: Path
) -> Iterator[tuple[str, float, Measured]]:
    """Take a new feed through all steps; yield each with the load before it."""
    name = f"bench-{uuid4().hex[:8]}"
    task = Task(
        step="",
        database=new_database().render_as_string(hide_password=False),
        bootstrap_servers=bootstrap_servers,
        topic=topic_of(partitions),
        group=name,
        output=str(directory / "output" / name),
        max_records=round(sum(map(records_in, range(partitions))) * SHARE_OF_A_BATCH),
    )
    for step in STEPS:
        load = os.getloadavg()[0]
        found = in_a_process_of_its_own("one_step.py", replace(task, step=step), STEP_TIMEOUT_S)
        if found.work.rows != partitions:
            raise BenchmarkError(f"{step}: expected {partitions:,} partitions to take part, found {found.work.rows:,}")
        if found.work.batch_id:
            task = replace(task, feed_id=found.work.feed_id, batch_id=found.work.batch_id)
        yield step, load, found


def check_same_work(rows: Collection[Row]) -> None:
    """Raise BenchmarkError where a step's work differs between repetitions or databases: then its times say nothing."""
    found: dict[tuple[str, int], set[str]] = {}
    for row in rows:
        found.setdefault((row.step, row.partitions), set()).add(row.measured.work.checksum)
    for (step, partitions), checksums in found.items():
        if len(checksums) > 1:
            raise BenchmarkError(
                f"{step}, {partitions:,} partitions: expected the same work each time, found {checksums}"
            )


def table(rows: Sequence[Row]) -> list[str]:
    """Return the measurements as lines of a Markdown table."""
    lines = [
        (
            "| step | control tables | partitions | median s | min s | max s | CPU s | peak MB | before MB | rows | "
            "checksum |"
        ),
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|",
    ]
    for (step, database, partitions), found in grouped(rows).items():
        seconds = [each.seconds for each in found]
        cells = [
            step,
            database,
            f"{partitions:,}",
            *(f"{value:.2f}" for value in (statistics.median(seconds), min(seconds), max(seconds))),
            f"{statistics.median(each.cpu_s for each in found):.2f}",
            f"{max(each.peak_mb for each in found):.0f}",
            f"{max(each.before_mb for each in found):.0f}",
            f"{found[0].work.rows:,}",
            f"`{found[0].work.checksum}`",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def grouped(rows: Iterable[Row]) -> dict[tuple[str, str, int], list[Measured]]:
    """Return the measurements by step, control tables and partitions, in this order."""
    groups: dict[tuple[str, str, int], list[Measured]] = {}
    for row in sorted(rows, key=lambda row: (REPORTED.index(row.step), DATABASES.index(row.database), row.partitions)):
        groups.setdefault((row.step, row.database, row.partitions), []).append(row.measured)
    return groups


def growth(rows: Iterable[Row]) -> list[str]:
    """Return, as lines of a Markdown table, how much longer each step takes with the most partitions."""
    lines = ["| step | control tables | partitions | times as many | times as long |", "|---|---|--:|--:|--:|"]
    medians: dict[tuple[str, str], dict[int, float]] = {}
    for (step, database, partitions), found in grouped(rows).items():
        medians.setdefault((step, database), {})[partitions] = statistics.median(each.seconds for each in found)
    for (step, database), by_size in medians.items():
        few, many = min(by_size), max(by_size)
        factors = f"{many / few:,.0f} | {by_size[many] / by_size[few]:.1f}"
        lines.append(f"| {step} | {database} | {few:,} to {many:,} | {factors} |")
    return lines


def verdict(rows: Collection[Row]) -> tuple[str, bool]:
    """Return whether every single plan and commit was within the limits, in words and as a truth value."""
    judged = [row for row in rows if row.partitions <= JUDGED_PARTITIONS]
    plans = [row.measured for row in judged if "plan" in row.step]
    commits = [row.measured.seconds for row in judged if row.step == COMMIT]
    if not plans or not commits:
        return "Nothing to judge.", True
    slowest, largest = max(plan.seconds for plan in plans), max(plan.peak_mb for plan in plans)
    planned = slowest < PLANNING_S and largest < PLANNING_MB
    committed = max(commits) < COMMIT_S
    return (
        f"Up to {max(row.partitions for row in judged):,} partitions planning is "
        f"{'within' if planned else 'NOT within'} {PLANNING_S:.0f} s and {PLANNING_MB:.0f} MB: the slowest of "
        f"{len(plans)} plans took {slowest:.2f} s, the largest {largest:.0f} MB. Moving the stored offsets is "
        f"{'within' if committed else 'NOT within'} {COMMIT_S:.1f} s: the slowest of {len(commits)} took "
        f"{max(commits):.2f} s."
    ), planned and committed


def about_this_machine(databases: Mapping[str, NewDatabase], directory: Path) -> dict[str, str]:
    """Return what the numbers depend on."""
    found = {
        "machine": f"{machine_in_short()}, {platform.platform()}",
        "this project": f"commit {commit(ROOT)}",
        "data on": file_system(directory),
        "Kafka": f"{next(JARS.glob('kafka_2*.jar')).stem.rpartition('-')[2]}, one real broker on this machine",
        "Python": f"{platform.python_version()}, confluent-kafka {importlib.metadata.version('confluent-kafka')}, "
        f"librdkafka {libversion()[0]}, SQLAlchemy {importlib.metadata.version('sqlalchemy')}",
    }
    queries = {"sqlite": "SELECT 'SQLite ' || sqlite_version()", "postgresql": "SELECT version()"}
    versions: list[str] = []
    for kind, new_database in databases.items():
        engine = create_engine(new_database())
        with engine.connect() as connection:
            versions.append(str(connection.execute(text(queries[kind])).scalar_one()).partition(" on ")[0])
        engine.dispose()
    return {**found, "control tables": ", ".join(versions)}


if __name__ == "__main__":
    sys.exit(main())
