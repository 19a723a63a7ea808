"""A user's project in a folder of its own: feed files, connections, control tables, output, and the command line."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.dataset
import yaml
from sqlalchemy import URL

from environment import child_environment, control_tables, output
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.upgrade import upgrade
from order_events import OrderEvent

KAFKA_INGEST = Path(sys.executable).with_name("kafka-ingest")


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    exit_code: int
    stdout: str
    stderr: str

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(self.stdout)


@cache
def empty_control_tables() -> bytes:
    """Return the SQLite file of control tables without a row.

    Making them takes a third of a second, so they are made once a process.
    """
    with tempfile.TemporaryDirectory(prefix="kafka-ingest-control-") as directory:
        file = Path(directory) / "control.db"
        engine = open_database(ControlDatabaseSettings(URL.create("sqlite", database=str(file))), create=True)
        upgrade(engine, create=True)
        engine.dispose()
        return file.read_bytes()


class Project:
    """Everything is below ``home``; the repository is only read."""

    def __init__(self, home: Path, bootstrap_servers: str) -> None:
        self.home = home
        self.feeds = home / "feeds"
        self.feeds.mkdir(parents=True)
        self.bootstrap_servers = bootstrap_servers
        self.environment = child_environment(home, bootstrap_servers) | {
            "KAFKA_INGEST_FEEDS": str(self.feeds),
            "SPARK_LOCAL_DIRS": str(home / "spark"),
        }

    @property
    def output(self) -> Path:
        return output(self.home)

    @property
    def control_file(self) -> Path:
        return control_tables(self.home)

    def write_feed(self, topic: str, *, name: str = "orders", **changes: Any) -> Path:
        """Write a feed file; ``changes`` replace or add top-level keys."""
        document = {
            "name": name,
            "kafka": {"topics": [topic], "group": f"{name}-ingest"},
            "sink": {"format": "parquet", "path": name},
            "airflow": {"retries": 1},
        }
        path = self.feeds / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document | changes))
        return path

    def write_shop(self, prefix: str, **more: Any) -> Path:
        """Write a file for many topics: each ``PREFIX.TABLE`` becomes the feed ``shop-TABLE`` of fleet ``shop``."""
        document = {
            "for_each_topic": rf"{prefix}\.(?P<table>[a-zA-Z_]+)",
            "fleet": "shop",
            "feed": {"name": "shop-{table}", "sink": {"format": "parquet"}},
        }
        path = self.feeds / "shop.yaml"
        path.write_text(yaml.safe_dump(document | more))
        return path

    def command(self, *arguments: str | Path, **environment: str) -> Answer:
        """Run a command to its end, from a folder that is not the repository."""
        done = subprocess.run(
            [str(argument) for argument in arguments],
            cwd=self.home,
            env=self.environment | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return Answer(done.returncode, done.stdout, done.stderr)

    def kafka_ingest(self, *arguments: str, **environment: str) -> Answer:
        return self.command(KAFKA_INGEST, *arguments, **environment)

    def make_control_tables(self) -> None:
        """Leave what `upgrade` leaves in a new project."""
        self.control_file.write_bytes(empty_control_tables())

    def upgrade(self) -> None:
        """Run the command that makes control tables; for tests of what it makes them in, or after."""
        answer = self.kafka_ingest("db", "upgrade", "--create")
        assert answer.exit_code == 0, answer.stderr

    def run(self, name: str = "orders", *options: str, **environment: str) -> list[dict[str, Any]]:
        """Run a feed with the command line and return its batches."""
        answer = self.kafka_ingest("run", name, *options, "--json", **environment)
        assert answer.exit_code == 0, answer.stdout + answer.stderr
        return answer.document["batches"]

    def status(self, name: str = "orders") -> dict[str, Any]:
        answer = self.kafka_ingest("status", name, "--json")
        assert answer.exit_code == 0, answer.stdout + answer.stderr
        return answer.document

    def stored_offsets(self, name: str = "orders") -> dict[int, int]:
        return {entry["partition"]: entry["stored_offset"] for entry in self.status(name)["partitions"]}

    def group_offsets(self, name: str = "orders") -> dict[int, int]:
        return {entry["partition"]: entry["group_offset"] for entry in self.status(name)["partitions"]}

    def rows(self, name: str = "orders") -> list[dict[str, Any]]:
        """Return all published rows, by position."""
        directory = self.output / name
        if not directory.exists():
            return []
        rows = pyarrow.dataset.dataset(directory, partitioning="hive").to_table().to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]))

    def positions(self, name: str = "orders") -> list[tuple[int, int]]:
        """Return partition and offset of all published rows, repetitions included."""
        return [(row["kafka_partition"], row["kafka_offset"]) for row in self.rows(name)]


def positions_of(events: list[OrderEvent]) -> list[tuple[int, int]]:
    """Return where Kafka puts events that are produced into an empty topic without transactions."""
    counts: dict[int, int] = {}
    positions = []
    for event in events:
        positions.append((event.partition, counts.setdefault(event.partition, 0)))
        counts[event.partition] += 1
    return sorted(positions)
