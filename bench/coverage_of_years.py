"""`make bench-coverage`: what asking about a feed with years of history takes, whole process. See README.md."""

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import yaml
from control_databases import DATABASES, control_databases
from places import directory_for_data, run_in_a_directory
from sqlalchemy import URL, Connection, create_engine, insert

from environment import ROOT
from kafka_ingest.control import schema
from kafka_ingest.control.rows import insert_rows
from kafka_ingest.model.batch import BatchKind, BatchState

PARTITIONS, BATCHES, BACKFILLS, SPAN = 1_000, 10_000, 100, 100
REPETITIONS = 5
QUESTIONS = {
    "coverage": ("coverage", "orders"),
    "locate": ("locate", "orders", "orders", "3", "4711"),
    "batches": ("batches", "orders", "--limit", "20"),
    "history": ("history", "orders"),
}


@dataclass(frozen=True, slots=True)
class Size:
    """How large the feed's history is."""

    partitions: int
    batches: int
    backfills: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-coverage ARGS=…", description=__doc__)
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"default: {PARTITIONS:,}")
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"live ones; default: {BATCHES:,}")
    parser.add_argument(
        "--backfills", type=int, default=BACKFILLS, help=f"each of every partition; default: {BACKFILLS:,}"
    )
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES, help="default: both")
    parser.add_argument(
        "--directory", type=directory_for_data, help="where the databases keep their data, some GB; default: /tmp"
    )
    options = parser.parse_args()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Fill control tables, ask, and print how long the answers took."""
    size = Size(options.partitions, options.batches, options.backfills)
    with control_databases(options.databases, directory) as databases:
        filled = {kind: new() for kind, new in databases.items()}
        for kind, url in filled.items():
            started = time.monotonic()
            fill(url, size)
            took = f"{time.monotonic() - started:.0f} s"
            print(f"{kind}: {size.partitions * size.batches:,} live ranges written in {took}")
        ask(filled, directory, options.repetitions)


def ask(databases: dict[str, URL], directory: Path, repetitions: int) -> None:
    """Ask each question of each database in turn, several times, and print minimum, median and maximum."""
    feeds = directory / "feeds"
    feeds.mkdir()
    feed = {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "orders"}}
    (feeds / "orders.yaml").write_text(yaml.safe_dump(feed))
    took: dict[tuple[str, str], list[float]] = {}
    answers: dict[tuple[str, str], set[str]] = {}
    for _ in range(repetitions):
        for question, words in QUESTIONS.items():
            for kind, url in databases.items():
                started = time.monotonic()
                answer = kafka_ingest(words, url, feeds)
                took.setdefault((question, kind), []).append(time.monotonic() - started)
                answers.setdefault((question, kind), set()).add(hashlib.sha256(answer).hexdigest()[:12])
    print("\n| question | database | min | median | max | answer (SHA-256) |\n|---|---|--:|--:|--:|---|")
    for (question, kind), seconds in took.items():
        [checksum] = answers[question, kind]
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"| {question} | {kind} | {low:.2f} s | {middle:.2f} s | {high:.2f} s | {checksum} |")


def kafka_ingest(words: tuple[str, ...], url: URL, feeds: Path) -> bytes:
    """Run a command, whole, and return its JSON answer."""
    connection = {"conn_type": "sqlite", "host": str(url.database)}
    if url.get_backend_name() == "postgresql":
        host = url.host or str(url.query["host"])
        connection = {"conn_type": "postgres", "host": host, "schema": str(url.database), "login": str(url.username)}
    environment = {**os.environ, "KAFKA_INGEST_FEEDS": str(feeds), "AIRFLOW_CONN_KAFKA_INGEST": json.dumps(connection)}
    environment |= {"KAFKA_INGEST_DATA": str(feeds.parent)}
    command = [str(ROOT / ".venv/bin/kafka-ingest"), *words, "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(
            f"{' '.join(command)} ended with {done.returncode}: "
            f"{done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}"
        )
    return done.stdout


def fill(url: URL, size: Size) -> None:
    """Write a feed's history: backfills before the first offset, consecutive live batches, and gaps ahead."""
    engine = create_engine(url)
    sqlite = url.get_backend_name() == "sqlite"
    first = size.backfills * SPAN
    end = first + size.batches * SPAN
    with engine.connect() as connection:
        # Batches name their pinned attempts, and those name their batch.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF" if sqlite else "SET session_replication_role = replica")
        connection.commit()
        insert_rows(connection, schema.feed, [FEED_ROW])
        for number in range(size.backfills + size.batches):
            kind = BatchKind.BACKFILL if number < size.backfills else BatchKind.LIVE
            write_batch(connection, UUID(int=FIRST_BATCH.int + number), kind, number * SPAN, size.partitions)
        write_partitions(connection, size.partitions, first, end)
        connection.commit()
        if not sqlite:
            connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE")
    engine.dispose()


NOW = datetime(2026, 1, 1, tzinfo=UTC)
RUN = "airflow:orders/scheduled__2026-01-01"
FEED_ID, FIRST_BATCH = UUID("01990000-0000-7000-8000-00000000feed"), UUID("01990000-0000-7000-8000-000000000000")
FEED_ROW = {
    "feed_id": FEED_ID,
    "name": "orders",
    "cluster_id": "cluster",
    "topics": ["orders"],
    "revision": 1,
    "created_at": NOW,
    "updated_at": NOW,
}


def write_batch(connection: Connection, batch_id: UUID, kind: BatchKind, start: int, partitions: int) -> None:
    """Write one committed batch that read the same interval of every partition."""
    ranges = [
        {"topic": "orders", "partition": number, "start_offset": start, "end_offset": start + SPAN}
        for number in range(partitions)
    ]
    batch = {
        "batch_id": batch_id,
        "feed_id": FEED_ID,
        "kind": kind.value,
        "state": BatchState.COMMITTED.value,
        # As large as a real plan, which no step may have to read.
        "plan": {"ranges": ranges, "sink": {"format": "parquet", "path": "/data/orders"}},
        "plan_fingerprint": "f",
        "planned_at": NOW + timedelta(minutes=start // SPAN),
        "planned_by": RUN,
        "pinned_attempt": 1,
        "rows": SPAN * partitions,
        "size_bytes": 1,
        "written_at": NOW,
        "committed_at": NOW,
        "committed_by": RUN,
        "updated_at": NOW,
        "ledger_after": 0,
        "ledger_upto": 0,
    }
    attempt = {"batch_id": batch_id, "attempt": 1, "state": "PINNED", "directory": "/data/staging", "opened_at": NOW}
    attempt |= {"document_sha256": "s", "receipt_sha256": "s", "opened_by": RUN}
    counts = {"rows": SPAN, "filtered": 0, "dead_letters": 0, "invisible": 0}
    counts |= {"smallest_offset": start, "largest_offset": start + SPAN - 1}
    connection.execute(insert(schema.batch).values(batch))
    connection.execute(insert(schema.attempt).values(attempt))
    insert_rows(
        connection,
        schema.batch_range,
        [{"batch_id": batch_id, "topic_id": "id", **offset_range, **counts} for offset_range in ranges],
    )


def write_partitions(connection: Connection, partitions: int, first: int, end: int) -> None:
    """Write the stored offsets, and a gap that lies ahead of each."""
    place = [
        {"feed_id": FEED_ID, "topic": "orders", "partition": number, "topic_id": "id"} for number in range(partitions)
    ]
    stored = {"first_offset": first, "next_offset": end, "seeded_by": "earliest", "updated_at": NOW}
    gap = {"start_offset": end + 10, "end_offset": end + 20, "cause": "skipped", "reason": "poisoned"}
    gap |= {"decided_by": "ops", "decided_at": NOW}
    insert_rows(connection, schema.stored_offset, [each | stored for each in place])
    ids = [UUID(int=FEED_ID.int + number) for number in range(partitions)]
    insert_rows(
        connection, schema.gap, [{"gap_id": gap_id} | each | gap for gap_id, each in zip(ids, place, strict=True)]
    )


if __name__ == "__main__":
    sys.exit(main())
