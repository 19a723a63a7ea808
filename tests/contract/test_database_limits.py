"""Every call to the control tables ends.

By the database's limits, by the operator's own, or by cutting the connection.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text
from tests.contract.builders import CLUSTER, FIRST_PLAN, ORDERS_FEED, as_adopted, orders, seed
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.killing import wait_for

from kafka_ingest.control import database as limits
from kafka_ingest.control.database import open_database, transaction
from kafka_ingest.errors import ControlTablesUnavailableError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import NewFeed
from kafka_ingest.model.published_output import Adoption


def with_options(store: SqlStore, **options: str) -> SqlStore:
    """Return the same tables by a connection whose extra says more."""
    return SqlStore(replace(store.settings, url=store.settings.url.update_query_dict(options)))


def shown(store: SqlStore, name: str) -> str:
    with transaction(store.open(), "read") as connection:
        return str(connection.execute(text(f"SHOW {name}")).scalar_one())


def test_a_read_of_a_table_that_another_process_has_locked_ends_by_name(
    postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = postgresql.connect()
    with transaction(postgresql.open(), "write") as rival:
        rival.execute(text("LOCK TABLE feed IN ACCESS EXCLUSIVE MODE"))
        monkeypatch.setattr(limits, "BUSY_TIMEOUT_S", 0.2)
        with pytest.raises(ControlTablesUnavailableError, match="lock timeout"):
            control.feed_summaries()


def test_a_statement_that_takes_too_long_ends_by_name(postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STATEMENT_TIMEOUT_S", 0.2)
    with (
        pytest.raises(ControlTablesUnavailableError, match="statement timeout"),
        transaction(postgresql.open(), "read") as connection,
    ):
        connection.execute(text("SELECT pg_sleep(600)"))


def test_an_upgrade_may_take_as_long_as_the_tables_need(postgresql: SqlStore) -> None:
    with transaction(postgresql.open(), "upgrade") as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "0"
        assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "30s"


def test_adopting_may_take_as_long_as_the_output_has_batches(
    postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = postgresql.connect()
    postgresql.execute(
        "CREATE FUNCTION takes_long() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(0.5); RETURN NEW; "
        "END$$"
    )
    postgresql.execute("CREATE TRIGGER takes_long BEFORE INSERT ON batch FOR EACH ROW EXECUTE FUNCTION takes_long()")
    row = replace(seed(orders(0), 0), next_offset=100, batch_id=FIRST_PLAN.batch_id)
    adoption = Adoption(CLUSTER, ["orders"], [row], [as_adopted(FIRST_PLAN)], gaps=[], ledger=[])
    monkeypatch.setattr(limits, "STATEMENT_TIMEOUT_S", 0.1)
    monkeypatch.setattr(limits, "TRANSACTION_TIMEOUT_S", 0.2)
    control.adopt(NewFeed(ORDERS_FEED, "orders"), adoption, reason="the tables were lost", actor="ops")
    monkeypatch.undo()
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTED


def test_a_server_that_says_nothing_more_is_left(postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_TIMEOUT_S", 0.2)
    with (
        pytest.raises(ControlTablesUnavailableError, match=r"(?s)could not be used: .*Run this step again"),
        transaction(postgresql.open(), "read") as connection,
    ):
        connection.execute(text("SELECT pg_sleep(30)"))


def test_the_operators_own_limits_win(postgresql: SqlStore) -> None:
    own = with_options(postgresql, options="-c lock_timeout=100ms -c statement_timeout=7s", connect_timeout="3")
    assert (shown(own, "lock_timeout"), shown(own, "statement_timeout")) == ("100ms", "7s")
    half = with_options(postgresql, options="-c statement_timeout=7s")
    assert (shown(half, "lock_timeout"), shown(half, "statement_timeout")) == ("30s", "7s")
    assert (shown(postgresql, "lock_timeout"), shown(postgresql, "statement_timeout")) == ("30s", "1min")
    assert (connect_timeout(own), connect_timeout(postgresql)) == ("3", "30")


def test_nothing_of_a_step_stays_in_the_session_which_behind_a_pool_is_another_ones_next(postgresql: SqlStore) -> None:
    engine = open_database(postgresql.settings)
    with engine.connect() as connection:
        assert connection.connection.driver_connection.prepare_threshold is None
        with connection.begin():
            for statement in limits.limits(engine.url, "write"):
                connection.exec_driver_sql(statement)
        with connection.begin():
            assert connection.execute(text("SHOW lock_timeout")).scalar_one() == "0"


def connect_timeout(store: SqlStore) -> str:
    with store.open().connect() as connection:
        driver: Any = connection.connection.driver_connection
        return str(driver.info.get_parameters()["connect_timeout"])


@contextmanager
def without_a_standby(server: PostgresqlServer) -> Iterator[None]:
    """Let every commit wait for a synchronous standby that is not there."""
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.execute("SELECT pg_reload_conf()")
    try:
        yield
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")


def test_a_commit_that_waits_for_its_synchronous_standby_ends_by_name_and_is_found_when_it_is_done(
    postgresql: SqlStore, postgresql_server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = postgresql.open()
    postgresql.execute("CREATE TABLE notes (number integer)")
    ended: list[str] = []

    def note() -> bool:
        try:
            with transaction(engine, "write") as connection:
                connection.execute(text("SET LOCAL synchronous_commit = on"))
                connection.execute(text("INSERT INTO notes VALUES (1)"))
        except ControlTablesUnavailableError as error:
            ended.append(str(error))
        return bool(ended)

    def noted() -> int:
        with transaction(engine, "read") as connection:
            return int(connection.execute(text("SELECT count(*) FROM notes")).scalar_one())

    with monkeypatch.context() as patch, without_a_standby(postgresql_server):
        patch.setattr(limits, "TRANSACTION_TIMEOUT_S", 0.5)
        wait_for(note, "a commit to wait for the standby")
        before = noted()
    assert "Run this step again" in ended[0]
    wait_for(lambda: noted() == before + 1, "the commit to be done once no standby is waited for")


def test_texts_stay_as_they_are_whatever_encoding_the_role_the_database_or_the_machine_has(
    postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    for owner in ("ROLE CURRENT_USER", f'DATABASE "{postgresql.settings.url.database}"'):
        postgresql.execute(f"ALTER {owner} SET client_encoding = LATIN1")
    control, nothing = postgresql.connect(), Adoption(CLUSTER, ["orders"], [], [], gaps=[], ledger=[])
    control.adopt(NewFeed(ORDERS_FEED, "orders"), nothing, reason="the tables were lost", actor="Zürich €")
    postgresql.execute("ALTER ROLE CURRENT_USER RESET client_encoding")
    assert [event.actor for event in control.journal(ORDERS_FEED)] == ["Zürich €"]
    assert shown(postgresql, "client_encoding") == "UTF8"
