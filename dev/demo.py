"""`make demo`: the main job on real parts. Kafka → Spark → an output of any format, by Airflow, three runs."""

import contextlib
import fcntl
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from rich.markup import escape

from demo_sinks import SINKS, DemoSink, catalog, environment_of
from embedded_broker import KAFKA_VERSION, BrokerError, EmbeddedBroker
from environment import ROOT, airflow_home, child_environment, control_tables, output
from kafka_ingest.verbs.answer import FittingTable
from order_events import PARTITIONS, create_topic, order_events, produce
from progress import Step, console, step

HOME = ROOT / ".local" / "demo"
FEED = "orders"
SEED = 7
FIRST_EVENTS = 20_000
MORE_EVENTS = 5_000
LINES_OF_A_FAILURE = 40
POLL_S = 0.2
VALUE_CHARACTERS = 48
TASK_STARTS = re.compile(r"\[DAG TEST\] starting task_id=(\w+)")


class DemoError(RuntimeError):
    """A step of the demo failed; the message says where to look."""


@dataclass(frozen=True, slots=True)
class Stage:
    """The running parts: where the logs go, and the environment of each child."""

    logs: Path
    environment: dict[str, str]

    def run(self, name: str, *command: str | Path, shown: Step | None = None) -> str:
        """Run a command to its end and return its stdout; all it said is kept in the logs. Raises DemoError.

        `shown` displays which task of a DAG is running.
        """
        said, answer = self.logs / f"{name}.log", self.logs / f"{name}.out"
        with said.open("wb") as stderr, answer.open("wb") as stdout:
            # A separate process group: Ctrl-C reaches this process alone, which then ends the whole group.
            child = subprocess.Popen(
                command, env=self.environment, stdout=stdout, stderr=stderr, cwd=HOME, start_new_session=True
            )
            try:
                while child.poll() is None:
                    time.sleep(POLL_S)
                    if shown is not None:
                        tasks = TASK_STARTS.findall(answer.read_text(errors="replace"))
                        shown.note(f"task {tasks[-1]}" if tasks else "Airflow starts")
            finally:
                if child.poll() is None:
                    end_group(child)
        if child.returncode:
            lines = [*answer.read_text(errors="replace").splitlines(), *said.read_text(errors="replace").splitlines()]
            end = "\n".join(lines[-LINES_OF_A_FAILURE:])
            raise DemoError(f"{name} ended with exit code {child.returncode}. The end of {answer} and {said}:\n{end}")
        return answer.read_text()

    def kafka_ingest(self, *arguments: str) -> dict[str, Any]:
        """Run a `kafka-ingest` command and return its JSON answer."""
        answer = self.run(f"kafka-ingest-{arguments[0]}", ROOT / ".venv/bin/kafka-ingest", *arguments, "--json")
        document: dict[str, Any] = json.loads(answer)
        return document

    def run_dag(self, name: str, shown: Step) -> dict[str, str]:
        """Run the feed's DAG once and return its tasks' states."""
        result = self.logs / f"{name}.json"
        self.run(name, sys.executable, ROOT / "dev" / "run_dag.py", FEED, result, shown=shown)
        tasks: dict[str, str] = json.loads(result.read_text())["tasks"]
        return tasks


def end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child and all it started: ask, then make it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        try:
            child.wait(5)
        except subprocess.TimeoutExpired:
            continue
        return


def main() -> None:
    """Run the demo; exit code 1 where a step failed, 130 on Ctrl-C."""
    signal.signal(signal.SIGTERM, interrupt)
    started = time.monotonic()
    name = sys.argv[1] if len(sys.argv) > 1 else "parquet"
    if name not in SINKS:
        console.print(f"Expected SINK to be one of {', '.join(SINKS)}, found {escape(name)}.")
        sys.exit(2)
    try:
        with only_one_demo():
            demo(SINKS[name])
    except (DemoError, BrokerError) as error:
        console.print(f"\n[red]The demo failed.[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("\nStopped, with all that the demo started. `make demo` starts again.")
        sys.exit(130)
    console.print(f"\nDone in {time.monotonic() - started:.0f} s; everything that was started is stopped again.")
    console.print("`make up` starts Kafka, a trickle of events and Airflow with its UI, to click around in.")


def demo(sink: DemoSink) -> None:
    """Run the feed three times: a backlog, what arrived since, and nothing new."""
    clear()
    with contextlib.ExitStack() as stack:
        with step(f"Kafka {KAFKA_VERSION}, a real broker (KRaft)"):
            broker = stack.enter_context(EmbeddedBroker(HOME / "kafka"))
        environment = child_environment(HOME, broker.bootstrap_servers)
        environment |= environment_of(sink, HOME, stack, broker.bootstrap_servers)
        stage = Stage(HOME / "logs", environment)
        events = order_events(FIRST_EVENTS + MORE_EVENTS, SEED)
        with step(f"{FIRST_EVENTS:,} order events into topic {FEED}, {PARTITIONS} uneven partitions"):
            create_topic(broker.bootstrap_servers, FEED, PARTITIONS)
            produce(broker.bootstrap_servers, FEED, itertools.islice(events, FIRST_EVENTS))
        with step("kafka-ingest db upgrade --create: the control tables"):
            stage.kafka_ingest("db", "upgrade", "--create")
        prepare_airflow(stage)

        with step(f"Airflow runs DAG {FEED}: plan >> write (Spark) >> commit >> next_batch") as shown:
            stage.run_dag("first-run", shown)
        show(stage, "After the first run")
        show_output(sink)
        with step(f"{MORE_EVENTS:,} more events arrive"):
            produce(broker.bootstrap_servers, FEED, events)
        with step(f"Airflow runs DAG {FEED} again") as shown:
            stage.run_dag("second-run", shown)
        show(stage, "After the second run: exactly the new events")
        show_output(sink)
        with step(f"Airflow runs DAG {FEED} a third time: nothing is new") as shown:
            tasks = stage.run_dag("third-run", shown)
        console.print(
            "     " + ", ".join(f"{task}: {tasks[task]}" for task in ("plan", "write", "commit", "next_batch"))
        )
        check(stage, tasks)


def clear() -> None:
    """Remove what an earlier demo left, but for Airflow's own database, which takes longest to make."""
    for path in (HOME / "kafka", output(HOME), HOME / "logs"):
        shutil.rmtree(path, ignore_errors=True)
    for database in (control_tables(HOME), catalog(HOME)):
        for path in HOME.glob(f"{database.name}*"):
            path.unlink()
    (HOME / "logs").mkdir(parents=True)


def prepare_airflow(stage: Stage) -> None:
    """Make Airflow's own database, once for each set of pinned versions."""
    made_for = airflow_home(HOME) / "made-for-requirements.txt"
    wanted = (ROOT / "requirements.txt").read_text()
    if made_for.is_file() and made_for.read_text() == wanted:
        return
    shutil.rmtree(airflow_home(HOME), ignore_errors=True)
    with step("airflow db migrate: Airflow's own database (the first time only)"):
        stage.run("airflow-db-migrate", ROOT / ".venv/bin/airflow", "db", "migrate")
    made_for.write_text(wanted)


def show(stage: Stage, title: str) -> None:
    """Show where the feed stands, and its last batch."""
    status = stage.kafka_ingest("status", FEED)
    last = stage.kafka_ingest("batches", FEED)["batches"][0]
    taken = {(entry["topic"], entry["partition"]): entry["rows"] for entry in last["ranges"]}
    numbers = ["log start", "log end", "stored offset", "lag", "group offset", "rows in all", "this run"]
    table = FittingTable(title, "partition", *numbers, numbers=numbers)
    for entry in status["partitions"]:
        names = ("log_start_offset", "high_watermark", "stored_offset", "lag", "group_offset", "rows")
        table.add_line(
            f"{entry['topic']}-{entry['partition']}",
            *("-" if entry[name] is None else f"{entry[name]:,}" for name in names),
            f"{taken.get((entry['topic'], entry['partition']), 0):,}",
        )
    table.add_section()
    lag, rows = (sum(entry[name] for entry in status["partitions"]) for name in ("lag", "rows"))
    table.add_line("total", "", "", "", f"{lag:,}", "", f"{rows:,}", f"{last['rows']:,}")
    console.print(table)
    console.print(f"     consumer group {status['group']}, batch {last['batch_id']}, {last['size_bytes'] / 1e6:.2f} MB")


def show_output(sink: DemoSink) -> None:
    """Show where the output is, how many rows it has, and the first ones, read back by a reader of its format."""
    settings = sink.settings
    place = settings.get("topic") or settings.get("table") or (output(HOME) / FEED).relative_to(ROOT)
    count, rows = sink.read_back(HOME)
    console.print(f"     output: {place}, {settings['format']}, with {count:,} rows", soft_wrap=True)
    names = [name.removeprefix("kafka_") for name in rows.column_names]
    table = FittingTable(f"The first rows, read back with {sink.reader}", *names)
    for row in rows.to_pylist():
        headers = ", ".join(entry["key"] for entry in row["kafka_headers"] or [])
        table.add_line(
            str(row["kafka_partition"]),
            str(row["kafka_offset"]),
            f"{row['kafka_timestamp']:%H:%M:%S.%f}"[:-3],
            (row["key"] or b"none").decode(),
            (row["value"] or b"a tombstone").decode()[:VALUE_CHARACTERS] + " ...",
            headers,
        )
    console.print(table)


def check(stage: Stage, third_run: dict[str, str]) -> None:
    """Make sure that what was shown is what the demo promises; raises DemoError."""
    expected = {"plan": "success", "write": "skipped", "commit": "skipped", "next_batch": "skipped"}
    if third_run != expected:
        raise DemoError(f"expected the third run to be skipped cleanly ({expected}), found {third_run}")
    batches = stage.kafka_ingest("batches", FEED)["batches"]
    rows = [batch["rows"] for batch in reversed(batches)]
    if rows != [FIRST_EVENTS, MORE_EVENTS]:
        raise DemoError(f"expected two batches of {FIRST_EVENTS:,} and {MORE_EVENTS:,} rows, found {rows}")


@contextlib.contextmanager
def only_one_demo() -> Iterator[None]:
    """Hold the demo's lock: two at once would share one folder. Raises DemoError where it is taken."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoError(f"another demo is running in {HOME}; wait for its end, or stop it with Ctrl-C") from error
        yield


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM as Ctrl-C: stop what was started."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
