"""`make bench-fleet`: many small topics that are due at once, as one fleet and by its peers. See README.md."""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow.parquet
import yaml
from contestant import BIN, SCRIPTS, SPARK_JARS, Job, Start, our_environment, plain_environment
from feeds_due import MAINTENANCE, has_dag, wait_for
from in_airflow import answer, instant
from last_will import LastWill
from measured_on import commit, machine_in_short
from places import run_in_a_directory
from talking import BenchmarkError, say
from whole_process import run_whole

from airflow_server import running
from embedded_broker import EmbeddedBroker
from environment import ROOT, child_environment
from order_events import create_topic, order_events, produce

FEEDS, RECORDS, PARTITIONS, REPETITIONS = 500, 2_000, 6, 3
FLEET = "shop"
TIMEOUT_S = 3_600.0
BY_AIRFLOW, BY_COMMAND, BY_SPARK, BY_SCRIPT = "fleet in Airflow", "kafka-ingest run", "available-now", "script"
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Measured:
    """What landing all topics once took; of Airflow, whose parts go on, the seconds alone."""

    seconds: float
    cpu_s: float | None = None
    peak_bytes: int | None = None


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-fleet ARGS=…", description=__doc__)
    parser.add_argument("--feeds", type=int, default=FEEDS, help=f"with {RECORDS:,} records each; default: {FEEDS}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--only", nargs="*", default=[BY_AIRFLOW, BY_COMMAND, BY_SPARK, BY_SCRIPT], help="whom")
    options = parser.parse_args()
    if min(options.feeds, options.repetitions) < 1:
        parser.error("expected --feeds and --repetitions of 1 or more")
    return run_in_a_directory(partial(compare, options))


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Measure in turn, and print what was found."""
    found = measure(directory, options.feeds, options.repetitions, options.only)
    print(f"{machine_in_short()}, commit {commit(ROOT)}\n")
    print("\n".join(as_markdown(found, options.feeds)))


def measure(home: Path, feeds: int, repetitions: int, only: Sequence[str]) -> dict[str, list[Measured]]:
    """Return what each took in each repetition; they take turns on the same records."""
    topics = [f"busy{number:04d}" for number in range(feeds)]
    found: dict[str, list[Measured]] = {name: [] for name in only}
    with EmbeddedBroker(home / "kafka") as broker, LastWill() as will:
        for number, topic in enumerate(topics):
            create_topic(broker.bootstrap_servers, topic, PARTITIONS)
            produce(broker.bootstrap_servers, topic, order_events(RECORDS, seed=number))
        for repetition in range(repetitions):
            for name in only:
                own = home / f"{name.replace(' ', '-')}-{repetition}"
                own.mkdir()
                job = Job(broker.bootstrap_servers, "", own, {}, feeds * RECORDS, "a-topic-id")
                if name in {BY_AIRFLOW, BY_COMMAND}:
                    write_feeds(own / "feeds", topics)
                measured = in_airflow(job) if name == BY_AIRFLOW else by_process(job, name, topics, will)
                check_all_landed(job.output, topics, name)
                found[name].append(measured)
                say(f"{name}: {measured.seconds:.1f} s, load {os.getloadavg()[0]:.1f}")
    return found


def check_all_landed(output: Path, topics: Sequence[str], name: str) -> None:
    """Raise where some topic's folder has other than its rows."""
    for topic in topics:
        files = (output / topic).rglob("*.parquet")
        if (rows := sum(pyarrow.parquet.read_metadata(file).num_rows for file in files)) != RECORDS:
            raise BenchmarkError(f"expected {RECORDS:,} rows of {topic} by {name}, found {rows:,}")


def write_feeds(folder: Path, topics: Sequence[str]) -> None:
    """Make a fleet: a feed for each topic, whose run is triggered."""
    folder.mkdir()
    (folder / "_defaults.yaml").write_text(yaml.safe_dump({"fleet": FLEET, "schedule": None}))
    for topic in topics:
        kafka = {"topics": [topic], "group": f"{topic}-ingest"}
        feed = {"name": topic, "kafka": kafka, "sink": {"format": "parquet", "path": topic}}
        (folder / f"{topic}.yaml").write_text(yaml.safe_dump(feed))


def by_process(job: Job, name: str, topics: Sequence[str], will: LastWill) -> Measured:
    """Land all topics by one command."""
    if name == BY_COMMAND:
        answer(into_output(job), "db", "upgrade", "--create")
    log = job.home / "log"
    start = commands(job, topics)[name]
    ended = run_whole(start.command, start.environment, job.home, log, timeout_s=TIMEOUT_S, will=will)
    if ended.exit_code:
        raise BenchmarkError(
            f"expected {name} to succeed, found exit code {ended.exit_code}:\n{log.read_text()[-4000:]}"
        )
    return Measured(ended.seconds, ended.user_s + ended.system_s, ended.peak_bytes)


def commands(job: Job, topics: Sequence[str]) -> Mapping[str, Start]:
    """Return how each is started."""
    task = job.task(topics=list(topics), checkpoint=str(job.home / "checkpoint"))
    jars = ",".join(map(str, sorted(SPARK_JARS.glob("*.jar"))))
    spark = [str(BIN / "spark-submit"), "--master", "local[*]", "--jars", jars]
    return {
        BY_COMMAND: Start([str(BIN / "kafka-ingest"), "run", "--fleet", FLEET, "--json"], into_output(job)),
        BY_SPARK: Start([*spark, str(SCRIPTS / "available_now_of_many.py"), task], plain_environment(job)),
        BY_SCRIPT: Start([sys.executable, str(SCRIPTS / "plain_python.py"), task], plain_environment(job)),
    }


def into_output(job: Job) -> dict[str, str]:
    """Return the environment of kafka-ingest, whose feeds write below the job's output."""
    return our_environment(job) | {"KAFKA_INGEST_DATA": str(job.output)}


def in_airflow(job: Job) -> Measured:
    """Trigger the fleet's DAG in an Airflow of its own: the time from the trigger to the end of its last task."""
    environment = child_environment(job.home, job.bootstrap_servers) | {"KAFKA_INGEST_FEEDS": str(job.home / "feeds")}
    answer(environment, "db", "upgrade", "--create")
    deadline = time.monotonic() + TIMEOUT_S
    with running(job.home, job.bootstrap_servers, environment) as airflow:
        wait_for(deadline, "the DAGs", lambda: has_dag(airflow, FLEET) and has_dag(airflow, MAINTENANCE))
        # Once a day it has three tasks for each feed; today's would begin now.
        airflow.pause(MAINTENANCE, paused=True)
        started = time.time()
        run = airflow.trigger(FLEET, {})
        wait_for(deadline, "the run's end", lambda: airflow.run_state(FLEET, run) in {"success", "failed"})
        tasks = airflow.task_instances(FLEET, run)
        if airflow.run_state(FLEET, run) != "success":
            raise BenchmarkError(f"expected the fleet's run to succeed, found {airflow.tasks(FLEET, run)}")
    for task in sorted((each for each in tasks if each["end_date"]), key=lambda each: str(each["start_date"])):
        say(f"  {task['task_id']}: {instant(task['end_date']) - instant(task['start_date']):.1f} s")
    return Measured(max(instant(task["end_date"]) for task in tasks if task["end_date"]) - started)


def as_markdown(found: Mapping[str, Sequence[Measured]], feeds: int) -> list[str]:
    """Return the table, of medians."""
    lines = ["| by | s | feeds a minute | processor s a feed | peak of memory, GiB |", "|---|--:|--:|--:|--:|"]
    for name, measured in found.items():
        seconds = statistics.median(each.seconds for each in measured)
        cpu = [each.cpu_s for each in measured if each.cpu_s is not None]
        peak = [each.peak_bytes for each in measured if each.peak_bytes is not None]
        of_feed = f"{statistics.median(cpu) / feeds:.3f}" if cpu else ""
        memory = f"{statistics.median(peak) / GIB:.2f}" if peak else ""
        lines.append(f"| {name} | {seconds:.0f} | {60 * feeds / seconds:.0f} | {of_feed} | {memory} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
