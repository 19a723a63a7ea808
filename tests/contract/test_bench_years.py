"""What `make bench-history` fills control tables and outputs with: quickly, and the same as batch by batch."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, table, text
from tests.contract.conftest import PostgresqlServer, SqlStore, postgresql_store, sqlite_store
from years_of_batches import Years, fill_output, fill_tables, tables_to_fill, write_batches, write_feed

from kafka_ingest.control import schema
from kafka_ingest.sinks.parquet import parquet_sink
from kafka_ingest.sinks.parquet.directory import ParquetDirectory


def years(directory: Path, batches: int) -> Years:
    """Some batches, of which the last three are whole, that end between two milliseconds."""
    ends_at = datetime(2026, 3, 1, 12, 34, 56, 789_123, UTC)
    return Years("orders", "id-of-orders", "cluster", 3, batches, directory / "output" / "bench", ends_at, whole=3)


def kept_rows(store: SqlStore) -> dict[str, list[Any]]:
    """Return the rows of all control tables as they are stored, whatever the columns' types make of them."""
    with store.open().connect() as connection:
        return {
            each.name: sorted(map(repr, connection.execute(select(text("*")).select_from(table(each.name))).all()))
            for each in schema.metadata.sorted_tables
        }


@pytest.fixture(params=["sqlite", "postgresql"])
def two_databases(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_sqlite_file: Path, postgresql_server: PostgresqlServer
) -> Iterator[list[SqlStore]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                sqlite_store(migrated_sqlite_file, tmp_path / f"{number}.db")
                if request.param == "sqlite"
                else postgresql_store(postgresql_server)
            )
            for number in range(2)
        ]


@pytest.mark.parametrize("batches", [1, 4, 6, 310])
def test_the_database_copies_what_would_be_written_batch_by_batch(
    two_databases: list[SqlStore], tmp_path: Path, batches: int
) -> None:
    written, copied = two_databases
    history = years(tmp_path, batches)
    with tables_to_fill(written.settings.url) as connection:
        write_feed(connection, history)
        write_batches(connection, history, range(batches))

    fill_tables(copied.settings.url, history)

    assert kept_rows(copied) == kept_rows(written)
    assert len(kept_rows(copied)["batch_range"]) == 3 * batches


def test_an_output_has_the_names_of_all_batches_where_they_are_looked_for_and_no_others(tmp_path: Path) -> None:
    history = years(tmp_path, 310)

    fill_output(history)

    directory = ParquetDirectory.at(history.output)
    batch_ids = [history.batch_id(number) for number in range(310)]
    assert parquet_sink(history.output).publisher.known_batches() == [str(each) for each in batch_ids]
    assert all(directory.is_there(each) and directory.receipts.is_kept(each) for each in batch_ids)
    assert len(list(history.output.iterdir())) == 310
    assert [each.batch_id for each in map(directory.receipts.receipt, batch_ids[-3:]) if each] == batch_ids[-3:]
