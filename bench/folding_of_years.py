"""What folding does to control tables that hold years of batches: time, rows and bytes. Part of `make bench-history`.

`python bench/folding_of_years.py --batches 20000 --partitions 4` makes such tables, without Kafka and output, and
folds them.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from control_databases import DATABASES, control_databases
from places import directory_for_data, run_in_a_directory
from sqlalchemy import URL, Connection, create_engine, func, select
from years_of_batches import FEED, Years, fill_tables

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.settings.feed import LEAST_RETENTION
from kafka_ingest.verbs.database import cut_before, fold

SIZE_OF_TABLES = (
    "SELECT sum(pg_total_relation_size(oid)) FROM pg_class "
    "WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
)
MOST_FOLDED = 50_000
"""A first time with a million would take most of an hour, and each transaction folds as many as the one before."""

COUNTED = ("batch", "attempt", "batch_range", "folded_range", "event")


@dataclass(frozen=True, slots=True)
class Size:
    """How large control tables are: rows by table, and the bytes of all after a VACUUM."""

    rows: Mapping[str, int]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FoldedYears:
    """The result of folding: how long it took, in how many transactions, and the longest of them."""

    database: str
    batches: int
    seconds: float
    transactions: int
    longest_s: float
    before: Size
    after: Size


def fold_years(url: URL) -> FoldedYears:
    """Fold the batches that are older than a week: all of them, or enough to know the pace."""
    before = size_of(url)
    control, now = SqlControlTables(open_database(ControlDatabaseSettings(url))), datetime.now(UTC)
    feed_id = known_feed(control, FEED).feed_id
    steps: list[float] = []
    batches, started = 0, time.perf_counter()
    step_started = started
    for folded in fold(feed_id, cut_before(now - LEAST_RETENTION, now), control, actor="bench"):
        batches += folded.batches
        steps.append(time.perf_counter() - step_started)
        step_started = time.perf_counter()
        if batches >= MOST_FOLDED:
            break
    seconds = time.perf_counter() - started
    kind = url.get_backend_name()
    return FoldedYears(kind, batches, seconds, len(steps), max(steps, default=0.0), before, size_of(url))


def size_of(url: URL) -> Size:
    """Return how large control tables are, once what is free in them was given back."""
    is_sqlite = url.get_backend_name() == "sqlite"
    engine = create_engine(url)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM" if is_sqlite else "VACUUM FULL")
        rows = {name: rows_in(connection, name) for name in COUNTED}
        if is_sqlite:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            size_bytes = Path(str(url.database)).stat().st_size
        else:
            size_bytes = int(connection.exec_driver_sql(SIZE_OF_TABLES).scalar_one())
    engine.dispose()
    return Size(rows, size_bytes)


def rows_in(connection: Connection, name: str) -> int:
    """Return how many rows a table has."""
    return connection.execute(select(func.count()).select_from(schema.metadata.tables[name])).scalar_one()


def lines_of(found: Sequence[FoldedYears]) -> list[str]:
    """Return what was found as lines of a Markdown table."""
    lines = [
        f"| control tables | folded | {' | '.join(COUNTED)} | MB | s | transactions | longest, ms |",
        f"|---|--:|{'--:|' * (len(COUNTED) + 4)}",
    ]
    for each in found:
        rows = " | ".join(f"{each.before.rows[name]:,} → {each.after.rows[name]:,}" for name in COUNTED)
        size = f"{each.before.size_bytes / 1e6:,.1f} → {each.after.size_bytes / 1e6:,.1f}"
        lines.append(
            f"| {each.database} | {each.batches:,} | {rows} | {size} | {each.seconds:,.1f} | {each.transactions:,} | "
            f"{1_000 * each.longest_s:,.0f} |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES)
    parser.add_argument("--directory", type=directory_for_data, help="where all data is kept; default: /tmp")
    options = parser.parse_args()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Make control tables and fold them."""
    found: list[FoldedYears] = []
    with control_databases(options.databases, directory) as databases:
        for new_database in databases.values():
            url = new_database()
            years = Years(
                *("bench", "bench-topic-id", "bench-cluster", options.partitions, options.batches),
                directory / "output" / "bench",
                datetime.now(UTC),
            )
            fill_tables(url, years)
            found.append(fold_years(url))
    print("\n".join(lines_of(found)))


if __name__ == "__main__":
    sys.exit(main())
