"""Make what an earlier version leaves behind: a feed with a history, and a copy of it for each state of an open batch.

Run by that version's own Python, in a checkout of it, with real parts: broker, Spark, SQLite, command line. README.md
beside this file says how. What is made is read by `stored_project.py`.
"""

import json
import os
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import psutil
from tests.kafka_faults import Record, create_topic, produce
from tests.killing import ending_all, slowly, wait_for
from tests.project import KAFKA_INGEST, Answer, Project

from embedded_broker import EmbeddedBroker

TOPIC = "orders"
MANY = "many"
"""A topic of so many partitions that they share files: their receipt has another format, where the version knows it."""
PARTITIONS = {TOPIC: 3, MANY: 33}
HERE = "/proc/self/cwd"
"""Where each process finds its own folder: plans, receipts and their hashes hold absolute paths, and these never
change."""

PLANS = "kafka_ingest.control.plan_store:PlanStore"
ATTEMPTS = "kafka_ingest.control.plan_store:AttemptStore"
LIFE = "kafka_ingest.control.batch_life:BatchLife"
SINK = "kafka_ingest.sinks.parquet.publisher:ParquetPublisher"
KEPT = "kafka_ingest.sinks.kept_receipts:KeptReceipts"
# Versions before 0.1.0's last days have it in the first module.
SUBMIT_MODULES = ("kafka_ingest.cli.arguments", "kafka_ingest.cli.run_command")
SUBMIT = f"{next(filter(find_spec, SUBMIT_MODULES))}:run_spark_submit"

NOT_KEPT = (".zip", ".log", ".crc")
"""What a later run makes again, or nothing reads."""

QUESTIONS = ("batches", "gaps", "history", "coverage")
"""What the earlier version is asked of each state that it left."""

ASK = """
import json, sys
from typer.testing import CliRunner
from kafka_ingest.cli import app as command_line
app = command_line.app_of() if hasattr(command_line, "app_of") else command_line.app
feed, *questions = sys.argv[1:]
print(json.dumps({each: json.loads(CliRunner().invoke(app, [each, feed, "--json"]).stdout) for each in questions}))
"""
"""All questions in one process."""


class OlderProject(Project):
    """A project whose output has the same absolute path wherever its folder is copied to."""

    def __init__(self, home: Path, bootstrap_servers: str, like: "OlderProject | None" = None) -> None:
        super().__init__(home, bootstrap_servers)
        self.environment["KAFKA_INGEST_DATA"] = f"{HERE}/output"
        if like is not None:
            for made in (like.feeds, like.output):
                if made.exists():
                    shutil.copytree(made, home / made.name, dirs_exist_ok=True)
            with closing(sqlite3.connect(like.control_file)) as old, closing(sqlite3.connect(self.control_file)) as new:
                old.backup(new)

    def does(self, *arguments: str, **environment: str) -> Answer:
        """Run a command that has to succeed."""
        answer = self.kafka_ingest(*arguments, **environment)
        if answer.exit_code != 0:
            raise RuntimeError(f"expected {arguments} to succeed, found {answer}")
        return answer

    def knows(self, command: str) -> bool:
        """Whether this version has a command."""
        return self.kafka_ingest(command, "--help").exit_code == 0


class States:
    """The states made so far, each a folder of its own."""

    def __init__(self, scratch: Path, archive: Path, servers: str) -> None:
        self._scratch = scratch
        self._archive = archive
        self._servers = servers
        self._made: dict[str, OlderProject] = {}

    def new(self, name: str, like: str | None = None) -> OlderProject:
        """Return a new project, or a copy of one as it was left."""
        origin = None if like is None else self._made[like]
        self._made[name] = OlderProject(self._scratch / name.replace(" ", "-"), self._servers, origin)
        return self._made[name]

    def killed(self, name: str, like: str, *command: str, at: str, feed: str = TOPIC) -> None:
        """Copy a state, run a command there, kill it at a call, and store what it leaves."""
        project = self.new(name, like)
        with ending_all(project) as processes:
            run = processes.start(KAFKA_INGEST, *command, "--json", held_at=at)
            run.wait_until_held()
            run.kill()
        self.keep(name, feed)

    def keep(self, name: str, feed: str = TOPIC) -> None:
        """Store a state: the control tables as SQL, the output and what lies beside it, and this version's answers."""
        project, kept = self._made[name], self._archive / name.replace(" ", "-")
        kept.mkdir()
        with closing(sqlite3.connect(project.control_file)) as connection:
            (kept / "control.sql").write_text("".join(f"{line}\n" for line in connection.iterdump()))
        shutil.copytree(
            project.output, kept / "output", ignore=lambda _, names: [n for n in names if n.endswith(NOT_KEPT)]
        )
        answers = project.command(sys.executable, "-c", ASK, feed, *QUESTIONS).document
        (kept / "answers.json").write_text(json.dumps(answers, indent=1, sort_keys=True))
        sys.stderr.write(f"{name}: {', '.join(batch['state'] for batch in answers['batches']['batches'])}\n")


class Topic:
    """What was produced into one."""

    def __init__(self, servers: str, name: str) -> None:
        self._servers = servers
        self._name = name
        self.topic_id = create_topic(servers, name, PARTITIONS[name])
        self.records: list[tuple[int, int, str]] = []

    def add(self, partition: int, count: int, *, batches: int = 1) -> None:
        """Produce record batches of so many records each."""
        for _ in range(batches):
            first = sum(each[0] == partition for each in self.records)
            values = [f"{self._name}-{partition}@{offset}" for offset in range(first, first + count)]
            offsets = produce(self._servers, self._name, partition, [Record(value.encode()) for value in values])
            self.records += [(partition, offset, value) for offset, value in zip(offsets, values, strict=True)]


def make_history(states: States, topic: Topic) -> None:
    """Committed batches, gaps, a backfill of two chunks, a failed attempt, and expired files if the version has any."""
    project = states.new("settled")
    project.upgrade()
    project.write_feed(TOPIC)
    topic.add(0, 5)
    topic.add(1, 3)
    project.run()
    first_batch_ended = datetime.now(UTC).isoformat()
    topic.add(0, 6)
    topic.add(1, 6)
    topic.add(2, 7)
    for partition, interval in ((0, "7-9"), (1, "3-7"), (2, "0-6")):
        project.does("skip", TOPIC, TOPIC, str(partition), interval, "--reason", "poisoned")
    failed = project.kafka_ingest("run", TOPIC, JAVA_HOME="/nowhere")
    if failed.exit_code != 1:
        raise RuntimeError(f"expected Spark to fail, found {failed}")
    project.run(TOPIC, "--until-caught-up")
    project.does("backfill", TOPIC, f"{TOPIC}:1=3-7", "--max-records", "2", "--reason", "mended")
    if project.knows("expire"):
        project.does("expire", TOPIC, "--before", first_batch_ended, "--execute", "--reason", "too old")
        project.does("lost", TOPIC, "--batch", lose_newest_file(project), "--execute", "--reason", "a disk failed")
    topic.add(0, 1, batches=8)
    topic.add(1, 2)
    topic.add(2, 3)
    states.keep("settled")


def lose_newest_file(project: OlderProject) -> str:
    """Delete the file of the newest batch, which is the second chunk of the backfill; return its id."""
    directory = max(project.output.glob(f"{TOPIC}/kafka_batch=*"))
    for file in directory.glob("*.parquet"):
        file.unlink()
    return directory.name.removeprefix("kafka_batch=")


def make_open_batches(states: States) -> None:
    """A live batch in each state that a run can leave, and that an operator can."""
    run = ("run", TOPIC)
    states.killed("planned", "settled", *run, at=f"after:{PLANS}.record_plan")
    states.killed("attempt recorded", "settled", *run, at=f"after:{ATTEMPTS}.open_attempt")
    states.killed("attempt opened", "settled", *run, at=f"before:{SUBMIT}")
    kill_spark(states)
    states.killed("receipt", "settled", *run, at=f"before:{LIFE}.pin")
    states.killed("written", "receipt", *run, at=f"after:{LIFE}.pin")
    states.killed("committing", "written", *run, at=f"after:{LIFE}.begin_commit")
    states.killed("receipt kept", "written", *run, at=f"after:{KEPT}.keep")
    states.killed("published", "written", *run, at=f"after:{SINK}.publish")
    states.killed("committed", "written", *run, at=f"after:{LIFE}.complete_commit")

    damage(states.new("damaged", "written"))
    states.killed("discarded", "damaged", *run, at=f"after:{LIFE}.discard_written")
    for name, like in (("abandoned written", "written"), ("abandoned committing", "committing")):
        states.new(name, like).does("abandon", open_batch(states, like), "--reason", "not wanted")
        states.keep(name)
    abandon = ("abandon", open_batch(states, "committing"), "--reason", "not wanted")
    states.killed("revoked", "committing", *abandon, at=f"after:{SINK}.revoke")


def make_open_backfills(states: States) -> None:
    """The first of three chunks in each state, and a copy into another output."""
    backfill = ("backfill", TOPIC, f"{TOPIC}:2=0-6", "--max-records", "2", "--reason", "mended")
    resume = ("backfill", TOPIC, "open")
    states.killed("chunks planned", "settled", *backfill, at=f"after:{PLANS}.record_backfill")
    states.killed("chunk opened", "settled", *backfill, at=f"before:{SUBMIT}")
    states.killed("chunk receipt", "settled", *backfill, at=f"before:{LIFE}.pin")
    states.killed("chunk written", "chunk receipt", *resume, at=f"after:{LIFE}.pin")
    states.killed("chunk committing", "chunk written", *resume, at=f"after:{LIFE}.begin_commit")
    states.killed("chunk published", "chunk written", *resume, at=f"after:{SINK}.publish")
    copy = ("backfill", TOPIC, f"{TOPIC}:1=7-9", f"{TOPIC}:2=6-10", "--copy-to", "copied")
    states.killed("copy published", "settled", *copy, at=f"after:{SINK}.publish")


def make_shared_files(states: States, many: Topic) -> None:
    """A batch of another feed, of more ranges than are a file each."""
    for partition in range(PARTITIONS[MANY]):
        many.add(partition, 1)
    project = states.new("many partitions")
    project.upgrade()
    project.write_feed(MANY, name=MANY)
    states.killed("shared files", "many partitions", "run", MANY, at=f"after:{LIFE}.begin_commit", feed=MANY)


def kill_spark(states: States) -> None:
    """Kill Spark and the run that started it, in the middle of the data files."""
    project = states.new("spark killed", "settled")
    staging = project.output / "orders.kafka-ingest" / "staging"

    def is_writing() -> bool:
        return any(
            name.endswith(".parquet") for place, _, names in os.walk(staging) if "_temporary" in place for name in names
        )

    with ending_all(project) as processes:
        run = processes.run_feed(**slowly(project))
        run.wait_until(is_writing, "Spark to write")
        started = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        for child in started:
            child.kill()
        wait_for(lambda: not any(child.is_running() and child.status() != "zombie" for child in started), "Spark's end")
    states.keep("spark killed")


def damage(project: OlderProject) -> None:
    """Cut the last bytes off a staged file."""
    staged = max(
        (project.output / "orders.kafka-ingest" / "staging").rglob("data/*.parquet"), key=lambda p: p.stat().st_mtime
    )
    os.truncate(staged, staged.stat().st_size - 10)


def open_batch(states: States, name: str) -> str:
    """Return the id of a state's open live batch."""
    return str(states._made[name].status()["open_batch"]["batch_id"])


def main() -> None:
    """Make the archive that the one argument names."""
    target = Path(sys.argv[1]).absolute()
    with tempfile.TemporaryDirectory(prefix="older-states-") as directory:
        scratch, archive = Path(directory) / "scratch", Path(directory) / "archive"
        archive.mkdir()
        with EmbeddedBroker(scratch / "kafka") as broker:
            topics = {name: Topic(broker.bootstrap_servers, name) for name in PARTITIONS}
            states = States(scratch, archive, broker.bootstrap_servers)
            make_history(states, topics[TOPIC])
            make_open_batches(states)
            make_open_backfills(states)
            make_shared_files(states, topics[MANY])
            for name, state in ((TOPIC, "settled"), (MANY, "many-partitions")):
                shutil.copy(scratch / state / "feeds" / f"{name}.yaml", archive)
            produced = {name: {"topic_id": each.topic_id, "records": each.records} for name, each in topics.items()}
            kafka = {"cluster_id": broker.cluster_id, "topics": produced}
            (archive / "kafka.json").write_text(json.dumps(kafka))
        with tarfile.open(target, "w:xz", preset=9) as packed:
            packed.add(archive, ".", filter=nobodys)
    sys.stderr.write(f"{target}: {target.stat().st_size:,} bytes\n")


def nobodys(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without its owner."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    main()
