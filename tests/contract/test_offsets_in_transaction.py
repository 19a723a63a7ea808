"""Control tables and output in one database: rows, mark and stored offsets are one transaction, or it is as elsewhere.

Real control tables and a real table, in a database that a test has for itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet
import pytest
from sqlalchemy import URL
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.interference import Died, dying_before, watched
from tests.contract.test_sink_postgresql import losing_the_commit
from tests.contract.whole_feed import JSON, TEXT, TOPIC, SparkStandIn, WholeFeed, at_rest, whole_feed

from kafka_ingest.batches.backfill_request import (
    BackfillRequest,
    Mode,
    OffsetRanges,
    OpenGaps,
    Selection,
    StoredDeadLetters,
)
from kafka_ingest.batches.known_output import check_output_known
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.batches.plan_batch import plan_batch
from kafka_ingest.control.database import ControlDatabaseSettings
from kafka_ingest.errors import (
    BatchRevokedError,
    BatchStateError,
    KafkaIngestError,
    OutputNotUsableError,
    OutputUnavailableError,
    OutputUnknownError,
    UnknownBatchError,
)
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import DECODED, RECORDS, CurrentState
from kafka_ingest.observing.explain_file import explain_batch
from kafka_ingest.settings.connections import CONTROL_CONN_ID, ConnectionFields, FindConnection
from kafka_ingest.settings.feed import Feed
from kafka_ingest.sinks.choose import SinkConnections, sink_of
from kafka_ingest.sinks.postgresql.database import DatabaseSettings
from kafka_ingest.verbs import check_installation
from kafka_ingest.verbs.adopt import decide_adoption
from kafka_ingest.verbs.answer import committed_lines
from kafka_ingest.verbs.explain import Explain
from kafka_ingest.verbs.request import Call
from kafka_ingest.verbs.skip import decide_skip, skip
from kafka_ingest.verbs.status import newest_in_one

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
    made = reaching(whole_feed("orders", one.connect(), tmp_path), one.settings.url)
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


def rows(
    store: SqlStore, query: str = "SELECT kafka_partition, kafka_offset FROM shop.orders"
) -> Counter[tuple[int, int]]:
    """Return how often each record is in the table, by partition and offset."""
    with store.by_hand() as connection:
        return Counter(tuple(row) for row in connection.exec_driver_sql(query))


def letters(store: SqlStore) -> Counter[tuple[int, int]]:
    return rows(store, "SELECT kafka_partition, kafka_offset FROM shop.orders_dead_letters")


def of_partition_0(end: int) -> Counter[tuple[int, int]]:
    return Counter((0, offset) for offset in range(end))


def stored(store: SqlStore) -> list[int]:
    """Return the stored offsets that are not 0."""
    return [row["next_offset"] for row in store.rows("stored_offset") if row["next_offset"]]


def states(store: SqlStore) -> list[str]:
    return sorted(row["state"] for row in store.rows("batch"))


def file_of(feed: WholeFeed, **other: str) -> Feed:
    """Return what the feed's file says."""
    sink = {"format": "postgresql", "path": str(feed.output), "conn_id": "warehouse", "table": "shop.orders", **other}
    return Feed.model_validate({"name": "orders", "kafka": {"topics": [TOPIC]}, "sink": sink})


def finding(one: SqlStore, warehouse: URL) -> FindConnection:
    """Return what finds the connections to the control tables and to the table's database."""

    def find(conn_id: str) -> ConnectionFields:
        url = {CONTROL_CONN_ID: one.settings.url, "warehouse": warehouse}[conn_id]
        return ConnectionFields(conn_id, "postgres", str(url.query["host"]), None, url.database, url.username)

    return find


def commit_dying_before(feed: WholeFeed, batch_id: UUID, call: str, actor: str = "run 1") -> None:
    with watched(feed, dying_before(call)) as (dying, _), pytest.raises(Died):
        dying.commit(batch_id, actor)


def dying_after_completing(_: int, name: str) -> None:
    """End the process where the transaction has only to be committed."""
    if name == "after control.complete_commit_within":
        raise Died


# ── One database ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_says_that_rows_and_offsets_are_one_transaction_and_explain_repeats_it(
    feed: WholeFeed, one: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    batch_id = written(feed)
    committed = feed.commit(batch_id, "run 1")
    assert f"batch {batch_id} is committed: 5 rows, in one transaction with the stored offsets" in caplog.messages
    line = next(iter(committed_lines(committed)))
    assert line.text.endswith(", in one transaction with the stored offsets")
    call = Call(Explain, None, None, finding(one, one.settings.url), print)
    answer = Explain(file=str(batch_id)).answer(call)
    assert (answer.document["batch"]["state"], answer.document["batch"]["one_transaction"]) == ("COMMITTED", True)
    assert newest_in_one(file_of(feed), call) is True
    with pytest.raises(UnknownBatchError, match="expected a batch of feed refunds"):
        Explain(file=str(batch_id)).answer(replace(call, feed="refunds"))


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
    with watched(feed, dying_after_completing) as (dying, _), pytest.raises(Died):
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


# ── Batches of other kinds ────────────────────────────────────────────────────────────────────────────────────────────

RUN = "airflow:backfill_offsets/manual__1"
ORDERS_0 = TopicPartition(TOPIC, 0)


class Seen(NamedTuple):
    """What the database shows of five records: their rows, and of what a backfill is asked for."""

    rows: list[int]
    changed_by_hand: int = 0
    open_gaps: int = 0
    replayed: int = 0


ALL = [0, 1, 2, 3, 4]


def seen(one: SqlStore) -> Seen:
    with one.by_hand() as connection:
        query = "SELECT kafka_offset, kafka_timestamp_ms FROM shop.orders ORDER BY kafka_offset"
        found = connection.exec_driver_sql(query).all()
    open_gaps = [row for row in one.rows("gap") if row["closed_by_batch"] is None]
    replayed = sum(row["replayed"] for row in one.rows("batch_range"))
    return Seen([row[0] for row in found], sum(row[1] is not None for row in found), len(open_gaps), replayed)


Asked = tuple[WholeFeed, Selection, Mode, Seen, Seen]
"""A feed, what its backfill is asked for, and what the database shows before and after it."""


def pass_over_5_and_6(feed: WholeFeed) -> None:
    at_rest(feed)
    feed.log.produce(0, 3)
    passed = decide_skip("orders", OffsetRange(ORDERS_0, 5, 7), "poisoned", feed.control, feed.kafka)
    skip(passed, feed.control, actor="ops")
    at_rest(feed)


def a_gap(feed: WholeFeed, one: SqlStore) -> Asked:
    """A feed that has passed over two records, which are to be read after all."""
    del one
    pass_over_5_and_6(feed)
    return feed, OpenGaps(), Mode.FILL, Seen([*ALL, 7], open_gaps=1), Seen([*ALL, 5, 6, 7])


def changed_rows(feed: WholeFeed, one: SqlStore) -> Asked:
    """A feed whose rows somebody has changed, so that they are to be replaced."""
    at_rest(feed)
    one.execute("UPDATE shop.orders SET kafka_timestamp_ms = 7")
    whole = OffsetRanges((OffsetRange(ORDERS_0, 0, 5),))
    return feed, whole, Mode.REPLACE, Seen(ALL, changed_by_hand=5), Seen(ALL)


def dead_letters(feed: WholeFeed, one: SqlStore) -> Asked:
    """A feed two of whose records could not be decoded, and can be now."""
    one.execute("ALTER TABLE shop.orders DROP COLUMN key")
    decoding = at_rest(replace(reaching(feed, one.settings.url, **{RECORDS: DECODED}), decoding=JSON))
    letters = StoredDeadLetters(None, None, frozenset())
    return replace(decoding, decoding=TEXT), letters, Mode.REPLAY, Seen([0, 2, 4]), Seen(ALL, replayed=2)


def backfilled(feed: WholeFeed, selection: Selection, mode: Mode, actor: str = RUN) -> UUID:
    """Bring the only batch of a backfill to WRITTEN."""
    request = BackfillRequest(selection, asked={}, mode=mode)
    [planned] = plan_backfill(request, feed.settings, feed, actor=actor, once=True).chunks
    feed.write(planned.batch_id, actor)
    return planned.batch_id


@pytest.mark.parametrize("life", [a_gap, changed_rows, dead_letters])
def test_rows_of_a_backfill_and_what_it_is_to_the_feed_are_one_transaction_and_it_is_asked_for_again_if_that_is_lost(
    feed: WholeFeed,
    one: SqlStore,
    postgresql_server: PostgresqlServer,
    life: Callable[[WholeFeed, SqlStore], Asked],
    caplog: pytest.LogCaptureFixture,
) -> None:
    feed, selection, mode, before, after = life(feed, one)
    with failing_over(postgresql_server, one) as fail_over:
        lost = backfilled(feed, selection, mode)
        with watched(feed, dying_after_completing) as (dying, _), pytest.raises(Died):
            dying.commit(lost, RUN)
        assert (seen(one), feed.states()[lost]) == (before, BatchState.COMMITTING)
        commit_dying_before(feed, lost, "control.complete_commit", RUN)
        assert (seen(one), feed.states()[lost]) == (after, BatchState.COMMITTED)
        assert feed.commit(lost, RUN).by_us
        at_rest(feed)
        assert seen(one) == after
        fail_over()
    at_rest(feed)
    assert seen(one) == before
    [warning] = [message for message in caplog.messages if f"has lost batch {lost}" in message]
    assert "ask again for a backfill" in warning
    feed.commit(backfilled(feed, selection, mode, "another run"), "another run")
    at_rest(feed)
    assert seen(one) == after
    coverage = coverage_of(feed.control.coverage("orders"))
    assert [partition.problems for partition in coverage.values()] == [[], [], []]


class WithKeys(SparkStandIn):
    """Spark, where each record has a key, which is its offset modulo 3."""

    def write_data_file(self, path: Path, content: bytes) -> None:
        table = pyarrow.parquet.read_table(pa.BufferReader(content))
        keys = [str(offset % 3).encode() for offset in table["kafka_offset"].to_pylist()]
        nulls = {"kafka_headers": HEADERS, "kafka_topic_id": pa.string(), "kafka_timestamp_ms": pa.int64()}
        table = table.append_column("key", pa.array(keys, pa.binary()))
        for name, kind in nulls.items():
            table = table.append_column(name, pa.nulls(len(table), kind))
        pyarrow.parquet.write_table(table, path)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def states_of_keys(feed: WholeFeed, one: SqlStore) -> WholeFeed:
    """The same feed, whose table has the newest state of each key."""
    one.execute("DROP TABLE shop.orders")
    return replace(reaching(feed, one.settings.url, **CurrentState().as_options()), spark=WithKeys())


def test_states_of_keys_and_offsets_are_one_transaction_and_are_read_again_if_that_is_lost(
    states_of_keys: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer
) -> None:
    feed = at_rest(states_of_keys)
    with failing_over(postgresql_server, one) as fail_over:
        feed.log.produce(0, 2)
        lost = written(feed)
        with watched(feed, dying_after_completing) as (dying, _), pytest.raises(Died):
            dying.commit(lost, "run 1")
        assert (feed.states()[lost], stored(one), [*rows(one)]) == ("COMMITTING", [5], [(0, 2), (0, 3), (0, 4)])
        commit_dying_before(feed, lost, "control.complete_commit")
        assert (feed.states()[lost], stored(one), sorted(rows(one))) == ("COMMITTED", [7], [(0, 4), (0, 5), (0, 6)])
        fail_over()
    assert (stored(one), sorted(rows(one))) == ([5], [(0, 2), (0, 3), (0, 4)])
    at_rest(feed)
    assert (stored(one), sorted(rows(one))) == ([7], [(0, 4), (0, 5), (0, 6)])
    assert marks(one)[lost] == "revoked"


@pytest.mark.parametrize("of_keys", [False, True], ids=["records", "states of keys"])
def test_two_batches_of_a_feed_that_are_committed_at_once_each_by_two_processes_count_once(
    request: pytest.FixtureRequest, feed: WholeFeed, one: SqlStore, *, of_keys: bool
) -> None:
    feed = request.getfixturevalue("states_of_keys") if of_keys else feed
    pass_over_5_and_6(feed)
    feed.log.produce(0, 4)
    batches = [written(feed), backfilled(feed, OpenGaps(), Mode.FILL)]
    with ThreadPoolExecutor(4) as threads:
        both = [threads.submit(feed.commit, batch, actor) for actor in ("run 1", "zombie") for batch in batches]
        assert Counter(each.result().in_one for each in both) == {True: 2, False: 2}
    assert (set(states(one)), stored(one)) == ({"COMMITTED"}, [12])
    assert rows(one) == (Counter([(0, 9), (0, 10), (0, 11)]) if of_keys else of_partition_0(12))


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


def test_after_a_failover_what_was_lost_is_read_again_once_and_a_process_that_outlives_it_adds_nothing(
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
    kept = feed.sink.archive.published_receipt(lost)
    assert kept is not None
    with pytest.raises(BatchRevokedError):
        feed.sink.publisher.publish(feed.sink.staging.attempt_directory(lost, 1), kept)
    assert rows(one) == of_partition_0(7)


def test_dead_letters_that_were_lost_with_rows_and_offsets_are_read_again(
    feed: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer
) -> None:
    one.execute("ALTER TABLE shop.orders DROP COLUMN key")
    decoding = at_rest(replace(reaching(feed, one.settings.url, **{RECORDS: DECODED}), decoding=JSON))
    with failing_over(postgresql_server, one) as fail_over:
        feed.log.produce(0, 2)
        at_rest(decoding)
        fail_over()
    at_rest(decoding)
    assert (stored(one), rows(one) + letters(one)) == ([7], of_partition_0(7))


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
    for actor in (None, "run 3"):
        with pytest.raises(OutputUnknownError, match=str(lost)):
            plan_batch(feed.settings, feed, actor=actor)
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
    role = f"loader_of_{one.settings.url.database}"
    server.execute(f"CREATE ROLE {role} LOGIN")
    one.execute(f"GRANT USAGE, CREATE ON SCHEMA shop TO {role}")
    one.execute(f"ALTER TABLE shop.orders OWNER TO {role}")
    return one.settings.url.set(username=role)


def with_another_search_path(_: PostgresqlServer, one: SqlStore) -> URL:
    """Return a connection for which the names of the control tables mean nothing."""
    return one.settings.url.update_query_dict({"options": "-csearch_path=shop"})


def test_rows_dead_letters_and_offsets_are_one_transaction(feed: WholeFeed, one: SqlStore) -> None:
    one.execute("DROP TABLE shop.orders")
    decoding = replace(reaching(feed, one.settings.url, **{RECORDS: DECODED}), decoding=JSON)
    batch_id = written(decoding)
    with watched(decoding, dying_after_completing) as (dying, _), pytest.raises(Died):
        dying.commit(batch_id, "run 1")
    seen = partial(rows, one), partial(letters, one)
    assert (states(one), stored(one), *(each() for each in seen)) == (["COMMITTING"], [], Counter(), Counter())
    commit_dying_before(decoding, batch_id, "letters.publish")
    everything = Counter([(0, 0), (0, 2), (0, 4)]), Counter([(0, 1), (0, 3)])
    assert (states(one), stored(one), *(each() for each in seen)) == (["COMMITTED"], [5], *everything)
    assert decoding.commit(batch_id, "run 1").by_us
    assert tuple(each() for each in seen) == everything
    assert explain_batch(decoding.control.batch(batch_id), decoding.sinks).one_transaction is True
    one.execute("UPDATE shop.orders_kafka_batches SET proof = proof - 'one_transaction'")
    assert explain_batch(decoding.control.batch(batch_id), decoding.sinks).one_transaction is None


@pytest.mark.parametrize("way", [None, in_a_copy, as_another_role])
def test_doctor_says_whether_it_is_one_database_whoever_reaches_it(
    feed: WholeFeed, one: SqlStore, postgresql_server: PostgresqlServer, way: Way | None
) -> None:
    there = way(postgresql_server, one) if way is not None else one.settings.url
    found = check_installation.output(file_of(feed), finding(one, there), {})
    expected = {in_a_copy: "", as_another_role: "The control tables are in the same database, but its role has not all"}
    assert expected.get(way, "The control tables are in the same database.") in found
    assert ("The control tables" in found) == (way is not in_a_copy)


def test_doctor_examines_the_table_of_letters_of_raw_records_too_where_refused_ones_go_there(
    feed: WholeFeed, one: SqlStore
) -> None:
    one.execute("CREATE VIEW shop.orders_dead_letters AS SELECT 1 AS error_class")
    with pytest.raises(OutputNotUsableError, match="orders_dead_letters"):
        check_installation.output(file_of(feed, on_refused="dead_letter"), finding(one, one.settings.url), {})
    assert "can be written" in check_installation.output(file_of(feed), finding(one, one.settings.url), {})


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
    assert explain_batch(other.control.batch(batch_id), other.sinks).one_transaction is False
    there.close()
