"""Control tables and output in one database: rows, mark and stored offsets are one transaction, or it is as elsewhere.

Real control tables and a real table, in a database that a test has for itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import URL
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.interference import Died, dying_before, watched
from tests.contract.test_sink_postgresql import losing_the_commit
from tests.contract.whole_feed import JSON, WholeFeed, at_rest, whole_feed

from kafka_ingest.answers.answer import committed_lines
from kafka_ingest.batches.known_output import check_output_known
from kafka_ingest.control.database import ControlDatabaseSettings
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    KafkaIngestError,
    OutputUnavailableError,
    OutputUnknownError,
)
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.table_options import DECODED, RECORDS
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.sinks.connections import SinkConnections
from kafka_ingest.sinks.postgresql.database import DatabaseSettings
from kafka_ingest.verbs.adopt import decide_adoption

Way = Callable[[PostgresqlServer, SqlStore], URL]
"""Makes a way to the table that is not the control tables' own."""

TABLE = (
    "CREATE TABLE shop.orders (kafka_topic text, kafka_partition int, kafka_offset bigint, kafka_timestamp "
    "timestamptz, key bytea, value bytea, kafka_headers jsonb, kafka_topic_id text, kafka_timestamp_ms bigint, "
    "kafka_batch uuid)"
)


@pytest.fixture
def one(postgresql: SqlStore) -> SqlStore:
    """A database with control tables and a table."""
    postgresql.execute("CREATE SCHEMA shop")
    postgresql.execute(TABLE)
    return postgresql


@pytest.fixture
def feed(one: SqlStore, tmp_path: Path) -> WholeFeed:
    """A feed of five records, all of whose tables are in one database."""
    made = reaching(whole_feed("orders", one.connect_for_each_step(), tmp_path), one.settings.url)
    made.log.produce(0, 5)
    return made


def reaching(feed: WholeFeed, url: URL, **options: str) -> WholeFeed:
    """Return a feed whose output is the table in a database."""
    connections = SinkConnections(database=lambda conn_id: DatabaseSettings(conn_id, url))
    named = {"conn_id": "warehouse", "table": "shop.orders", **options}
    output = OutputLocation.at("postgresql", str(feed.output), named)
    return replace(
        feed,
        settings=replace(feed.settings, output=output),
        sink=sink_of(output, connections),
        letters=sink_of(output_of_dead_letters(output), connections),
    )


def written(feed: WholeFeed) -> UUID:
    """Bring a batch to WRITTEN."""
    batch_id = feed.plan("run 1")
    assert batch_id is not None
    feed.write(batch_id, "run 1")
    return batch_id


def rows(store: SqlStore) -> Counter[tuple[int, int]]:
    """Return how often each record is in the table, by partition and offset."""
    with store.by_hand() as connection:
        query = "SELECT kafka_partition, kafka_offset FROM shop.orders"
        return Counter(tuple(row) for row in connection.exec_driver_sql(query))


def of_partition_0(end: int) -> Counter[tuple[int, int]]:
    return Counter((0, offset) for offset in range(end))


def stored(store: SqlStore) -> list[int]:
    """Return the stored offsets that are not 0."""
    return [row["next_offset"] for row in store.rows("stored_offset") if row["next_offset"]]


def states(store: SqlStore) -> list[str]:
    return sorted(row["state"] for row in store.rows("batch"))


def commit_dying_before(feed: WholeFeed, batch_id: UUID, call: str) -> None:
    with watched(feed, dying_before(call)) as (dying, _), pytest.raises(Died):
        dying.commit(batch_id, "run 1")


# ── One database ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_says_that_rows_and_offsets_are_one_transaction(
    feed: WholeFeed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    batch_id = written(feed)
    committed = feed.commit(batch_id, "run 1")
    assert f"batch {batch_id} is committed: 5 rows, in one transaction with the stored offsets" in caplog.messages
    line = next(iter(committed_lines(committed)))
    assert line.text.endswith(", in one transaction with the stored offsets")


def test_rows_and_offsets_are_there_before_the_control_tables_are_asked_to_move_them(
    feed: WholeFeed, one: SqlStore
) -> None:
    batch_id = written(feed)
    commit_dying_before(feed, batch_id, "control.complete_commit")
    assert (states(one), stored(one), rows(one)) == (["COMMITTED"], [5], of_partition_0(5))
    again = feed.commit(batch_id, "run 1")
    assert (again.by_us, again.in_one) == (True, False)
    assert at_rest(feed).airflow.announced == [batch_id]


def test_a_process_that_dies_before_the_transaction_is_committed_leaves_neither_rows_nor_offsets(
    feed: WholeFeed, one: SqlStore
) -> None:
    batch_id = written(feed)

    def die(_: int, name: str) -> None:
        if name == "after control.complete_commit_within":
            raise Died

    with watched(feed, die) as (dying, _), pytest.raises(Died):
        dying.commit(batch_id, "run 1")
    assert (states(one), stored(one), rows(one)) == (["COMMITTING"], [], Counter())
    at_rest(feed)
    assert (states(one), stored(one), rows(one)) == (["COMMITTED"], [5], of_partition_0(5))


@pytest.mark.parametrize("lands", [True, False], ids=["landed", "not landed"])
def test_a_connection_that_is_lost_at_the_commit_leaves_rows_and_offsets_or_neither(
    feed: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer, *, lands: bool
) -> None:
    batch_id = written(feed)
    fingerprint = feed.control.batch(batch_id).plan.fingerprint.encode()
    with losing_the_commit(postgresql_server, fingerprint, lands=lands) as url:
        cut_off = reaching(feed, url.set(database=one.settings.url.database))
        if lands:
            cut_off.commit(batch_id, "run 1")
        else:
            with pytest.raises(OutputUnavailableError, match="No offset was moved; run this again"):
                cut_off.commit(batch_id, "run 1")
    expected = (["COMMITTED"], [5], of_partition_0(5))
    assert (states(one), stored(one), rows(one)) == (expected if lands else (["COMMITTING"], [], Counter()))
    at_rest(feed)
    assert (states(one), stored(one), rows(one)) == expected


def test_offsets_that_were_moved_by_hand_keep_the_rows_out(feed: WholeFeed, one: SqlStore) -> None:
    batch_id = written(feed)

    def move(_: int, name: str) -> None:
        if name == "before control.complete_commit_within":
            one.execute("UPDATE stored_offset SET next_offset = 3 WHERE partition = 0")

    with watched(feed, move) as (moved, _), pytest.raises(KafkaIngestError, match="expected"):
        moved.commit(batch_id, "run 1")
    assert (states(one), stored(one), rows(one)) == (["COMMITTING"], [3], Counter())


def test_a_process_that_comes_to_publish_after_another_one_did_adds_nothing(feed: WholeFeed, one: SqlStore) -> None:
    batch_id = written(feed)

    def other_first(_: int, name: str) -> None:
        if name == "before sink.publish_within" and states(one) == ["COMMITTING"]:
            assert feed.commit(batch_id, "other run").by_us

    with watched(feed, other_first) as (zombie, _):
        assert not zombie.commit(batch_id, "run 1").by_us
    assert (states(one), stored(one), rows(one)) == (["COMMITTED"], [5], of_partition_0(5))


# ── An older copy of the whole database ───────────────────────────────────────────────────────────────────────────────


@contextmanager
def failing_over(server: PostgresqlServer, one: SqlStore) -> Iterator[Callable[[], None]]:
    """Copy a database as it is now, and yield what puts the copy in its place."""
    name = one.settings.url.database
    one.close()
    server.execute(f"CREATE DATABASE {name}_older TEMPLATE {name}")

    def fail_over() -> None:
        one.close()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.execute(f"ALTER DATABASE {name}_older RENAME TO {name}")

    yield fail_over


def marks(store: SqlStore) -> dict[UUID, str]:
    """Return what the table's marks say of batches."""
    with store.by_hand() as connection:
        query = "SELECT batch_id, outcome FROM shop.orders_kafka_batches"
        return dict(tuple(row) for row in connection.exec_driver_sql(query))


@pytest.fixture
def lost(feed: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer) -> UUID:
    """The batch with the records 5 and 6, of which the database that has taken over knows nothing."""
    at_rest(feed)
    with failing_over(postgresql_server, one) as fail_over:
        feed.log.produce(0, 2)
        at_rest(feed)
        assert (stored(one), rows(one)) == ([7], of_partition_0(7))
        batch_id = max(feed.states())
        fail_over()
    assert (states(one), stored(one), rows(one)) == (["COMMITTED"], [5], of_partition_0(5))
    return batch_id


def test_after_a_failover_the_offsets_are_those_of_the_rows_and_what_was_lost_is_read_again_once(
    feed: WholeFeed, one: SqlStore, lost: UUID
) -> None:
    check_output_known(feed.snapshot(), feed.settings, feed.control, feed.sinks)
    assert lost not in marks(one)
    at_rest(feed)
    assert (stored(one), rows(one)) == ([7], of_partition_0(7))
    assert marks(one)[lost] == "revoked"
    check_output_known(feed.snapshot(), feed.settings, feed.control, feed.sinks)
    decision = decide_adoption(feed.settings, feed.control, feed.sink)
    assert ([each.plan.batch_id for each in decision.to_revoke], [*decision.to_publish]) == ([lost], [])


def test_a_process_that_outlives_a_failover_adds_no_rows_that_were_read_again(
    feed: WholeFeed, one: SqlStore, lost: UUID
) -> None:
    at_rest(feed)
    kept = feed.sink.archive.published_receipt(lost)
    assert kept is not None
    with pytest.raises(BatchRevokedError):
        feed.sink.publisher.publish(feed.sink.staging.attempt_directory(lost, 1), kept)
    assert rows(one) == of_partition_0(7)


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_a_batch_that_was_open_when_the_copy_was_made_is_published_once(
    feed: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer, state: BatchState
) -> None:
    batch_id = feed.plan("run 1")
    assert batch_id is not None
    if state is BatchState.WRITTEN:
        feed.write(batch_id, "run 1")
    with failing_over(postgresql_server, one) as fail_over:
        feed.write(batch_id, "run 1")

        def before(_: int, name: str) -> None:
            if name == "before sink.publish_within":
                fail_over()

        with watched(feed, before) as (zombie, _), pytest.raises(BatchStateError):
            zombie.commit(batch_id, "run 1")
    assert (states(one), stored(one), rows(one)) == ([state.value], [], Counter())
    at_rest(feed)
    assert (states(one), stored(one), rows(one)) == (["COMMITTED"], [5], of_partition_0(5))
    assert feed.states() == {batch_id: BatchState.COMMITTED}


@pytest.mark.parametrize(
    "kept",
    [
        "INSERT INTO shop.orders_kafka_batches (batch_id, outcome, plan_fingerprint) VALUES (:lost, 'published', '')",
        "INSERT INTO shop.orders (kafka_topic, kafka_partition, kafka_offset, kafka_batch) VALUES ('o', 0, 5, :lost)",
    ],
    ids=["mark", "rows"],
)
def test_control_tables_that_are_older_than_the_table_beside_them_stop_the_feed(
    feed: WholeFeed, one: SqlStore, lost: UUID, kept: str
) -> None:
    one.execute(kept, lost=lost)
    with pytest.raises(OutputUnknownError, match=str(lost)):
        feed.plan("run 3")
    assert (stored(one), marks(one).get(lost)) == ([5], "published" if "published" in kept else None)


def test_control_tables_in_another_database_stop_the_feed_where_both_are_older(
    feed: WholeFeed, one: SqlStore, lost: UUID, postgresql_server: PostgresqlServer
) -> None:
    elsewhere = reaching(feed, in_a_copy(postgresql_server, one))
    with pytest.raises(OutputUnknownError, match=str(lost)):
        elsewhere.plan("run 3")


# ── Otherwise ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def in_a_copy(server: PostgresqlServer, one: SqlStore) -> URL:
    """Return another database of the same server whose control tables have the same names and numbers."""
    name = one.settings.url.database
    one.close()
    server.execute(f"CREATE DATABASE {name}_other TEMPLATE {name}")
    return one.settings.url.set(database=f"{name}_other")


def as_another_role(server: PostgresqlServer, one: SqlStore) -> URL:
    """Return how a role reaches the database that has no rights on the control tables."""
    server.execute("DROP ROLE IF EXISTS loader")
    server.execute("CREATE ROLE loader LOGIN")
    one.execute("GRANT USAGE, CREATE ON SCHEMA shop TO loader")
    one.execute("ALTER TABLE shop.orders OWNER TO loader")
    return one.settings.url.set(username="loader")


def with_another_search_path(_: PostgresqlServer, one: SqlStore) -> URL:
    """Return a connection for which the names of the control tables mean nothing."""
    return one.settings.url.update_query_dict({"options": "-csearch_path=shop"})


def test_dead_letters_come_between_rows_and_offsets_which_then_are_two_transactions(
    feed: WholeFeed, one: SqlStore
) -> None:
    one.execute("DROP TABLE shop.orders")
    decoding = replace(reaching(feed, one.settings.url, **{RECORDS: DECODED}), decoding=JSON)
    batch_id = written(decoding)
    commit_dying_before(decoding, batch_id, "letters.publish")
    assert (states(one), stored(one), rows(one)) == (["COMMITTING"], [], Counter([(0, 0), (0, 2), (0, 4)]))
    assert decoding.commit(batch_id, "run 1").by_us
    assert (states(one), stored(one)) == (["COMMITTED"], [5])
    assert decoding.letters.archive.is_kept(batch_id)


@pytest.mark.parametrize("way", [in_a_copy, as_another_role, with_another_search_path])
def test_otherwise_rows_come_first_and_the_control_tables_move_the_offsets(
    feed: WholeFeed,
    one: SqlStore,
    postgresql_server: PostgresqlServer,
    way: Callable[[PostgresqlServer, SqlStore], URL],
) -> None:
    url = way(postgresql_server, one)
    there = SqlStore(ControlDatabaseSettings(one.settings.url.set(database=url.database)))
    other = reaching(feed, url)
    batch_id = written(other)
    commit_dying_before(other, batch_id, "control.complete_commit")
    assert (states(one), stored(one), rows(there)) == (["COMMITTING"], [], of_partition_0(5))
    at_rest(other)
    assert (states(one), stored(one), rows(there)) == (["COMMITTED"], [5], of_partition_0(5))
    there.close()
