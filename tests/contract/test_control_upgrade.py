"""Control tables in use, on real databases: an upgrade brings them to the next schema whole or not at all.

From the first version on that is upgraded, version 0.1.0's, and from the newest to one that is still to come: a trial
revision, which does to each table what SQLite can do only by copying it.
"""

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
from alembic.config import Config
from sqlalchemy import URL, Engine, MetaData, Table, delete, event, insert, inspect, select, text
from sqlalchemy.exc import IntegrityError
from tests.contract.builders import (
    CLUSTER,
    NOON,
    ORDERS_FEED,
    SHA,
    TOPIC_ID,
    attempt_of,
    commit,
    orders,
    pin,
    plan_next,
    plan_of,
    receipt_of,
    stored,
)
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.first_schema import make_first_schema

from embedded_postgresql import EMPTY
from kafka_ingest.control import database, schema
from kafka_ingest.control import upgrade as upgrading
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database, transaction
from kafka_ingest.control.upgrade import alembic_config, pending, upgrade
from kafka_ingest.errors import ControlSchemaError
from kafka_ingest.model.batch import Attempt, BatchKind, BatchPlan, BatchState

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


TRIAL = f"{int(schema.SCHEMA_VERSION) + 1:04}"
REVISION = f'''"""A trial."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "{TRIAL}", "{schema.SCHEMA_VERSION}"


def upgrade() -> None:
    for table in ("feed", "batch", "attempt", "batch_range", "stored_offset", "event"):
        with op.batch_alter_table(table, recreate="auto") as changed:
            changed.add_column(sa.Column("tried", sa.Integer(), nullable=False, server_default="7"))
            changed.create_check_constraint(op.f(f"ck_{{table}}_tried"), "tried = 7")
'''


# ── Tables with a feed that has a batch in each state ─────────────────────────────────────────────────────────────────


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


def gap_row(partition: int, start: int, end: int, **values: Any) -> dict[str, Any]:
    row = {"gap_id": UUID(int=start), "feed_id": ORDERS_FEED, "topic": "orders", "partition": partition}
    row |= {"topic_id": TOPIC_ID, "start_offset": start, "end_offset": end, "cause": "skipped", "reason": "poisoned"}
    return row | {"decided_by": "ops", "decided_at": NOON, "applied_at": None} | values


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
    "gap": [gap_row(0, 20, 40, applied_at=NOON), gap_row(1, 60, 70)],
    "hold": [
        {"hold_id": UUID(int=1), "feed_id": ORDERS_FEED, "topic": "orders", "partition": 1, "cause": "unreadable"}
        | {"reason": "its checksum is wrong", "at_offset": 50, "since": NOON}
    ],
    "alert": [
        {"alert_id": UUID(int=2), "feed_id": ORDERS_FEED, "kind": "held", "subject": "orders-1", "text": "held"}
        | {"began_at": NOON}
    ],
    "alert_notice": [{"alert_id": UUID(int=2), "notifier": "mail", "change": "begun", "said_at": NOON}],
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
    """Make control tables with a feed that has a batch in each state."""
    upgrade(engine, create=True)
    fill(engine)


def make_first(engine: Engine) -> None:
    """Make those of version 0.1.0."""
    make_first_schema(engine)
    fill(engine)


def fill(engine: Engine) -> None:
    with transaction(engine, "write") as connection:
        for name, rows in ROWS.items():
            for row in rows:
                connection.execute(insert(schema.metadata.tables[name]).values(**row))
        for batch_id, values in PINS.items():
            connection.execute(
                schema.batch.update().where(schema.batch.c.batch_id == batch_id).values(updated_at=NOON, **values)
            )


def check_goes_on(control: SqlControlTables) -> None:
    """Finish the open batches of these tables, and plan and commit the next one."""
    control.complete_commit(COMMITTING.batch_id, actor="committer")
    control.begin_commit(WRITTEN.batch_id, 1)
    control.complete_commit(WRITTEN.batch_id, actor="committer")
    later = plan_of((orders(0), 120, 125), number=6)
    plan_next(control, later)
    commit(control, later)
    control.open_attempt(attempt_of(PLANNED, 2))
    pin(control, PLANNED, 2)
    control.begin_commit(PLANNED.batch_id, 2)
    control.complete_commit(PLANNED.batch_id, actor="committer")
    assert stored(control) == {orders(0): 125, orders(1): 50, orders(2): None}
    closed = {(each.offset_range.start_offset, each.closed_by_batch) for each in control.gaps(ORDERS_FEED)}
    assert closed == {(20, COMMITTING.batch_id), (30, PLANNED.batch_id), (60, None)}
    [alert] = control.alerts()
    assert alert.subject == "orders-1"


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
    """Control tables with a feed that has a batch in each state."""
    with databases.store(make_older) as store:
        yield store


@pytest.fixture
def trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let a revision follow the newest one, and the code need it; return its number."""
    scripts = tmp_path / "migrations"
    shutil.copytree(Path(str(upgrading.__file__)).parent / "migrations", scripts)
    (scripts / "versions" / f"{TRIAL}_trial.py").write_text(REVISION)
    config = Config()
    config.set_main_option("script_location", str(scripts))
    monkeypatch.setattr(upgrading, alembic_config.__name__, lambda: config)
    for module in (upgrading, database):
        monkeypatch.setattr(module, "SCHEMA_VERSION", TRIAL)
    return TRIAL


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


# ── The next version ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_tasks_refuse_the_older_version_with_the_command_to_run(older: SqlStore, trial: str) -> None:
    with pytest.raises(ControlSchemaError, match=rf"needs {trial}\. Run `kafka-ingest db upgrade`"):
        older.connect()


def test_an_upgrade_keeps_every_row_and_constraint_and_the_next_tasks_finish_what_is_open(
    older: SqlStore, trial: str
) -> None:
    known = columns_of(older)
    before = content(older, known)
    assert {name: len(rows) for name, rows in before.items() if rows} == {
        name: len(rows) for name, rows in ROWS.items()
    }
    assert pending(older.open(), create=False) == (schema.SCHEMA_VERSION, [(trial, "A trial.")])

    assert upgrade(older.open(), create=False) == (schema.SCHEMA_VERSION, trial)

    assert version_of(older) == trial
    assert content(older, known) == before
    assert upgrade(older.open(), create=False) == (trial, trial)
    for table in (schema.feed, schema.batch, schema.attempt):
        with pytest.raises(IntegrityError), older.by_hand() as connection:
            connection.execute(delete(table))
    for statement in ("UPDATE attempt SET tried = 8", "UPDATE batch SET state = 'COMMITTED', committed_at = NULL"):
        with pytest.raises(IntegrityError):
            older.execute(statement)
    check_goes_on(older.connect())


def test_an_upgrade_that_fails_at_its_last_statement_leaves_the_tables_as_they_were(
    older: SqlStore, trial: str
) -> None:
    known = columns_of(older)
    before = content(older, known)
    fail_at(older.open(), "UPDATE kafka_ingest_schema")

    assert version_of(older) == schema.SCHEMA_VERSION
    assert columns_of(older) == known
    assert content(older, known) == before
    assert upgrade(older.open(), create=False) == (schema.SCHEMA_VERSION, trial)
    assert content(older, known) == before


# ── From the first version ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def first(databases: Databases) -> Iterator[SqlStore]:
    """Version 0.1.0's control tables, with a feed that has a batch in each state, gaps, a hold and an alert."""
    with databases.store(make_first) as store:
        yield store


def test_from_version_0_1_0_every_row_is_kept_and_every_open_batch_is_finished(first: SqlStore) -> None:
    known = columns_of(first)
    before = content(first, known)
    assert {name: len(rows) for name, rows in before.items() if rows} == {
        name: len(rows) for name, rows in ROWS.items()
    }
    with pytest.raises(ControlSchemaError, match=rf"version {schema.FIRST_VERSION}.*Run `kafka-ingest db upgrade`"):
        first.connect()

    assert upgrade(first.open(), create=False) == (schema.FIRST_VERSION, schema.SCHEMA_VERSION)

    assert content(first, known) == before
    assert dict.fromkeys(columns_of(first)).keys() == {*schema.metadata.tables, schema.VERSION_TABLE}
    check_goes_on(first.connect())


def test_an_upgrade_from_version_0_1_0_that_fails_in_a_later_version_leaves_it(first: SqlStore) -> None:
    known = columns_of(first)
    before = content(first, known)
    fail_at(first.open(), "CREATE TABLE file_topic")

    assert (version_of(first), columns_of(first)) == (schema.FIRST_VERSION, known)
    assert content(first, known) == before
    upgrade(first.open(), create=False)
    check_goes_on(first.connect())


def fail_at(engine: Engine, statement: str) -> None:
    """Upgrade, and let a statement with this text fail."""
    seen: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def fail_half_way(*arguments: Any) -> None:
        if statement in arguments[2]:
            seen.append(statement)
            raise OSError(errno.EIO, "power cut")

    with pytest.raises(OSError, match="power cut"):
        upgrade(engine, create=False)
    assert seen == [statement]


# ── Before the first version ──────────────────────────────────────────────────────────────────────────────────────────


def test_tables_from_before_the_first_version_are_refused_with_the_way_out_and_left_alone(older: SqlStore) -> None:
    known = columns_of(older)
    older.execute("UPDATE kafka_ingest_schema SET version_num = '0017'")
    before = content(older, known)
    way_out = "version 0017, made by a version before 0.1.0.*`kafka-ingest db upgrade --create`.*`kafka-ingest adopt"

    for use in (
        older.connect,
        lambda: upgrade(older.open(), create=False),
        lambda: upgrade(older.open(), create=True),
        lambda: pending(older.open(), create=False),
    ):
        with pytest.raises(ControlSchemaError, match=way_out):
            use()

    assert (version_of(older), content(older, known)) == ("0017", before)
