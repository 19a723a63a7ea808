"""`make soak`: a live producer, a real Airflow that runs a feed every minute, and SIGKILL at random moments.

At the end everything is left to finish, and each record of the topic is looked for in the output. Ends with exit code
1 where one is missing, twice or another. `make soak ARGS="--minutes 60 --seed 7"`.
"""

import argparse
import contextlib
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from confluent_kafka import KafkaException
from rich.table import Table

import airflow_components
import environment
import own_process
from compare_output import Comparison, compare
from embedded_broker import BrokerError, EmbeddedBroker
from free_ports import free_port_from
from order_events import PARTITIONS, create_topic, order_events, produce
from own_process import OwnProcess
from progress import console, step
from random_kills import ROLES, RandomKills
from repeatable_random import repeatable_random

HOME = environment.ROOT / ".local" / "soak"
LOGS = HOME / "logs"
FEED = "soak"
EVENTS_A_SECOND = 200
EVENTS_AT_ONCE = 50
COMPONENTS = ("api-server", "scheduler", "dag-processor")
GRACE_S = 30.0
FINISH_S = 600.0
KILL_EVERY_S = (2.0, 14.0)  # a run of the feed takes some 20 s, and a killed task is tried again after 30
BROKER_KILL_CHANCE = 0.08
SCHEDULER_KILL_CHANCE = 0.06
RIVAL_EVERY_S = 20.0
RIVALS_AT_MOST = 2
TICK_S = 0.5
MARK = {"SPARK_LOCAL_DIRS": str(HOME / "spark")}
"""The variable by which the soak knows its own processes; Spark's driver inherits it, too."""
AIRFLOW = {
    # Otherwise the titles that Airflow gives its processes overwrite their environment, and RandomKills finds none.
    "SPT_NOENV": "1",
    "AIRFLOW__CORE__PARALLELISM": "4",
    # A killed task is noticed within seconds, not minutes: the soak is short.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}


class SoakError(RuntimeError):
    """The soak could not be run, or found what must not be."""


@dataclass
class Soak:
    """What runs, and what is counted."""

    broker: EmbeddedBroker
    choose: random.Random
    variables: dict[str, str]
    components: dict[str, OwnProcess] = field(default_factory=dict)
    rivals: list[subprocess.Popen[bytes]] = field(default_factory=list)
    produced: int = 0
    rival_runs: Counter[int] = field(default_factory=Counter)

    def start(self, name: str) -> None:
        """Start one of Airflow's components."""
        command = airflow_components.COMPONENTS[name]
        self.components[name] = own_process.start(name, command, LOGS / f"{name}.log", self.variables)

    def kafka_ingest(self, *arguments: str) -> dict[str, Any]:
        """Run a command and return its JSON answer; raises SoakError where it fails."""
        command = [str(environment.ROOT / ".venv/bin/kafka-ingest"), *arguments, "--json"]
        done = subprocess.run(command, env=self.variables, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if done.returncode:
            raise SoakError(
                f"{' '.join(command)} ended with {done.returncode}: {done.stdout.decode()}{done.stderr.decode()}"
            )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def start_rival(self) -> None:
        """Run the feed by hand, or clean up after it, while Airflow runs it."""
        verb = self.choose.choice([("run", FEED), ("run", FEED), ("clean", FEED)])
        with (LOGS / "rivals.log").open("ab") as log:
            command = [str(environment.ROOT / ".venv/bin/kafka-ingest"), *verb]
            self.rivals.append(
                subprocess.Popen(command, env=self.variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def collect_rivals(self) -> None:
        """Note how those that ended ended."""
        for rival in [rival for rival in self.rivals if rival.poll() is not None]:
            self.rivals.remove(rival)
            self.rival_runs[rival.returncode] += 1

    @contextlib.contextmanager
    def producing(self) -> Iterator[None]:
        """Produce events at a steady pace in the meantime, also after the broker was killed and is back."""
        ended = threading.Event()
        producer = threading.Thread(target=self._produce, args=(ended,), daemon=True)
        producer.start()
        try:
            yield
        finally:
            ended.set()
            producer.join()

    def _produce(self, ended: threading.Event) -> None:
        events = order_events(sys.maxsize, seed=self.choose.randrange(1 << 30))
        while not ended.wait(EVENTS_AT_ONCE / EVENTS_A_SECOND):
            some = [next(events) for _ in range(EVENTS_AT_ONCE)]
            # What is in the topic is what counts; an event that was sent twice is there twice, under two offsets.
            with contextlib.suppress(RuntimeError):
                self.produced += produce(self.broker.bootstrap_servers, FEED, some)


def main() -> int:
    """Run the soak; exit code 1 where it found a fault, 130 on Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        soak(options.minutes, options.seed)
    except (SoakError, BrokerError, airflow_components.AirflowError, TimeoutError, KafkaException, OSError) as error:
        console.print(f"\n[red]The soak failed.[/] {error} The logs and all data are in {HOME}.", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def soak(minutes: float, seed: int) -> None:
    """Prepare, run for so long, let everything finish, and compare."""
    shutil.rmtree(HOME, ignore_errors=True)
    LOGS.mkdir(parents=True)
    console.print(f"{minutes:g} minutes, seed {seed}")
    choose = repeatable_random(seed)
    with contextlib.ExitStack() as stack:
        with step("Kafka, control tables, Airflow's own database"):
            broker = stack.enter_context(EmbeddedBroker(HOME / "kafka"))
            run = Soak(broker, choose, variables(broker.bootstrap_servers))
            create_topic(broker.bootstrap_servers, FEED, PARTITIONS)
            run.kafka_ingest("db", "upgrade", "--create")
            airflow_components.prepare(environment.airflow_home(HOME), run.variables, LOGS / "airflow-db.log")
        stack.callback(stop, run)
        for name in COMPONENTS:
            run.start(name)
        kills = RandomKills("".join(f"{name}={value}" for name, value in MARK.items()), choose)
        with run.producing():
            run_and_kill(run, kills, minutes)
        stop(run)
        finish(run)
        report(run, kills)


def variables(bootstrap_servers: str) -> dict[str, str]:
    """Return the environment of all that is started, with one feed that runs every minute, in small batches."""
    feeds = HOME / "feeds"
    feeds.mkdir()
    feed = {
        "name": FEED,
        "schedule": "* * * * *",
        "kafka": {"topics": [FEED], "group": f"{FEED}-ingest"},
        "limits": {"max_records": 5_000},
        "sink": {"format": "parquet", "path": FEED, "staging_retention": "60s"},
        "airflow": {"retries": 5},
    }
    (feeds / f"{FEED}.yaml").write_text(yaml.safe_dump(feed))
    made = environment.child_environment(HOME, bootstrap_servers, free_port_from(8090))
    return {**made, **AIRFLOW, "KAFKA_INGEST_FEEDS": str(feeds), **MARK}


def run_and_kill(run: Soak, kills: RandomKills, minutes: float) -> None:
    """Let Airflow and some rivals run the feed, and kill at random, until the time has passed."""
    ends = time.monotonic() + minutes * 60
    next_rival = next_kill = time.monotonic() + run.choose.uniform(*KILL_EVERY_S)
    with step(f"{minutes:g} minutes of runs and kills") as shown:
        while (now := time.monotonic()) < ends:
            time.sleep(TICK_S)
            run.collect_rivals()
            if now > next_rival and len(run.rivals) < RIVALS_AT_MOST:
                next_rival = now + RIVAL_EVERY_S
                run.start_rival()
            # Not as soon as something can be killed: it would always be at its beginning.
            if now > next_kill:
                strike(run, kills)
                next_kill = now + run.choose.uniform(*KILL_EVERY_S)
            dead = [name for name, process in run.components.items() if not process.is_running()]
            if dead:
                raise SoakError(f"expected {', '.join(dead)} to keep running: see {LOGS}")
            shown.note(f"{kills.killed.total():,} kills, {run.produced:,} events")


def strike(run: Soak, kills: RandomKills) -> None:
    """Kill a broker, a scheduler or one process at random, where the feed is being run: that is when it counts."""
    if not kills.victims():
        return
    dice = run.choose.random()
    if dice < BROKER_KILL_CHANCE:
        run.broker.kill()
        kills.killed["broker"] += 1
        time.sleep(run.choose.uniform(0, 5))
        run.broker.start()
    elif dice < BROKER_KILL_CHANCE + SCHEDULER_KILL_CHANCE:
        own_process.stop([run.components["scheduler"]], grace_s=0)
        kills.killed["Airflow scheduler, with its tasks"] += 1
        run.start("scheduler")
    else:
        kills.kill_one()


def stop(run: Soak) -> None:
    """Stop Airflow and the rivals; an orphaned Spark continues, as it would in production."""
    own_process.stop(list(run.components.values()), GRACE_S)
    for rival in run.rivals:
        rival.terminate()
        rival.wait()
    run.collect_rivals()


def finish(run: Soak) -> None:
    """Run the feed until nothing is new, as the next runs would have done."""
    with step("The runs after it, until nothing is new"):
        deadline = time.monotonic() + FINISH_S
        while run.kafka_ingest("run", FEED, "--until-caught-up")["ended_with"] is None:
            if time.monotonic() > deadline:
                raise SoakError(f"expected the feed to catch up within {FINISH_S:.0f} s")
        run.kafka_ingest("mirror", FEED, "--repair")
        run.kafka_ingest("clean", FEED)


def report(run: Soak, kills: RandomKills) -> None:
    """Compare every record, print the counts, and raise SoakError where something is wrong."""
    with step("Comparing every record"):
        found = compare(run.broker.bootstrap_servers, FEED, environment.output(HOME) / FEED)
        status = run.kafka_ingest("status", FEED)
        batches = run.kafka_ingest("batches", FEED, "--limit", "1000000")["batches"]
    table = Table(title="Soak", title_justify="left", title_style="bold", show_header=False)
    for state, count in sorted(airflow_runs().items()):
        table.add_row(f"Airflow runs, {state}", f"{count:,}")
    for code, count in sorted(run.rival_runs.items()):
        table.add_row(f"concurrent kafka-ingest, exit code {code}", f"{count:,}")
    for state, count in sorted(Counter(batch["state"] for batch in batches).items()):
        table.add_row(f"batches, {state}", f"{count:,}")
    for role, count in sorted((dict.fromkeys(ROLES, 0) | kills.killed).items()):
        table.add_row(f"SIGKILL, {role}", f"{count:,}")
    table.add_row("kills in all", f"{kills.killed.total():,}")
    table.add_row("records compared", f"{found.records:,}")
    console.print(table)
    check(found, status)
    console.print(str(found))


def check(found: Comparison, status: dict[str, Any]) -> None:
    """Raise SoakError unless every record is there once and the offsets and the group stand at the end."""
    if not found.is_equal or not found.records:
        raise SoakError(str(found))
    for entry in status["partitions"]:
        if not entry["stored_offset"] == entry["group_offset"] == entry["high_watermark"]:
            raise SoakError(f"expected stored offset, group and log end to be equal, found {entry}")


def airflow_runs() -> Counter[str]:
    """Return how many runs of the feed's DAG Airflow made, by state."""
    with contextlib.closing(sqlite3.connect(environment.airflow_home(HOME) / "airflow.db")) as database:
        found = database.execute("SELECT state, count(*) FROM dag_run WHERE dag_id = ? GROUP BY state", (FEED,))
        return Counter(dict(found.fetchall()))


if __name__ == "__main__":
    sys.exit(main())
