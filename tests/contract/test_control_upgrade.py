"""Control tables of an older version, in use, on real databases: upgraded whole or not at all, and nothing is lost."""

import errno
import itertools
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import URL, Engine, MetaData, Table, delete, event, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError
from tests.contract.builders import (
    CLUSTER,
    NOON,
    ORDERS_FEED,
    SHA,
    TOPIC_ID,
    attempt_of,
    batch_id_of,
    commit,
    orders,
    plan_next,
    plan_of,
    receipt_of,
    snapshot_of,
    stored,
)
from tests.contract.conftest import PostgresqlServer, SqlStore

from embedded_postgresql import EMPTY
from kafka_ingest.control import schema
from kafka_ingest.control.database import ControlDatabaseSettings, open_database, transaction
from kafka_ingest.control.upgrade import alembic_config, upgrade
from kafka_ingest.errors import ControlSchemaError
from kafka_ingest.model.batch import Attempt, AttemptState, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.control_rows import PlanRecord
from kafka_ingest.model.gap import GapCause, NewGap
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import OffsetRange, StoredOffset

COMMITTED = plan_of((orders(0), 0, 100), (orders(1), 40, 50), number=1, leader_epochs={orders(0): 3})
ABANDONED = plan_of((orders(0), 100, 130), number=2)
COMMITTING = plan_of((orders(0), 20, 30), number=3, kind=BatchKind.BACKFILL)
PLANNED = plan_of((orders(0), 30, 40), number=4, kind=BatchKind.BACKFILL)
WRITTEN = plan_of((orders(0), 100, 120), number=5)
ONE_O_CLOCK = NOON + timedelta(hours=1)
SEEDED = {
    "partitions": [
        {"topic": "orders", "partition": 0, "topic_id": TOPIC_ID, "offset": 0, "rule": "earliest"},
        {"topic": "orders", "partition": 1, "topic_id": TOPIC_ID, "offset": 40, "rule": "earliest"},
        {"topic": "orders", "partition": 2, "topic_id": TOPIC_ID, "offset": None, "rule": "latest"},
    ]
}


# ── A database of version 0001 ────────────────────────────────────────────────────────────────────────────────────────


def upgrade_to(engine: Engine, version: str) -> None:
    """Bring a database's schema to an older version than the newest."""
    config = alembic_config()
    with transaction(engine, "write") as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, version)


def batch_row(plan: BatchPlan, state: BatchState, **values: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "batch_id": plan.batch_id,
        "feed_id": ORDERS_FEED,
        "kind": plan.kind.value,
        "state": state.value,
    }
    row |= {"plan": plan.as_document(), "plan_fingerprint": plan.fingerprint, "planned_by": "planner"}
    return row | {"planned_at": plan.planned_at, "updated_at": ONE_O_CLOCK} | values


def written(plan: BatchPlan) -> dict[str, Any]:
    receipt = receipt_of(plan, 1)
    return {"rows": receipt.rows, "size_bytes": receipt.size_bytes, "written_at": receipt.written_at}


def attempt_row(plan: BatchPlan, number: int, **values: Any) -> dict[str, Any]:
    new: Attempt = attempt_of(plan, number)
    row = {"batch_id": plan.batch_id, "attempt": number, "state": "OPEN", "directory": str(new.directory)}
    row |= {"document_sha256": new.document_sha256, "opened_at": new.opened_at, "opened_by": new.opened_by}
    return row | values


def range_rows(plan: BatchPlan, *, counted: bool) -> list[dict[str, Any]]:
    rows = []
    for count in receipt_of(plan, 1).range_counts(plan):
        planned = count.offset_range
        row = {"batch_id": plan.batch_id, "topic": planned.topic, "partition": planned.partition, "topic_id": TOPIC_ID}
        row |= {"start_offset": planned.start_offset, "end_offset": planned.end_offset}
        if counted:
            row |= {"rows": count.rows, "filtered": 0, "dead_letters": 0, "invisible": count.invisible}
            row |= {"smallest_offset": count.smallest_offset, "largest_offset": count.largest_offset}
        rows.append(row)
    return rows


def stored_row(partition: int, first: int | None, following: int | None, **values: Any) -> dict[str, Any]:
    row = {"feed_id": ORDERS_FEED, "topic": "orders", "partition": partition, "topic_id": TOPIC_ID}
    row |= {"first_offset": first, "next_offset": following, "seeded_by": "earliest", "updated_at": ONE_O_CLOCK}
    return row | values


PINNED = {"state": "PINNED", "receipt_sha256": SHA}
ROWS: Mapping[str, list[dict[str, Any]]] = {
    "feed": [
        {"feed_id": ORDERS_FEED, "name": "orders", "cluster_id": CLUSTER, "topics": ["orders"], "revision": 41}
        | {"created_at": NOON, "updated_at": ONE_O_CLOCK}
    ],
    "batch": [
        batch_row(COMMITTED, BatchState.ABANDONED, reason="not yet pinned"),
        batch_row(ABANDONED, BatchState.ABANDONED, reason="wrong topic"),
        batch_row(COMMITTING, BatchState.PLANNED),
        batch_row(PLANNED, BatchState.PLANNED),
        batch_row(WRITTEN, BatchState.PLANNED),
    ],
    "attempt": [
        attempt_row(COMMITTED, 1, state="DISCARDED", reason="damaged"),
        attempt_row(COMMITTED, 2, **PINNED),
        attempt_row(COMMITTING, 1, **PINNED),
        attempt_row(PLANNED, 1),
        attempt_row(WRITTEN, 1, **PINNED),
        attempt_row(WRITTEN, 2),
    ],
    "batch_range": [
        *range_rows(COMMITTED, counted=True),
        *range_rows(ABANDONED, counted=False),
        *range_rows(COMMITTING, counted=True),
        *range_rows(PLANNED, counted=False),
        *range_rows(WRITTEN, counted=True),
    ],
    "stored_offset": [
        stored_row(0, 0, 100, batch_id=COMMITTED.batch_id),
        stored_row(1, 40, 50, batch_id=COMMITTED.batch_id),
        stored_row(2, None, None, seeded_by="latest"),
    ],
    "event": [
        {"feed_id": ORDERS_FEED, "kind": "seeded", "at": NOON, "actor": "planner", "detail": SEEDED},
        {"feed_id": ORDERS_FEED, "kind": "abandoned", "at": ONE_O_CLOCK, "actor": "ops", "detail": {"was": "PLANNED"}}
        | {"batch_id": ABANDONED.batch_id},
    ],
}

PINS: Mapping[UUID, dict[str, Any]] = {
    COMMITTED.batch_id: written(COMMITTED)
    | {"state": "COMMITTED", "pinned_attempt": 2, "committed_at": ONE_O_CLOCK, "committed_by": "committer"}
    | {"reason": None, "ledger_after": 0, "ledger_upto": 1},
    COMMITTING.batch_id: written(COMMITTING)
    | {"state": "COMMITTING", "pinned_attempt": 1, "ledger_after": 1, "ledger_upto": 1},
    WRITTEN.batch_id: written(WRITTEN) | {"state": "WRITTEN", "pinned_attempt": 1},
}
"""What the batches say once the attempts are there that they point at."""


def make_older(engine: Engine) -> None:
    """Make control tables of version 0001 with a feed that has a batch in each state."""
    upgrade_to(engine, "0001")
    with transaction(engine, "write") as connection:
        for name, rows in ROWS.items():
            for row in rows:
                connection.execute(insert(schema.metadata.tables[name]).values(**row))
        for batch_id, values in PINS.items():
            connection.execute(
                schema.batch.update().where(schema.batch.c.batch_id == batch_id).values(updated_at=NOON, **values)
            )


def make_held(engine: Engine) -> None:
    """Bring control tables to version 0002, with a hold of every cause that it knows."""
    upgrade_to(engine, "0002")
    with transaction(engine, "write") as connection:
        for row in HOLD_ROWS:
            connection.execute(insert(schema.hold).values(**row))


def bring_up_to_date(engine: Engine) -> None:
    assert upgrade(engine, create=False)[1] == schema.SCHEMA_VERSION


class Databases:
    """Databases of one kind, each a copy of one that was brought somewhere once."""

    def __init__(self, folder: Path, server: PostgresqlServer | None) -> None:
        self._folder = folder
        self._server = server
        self._brought: dict[tuple[Callable[[Engine], None], ...], ControlDatabaseSettings] = {}
        self._numbers = itertools.count()

    def brought(self, *steps: Callable[[Engine], None]) -> ControlDatabaseSettings:
        """Return the database that these steps have made, which is to be copied."""
        if steps not in self._brought:
            settings = self.copied(*steps[:-1]) if steps[:-1] else self._another()
            engine = open_database(settings, create=not steps[:-1])
            steps[-1](engine)
            engine.dispose()
            self._brought[steps] = settings
        return self._brought[steps]

    def copied(self, *steps: Callable[[Engine], None]) -> ControlDatabaseSettings:
        """Return another database that is as these steps have made one."""
        return self._another(self.brought(*steps))

    def _another(self, like: ControlDatabaseSettings | None = None) -> ControlDatabaseSettings:
        if self._server is not None:
            return self._server.control_database(EMPTY if like is None else str(like.url.database))
        file = self._folder / f"control-{next(self._numbers)}.db"
        if like is not None:
            shutil.copy(str(like.sqlite_file), file)
        return ControlDatabaseSettings(URL.create("sqlite", database=str(file)))

    @contextmanager
    def store(self, *steps: Callable[[Engine], None]) -> Iterator[SqlStore]:
        """Yield control tables as these steps have made them."""
        store = SqlStore(self.copied(*steps))
        yield store
        store.close()
        if self._server is not None:
            self._server.drop_database(store.settings)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    server = request.getfixturevalue("postgresql_server") if request.param == "postgresql" else None
    return Databases(tmp_path_factory.mktemp("older"), server)


@pytest.fixture
def older(databases: Databases) -> Iterator[SqlStore]:
    """Control tables of version 0001 with a feed that has a batch in each state."""
    with databases.store(make_older) as store:
        yield store


@pytest.fixture
def upgraded(databases: Databases) -> Iterator[SqlStore]:
    """The same after an upgrade."""
    with databases.store(make_older, bring_up_to_date) as store:
        yield store


Known = dict[str, tuple[str, ...]]


def columns_of(store: SqlStore) -> Known:
    """Return the tables with their columns as they are in the database now."""
    with store.by_hand() as connection:
        inspector = inspect(connection)
        return {
            table: tuple(str(column["name"]) for column in inspector.get_columns(table))
            for table in inspector.get_table_names()
        }


def content(store: SqlStore, known: Known) -> dict[str, list[str]]:
    """Return what is in these columns, with the names they have in the database and not in the code."""
    with store.by_hand() as connection:
        return {
            name: sorted(repr(tuple(row)) for row in connection.execute(select(*(table.c[each] for each in columns))))
            for name, columns in known.items()
            if name != schema.VERSION_TABLE
            for table in [Table(name, MetaData(), autoload_with=connection)]
        }


def version_of(store: SqlStore) -> str:
    with store.by_hand() as connection:
        return str(connection.execute(text("SELECT version_num FROM kafka_ingest_schema")).scalar_one())


# ── From 0001 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_tasks_refuse_the_older_version_with_the_command_to_run(older: SqlStore) -> None:
    with pytest.raises(ControlSchemaError, match=rf"needs {schema.SCHEMA_VERSION}\. Run `kafka-ingest db upgrade`"):
        older.connect()


def test_an_upgrade_says_from_where_to_where_and_needs_no_create(older: SqlStore) -> None:
    assert upgrade(older.open(), create=False) == ("0001", schema.SCHEMA_VERSION)
    assert upgrade(older.open(), create=False) == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION)


def test_every_row_is_in_the_upgraded_tables_as_it_was(older: SqlStore) -> None:
    known = columns_of(older)
    before = content(older, known)
    assert {name: len(rows) for name, rows in before.items()} == {
        "feed": 1,
        "batch": 5,
        "attempt": 6,
        "batch_range": 6,
        "stored_offset": 3,
        "event": 2,
        "gap": 0,
    }

    upgrade(older.open(), create=False)

    assert content(older, known) == before


def test_an_upgraded_feed_is_read_as_it_was_without_what_0001_did_not_know(upgraded: SqlStore) -> None:
    feed = snapshot_of(upgraded.connect())
    assert (feed.feed_id, feed.name, feed.cluster_id, feed.revision) == (ORDERS_FEED, "orders", CLUSTER, 41)
    assert feed.topics == ("orders",)
    assert (feed.topic_pattern, feed.waiting_since, feed.gaps_ahead, feed.holds) == (None, None, [], [])
    assert feed.stored == {
        orders(0): StoredOffset(
            orders(0), TOPIC_ID, 0, 100, "earliest", batch_id=COMMITTED.batch_id, updated_at=ONE_O_CLOCK
        ),
        orders(1): StoredOffset(
            orders(1), TOPIC_ID, 40, 50, "earliest", batch_id=COMMITTED.batch_id, updated_at=ONE_O_CLOCK
        ),
        orders(2): StoredOffset(orders(2), TOPIC_ID, None, None, "latest", updated_at=ONE_O_CLOCK),
    }
    assert feed.open_batch is not None
    assert (feed.open_batch.plan, feed.open_batch.state) == (WRITTEN, BatchState.WRITTEN)


def test_upgraded_batches_are_read_in_the_states_they_were_in(upgraded: SqlStore) -> None:
    control = upgraded.connect()
    assert control.batch_states(ORDERS_FEED) == {
        COMMITTED.batch_id: BatchState.COMMITTED,
        ABANDONED.batch_id: BatchState.ABANDONED,
        COMMITTING.batch_id: BatchState.COMMITTING,
        PLANNED.batch_id: BatchState.PLANNED,
        WRITTEN.batch_id: BatchState.WRITTEN,
    }
    assert [control.batch(plan.batch_id).plan for plan in (COMMITTED, ABANDONED, PLANNED)] == [
        COMMITTED,
        ABANDONED,
        PLANNED,
    ]
    assert [(attempt.attempt, attempt.state, attempt.reason) for attempt in control.attempts(COMMITTED.batch_id)] == [
        (1, AttemptState.DISCARDED, "damaged"),
        (2, AttemptState.PINNED, None),
    ]
    assert control.range_counts(COMMITTED.batch_id) == receipt_of(COMMITTED, 2).range_counts(COMMITTED)
    assert [event.detail for event in control.ledger(COMMITTED.batch_id)] == [SEEDED]
    assert control.gaps(ORDERS_FEED) == []


def test_what_was_filtered_before_the_upgrade_is_summed_up(older: SqlStore) -> None:
    with older.by_hand() as connection:
        of_batches = schema.batch_range.c.batch_id.in_([COMMITTED.batch_id, WRITTEN.batch_id])
        fewer = {"rows": schema.batch_range.c["rows"] - 1, "filtered": 1}
        connection.execute(schema.batch_range.update().where(of_batches).values(**fewer))

    upgrade(older.open(), create=False)

    found = older.connect().coverage("orders")
    assert found is not None
    assert found.filtered == {each.topic_partition: 1 for each in COMMITTED.ranges}


def test_what_was_committed_before_the_upgrade_is_summed_up_and_later_commits_add_to_it(upgraded: SqlStore) -> None:
    control = upgraded.connect()
    rows = receipt_of(COMMITTED, 2).rows

    assert sum(control.rows_by_partition(ORDERS_FEED).values()) == rows
    assert [summary.rows_committed for summary in control.feed_summaries()] == [rows]

    # A backfill and a live batch.
    control.complete_commit(COMMITTING.batch_id, actor="committer")
    control.begin_commit(WRITTEN.batch_id, 1)
    control.complete_commit(WRITTEN.batch_id, actor="committer")

    rows += receipt_of(COMMITTING, 1).rows + receipt_of(WRITTEN, 1).rows
    assert sum(control.rows_by_partition(ORDERS_FEED).values()) == rows
    assert [summary.rows_committed for summary in control.feed_summaries()] == [rows]


def test_open_batches_are_finished_after_the_upgrade_and_the_next_one_is_planned(upgraded: SqlStore) -> None:
    control = upgraded.connect()
    control.complete_commit(COMMITTING.batch_id, actor="committer")
    control.begin_commit(WRITTEN.batch_id, 1)
    control.complete_commit(WRITTEN.batch_id, actor="committer")
    later = plan_of((orders(0), 120, 125), number=6)
    plan_next(control, later)
    commit(control, later)

    assert stored(control) == {orders(0): 125, orders(1): 50, orders(2): None}


def test_what_is_new_in_0002_is_written_to_upgraded_tables(upgraded: SqlStore) -> None:
    control = upgraded.connect()
    hold = Hold("orders", 1, HoldCause.OPEN_TRANSACTION, "open since noon", NOON, at_offset=55)
    record = PlanRecord(CLUSTER, ["orders"], topic_pattern="ord.*", holds=[hold], waiting_since=NOON)
    control.record_plan(snapshot_of(control), record, actor="planner")
    gap = NewGap(OffsetRange(orders(1), 60, 70), GapCause.SKIPPED, "poisoned")
    filed = control.file_gap(snapshot_of(control), gap, seed=None, actor="ops")

    feed = snapshot_of(control)
    assert (feed.topic_pattern, feed.holds, feed.waiting_since) == ("ord.*", [hold], NOON)
    assert feed.gaps_ahead == [filed]


def test_foreign_keys_still_hold_after_the_upgrade(upgraded: SqlStore) -> None:
    for table in (schema.feed, schema.batch, schema.attempt):
        with pytest.raises(IntegrityError), upgraded.by_hand() as connection:
            connection.execute(delete(table))
    with pytest.raises(IntegrityError):
        upgraded.insert("gap", **gap_row(feed_id=batch_id_of(404)))


def gap_row(**values: Any) -> dict[str, Any]:
    row = {"gap_id": batch_id_of(90), "feed_id": ORDERS_FEED, "topic": "orders", "partition": 0, "start_offset": 3}
    row |= {"end_offset": 5, "cause": "skipped", "reason": "poisoned", "decided_by": "ops", "decided_at": NOON}
    return row | values


@pytest.mark.parametrize(
    "statement",
    [
        "ADD COLUMN waiting_since",
        "DROP TABLE gap",
        "CREATE TABLE gap",
        "CREATE TABLE hold",
        "UPDATE kafka_ingest_schema",
    ],
)
def test_an_upgrade_that_fails_half_way_leaves_version_0001_as_it_was(older: SqlStore, statement: str) -> None:
    known = columns_of(older)
    before = content(older, known)
    engine = older.open()
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def fail_half_way(*arguments: Any) -> None:
        if statement in arguments[2]:
            seen.append(statement)
            raise OSError(errno.EIO, "power cut")

    with pytest.raises(OSError, match="power cut"):
        upgrade(engine, create=False)

    assert seen == [statement]
    assert version_of(older) == "0001"
    assert columns_of(older) == known
    assert content(older, known) == before
    assert upgrade(older.open(), create=False) == ("0001", schema.SCHEMA_VERSION)
    assert content(older, known) == before


# ── From 0002 ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def hold_row(number: int, cause: HoldCause, **values: Any) -> dict[str, Any]:
    row = {"hold_id": batch_id_of(number), "feed_id": ORDERS_FEED, "topic": "orders", "partition": 0}
    row |= {"cause": cause.value, "reason": f"reason {number}", "since": NOON + timedelta(minutes=number)}
    return row | values


HOLD_ROWS = [
    hold_row(91, HoldCause.NO_ANSWER),
    hold_row(92, HoldCause.OPEN_TRANSACTION, partition=1, at_offset=55),
    hold_row(93, HoldCause.UNREADABLE, partition=2, at_offset=2**62),
    hold_row(94, HoldCause.TOPIC_MISSING, topic="refunds", partition=None),
]


def hold_of(row: Mapping[str, Any]) -> Hold:
    """Return a hold as it is read."""
    return Hold(
        row["topic"], row["partition"], HoldCause(row["cause"]), row["reason"], row["since"], row.get("at_offset")
    )


BEYOND = Hold("orders", 1, HoldCause.BEYOND_LOG, "the log ended at 30", NOON, at_offset=30)


@pytest.fixture
def held(databases: Databases) -> Iterator[SqlStore]:
    """Control tables of version 0002 with a hold of every cause that it knows."""
    with databases.store(make_older, make_held) as store:
        yield store


@pytest.fixture
def upgraded_held(databases: Databases) -> Iterator[SqlStore]:
    """The same after an upgrade."""
    with databases.store(make_older, make_held, bring_up_to_date) as store:
        yield store


def test_tasks_refuse_version_0002_too(held: SqlStore) -> None:
    with pytest.raises(ControlSchemaError, match=rf"needs {schema.SCHEMA_VERSION}\. Run `kafka-ingest db upgrade`"):
        held.connect()


def test_version_0002_knows_no_log_that_ended_below_its_stored_offset(held: SqlStore) -> None:
    with pytest.raises(IntegrityError):
        held.insert("hold", **hold_row(95, HoldCause.BEYOND_LOG, at_offset=30))


def test_every_hold_is_in_the_upgraded_table_as_it_was(held: SqlStore) -> None:
    known = columns_of(held)
    before = content(held, known)
    assert len(before["hold"]) == len(HOLD_ROWS)

    assert upgrade(held.open(), create=False) == ("0002", schema.SCHEMA_VERSION)

    assert content(held, known) == before
    assert snapshot_of(held.connect()).holds == [hold_of(row) for row in HOLD_ROWS]


def test_a_log_that_ended_below_its_stored_offset_is_noted_in_upgraded_tables(upgraded_held: SqlStore) -> None:
    control = upgraded_held.connect()
    control.hold(ORDERS_FEED, BEYOND)
    assert BEYOND in snapshot_of(control).holds
    control.record_plan(snapshot_of(control), PlanRecord(CLUSTER, ["orders"], holds=[BEYOND]), actor="planner")

    assert snapshot_of(control).holds == [BEYOND]


def test_an_upgrade_forgets_leader_epochs_that_may_be_of_an_offset_that_was_left_behind(held: SqlStore) -> None:
    engine = held.open()
    with transaction(engine, "write") as connection:
        connection.execute(schema.stored_offset.update().values(leader_epoch=3))
    upgrade(held.open(), create=False)
    assert {row.leader_epoch for row in snapshot_of(held.connect()).stored.values()} == {None}


NEWER_HOLDS = [
    Hold("orders", 2, HoldCause.OFFSETS_LOST, "4 offsets were deleted unread", NOON, at_offset=30),
    Hold("refunds", None, HoldCause.TOPIC_CHANGED, "it was made again", NOON),
]


def test_version_0002_knows_no_held_losses_and_no_held_topics_that_were_made_again(held: SqlStore) -> None:
    for found in NEWER_HOLDS:
        row = hold_row(95, found.cause, topic=found.topic, partition=found.partition, at_offset=found.at_offset)
        with pytest.raises(IntegrityError):
            held.insert("hold", **row)


def test_a_held_loss_and_a_held_topic_are_noted_in_upgraded_tables(upgraded_held: SqlStore) -> None:
    control = upgraded_held.connect()
    control.record_plan(snapshot_of(control), PlanRecord(CLUSTER, ["orders"], holds=NEWER_HOLDS), actor="planner")

    assert snapshot_of(control).holds == NEWER_HOLDS


REFUSED_HOLDS: Mapping[str, dict[str, Any]] = {
    "a log that ended, without an offset": hold_row(95, HoldCause.BEYOND_LOG),
    "an open transaction without an offset": hold_row(95, HoldCause.OPEN_TRANSACTION),
    "a partition without a leader, at an offset": hold_row(95, HoldCause.NO_ANSWER, at_offset=3),
    "a log that ended of a whole topic": hold_row(95, HoldCause.BEYOND_LOG, partition=None, at_offset=3),
    "a topic that is missing in one partition": hold_row(95, HoldCause.TOPIC_MISSING),
    "a topic that was made again in one partition": hold_row(95, HoldCause.TOPIC_CHANGED),
    "a topic that was made again, at an offset": hold_row(95, HoldCause.TOPIC_CHANGED, partition=None, at_offset=3),
    "a loss without an offset": hold_row(95, HoldCause.OFFSETS_LOST),
    "a cause that nobody knows": hold_row(95, HoldCause.NO_ANSWER) | {"cause": "bad luck"},
    "a feed that nobody knows": hold_row(95, HoldCause.NO_ANSWER, feed_id=batch_id_of(404)),
    "the id of another hold": hold_row(91, HoldCause.NO_ANSWER),
    "no reason": hold_row(95, HoldCause.NO_ANSWER, reason=None),
}


def test_an_upgraded_table_of_holds_refuses_what_a_new_one_refuses(upgraded_held: SqlStore) -> None:
    before = upgraded_held.dump()
    taken = []

    for refused, row in REFUSED_HOLDS.items():
        try:
            upgraded_held.insert("hold", **row)
            taken.append(refused)
        except IntegrityError:
            pass

    assert taken == []
    assert upgraded_held.dump() == before


def test_alembic_finds_no_difference_between_upgraded_tables_in_use_and_the_codes_tables(
    upgraded_held: SqlStore,
) -> None:
    with transaction(upgraded_held.open(), "read") as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, schema.metadata) == []
        assert {index["name"] for index in inspect(connection).get_indexes("hold")} == {"ix_hold_feed"}


@pytest.mark.parametrize("statement", ["ck_hold_cause", "UPDATE kafka_ingest_schema"])
def test_an_upgrade_of_holds_that_fails_half_way_leaves_version_0002_as_it_was(held: SqlStore, statement: str) -> None:
    known = columns_of(held)
    before = content(held, known)
    engine = held.open()

    @event.listens_for(engine, "before_cursor_execute")
    def fail_half_way(*arguments: Any) -> None:
        if statement in arguments[2]:
            raise OSError(errno.EIO, "power cut")

    with pytest.raises(OSError, match="power cut"):
        upgrade(engine, create=False)

    assert version_of(held) == "0002"
    assert columns_of(held) == known
    assert content(held, known) == before
    assert upgrade(held.open(), create=False) == ("0002", schema.SCHEMA_VERSION)
    assert content(held, known) == before


# ── A database of version 0003 ────────────────────────────────────────────────────────────────────────────────────────


def test_what_ended_before_version_0004_can_be_cleaned_up_after_the_upgrade(held: SqlStore) -> None:
    upgrade_to(held.open(), "0003")
    known = columns_of(held)
    before = content(held, known)

    assert upgrade(held.open(), create=False) == ("0003", schema.SCHEMA_VERSION)

    assert content(held, known) == before
    control = held.connect()
    assert ended_attempts(held) == [(COMMITTED.batch_id, 1), (COMMITTED.batch_id, 2)]
    control.note_cleaned(control.attempts(COMMITTED.batch_id)[0])
    assert ended_attempts(held) == [(COMMITTED.batch_id, 2)]


def ended_attempts(store: SqlStore) -> list[tuple[UUID, int]]:
    found = store.connect().ended_attempts(ORDERS_FEED, ended_before=ONE_O_CLOCK + timedelta(days=365))
    return [(attempt.batch_id, attempt.attempt) for attempt in found]
