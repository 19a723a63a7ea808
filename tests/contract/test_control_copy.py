"""``db copy``: all rows of the control tables are in another database, and feeds continue there and nowhere else."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import URL, Connection, Engine, Table
from tests.contract.builders import NOON, ORDERS_FEED
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.test_control_upgrade import COMMITTING, ROWS, WRITTEN, check_goes_on, make_older, version_of
from typer.testing import CliRunner

from embedded_postgresql import EMPTY
from kafka_ingest.cli.app import app_of
from kafka_ingest.control import upgrade as copying
from kafka_ingest.control.database import MOVED, ControlDatabaseSettings, open_database
from kafka_ingest.control.upgrade import copy_tables, upgrade, would_copy
from kafka_ingest.errors import ControlSchemaError

STRANGE = {"reason": "Zoë said \u2028 'no' — \\u0000 \U0001f600", "left": None, "offset": 2**62}


def another(kind: str, folder: Path, server: PostgresqlServer, name: str) -> ControlDatabaseSettings:
    if kind == "postgresql":
        return server.control_database(EMPTY)
    return ControlDatabaseSettings(URL.create("sqlite", database=str(folder / f"{name}.db")))


@pytest.fixture(params=["sqlite → postgresql", "postgresql → sqlite", "sqlite → sqlite", "postgresql → postgresql"])
def both(
    request: pytest.FixtureRequest, tmp_path: Path, postgresql_server: PostgresqlServer
) -> Iterator[tuple[SqlStore, SqlStore]]:
    """Control tables with a batch in each state, and empty ones."""
    kinds = zip(request.param.split(" → "), ("old", "new"), strict=True)
    old, new = (SqlStore(another(kind, tmp_path, postgresql_server, name)) for kind, name in kinds)
    for store, make in ((old, make_older), (new, lambda engine: upgrade(engine, create=True))):
        engine = open_database(store.settings, create=True)
        make(engine)
        engine.dispose()
    old.insert("event", feed_id=ORDERS_FEED, kind="abandoned", at=NOON, actor="Zoë", detail=STRANGE)
    yield old, new
    for store in (old, new):
        store.close()
        if store.settings.sqlite_file is None:
            postgresql_server.drop_database(store.settings)


each_to_the_other = pytest.mark.parametrize(
    "both", ["sqlite → postgresql", "postgresql → sqlite"], indirect=True, ids=str
)
"""For what one of the two databases decides alone: each kind is the first once, and once the second."""


def copied(old: SqlStore, new: SqlStore) -> dict[str, int]:
    return copy_tables(old.open(), new.open(), lambda _: None)


def test_every_row_is_in_the_other_database_and_feeds_continue_there_alone(both: tuple[SqlStore, SqlStore]) -> None:
    old, new = both
    before = old.dump()

    begun = old.connect()
    found = copied(old, new)

    with pytest.raises(ControlSchemaError, match="has copied into another database, where feeds continue"):
        begun.complete_commit(COMMITTING.batch_id, actor="a task that had begun")
    assert new.dump() == old.dump() == before
    assert {name: rows for name, rows in found.items() if rows} == {
        name: len(rows) + (name == "event") for name, rows in ROWS.items()
    }
    with pytest.raises(ControlSchemaError, match=r"`kafka-ingest db copy` has copied into another database.*continue"):
        old.connect()
    with pytest.raises(ControlSchemaError, match="has copied into another"):
        upgrade(old.open(), create=False)
    control = new.connect()
    check_goes_on(control)
    control.record_event(ORDERS_FEED, "clean", actor="ops", batch_id=None, detail={})
    assert [each.actor for each in new.events("clean")] == ["ops"]


@each_to_the_other
def test_a_copy_that_ended_before_the_first_tables_were_marked_is_compared_and_marked(
    both: tuple[SqlStore, SqlStore],
) -> None:
    old, new = both
    copied(old, new)
    version = version_of(new)
    old.execute("UPDATE kafka_ingest_schema SET version_num = :version", version=version)

    copied(old, new)

    assert (version_of(old), version_of(new)) == (MOVED, version)
    assert new.dump() == old.dump()


@each_to_the_other
def test_a_copy_that_fails_in_between_changes_neither(
    both: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = both

    def crash(_old: Connection, _new: Connection, of: Table) -> None:
        if of.name == "event":
            raise OSError("the machine stops")

    monkeypatch.setattr(copying, "compare", crash)
    with pytest.raises(OSError, match="the machine stops"):
        copied(old, new)
    assert not any(new.dump().values())
    assert old.connect().batch(WRITTEN.batch_id).batch_id == WRITTEN.batch_id
    monkeypatch.undo()
    copied(old, new)
    assert new.dump() == old.dump()


@each_to_the_other
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE batch SET rows = rows + 1 WHERE state = 'COMMITTED'",
        "UPDATE event SET detail = '{}' WHERE kind = 'seeded'",
        "DELETE FROM stored_offset WHERE partition = 2",
    ],
)
def test_a_database_with_other_rows_is_refused_with_the_table_and_neither_is_changed(
    both: tuple[SqlStore, SqlStore], statement: str
) -> None:
    old, new = both
    copied(old, new)
    version = version_of(new)
    old.execute("UPDATE kafka_ingest_schema SET version_num = :version", version=version)
    assert new.execute(statement) == 1
    before = new.dump()

    with pytest.raises(ControlSchemaError, match=r"row \d of (batch|event|stored_offset) differs.*Neither was changed"):
        copied(old, new)
    assert (new.dump(), version_of(old)) == (before, version)


@each_to_the_other
def test_a_database_is_not_copied_into_itself(both: tuple[SqlStore, SqlStore]) -> None:
    old, _ = both
    before = old.dump()
    for ask in (would_copy, lambda one, other: copy_tables(one, other, lambda _: None)):
        with pytest.raises(ControlSchemaError, match=r"expected another database.*the same|locked"):
            ask(old.open(), old.open())
    assert old.dump() == before
    assert version_of(old) != MOVED


def engine_of(file: Path) -> Engine:
    return open_database(ControlDatabaseSettings(URL.create("sqlite", database=str(file))), create=True)


def test_the_command_shows_what_would_be_copied_then_copies_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_older(engine_of(tmp_path / "old.db"))
    for conn_id, name in (("KAFKA_INGEST", "old"), ("ELSEWHERE", "new")):
        connection = {"conn_type": "sqlite", "host": str(tmp_path / f"{name}.db")}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id}", json.dumps(connection))
    command = ["db", "copy", "--to", "elsewhere", "--json"]

    shown = CliRunner().invoke(app_of(), [*command, "--dry-run"])
    assert (shown.exit_code, json.loads(shown.stdout)["executed"]) == (0, False)
    assert not (tmp_path / "new.db").exists()

    done = json.loads(CliRunner().invoke(app_of(), command).stdout)
    assert done["executed"]
    assert done["rows"] == json.loads(shown.stdout)["rows"]
    assert done["rows"]["batch"] == len(ROWS["batch"])
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "old.db")}))
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_INGEST", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "new.db")})
    )
    for arguments in (["--dry-run"], []):
        refused = CliRunner().invoke(app_of(), ["db", "copy", "--to", "other", "--json", *arguments])
        assert (refused.exit_code, json.loads(refused.stdout)["error"]["code"]) == (2, "CONTROL_SCHEMA")
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_INGEST", json.dumps({"conn_type": "sqlite", "host": str(tmp_path / "old.db")})
    )
    again = CliRunner().invoke(app_of(), ["status", "--json"])
    assert again.exit_code == 2
    assert "continue" in json.loads(again.stdout)["error"]["message"]
