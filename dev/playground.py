"""The whole thing on one machine, to look at and to try out: `make up`, `make down`.

A Kafka broker, a trickle of order events, the control tables and Airflow with the feeds of dags/, all under `.local/up`
and on the loopback interface only. What is ingested stays over a `down` and the next `up`.
"""

import fcntl
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import airflow_components
import environment
import own_process
from embedded_broker import BrokerError, EmbeddedBroker
from free_ports import NoFreePortError, free_port_from
from java_command import JavaMissingError
from order_events import PARTITIONS, TopicError, create_topic
from own_process import OwnProcess
from playground_record import PlaygroundRecord
from progress import Step, console, step

HOME = environment.ROOT / ".local" / "up"
LOGS = HOME / "logs"
RECORD = HOME / "record.json"
ENVIRONMENT_FILE = HOME / "environment.sh"

TOPIC = "orders"
EVENTS_PER_SECOND = 20
KAFKA_PORT = 9092
API_PORT = 8080

AIRFLOW_TIMEOUT_S = 180.0
AIRFLOW_GRACE_S = 20.0
BROKER_GRACE_S = 10.0
_POLL_S = 0.5
_LOG_LINES_SHOWN = 25


class PlaygroundError(RuntimeError):
    """The playground cannot be brought up or down as asked; the message says what to do."""


def up() -> None:
    """Start everything and wait until Airflow answers. What fails half-way is stopped again."""
    HOME.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _alone():
        record = PlaygroundRecord.read(RECORD)
        if record is not None and record.complete and not record.ended():
            console.print("The playground is up already.")
        else:
            _refuse_remains(record)
            record = _start_or_stop_again()
        _describe(record)


def down() -> None:
    """Stop what `up` started, and nothing else."""
    if not HOME.exists():
        console.print("Nothing to stop: the playground is not up.")
        return
    with _alone():
        record = PlaygroundRecord.read(RECORD)
        if record is None:
            console.print("Nothing to stop: the playground is not up.")
            return
        _stop(record)


@contextmanager
def _alone() -> Iterator[None]:
    with (HOME / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlaygroundError(
                "expected to be alone, another make up or make down is at work: wait for its end"
            ) from None
        yield


def _refuse_remains(record: PlaygroundRecord | None) -> None:
    if record is None:
        return
    ended = record.ended()
    running = [process.name for process in record.processes if process not in ended or process.has_left_something()]
    if running:
        missing = [process.name for process in ended] or ["a complete start"]
        raise PlaygroundError(
            f"expected all of the playground or nothing, found {', '.join(running)} without {', '.join(missing)}: "
            "run make down, then make up"
        )


def _start_or_stop_again() -> PlaygroundRecord:
    try:
        return _start()
    except BaseException:
        record = PlaygroundRecord.read(RECORD)
        if record is not None:
            _stop(record)
        raise


def _start() -> PlaygroundRecord:
    for directory in (LOGS, environment.output(HOME)):
        directory.mkdir(parents=True, exist_ok=True)
    broker = EmbeddedBroker(HOME / "broker", port=free_port_from(KAFKA_PORT), detached=True)
    with step("Starting a Kafka broker"):
        broker.launch()
        record = PlaygroundRecord(broker.bootstrap_servers, free_port_from(API_PORT))
        record = _remember(record, OwnProcess.of("broker", broker.pid, broker.log))
        broker.wait_until_it_answers()
    with step(f"Creating topic {TOPIC}, starting a trickle of events into it"):
        create_topic(record.bootstrap_servers, TOPIC, PARTITIONS)
        trickle = [sys.executable, str(Path(__file__).with_name("trickle.py"))]
        arguments = [record.bootstrap_servers, TOPIC, str(EVENTS_PER_SECOND)]
        record = _remember(record, own_process.start("trickle", [*trickle, *arguments], LOGS / "trickle.log"))
    variables = environment.child_environment(HOME, record.bootstrap_servers, record.api_port)
    _write_environment_file(record)
    with step("Creating or upgrading the control tables"):
        _upgrade_control_tables(variables)
    with step("Preparing Airflow's own database"):
        airflow_components.prepare(environment.airflow_home(HOME), variables, LOGS / "airflow-db.log")
    with step("Starting Airflow") as shown:
        for name, command in airflow_components.COMPONENTS.items():
            record = _remember(record, own_process.start(name, command, LOGS / f"{name}.log", variables))
        _wait_for_airflow(record, shown)
    record = PlaygroundRecord(record.bootstrap_servers, record.api_port, record.processes, complete=True)
    record.write(RECORD)
    return record


def _remember(record: PlaygroundRecord, process: OwnProcess) -> PlaygroundRecord:
    """Write the process down at once: from now on `down` finds it, whatever happens to this program."""
    longer = record.with_process(process)
    longer.write(RECORD)
    return longer


def _upgrade_control_tables(variables: Mapping[str, str]) -> None:
    command = ["kafka-ingest", "db", "upgrade", "--create"]
    answer = subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if answer.returncode != 0:
        raise PlaygroundError(
            f"expected {shlex.join(command)} to succeed, it ended with {answer.returncode}:\n"
            f"{answer.stdout}{answer.stderr}"
        )


def _wait_for_airflow(record: PlaygroundRecord, shown: Step) -> None:
    deadline = time.monotonic() + AIRFLOW_TIMEOUT_S
    while unhealthy := airflow_components.unhealthy_parts(record.api_port):
        shown.note(f"waiting for {', '.join(unhealthy)}")
        if ended := record.ended():
            raise PlaygroundError(f"expected {ended[0].name} to keep running, it ended.\n{_log_tail(ended[0].name)}")
        if time.monotonic() > deadline:
            late = unhealthy[0].replace("_", "-")
            raise PlaygroundError(f"expected {late} to be up after {AIRFLOW_TIMEOUT_S:.0f} s.\n{_log_tail(late)}")
        time.sleep(_POLL_S)


def _log_tail(name: str) -> str:
    path = LOGS / f"{name}.log"
    lines = path.read_text(errors="replace").splitlines()[-_LOG_LINES_SHOWN:] if path.exists() else []
    return "\n".join([f"The end of {path}:", *lines])


def _write_environment_file(record: PlaygroundRecord) -> None:
    """For a shell: `. .local/up/environment.sh`, then `kafka-ingest status` speaks of this playground."""
    lines = [f"export PATH={shlex.quote(str(environment.ROOT / '.venv' / 'bin'))}:$PATH"]
    for name, value in environment.settings(HOME, record.bootstrap_servers, record.api_port).items():
        lines.append(f"export {name}={shlex.quote(value)}")
    ENVIRONMENT_FILE.write_text("\n".join([*lines, ""]))


def _stop(record: PlaygroundRecord) -> None:
    brokers = [process for process in record.processes if process.name == "broker"]
    others = [process for process in record.processes if process.name != "broker"]
    with step("Stopping Airflow and the trickle of events"):
        own_process.stop(others, AIRFLOW_GRACE_S)
    with step("Stopping the broker"):  # last: the others may still send to it
        own_process.stop(brokers, BROKER_GRACE_S)
    RECORD.unlink()


def _describe(record: PlaygroundRecord) -> None:
    def shown(path: Path) -> str:
        return os.path.relpath(path)

    rows = {
        "Airflow": f"http://127.0.0.1:{record.api_port}  user {airflow_components.USER}, its password is in "
        + shown(airflow_components.password_file(environment.airflow_home(HOME))),
        "Kafka": f"{record.bootstrap_servers}  topic {TOPIC}, about {EVENTS_PER_SECOND} events a second",
        "Output": shown(environment.output(HOME)),
        "Control tables": shown(environment.control_tables(HOME)),
        "Logs": f"{shown(LOGS)}, {shown(HOME / 'broker' / 'broker.log')}",
        "Command line": f". {shown(ENVIRONMENT_FILE)}; kafka-ingest status",
        "Stop": "make down (the data stays; make clean removes it)",
    }
    console.print()
    for name, text in rows.items():
        console.print(f"[bold]{name:15}[/] {text}", soft_wrap=True)


def main() -> int:
    """`playground.py up` or `playground.py down`."""
    verbs = {"up": up, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in verbs:  # noqa: PLR2004
        print(f"usage: {sys.argv[0]} {'|'.join(verbs)}", file=sys.stderr)
        return 2
    try:
        verbs[sys.argv[1]]()
    except KeyboardInterrupt:
        return 130
    except (
        PlaygroundError,
        BrokerError,
        TopicError,
        NoFreePortError,
        JavaMissingError,
        airflow_components.AirflowError,
    ) as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
