"""Processes that tests kill with SIGKILL.

A user's commands, held at an exact call or not, and the Spark that they start.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import psutil
from tests.command_forks import Fork, command_forks
from tests.hold_and_run import HELD, RESUME
from tests.kafka_faults import Record, produce
from tests.project import KAFKA_INGEST, Answer, Project
from tests.quick_project import Killed, QuickProject

from dies_with_parent import dying_with_this_process
from environment import settings

HOLD_AND_RUN = Path(__file__).with_name("hold_and_run.py")
PATIENCE_S = 120.0
POLL_S = 0.01

Found = TypeVar("Found")


def wait_for(condition: Callable[[], Found], expected: str) -> Found:
    """Return what a condition comes to, once it is something."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"expected {expected} within {PATIENCE_S:.0f} s")
        time.sleep(POLL_S)
    return found


class Running:
    """A command in a process of its own, from a folder that is not the repository; in a fork if it is to be held."""

    def __init__(
        self, project: Project, command: list[str], *, held_at: str | None, environment: dict[str, str]
    ) -> None:
        self.directory = project.home / f"process-{uuid4().hex[:8]}"
        self.directory.mkdir()
        environment = project.environment | environment
        stdout, stderr = self.directory / "stdout", self.directory / "stderr"
        if held_at is not None:
            self._process: Fork | subprocess.Popen[bytes] = command_forks().start(
                [str(HOLD_AND_RUN), str(self.directory), held_at, *command],
                directory=project.home,
                environment=environment,
                stdout=stdout,
                stderr=stderr,
            )
            return
        with stdout.open("wb") as out, stderr.open("wb") as err:
            self._process = subprocess.Popen(
                dying_with_this_process(command),
                cwd=project.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> Answer:
        """What it has said until now, and the exit code, 0 while there is none."""
        stdout, stderr = ((self.directory / name).read_text() for name in ("stdout", "stderr"))
        return Answer(self._process.returncode or 0, stdout, stderr)

    def wait_until(self, condition: Callable[[], Found], expected: str) -> Found:
        """Wait for something that this process brings about; an early end of it is an error."""

        def found_or_ended() -> Found | None:
            ended = self._process.poll() is not None
            found = condition()
            assert found or not ended, f"expected {expected}, the process ended: {self.said}"
            return found

        return wait_for(found_or_ended, expected)  # type: ignore[return-value]

    def wait_until_held(self) -> None:
        self.wait_until((self.directory / HELD).exists, "the process to come to the call where it is held")

    def resume(self) -> None:
        (self.directory / RESUME).touch()

    def kill(self) -> None:
        """SIGKILL, to this process alone."""
        os.kill(self._process.pid, signal.SIGKILL)
        assert self._process.wait(PATIENCE_S) == -signal.SIGKILL, self.said

    def end(self) -> Answer:
        """Wait for its end."""
        self._process.wait(PATIENCE_S)
        return self.said

    def kill_if_running(self) -> None:
        if self._process.poll() is None:
            self.kill()


class Processes:
    """All that a test starts of one project; nothing of it outlives the test."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._started: list[Running] = []

    def start(self, *command: str | Path, held_at: str | None = None, **environment: str) -> Running:
        """Start a Python program of a user's."""
        running = Running(self._project, [str(part) for part in command], held_at=held_at, environment=environment)
        self._started.append(running)
        return running

    def run_feed(self, name: str = "orders", *, held_at: str | None = None, **environment: str) -> Running:
        """Start `kafka-ingest run`."""
        return self.start(KAFKA_INGEST, "run", name, "--json", held_at=held_at, **environment)

    def end_all(self) -> None:
        for running in self._started:
            running.kill_if_running()
        for orphan in processes_of(self._project.home):
            with suppress(psutil.NoSuchProcess):
                orphan.kill()
                orphan.wait(PATIENCE_S)


@contextmanager
def ending_all(project: Project) -> Iterator[Processes]:
    """Start processes for a project, and end them and all that they left."""
    processes = Processes(project)
    try:
        yield processes
    finally:
        processes.end_all()


def kill_a_run_that_spark_wrote_for(quick: QuickProject, processes: Processes, killed_at: str) -> None:
    """Leave a receipt that is not pinned, and kill the run that pins it."""
    with quick.stopping_before_the_pin(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    run = processes.run_feed(held_at=killed_at)
    run.wait_until_held()
    run.kill()


# Spark


class SparkAttempt:
    """The Spark application that writes one attempt: a JVM, and the Python driver that it starts."""

    def __init__(self, project: Project, number: int, *, name: str = "orders") -> None:
        self._staging = project.output / f"{name}.kafka-ingest" / "staging"
        self._number = str(number)

    @property
    def directory(self) -> Path:
        """The attempt's directory in the only batch that was staged until now."""
        [batch] = self._staging.iterdir()
        return batch / self._number

    def is_writing(self) -> bool:
        """Whether a data file lies there that is not part of the output yet."""
        try:
            directory = self.directory / "data" / "_temporary"
        except (FileNotFoundError, ValueError):
            return False
        return any(name.endswith(".parquet") for _, _, files in os.walk(directory) for name in files)

    def has_receipt(self) -> bool:
        return (self.directory / "receipt.json").exists()

    @property
    def java(self) -> psutil.Process:
        return self._process("java")

    @property
    def python(self) -> psutil.Process:
        return self._process("python")

    def _process(self, name: str) -> psutil.Process:
        [found] = [process for process in processes_of(self.directory) if process.info["name"].startswith(name)]
        return found


def processes_of(directory: Path) -> list[psutil.Process]:
    """Return the processes whose command line names something in a directory."""
    return [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if any(str(directory) in argument for argument in process.info["cmdline"] or ())
    ]


def kill(process: psutil.Process) -> None:
    """SIGKILL, and wait until it is gone, no matter whose child it is."""
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)


def slowly(project: Project) -> dict[str, str]:
    """Return the setting with which Spark reads one record batch every half a second, by the consumer's own patience.

    A fetch waits `fetch.max.wait.ms` for a minimum that its own maximum keeps it from.
    """
    servers = project.bootstrap_servers
    patient = {"bootstrap.servers": servers, "fetch.min.bytes": 1_000_000, "max.partition.fetch.bytes": 1}
    name = "AIRFLOW_CONN_KAFKA_DEFAULT"
    ordinary = json.loads(settings(project.home, servers)[name])
    return {name: json.dumps(ordinary | {"extra": patient})}


# What was produced, and what became of it


class Produced:
    """All records of a topic by position, each with a value that no other one has."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self.topic = topic
        self.values: dict[tuple[int, int], bytes] = {}

    def add(self, partition: int, count: int, *, batches: int = 1) -> None:
        """Produce record batches of so many records each."""
        for _ in range(batches):
            values = [uuid4().hex.encode() for _ in range(count)]
            offsets = produce(self._bootstrap_servers, self.topic, partition, [Record(value) for value in values])
            self.values |= {(partition, offset): value for offset, value in zip(offsets, values, strict=True)}

    @property
    def ends(self) -> dict[int, int]:
        """The end of the log by partition, of those that hold records."""
        return {partition: offset + 1 for partition, offset in sorted(self.values)}


def records_of(project: Project) -> list[tuple[tuple[int, int], bytes]]:
    """Return position and value of all that is visible, repetitions included."""
    return [((row["kafka_partition"], row["kafka_offset"]), row["value"]) for row in project.rows()]


def check_every_record_once(project: Project, produced: Produced) -> None:
    """Hold output, stored offsets, consumer group and batches against what was produced."""
    assert records_of(project) == sorted(produced.values.items())
    stored = {partition: offset for partition, offset in project.stored_offsets().items() if offset}
    assert stored == produced.ends
    group = {partition: offset for partition, offset in project.group_offsets().items() if offset}
    assert group == produced.ends
    check_one_committed_batch_for_each_offset(project, produced)
    assert project.status()["open_batch"] is None


def check_one_committed_batch_for_each_offset(project: Project, produced: Produced) -> None:
    committed = [batch for batch in all_batches(project) if batch["state"] == "COMMITTED"]
    covered = [
        (entry["partition"], offset)
        for batch in committed
        for entry in batch["ranges"]
        for offset in range(entry["start_offset"], entry["end_offset"])
    ]
    assert sorted(covered) == sorted(produced.values)
    visible = {path.name for path in (project.output / "orders").iterdir()}
    assert visible == {f"kafka_batch={batch['batch_id']}" for batch in committed}


def all_batches(project: Project) -> list[dict[str, Any]]:
    """Return the feed's batches, newest first."""
    return project.kafka_ingest("batches", "orders", "--json").document["batches"]
