"""The control tables' schema on real databases: made, upgraded, refused, and holding what it promises."""

import errno
import socket
import sqlite3
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, Executable, delete, event, insert, inspect, select, text, update
from sqlalchemy.exc import IntegrityError
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    SHA,
    RivalProcess,
    attempt_of,
    batch_id_of,
    bring_to,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    publish,
    seed,
    stored,
    write,
)
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.first_schema import make_first_schema

from embedded_postgresql import EMPTY
from kafka_ingest.control import database as control_database
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, check_version, open_database, transaction
from kafka_ingest.control.upgrade import alembic_config, upgrade
from kafka_ingest.errors import ControlSchemaError, ControlTablesUnavailableError, KafkaIngestError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.control_rows import NewFeed, PlanRecord

OFFSETS = {"feed", "batch", "attempt", "stored_offset", "batch_range", "gap", "hold", "event"}
OUTPUT = {"folded_range", "removed_range", "lost_range"}
TABLES = OFFSETS | OUTPUT | {"alert", "alert_notice", "period", "topics_file", "file_topic"}
NOBODY = UUID("01890000-0000-7000-8000-000000000404")


def sqlite_settings(file: Path) -> ControlDatabaseSettings:
    return ControlDatabaseSettings(URL.create("sqlite", database=str(file)))


def tables_of(engine: Engine) -> set[str]:
    with transaction(engine, "read") as connection:
        return set(inspect(connection).get_table_names())


def version_rows(store: SqlStore) -> list[str]:
    with store.by_hand() as connection:
        return list(connection.execute(text("SELECT version_num FROM kafka_ingest_schema")).scalars())


# ── Making and upgrading ──────────────────────────────────────────────────────────────────────────────────────────────


def test_create_makes_the_control_tables(empty_database: SqlStore):
    engine = open_database(empty_database.settings, create=True)

    assert upgrade(engine, create=True) == (None, schema.SCHEMA_VERSION)
    assert tables_of(engine) == TABLES | {"kafka_ingest_schema"}
    engine.dispose()
    plan_first(empty_database.connect())
    assert stored(empty_database.connect()) == {orders(0): 0, orders(1): 40}


def test_an_upgrade_of_the_newest_schema_changes_nothing(database: SqlStore):
    bring_to(database.connect(), BatchState.WRITTEN)
    before = (database.dump(), catalog(database.open()))

    assert upgrade(database.open(), create=False) == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION)
    assert upgrade(database.open(), create=True) == (schema.SCHEMA_VERSION, schema.SCHEMA_VERSION)

    assert (database.dump(), catalog(database.open())) == before


def test_an_upgrade_of_an_empty_database_is_refused_unless_it_is_asked_to_create(postgresql_server: PostgresqlServer):
    settings = postgresql_server.control_database(EMPTY)
    engine = open_database(settings)

    with pytest.raises(ControlSchemaError, match=r"holds no control tables.*`kafka-ingest db upgrade --create`"):
        upgrade(engine, create=False)

    assert tables_of(engine) == set()
    engine.dispose()
    postgresql_server.drop_database(settings)


def test_an_upgrade_of_an_empty_file_is_refused_unless_it_is_asked_to_create(tmp_path: Path):
    file = tmp_path / "control.db"
    file.touch()

    with pytest.raises(ControlSchemaError, match=r"holds no control tables.*`kafka-ingest db upgrade --create`"):
        upgrade(open_database(sqlite_settings(file)), create=False)

    assert tables_of(open_database(sqlite_settings(file))) == set()


def test_tasks_refuse_a_database_without_control_tables(postgresql_server: PostgresqlServer):
    settings = postgresql_server.control_database(EMPTY)
    engine = open_database(settings)

    with pytest.raises(ControlSchemaError, match=r"holds no control tables.*`kafka-ingest db upgrade --create`"):
        SqlControlTables(engine)

    assert tables_of(engine) == set()
    engine.dispose()
    postgresql_server.drop_database(settings)


def test_an_upgrade_that_fails_half_way_leaves_nothing_behind(empty_database: SqlStore):
    engine = open_database(empty_database.settings, create=True)

    @event.listens_for(engine, "before_cursor_execute")
    def fail_at_the_last_table(*arguments: Any) -> None:
        if "CREATE TABLE stored_offset" in arguments[2]:
            raise OSError(errno.EIO, "power cut")

    with pytest.raises(OSError, match="power cut"):
        upgrade(engine, create=True)
    engine.dispose()

    again = open_database(empty_database.settings)
    assert tables_of(again) == set()
    assert upgrade(again, create=True) == (None, schema.SCHEMA_VERSION)
    again.dispose()


UPGRADE_WHEN_RESUMED = """
import sys
from sqlalchemy import make_url
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.upgrade import upgrade

engine = open_database(ControlDatabaseSettings(make_url(sys.argv[1])), create=True)
print("ready", flush=True)
sys.stdin.readline()
print(upgrade(engine, create=True)[1])
"""


def test_of_upgrades_at_once_one_makes_the_tables_and_none_fails(empty_database: SqlStore):
    url = empty_database.settings.url.render_as_string(hide_password=False)
    rivals = [RivalProcess(UPGRADE_WHEN_RESUMED, url) for _ in range(2)]
    for rival in rivals:
        assert rival.wait_for_line() == "ready"
    for rival in rivals:
        rival.resume()

    assert [rival.answer() for rival in rivals] == [(schema.SCHEMA_VERSION, "")] * 2
    assert version_rows(empty_database) == [schema.SCHEMA_VERSION]


def test_the_version_that_the_code_needs_is_the_newest_migration():
    assert ScriptDirectory.from_config(alembic_config()).get_heads() == [schema.SCHEMA_VERSION]


# ── Other versions ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_newer_schema_is_refused_by_tasks(database: SqlStore):
    database.execute("UPDATE kafka_ingest_schema SET version_num = '9999'")

    with pytest.raises(
        ControlSchemaError, match=f"version 9999, made by a newer .*this one supports {schema.SCHEMA_VERSION}"
    ):
        SqlControlTables(database.open())
    with pytest.raises(ControlSchemaError, match="9999"):
        SqlControlTables(database.open())


def test_a_newer_schema_is_refused_by_the_upgrade_and_left_alone(database: SqlStore):
    plan_first(database.connect())
    database.execute("UPDATE kafka_ingest_schema SET version_num = '9999'")
    before = (database.dump(), catalog(database.open()))

    for create in (False, True):
        with pytest.raises(ControlSchemaError, match=f"version 9999, made by a newer .*{schema.SCHEMA_VERSION}"):
            upgrade(database.open(), create=create)

    assert version_rows(database) == ["9999"]
    assert (database.dump(), catalog(database.open())) == before


def test_a_schema_without_its_version_is_refused(database: SqlStore):
    database.execute("DELETE FROM kafka_ingest_schema")

    with pytest.raises(ControlSchemaError, match="holds no control tables"):
        SqlControlTables(database.open())


# ── The migrations lead to the tables that the code knows ─────────────────────────────────────────────────────────────


def catalog(engine: Engine) -> dict[str, Any]:
    """Return all that a database says of its tables: columns, constraints and indexes, with their names and texts."""
    with transaction(engine, "read") as connection:
        inspector = inspect(connection)
        return {
            table: {
                "columns": {
                    column["name"]: (str(column["type"]), column["nullable"], column["default"], column.get("comment"))
                    for column in inspector.get_columns(table)
                },
                "primary key": sorted_texts([inspector.get_pk_constraint(table)]),
                "foreign keys": sorted_texts(inspector.get_foreign_keys(table)),
                "uniques": sorted_texts(inspector.get_unique_constraints(table)),
                "checks": sorted_texts(inspector.get_check_constraints(table)),
                "indexes": sorted_texts(inspector.get_indexes(table)),
                "comment": table_comment(engine, inspector, table),
            }
            for table in sorted(TABLES)
        }


def table_comment(engine: Engine, inspector: Any, table: str) -> str | None:
    return None if engine.dialect.name == "sqlite" else inspector.get_table_comment(table)["text"]


def sorted_texts(entries: list[Any]) -> list[str]:
    return sorted(plain(entry) for entry in entries)


def plain(value: Any) -> str:
    return repr(sorted((key, plain(item)) for key, item in value.items())) if isinstance(value, dict) else str(value)


@pytest.fixture
def migrated(database: SqlStore, tmp_path: Path, postgresql_server: PostgresqlServer) -> Iterator[Engine]:
    """A database of the same kind with version 0.1.0's tables, brought to the newest schema."""
    if database.settings.sqlite_file is None:
        settings = postgresql_server.control_database(EMPTY)
    else:
        settings = sqlite_settings(tmp_path / "migrated.db")
    engine = open_database(settings, create=True)
    make_first_schema(engine)
    upgrade(engine, create=False)
    yield engine
    engine.dispose()
    if settings.sqlite_file is None:
        postgresql_server.drop_database(settings)


def test_alembic_finds_no_difference_between_the_migrated_database_and_the_codes_tables(migrated: Engine):
    with transaction(migrated, "read") as connection:
        options = {"version_table": schema.VERSION_TABLE, "compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)

        assert compare_metadata(context, schema.metadata) == []


def test_names_and_texts_of_all_constraints_and_indexes_are_those_of_tables_made_anew(
    database: SqlStore, migrated: Engine
):
    assert catalog(migrated) == catalog(database.open())


def test_every_constraint_of_postgresql_has_an_offence_that_tries_it(postgresql: SqlStore):
    with postgresql.by_hand() as connection:
        constraints = connection.execute(
            text(
                "SELECT conname FROM pg_constraint JOIN pg_class ON pg_class.oid = conrelid "
                "WHERE contype IN ('c', 'f', 'p', 'u') AND connamespace = 'public'::regnamespace "
                "AND relname <> 'kafka_ingest_schema'"
            )
        ).scalars()
        indexes = connection.execute(
            text("SELECT indexname FROM pg_indexes WHERE schemaname = 'public' AND indexdef LIKE '%UNIQUE%WHERE%'")
        ).scalars()
        assert set(constraints) | set(indexes) == {name for name, _ in OFFENCES.values()}


def test_every_check_and_partial_index_of_sqlite_has_an_offence_that_tries_it(sqlite: SqlStore):
    with sqlite.by_hand() as connection:
        checks = {str(check["name"]) for table in TABLES for check in inspect(connection).get_check_constraints(table)}
        indexes = connection.execute(
            text("SELECT name FROM sqlite_master WHERE type = 'index' AND sql LIKE '%UNIQUE%WHERE%'")
        ).scalars()
        named = {name for name, _ in OFFENCES.values()}
        assert checks == {name for name in named if name.startswith("ck_")}
        assert set(indexes) == {"uq_batch_open_live", "uq_attempt_pinned", "uq_alert_current", "uq_period_waiting"}


# ── Each constraint refuses what breaks it ────────────────────────────────────────────────────────────────────────────

PLANNED_ID, WRITTEN_ID, COMMITTED_ID, ABANDONED_ID = (batch_id_of(number) for number in (4, 3, 1, 2))


@pytest.fixture(scope="module")
def history(shared_database: SqlStore) -> SqlStore:
    """A feed with a committed, an abandoned, a written backfill and a planned batch.

    The planned one has attempts 1 and 2.
    """
    control = shared_database.connect()
    plan_first(control, FIRST_PLAN, seed(orders(0), 0), seed(orders(1), 40), seed(orders(2), 7))
    commit(control, FIRST_PLAN)
    abandoned = plan_of((orders(2), 7, 9), number=2)
    plan_next(control, abandoned)
    control.abandon(abandoned.batch_id, reason="not wanted", actor="ops")
    written = plan_of((orders(2), 7, 9), number=3, kind=BatchKind.BACKFILL)
    plan_next(control, written)
    write(control, written)
    planned = plan_of((orders(2), 7, 9), number=4)
    plan_next(control, planned)
    control.open_attempt(attempt_of(planned, 1))
    control.open_attempt(attempt_of(planned, 2))
    shared_database.insert("gap", **GAP)
    shared_database.insert("hold", **HOLD)
    shared_database.insert("removed_range", **REMOVED)
    shared_database.insert("folded_range", **FOLDED)
    shared_database.insert("lost_range", **LOST)
    shared_database.insert("alert", **ALERT)
    shared_database.insert("alert_notice", **NOTICE)
    shared_database.insert("period", **PERIOD)
    shared_database.insert("topics_file", **TOPICS_FILE)
    shared_database.insert("file_topic", **FILE_TOPIC)
    return shared_database


@contextmanager
def tried(store: SqlStore) -> Iterator[Connection]:
    """Try something in a transaction that leaves nothing behind, whatever becomes of it."""
    engine = store.open()
    try:
        with engine.connect() as connection:
            attempted = connection.begin()
            try:
                yield connection
            finally:
                attempted.rollback()
    finally:
        # A server has a hundred connections, and there are as many offences.
        engine.dispose()


GAP: Mapping[str, Any] = {
    "gap_id": UUID("01890000-0000-7000-8000-00000000009a"),
    "feed_id": ORDERS_FEED,
    "topic": "orders",
    "partition": 0,
    "start_offset": 3,
    "end_offset": 5,
    "cause": "retention",
    "reason": "the log starts at 5",
    "decided_by": "ops",
    "decided_at": NOON,
}

HOLD: Mapping[str, Any] = {
    "hold_id": UUID("01890000-0000-7000-8000-0000000000d1"),
    "feed_id": ORDERS_FEED,
    "topic": "orders",
    "partition": 0,
    "cause": "no_answer",
    "reason": "no leader",
    "since": NOON,
}


REMOVED: Mapping[str, Any] = {
    "range_id": UUID("01890000-0000-7000-8000-0000000000e1"),
    "feed_id": ORDERS_FEED,
    "topic": "orders",
    "partition": 0,
    "start_offset": 0,
    "end_offset": 5,
}

FOLDED: Mapping[str, Any] = {
    "folded_id": UUID("01890000-0000-7000-8000-0000000f01d0"),
    "feed_id": ORDERS_FEED,
    "topic": "orders",
    "partition": 0,
    "topic_id": "an id",
    "start_offset": 0,
    "end_offset": 5,
    "rows": 5,
    "filtered": 0,
    "dead_letters": 0,
    "invisible": 0,
    "batches": 2,
    "oldest_commit": NOON,
    "newest_commit": NOON,
}
LOST: Mapping[str, Any] = {
    "feed_id": ORDERS_FEED,
    "batch_id": batch_id_of(1),
    "file": "part-00000.parquet",
    "topic": "orders",
    "partition": 0,
    "start_offset": 0,
    "end_offset": 5,
    "rows": 5,
}

ALERT: Mapping[str, Any] = {
    "alert_id": UUID("01890000-0000-7000-8000-00000000a1e7"),
    "feed_id": ORDERS_FEED,
    "kind": "gap",
    "subject": "",
    "text": "why",
    "began_at": NOON,
    "ended_at": None,
}

PERIOD: dict[str, Any] = {"feed_id": ORDERS_FEED, "unit": "hour", "began_at": NOON - timedelta(hours=1)}
TOPICS_FILE: Mapping[str, Any] = {"file": "shop.yaml", "planned_at": NOON, "pattern": "shop"}
FILE_TOPIC: Mapping[str, Any] = {"file": "shop.yaml", "topic": "shop", "conn_id": "kafka_default"}
NOTICE: Mapping[str, Any] = {"alert_id": ALERT["alert_id"], "notifier": "mail", "change": "begun"}


def change(table: str, batch_id: UUID | None = None, **values: Any) -> Executable:
    statement = update(schema.metadata.tables[table]).values(**values)
    return statement if batch_id is None else statement.where(schema.metadata.tables[table].c.batch_id == batch_id)


def change_partition(table: str, number: int, **values: Any) -> Executable:
    known = schema.metadata.tables[table]
    return update(known).where(known.c.partition == number).values(**values)


def add(table: str, **values: Any) -> Executable:
    return insert(schema.metadata.tables[table]).values(**values)


def add_feed(**values: Any) -> Executable:
    row = {"feed_id": NOBODY, "name": "refunds", "cluster_id": CLUSTER, "topics": [], "revision": 1}
    return add("feed", **(row | {"created_at": NOON, "updated_at": NOON} | values))


def add_batch(**values: Any) -> Executable:
    row = {"batch_id": NOBODY, "feed_id": ORDERS_FEED, "kind": "backfill", "state": "PLANNED", "plan": {}}
    row |= {"plan_fingerprint": SHA, "planned_at": NOON, "planned_by": "hand", "updated_at": NOON}
    return add("batch", **(row | values))


def add_attempt(**values: Any) -> Executable:
    row = {"batch_id": PLANNED_ID, "attempt": 3, "state": "OPEN", "directory": "/d", "document_sha256": SHA}
    return add("attempt", **(row | {"opened_at": NOON, "opened_by": "hand"} | values))


def add_removed(**values: Any) -> Executable:
    return add("removed_range", **(REMOVED | {"range_id": NOBODY} | values))


def add_folded(**values: Any) -> Executable:
    return add("folded_range", **(dict(FOLDED) | {"folded_id": NOBODY} | values))


def add_lost(**values: Any) -> Executable:
    return add("lost_range", **(LOST | {"file": "part-00001.parquet"} | values))


def add_alert(**values: Any) -> Executable:
    return add("alert", **(ALERT | {"alert_id": NOBODY, "subject": "another"} | values))


def add_notice(**values: Any) -> Executable:
    return add("alert_notice", **(NOTICE | {"notifier": "chat"} | values))


def add_period(**values: Any) -> Executable:
    return add("period", **(PERIOD | {"began_at": NOON} | values))


def add_stored_offset(**values: Any) -> Executable:
    row = {"feed_id": ORDERS_FEED, "topic": "orders", "partition": 9, "first_offset": 1, "next_offset": 1}
    return add("stored_offset", **(row | {"seeded_by": "earliest", "updated_at": NOON} | values))


def add_range(**values: Any) -> Executable:
    row = {"batch_id": PLANNED_ID, "topic": "orders", "partition": 9, "start_offset": 5, "end_offset": 10}
    return add("batch_range", **(row | values))


def add_event(**values: Any) -> Executable:
    row = {"feed_id": ORDERS_FEED, "kind": "reset", "at": NOON, "actor": "hand", "detail": {}}
    return add("event", **(row | values))


def add_gap(**values: Any) -> Executable:
    return add("gap", **(dict(GAP) | {"gap_id": NOBODY} | values))


def add_hold(**values: Any) -> Executable:
    return add("hold", **(dict(HOLD) | {"hold_id": NOBODY} | values))


COUNTS = {"rows": 5, "filtered": 0, "dead_letters": 0, "invisible": 0}

OFFENCES: Mapping[str, tuple[str, Executable]] = {
    "two feeds of one id": ("pk_feed", add_feed(feed_id=ORDERS_FEED)),
    "two feeds of one name": ("uq_feed_name", add_feed(name="orders")),
    "two batches of one id": ("pk_batch", add_batch(batch_id=PLANNED_ID)),
    "a batch of no feed": ("fk_batch_feed", add_batch(feed_id=NOBODY)),
    "a batch of an unknown kind": ("ck_batch_kind", change("batch", ABANDONED_ID, kind="rerun")),
    "a batch in an unknown state": ("ck_batch_state", change("batch", PLANNED_ID, state="DONE")),
    "a planned batch with a pin": ("ck_batch_pinned", change("batch", PLANNED_ID, pinned_attempt=1)),
    "a written batch without a pin": ("ck_batch_pinned", change("batch", WRITTEN_ID, pinned_attempt=None)),
    "a written batch without rows": ("ck_batch_pinned", change("batch", WRITTEN_ID, rows=None)),
    "a committing batch without a pin": (
        "ck_batch_pinned",
        change("batch", WRITTEN_ID, state="COMMITTING", pinned_attempt=None),
    ),
    "a pin of an attempt that never was": ("fk_batch_pinned_attempt", change("batch", WRITTEN_ID, pinned_attempt=9)),
    "a committed batch without its time": ("ck_batch_committed", change("batch", COMMITTED_ID, committed_at=None)),
    "a planned batch with a time of commit": ("ck_batch_committed", change("batch", PLANNED_ID, committed_at=NOON)),
    "an abandoned batch without a reason": ("ck_batch_abandoned", change("batch", ABANDONED_ID, reason=None)),
    "a planned batch with a reason": ("ck_batch_abandoned", change("batch", PLANNED_ID, reason="why")),
    "a second open live batch": ("uq_batch_open_live", add_batch(kind="live")),
    "a written batch beside an open one": ("uq_batch_open_live", change("batch", WRITTEN_ID, kind="live")),
    "a committing batch beside an open one": (
        "uq_batch_open_live",
        change("batch", WRITTEN_ID, kind="live", state="COMMITTING"),
    ),
    "two attempts of one number": ("pk_attempt", add_attempt(attempt=2)),
    "an attempt of no batch": ("fk_attempt_batch", add_attempt(batch_id=NOBODY)),
    "an attempt in an unknown state": ("ck_attempt_state", add_attempt(state="DONE")),
    "an attempt number 0": ("ck_attempt_number", add_attempt(attempt=0)),
    "a pinned attempt without a receipt": ("ck_attempt_pinned", add_attempt(state="PINNED")),
    "a discarded attempt without a reason": ("ck_attempt_discarded", add_attempt(state="DISCARDED")),
    "an open attempt with a reason": ("ck_attempt_discarded", add_attempt(reason="why")),
    "two pinned attempts of one batch": (
        "uq_attempt_pinned",
        change("attempt", PLANNED_ID, state="PINNED", receipt_sha256=SHA),
    ),
    "two stored offsets of one partition": ("pk_stored_offset", add_stored_offset(partition=0)),
    "a stored offset of no feed": ("fk_stored_offset_feed", add_stored_offset(feed_id=NOBODY)),
    "a stored offset moved by no batch": ("fk_stored_offset_batch", add_stored_offset(batch_id=NOBODY)),
    "a stored offset of partition -1": ("ck_stored_offset_partition", add_stored_offset(partition=-1)),
    "a half pending stored offset": (
        "ck_stored_offset_pending",
        change_partition("stored_offset", 0, first_offset=None),
    ),
    "a stored offset that was seeded half": (
        "ck_stored_offset_pending",
        change_partition("stored_offset", 0, next_offset=None),
    ),
    "a stored offset of -1": ("ck_stored_offset_offsets", change_partition("stored_offset", 0, next_offset=-1)),
    "a first offset of -2": ("ck_stored_offset_offsets", change_partition("stored_offset", 0, first_offset=-2)),
    "two ranges of one partition": ("pk_batch_range", add_range(partition=2)),
    "a range of no batch": ("fk_batch_range_batch", add_range(batch_id=NOBODY)),
    "a range that starts at -2": ("ck_batch_range_offsets", add_range(start_offset=-2)),
    "an empty range": ("ck_batch_range_offsets", add_range(end_offset=5)),
    "a range that ends before it starts": ("ck_batch_range_offsets", add_range(end_offset=4)),
    "a range with an offset nobody accounts for": ("ck_batch_range_accounted", add_range(**(COUNTS | {"rows": 4}))),
    "a range with more rows than offsets": ("ck_batch_range_accounted", add_range(**(COUNTS | {"rows": 6}))),
    "a range whose other counts are not known": ("ck_batch_range_accounted", add_range(rows=6)),
    "a range that adds up by a negative count": (
        "ck_batch_range_accounted",
        add_range(**(COUNTS | {"rows": 6, "invisible": -1})),
    ),
    "a range that was read from below its start": (
        "ck_batch_range_inside",
        add_range(smallest_offset=4, largest_offset=9),
    ),
    "a range that was read past its end": ("ck_batch_range_inside", add_range(smallest_offset=5, largest_offset=10)),
    "a range with more letters replayed than it has": ("ck_batch_range_replayed", add_range(**COUNTS, replayed=1)),
    "a range with letters replayed before it was read": ("ck_batch_range_replayed", add_range(replayed=1)),
    "a range with fewer letters replayed than none": ("ck_batch_range_replayed", add_range(**COUNTS, replayed=-1)),
    "two gaps of one id": ("pk_gap", add_gap(gap_id=GAP["gap_id"])),
    "a gap of no feed": ("fk_gap_feed", add_gap(feed_id=NOBODY)),
    "a gap closed by no batch": ("fk_gap_batch", add_gap(closed_by_batch=NOBODY)),
    "an empty gap": ("ck_gap_offsets", add_gap(end_offset=3)),
    "a gap that starts at -1": ("ck_gap_offsets", add_gap(start_offset=-1)),
    "a gap of an unknown cause": ("ck_gap_cause", add_gap(cause="lost")),
    "two holds of one id": ("pk_hold", add_hold(hold_id=HOLD["hold_id"])),
    "a hold of no feed": ("fk_hold_feed", add_hold(feed_id=NOBODY)),
    "a hold of an unknown cause": ("ck_hold_cause", add_hold(cause="tired")),
    "a missing topic with a partition": ("ck_hold_partition", add_hold(cause="topic_missing")),
    "a partition without an answer that is none": ("ck_hold_partition", add_hold(partition=None)),
    "an open transaction without its offset": ("ck_hold_at_offset", add_hold(cause="open_transaction")),
    "an unreadable record without its offset": ("ck_hold_at_offset", add_hold(cause="unreadable")),
    "a partition without an answer at an offset": ("ck_hold_at_offset", add_hold(at_offset=7)),
    "a folded batch with a pin": ("ck_batch_pinned", change("batch", COMMITTED_ID, folded_at=NOON)),
    "a committed batch without a pin that is not folded": (
        "ck_batch_pinned",
        change("batch", COMMITTED_ID, pinned_attempt=None),
    ),
    "a folded batch that is not committed": (
        "ck_batch_folded",
        change("batch", WRITTEN_ID, pinned_attempt=None, folded_at=NOON),
    ),
    "a folded backfill": (
        "ck_batch_folded",
        change("batch", COMMITTED_ID, kind="backfill", pinned_attempt=None, folded_at=NOON),
    ),
    "a folded batch that is still to be announced": (
        "ck_batch_folded",
        change("batch", COMMITTED_ID, pinned_attempt=None, folded_at=NOON, to_announce=True),
    ),
    "two folded ranges of one id": ("pk_folded_range", add_folded(folded_id=FOLDED["folded_id"])),
    "a folded range of no feed": ("fk_folded_range_feed", add_folded(feed_id=NOBODY)),
    "an empty folded range": ("ck_folded_range_offsets", add_folded(end_offset=0, rows=0)),
    "a folded range with an offset nobody accounts for": ("ck_folded_range_accounted", add_folded(rows=4)),
    "a folded range that adds up by a negative count": (
        "ck_folded_range_accounted",
        add_folded(rows=6, invisible=-1),
    ),
    "a folded range of no batch": ("ck_folded_range_batches", add_folded(batches=0)),
    "two removed ranges of one id": ("pk_removed_range", add_removed(range_id=REMOVED["range_id"])),
    "a removed range of no feed": ("fk_removed_range_feed", add_removed(feed_id=NOBODY)),
    "an empty removed range": ("ck_removed_range_offsets", add_removed(end_offset=0)),
    "a file that was lost twice": ("pk_lost_range", add_lost(file=LOST["file"])),
    "a lost file of no feed": ("fk_lost_range_feed", add_lost(feed_id=NOBODY)),
    "a lost file that holds no offset": ("ck_lost_range_offsets", add_lost(end_offset=0)),
    "two alerts of one id": ("pk_alert", add_alert(alert_id=ALERT["alert_id"])),
    "an alert of no feed": ("fk_alert_feed", add_alert(feed_id=NOBODY)),
    "an alert of an unknown kind": ("ck_alert_kind", add_alert(kind="late")),
    "an alert that ended before it began": ("ck_alert_ended", add_alert(ended_at=NOON - timedelta(seconds=1))),
    "an alert that holds twice": ("uq_alert_current", add_alert(subject="")),
    "two notices of one change": ("pk_alert_notice", add_notice(notifier="mail")),
    "a notice of no alert": ("fk_alert_notice_alert", add_notice(alert_id=NOBODY)),
    "a notice of an unknown change": ("ck_alert_notice_change", add_notice(change="grown")),
    "an hour twice": ("pk_period", add_period(began_at=PERIOD["began_at"], completed_at=NOON, completed_by="run")),
    "an hour of no feed": ("fk_period_feed", add_period(feed_id=NOBODY)),
    "a period of an unknown unit": ("ck_period_unit", add_period(unit="week")),
    "an hour that nobody completed": ("ck_period_completed", add_period(completed_at=NOON)),
    "two hours that are waited for": ("uq_period_waiting", add_period()),
    "a file for many topics twice": ("pk_topics_file", add("topics_file", **TOPICS_FILE)),
    "a file's topic twice": ("pk_file_topic", add("file_topic", **FILE_TOPIC)),
    "a topic of no file": ("fk_file_topic_topics_file", add("file_topic", **{**FILE_TOPIC, "file": "other.yaml"})),
    "two events of one number": ("pk_event", add_event(event_id=1)),
    "an event of no feed": ("fk_event_feed", add_event(feed_id=NOBODY)),
    "an event of no batch": ("fk_event_batch", add_event(batch_id=NOBODY)),
}

SHADOWED_BY = {"ck_batch_state": "ck_batch_pinned"}
"""A batch in an unknown state breaks both; a database names whichever it looks at first."""


@pytest.mark.parametrize("offence", OFFENCES)
def test_the_database_refuses(history: SqlStore, offence: str):
    name, statement = OFFENCES[offence]

    with pytest.raises(IntegrityError) as refusal, tried(history) as connection:
        connection.execute(statement)

    assert is_refused_by(name, refusal.value.orig) or is_refused_by(SHADOWED_BY.get(name, name), refusal.value.orig)


def is_refused_by(name: str, error: BaseException | None) -> bool:
    """Say whether it was this constraint; SQLite names checks alone."""
    if isinstance(error, psycopg.Error):
        return error.diag.constraint_name == name
    kinds = {"pk": "UNIQUE constraint failed", "uq": "UNIQUE constraint failed", "fk": "FOREIGN KEY constraint failed"}
    return kinds.get(name[:2], f"CHECK constraint failed: {name}") in str(error)


MISSING: Mapping[str, tuple[str, Executable]] = {
    "a gap without a reason": ("gap.reason", add_gap(reason=None)),
    "a gap that nothing decided": ("gap.cause", add_gap(cause=None)),
    "a gap that nobody decided": ("gap.decided_by", add_gap(decided_by=None)),
    "a hold without a reason": ("hold.reason", add_hold(reason=None)),
    "a hold without its since-when": ("hold.since", add_hold(since=None)),
}


@pytest.mark.parametrize("missing", MISSING)
def test_the_database_refuses_a_row_that_does_not_say_enough(history: SqlStore, missing: str):
    column, statement = MISSING[missing]

    with pytest.raises(IntegrityError) as refusal, tried(history) as connection:
        connection.execute(statement)

    error = refusal.value.orig
    if isinstance(error, psycopg.errors.NotNullViolation):
        assert f"{error.diag.table_name}.{error.diag.column_name}" == column
    else:
        assert str(error) == f"NOT NULL constraint failed: {column}"


@pytest.mark.parametrize("table", ["attempt", "batch", "feed"])
def test_rows_that_others_refer_to_cannot_be_deleted(history: SqlStore, table: str):
    with pytest.raises(IntegrityError), tried(history) as connection:
        connection.execute(delete(schema.metadata.tables[table]))


# ── A SQLite file ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_file_is_an_error_and_none_is_made(tmp_path: Path):
    file = tmp_path / "sub" / "control.db"

    with pytest.raises(ControlSchemaError, match=r"found no such file.*`kafka-ingest db upgrade --create`") as refusal:
        open_database(sqlite_settings(file))

    assert str(file) in str(refusal.value)
    assert not file.parent.exists()


def test_a_directory_in_the_place_of_the_file_is_an_error(tmp_path: Path):
    with pytest.raises(ControlSchemaError, match="found no such file"):
        open_database(sqlite_settings(tmp_path))


def test_a_file_that_vanishes_before_it_is_opened_is_an_error_and_none_is_made(sqlite: SqlStore):
    file = sqlite.settings.sqlite_file
    assert file is not None
    engine = open_database(sqlite.settings)
    file.unlink()

    with pytest.raises(ControlTablesUnavailableError, match="unable to open database file") as failure:
        SqlControlTables(engine)

    assert str(file) in str(failure.value)
    assert list(file.parent.iterdir()) == []


@pytest.mark.parametrize("name", ["with space.db", "100%25.db", "what?.db", "number#1.db", "größe.db"])
def test_the_file_is_the_one_that_the_connection_names_whatever_characters_it_has(tmp_path: Path, name: str):
    file = tmp_path / name
    made = open_database(sqlite_settings(file), create=True)
    upgrade(made, create=True)
    made.dispose()

    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(("-wal", "-shm"))] == [name]
    plan_first(SqlControlTables(open_database(sqlite_settings(file))))


def test_settings_and_refusals_name_the_file_as_it_is(tmp_path: Path):
    file = tmp_path / "100%25 größe.db"
    file.touch()
    settings = sqlite_settings(file)

    with pytest.raises(ControlSchemaError) as refusal:
        SqlControlTables(open_database(settings))

    assert str(file) in str(settings)
    assert str(file) in str(refusal.value)


def test_every_connection_writes_ahead_syncs_fully_holds_foreign_keys_and_waits_half_a_minute(sqlite: SqlStore):
    engine = open_database(sqlite.settings)
    with engine.connect() as first, engine.connect() as second:
        for connection in (first, second):
            answers = [
                connection.exec_driver_sql(f"PRAGMA {pragma}").scalar_one()
                for pragma in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
            assert answers == ["wal", 2, 1, 30_000]


def test_a_file_locked_by_another_writer_is_unavailable_after_the_time_limit(
    sqlite: SqlStore, monkeypatch: pytest.MonkeyPatch
):
    plan_first(sqlite.connect())
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.01)
    impatient = sqlite.connect()
    before = sqlite.dump()

    with (
        sqlite.by_hand(),
        pytest.raises(ControlTablesUnavailableError, match=r"control\.db.* could not be used: database is locked"),
    ):
        impatient.open_attempt(attempt_of(FIRST_PLAN, 1))

    assert sqlite.dump() == before
    impatient.open_attempt(attempt_of(FIRST_PLAN, 1))


def test_a_feed_that_a_rival_holds_locked_on_a_server_is_unavailable_after_the_time_limit(
    postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
):
    control = postgresql.connect()
    plan_first(control)
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.01)

    with postgresql.by_hand() as rival:
        rival.execute(select(schema.feed).with_for_update())
        before = postgresql.dump()
        with pytest.raises(ControlTablesUnavailableError, match=r"could not be used: .*lock timeout"):
            control.open_attempt(attempt_of(FIRST_PLAN, 1))

    assert postgresql.dump() == before
    control.open_attempt(attempt_of(FIRST_PLAN, 1))


def test_readers_continue_while_another_process_writes(sqlite: SqlStore, monkeypatch: pytest.MonkeyPatch):
    plan_first(sqlite.connect())
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.01)
    reader = sqlite.connect()
    with sqlite.by_hand() as connection:
        connection.execute(update(schema.stored_offset).values(next_offset=999))

        assert stored(reader) == {orders(0): 0, orders(1): 40}


def test_a_writer_holds_the_lock_from_its_first_look_on(sqlite: SqlStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.01)
    with (
        transaction(sqlite.open(), "write"),
        pytest.raises(ControlTablesUnavailableError, match="locked"),
        transaction(sqlite.open(), "write"),
    ):
        pass


def test_garbage_in_the_place_of_the_file_is_named(tmp_path: Path):
    file = tmp_path / "control.db"
    file.write_bytes(b"These are not the control tables. " * 1_000)

    with pytest.raises(KafkaIngestError, match="file is not a database") as failure:
        SqlControlTables(open_database(sqlite_settings(file)))

    assert str(file) in str(failure.value)


def test_a_damaged_page_is_named_by_the_step_that_meets_it(sqlite: SqlStore):
    plan_first(sqlite.connect())
    file = sqlite.settings.sqlite_file
    assert file is not None
    with sqlite3.connect(file) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'batch'").fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    sqlite.close()
    with file.open("r+b") as content:
        content.seek((page - 1) * size)
        content.write(b"\xa5" * size)

    with pytest.raises(KafkaIngestError, match="malformed") as failure:
        sqlite.connect().feed("orders")

    assert str(file) in str(failure.value)


def test_a_full_disk_is_named_and_the_step_can_be_run_again(sqlite: SqlStore):
    engine = open_database(sqlite.settings)
    control = SqlControlTables(engine)
    plan_first(control)
    event.listen(engine, "connect", lambda connection, _: connection.execute("PRAGMA max_page_count = 1"))
    before = sqlite.dump()
    large = {"reason": "x" * 100_000}

    with pytest.raises(
        ControlTablesUnavailableError, match=r"control\.db.* could not be used: database or disk is full"
    ):
        control.record_event(ORDERS_FEED, "mirror_failed", actor="committer", batch_id=None, detail=large)

    assert sqlite.dump() == before
    sqlite.connect().record_event(ORDERS_FEED, "mirror_failed", actor="committer", batch_id=None, detail=large)
    assert len(sqlite.events("mirror_failed")) == 1


# ── PostgreSQL ────────────────────────────────────────────────────────────────────────────────────────────────────────


def secrets_in(error: BaseException) -> bool:
    return "s3cret" in "".join(traceback.format_exception(error)) + str(error) + repr(error)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that is taken, so that nobody else gets it, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def postgresql_settings(port: int, **query: str) -> ControlDatabaseSettings:
    return ControlDatabaseSettings(
        URL.create("postgresql+psycopg", "ingest", "s3cret", "127.0.0.1", port, "control", query=query)
    )


def test_an_unreachable_server_is_unavailable_and_its_password_is_not_shown(closed_port: int):
    with pytest.raises(ControlTablesUnavailableError, match=r"127\.0\.0\.1.*[Cc]onnection refused") as failure:
        SqlControlTables(open_database(postgresql_settings(closed_port)))

    assert not secrets_in(failure.value)


@pytest.mark.long
def test_a_server_that_never_answers_is_unavailable_after_the_time_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kafka_ingest.foundation.postgresql.CONNECT_S", 3)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()

        with pytest.raises(ControlTablesUnavailableError, match="timeout") as failure:
            check_version(open_database(postgresql_settings(silent.getsockname()[1])))

    assert not secrets_in(failure.value)


def test_a_database_that_the_server_does_not_have_is_unavailable_and_no_password_is_shown(
    postgresql_server: PostgresqlServer,
):
    settings = ControlDatabaseSettings(postgresql_server.url("absent").set(password="s3cret"))

    with pytest.raises(ControlTablesUnavailableError, match='database "absent" does not exist') as failure:
        SqlControlTables(open_database(settings))

    assert not secrets_in(failure.value)


def test_no_refusal_of_a_schema_shows_the_password(postgresql: SqlStore):
    postgresql.execute("UPDATE kafka_ingest_schema SET version_num = '9999'")
    settings = ControlDatabaseSettings(postgresql.settings.url.set(password="s3cret"))
    engine = open_database(settings)

    with pytest.raises(ControlSchemaError) as refusal:
        SqlControlTables(engine)
    with pytest.raises(ControlSchemaError) as refused_upgrade:
        upgrade(engine, create=False)

    engine.dispose()
    assert not secrets_in(refusal.value)
    assert not secrets_in(refused_upgrade.value)


def test_the_settings_do_not_show_the_password():
    settings = postgresql_settings(5432)

    assert "s3cret" not in repr(settings) + str(settings)
    assert "127.0.0.1" in str(settings)


def test_the_settings_do_not_show_the_password_of_the_clients_key(closed_port: int):
    settings = postgresql_settings(closed_port, sslkey="/certs/client.key", sslpassword="s3cret")
    assert "s3cret" not in repr(settings) + str(settings)

    with pytest.raises(ControlTablesUnavailableError) as failure:
        SqlControlTables(open_database(settings))

    assert not secrets_in(failure.value)


def test_a_role_that_may_not_write_gets_an_error_that_says_so(postgresql: SqlStore):
    plan_first(postgresql.connect())
    postgresql.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO pg_monitor")
    postgresql.execute("DROP ROLE IF EXISTS reading")
    postgresql.execute("CREATE ROLE reading LOGIN PASSWORD 's3cret' IN ROLE pg_monitor")
    settings = ControlDatabaseSettings(postgresql.settings.url.set(username="reading", password="s3cret"))
    engine = open_database(settings)
    before = postgresql.dump()

    with pytest.raises(KafkaIngestError, match="permission denied") as refusal:
        SqlControlTables(engine).open_attempt(attempt_of(FIRST_PLAN, 1))

    engine.dispose()
    assert not secrets_in(refusal.value)
    assert postgresql.dump() == before


def test_a_connection_that_the_server_ends_in_the_middle_changes_nothing(postgresql: SqlStore):
    engine = postgresql.open()
    control = SqlControlTables(engine)
    plan_first(control)
    publish(control, FIRST_PLAN)
    before = postgresql.dump()

    with (
        before_commit(
            engine,
            lambda: postgresql.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE state = 'idle in transaction' AND datname = current_database()"
            ),
        ),
        pytest.raises(ControlTablesUnavailableError),
    ):
        control.complete_commit(FIRST_PLAN.batch_id, actor="committer")

    assert postgresql.dump() == before
    assert control.complete_commit(FIRST_PLAN.batch_id, actor="committer").state is BatchState.COMMITTED


@contextmanager
def before_commit(engine: Engine, act: Callable[[], object]) -> Iterator[None]:
    """Do something when all of a transaction's statements are through and only its COMMIT is missing."""

    def listener(_connection: object) -> None:
        act()

    event.listen(engine, "commit", listener)
    try:
        yield
    finally:
        event.remove(engine, "commit", listener)


# ── A reply that is lost ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_whose_answer_is_lost_is_not_reported_as_if_nothing_was_changed(
    database: SqlStore, monkeypatch: pytest.MonkeyPatch
):
    engine = database.open()
    control = SqlControlTables(engine)
    plan_first(control)
    publish(control, FIRST_PLAN)
    lost = psycopg.OperationalError if engine.dialect.name == "postgresql" else sqlite3.OperationalError
    commit_for_real = engine.dialect.do_commit

    def commit_and_lose_the_answer(connection: Any) -> None:
        commit_for_real(connection)
        raise lost("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(engine.dialect, "do_commit", commit_and_lose_the_answer)
        with pytest.raises(ControlTablesUnavailableError) as failure:
            control.complete_commit(FIRST_PLAN.batch_id, actor="committer")

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTED
    assert control.complete_commit(FIRST_PLAN.batch_id, actor="committer").committed_by == "committer"
    assert "Nothing was changed" not in str(failure.value)


# ── One instant ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_feeds_rows_are_of_one_instant_even_where_another_process_commits_in_between(database: SqlStore):
    writer = database.connect()
    plan_first(writer)
    publish(writer, FIRST_PLAN)
    engine = database.open()
    reader = SqlControlTables(engine)
    done: list[BatchState] = []

    @event.listens_for(engine, "after_cursor_execute")
    def commit_after_the_first_look(*arguments: Any) -> None:
        if "FROM feed" in arguments[2] and not done:
            done.append(writer.complete_commit(FIRST_PLAN.batch_id, actor="committer").state)

    snapshot = reader.feed("orders")

    assert done == [BatchState.COMMITTED]
    assert snapshot is not None
    assert snapshot.open_batch is not None
    assert snapshot.open_batch.state is BatchState.COMMITTING
    assert {tp: row.next_offset for tp, row in snapshot.stored.items()} == {orders(0): 0, orders(1): 40}
    assert stored(writer) == {orders(0): 100, orders(1): 50}


def test_a_time_without_a_zone_is_not_stored(database: SqlStore):
    with pytest.raises(Exception, match="expected a time with a zone"), database.by_hand() as connection:
        connection.execute(change("feed", created_at=NOON.replace(tzinfo=None)))


def test_a_first_plan_that_is_refused_half_way_leaves_no_feed(database: SqlStore):
    control = database.connect()
    plan = plan_of((orders(0), 5, 10))

    with pytest.raises(KafkaIngestError, match="orders-0: expected 5, found 3"):
        control.record_plan(
            NewFeed(ORDERS_FEED, "orders"),
            PlanRecord(CLUSTER, ["orders"], seeds=[seed(orders(0), 3)], plan=plan),
            actor="planner",
        )

    assert control.feed("orders") is None
    assert all(rows == [] for rows in database.dump().values())
