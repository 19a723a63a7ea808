"""A user's project whose commands run in this process, with a stand-in for Spark.

A tenth of a second instead of seconds.

Broker, control tables, output and the command line are real. What Spark alone can show (how its reads fail, what it
makes of holes in a log) is tested with :class:`tests.project.Project`.
"""

import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyspark
import typer.main
import typer.testing
import yaml
from confluent_kafka.admin import AdminClient
from tests.kept_engines import keeping_connections
from tests.kept_spark import kept_spark
from tests.like_spark import LikeSpark
from tests.project import Answer, Project
from typer.testing import CliRunner

from environment import settings
from kafka_ingest import assembly, write_step
from kafka_ingest.assembly import FeedParts
from kafka_ingest.cli import app as command_line
from kafka_ingest.cli import arguments as shared_by_commands
from kafka_ingest.cluster import kafka_client
from kafka_ingest.spark_launch.installation import Installation, installation
from kafka_ingest.spark_launch.run_spark_submit import run_spark_submit
from kafka_ingest.spark_launch.spark_submission import SparkSubmission
from kafka_ingest.spark_launch.workplace import package_zip
from kafka_ingest.verbs import check_feed, preview

built_once = cache(typer.main.get_command)
"""Typer makes all commands anew for each call of its runner, as it does once in a process."""

zipped_once = cache(package_zip)


ALL_COMMANDS = command_line.app_of()
BEYOND_SETTINGS = ("KAFKA_INGEST_FEEDS", "SPARK_LOCAL_DIRS")
OF_A_TEST = (*BEYOND_SETTINGS, "PYTEST_", "AIRFLOW", "KAFKA_INGEST_DATA")
"""What differs from test to test, and says nothing of where Java, Spark and the jars are."""


def installed_once() -> Installation:
    """Return what is installed: hundreds of jars are looked at once a process, for each environment that is another."""
    return installation_of(frozenset(each for each in os.environ.items() if not each[0].startswith(OF_A_TEST)))


@cache
def installation_of(_environment: frozenset[tuple[str, str]]) -> Installation:
    return installation()


@contextmanager
def closing_clients() -> Iterator[None]:
    """Close the Kafka clients of a command with it, as its process would: left to the garbage collector, they crash."""
    made: weakref.WeakSet[AdminClient] = weakref.WeakSet()

    class Remembered(AdminClient):
        def __init__(self, *settings: Any) -> None:
            super().__init__(*settings)
            made.add(self)

    try:
        with patch.object(kafka_client, "AdminClient", Remembered):
            yield
    finally:
        for client in list(made):
            client.__exit__(None, None, None)


class QuickProject(Project, LikeSpark):
    """A project whose command line is called, not started."""

    def __init__(self, home: Path, bootstrap_servers: str) -> None:
        super().__init__(home, bootstrap_servers)
        self.spark_is_real = self.spark_is_its_own = False
        self.before_spark: Callable[[], object] = lambda: None

    def kafka_ingest(self, *arguments: str, **environment: str) -> Answer:
        names = {*settings(self.home, ""), *BEYOND_SETTINGS}
        of_project = {
            key: value for key, value in self.environment.items() if key in names or key.startswith("AIRFLOW_CONN_")
        }
        with (
            closing_clients(),
            patch.object(shared_by_commands, "run_spark_submit", self.submit),
            patch.object(preview, "run_spark_submit", partial(self.submit, while_running=int)),
            keeping_connections(),
            patch.object(check_feed, "run_spark_submit", self.start_driver),
            patch.object(write_step, "package_zip", zipped_once),
            patch.object(write_step, "installation", installed_once),
            patch.object(assembly, "installation", installed_once),
            patch.object(typer.testing, "_get_command", built_once),
        ):
            done = CliRunner().invoke(ALL_COMMANDS, arguments, env=of_project | environment)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Answer(done.exit_code, done.stdout, done.stderr)

    @contextmanager
    def submitting(
        self,
        *,
        spark_is_real: bool = False,
        spark_is_its_own: bool = False,
        before_spark: Callable[[], object] = lambda: None,
    ) -> Iterator[None]:
        """Let something happen after the last look at Kafka, before Spark reads; and let Spark be the real one.

        It is one that ran before (:mod:`tests.kept_spark`), or its own: with a Java that this run starts.
        """
        self.spark_is_real, self.spark_is_its_own, self.before_spark = spark_is_real, spark_is_its_own, before_spark
        try:
            yield
        finally:
            self.spark_is_real, self.spark_is_its_own, self.before_spark = False, False, lambda: None

    def submit(self, submission: SparkSubmission, log_file: Path, *, while_running: Callable[[], object]) -> None:
        """Run what a run submits."""
        self.before_spark()
        if self.spark_is_its_own:
            run_spark_submit(submission, log_file, while_running=while_running)
        elif self.spark_is_real:
            run_spark_submit(kept_spark().instead(submission), log_file, while_running=while_running)
        else:
            self.write_like_spark(submission, log_file)

    def start_driver(self, submission: SparkSubmission, log_file: Path, environment: Mapping[str, str]) -> None:
        """Start what doctor starts, where Spark is to be its own; else say that all is as it should be."""
        if self.spark_is_its_own:
            run_spark_submit(submission, log_file, environment)
            return
        found = {"Spark": pyspark.__version__, "Java": "17", "Python": "3.11", **check_feed.SAME_EVERYWHERE}
        Path(submission.arguments[1]).write_text(json.dumps(found))
        log_file.touch()

    @contextmanager
    def stopping_before_the_commit(self) -> Iterator[None]:
        """Let runs end as if they were killed between write and commit."""
        with patch.object(FeedParts, "commit", side_effect=Killed):
            yield

    @contextmanager
    def stopping_before_the_pin(self) -> Iterator[None]:
        """Let runs end as if they were killed after Spark wrote its receipt, before it was pinned."""
        with patch.object(write_step, "pin_attempt", side_effect=Killed):
            yield

    def edit_feed(self, name: str = "orders", **changes: Any) -> None:
        """Replace or add top-level keys of a feed file."""
        path = self.feeds / f"{name}.yaml"
        path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | changes))

    def answer(self, *arguments: str, **environment: str) -> dict[str, Any]:
        """Return what a command that succeeds says with --json."""
        found = self.kafka_ingest(*arguments, "--json", **environment)
        assert found.exit_code == 0, found.stdout + found.stderr
        return found.document

    def plan(self, *options: str, name: str = "orders") -> dict[str, Any]:
        """Plan the feed's next batch."""
        return self.answer("plan", name, *options)

    def dry_run(self, *options: str, name: str = "orders") -> dict[str, Any]:
        """Show what the next plan would be."""
        return self.answer("plan", name, "--dry-run", *options)

    def refusal(self, *arguments: str, **environment: str) -> tuple[int, str, str]:
        """Return exit code, error code and message of a command that fails."""
        found = self.kafka_ingest(*arguments, "--json", **environment)
        assert found.exit_code != 0, found.stdout
        error = found.document["error"]
        assert error["exit_code"] == found.exit_code
        return found.exit_code, error["code"], error["message"]

    def partition(self, partition: int = 0, *, topic: str | None = None, name: str = "orders") -> dict[str, Any]:
        """Return what status says of one partition."""
        [found] = [
            entry
            for entry in self.status(name)["partitions"]
            if entry["partition"] == partition and topic in {None, entry["topic"]}
        ]
        return found  # type: ignore[no-any-return]

    def batches(self, name: str = "orders") -> list[dict[str, Any]]:
        """Return the feed's batches, newest first."""
        return self.answer("batches", name)["batches"]  # type: ignore[no-any-return]

    def gaps(self, name: str = "orders") -> list[tuple[int, int, int, str, str]]:
        """Return partition, start offset, end offset, cause and state of each gap."""
        found = self.answer("gaps", name)["gaps"]
        return [(gap["partition"], gap["start_offset"], gap["end_offset"], gap["cause"], gap["state"]) for gap in found]


class Killed(BaseException):
    """What a process that is killed leaves its caller with: nothing."""


def spans(document: dict[str, Any]) -> dict[int, tuple[int, int]]:
    """Return the ranges of a plan or a batch over one topic, by partition."""
    return {entry["partition"]: (entry["start_offset"], entry["end_offset"]) for entry in document["ranges"]}


def seeds(document: dict[str, Any]) -> dict[int, tuple[int | None, str]]:
    """Return where a plan lets the partitions of one topic begin, and by which rule."""
    return {entry["partition"]: (entry["offset"], entry["rule"]) for entry in document["seeds"]}
