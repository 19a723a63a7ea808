"""A call takes effect and its reply is lost.

The step is tried again, the outcome is looked up, and nothing is done twice.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DBAPIError
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.every_record_once import assert_every_record_is_there_once, assert_group_follows
from tests.contract.interference import changes_the_world, is_of_a_part, watched
from tests.contract.lives import (
    LIVES,
    Feeds,
    Life,
    damaged_files,
    first_run,
)
from tests.contract.whole_feed import Scheduler, WholeFeed, at_rest

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import (
    ControlTablesUnavailableError,
    KafkaUnavailableError,
    OutputUnavailableError,
    RetryableError,
    SparkFailedError,
)
from kafka_ingest.model.batch import AttemptState, BatchState

pytestmark = pytest.mark.long

LOST: dict[str, type[RetryableError]] = {
    "control": ControlTablesUnavailableError,
    "kafka": KafkaUnavailableError,
    "sink": OutputUnavailableError,
    "letters": OutputUnavailableError,
    "spark": SparkFailedError,
    "airflow": RetryableError,
}
"""What is raised instead of an answer, by whom was asked."""


def losing(instant: int) -> Callable[[int, str], None]:
    """Return what loses the reply of one call."""

    def lose(number: int, name: str) -> None:
        if number == instant:
            part = name.removeprefix("after ").split(".")[0]
            raise LOST[part](f"{name}: the reply was lost")

    return lose


IN_MEMORY = [("in_memory", life) for life in LIVES]
IN_POSTGRESQL = [("postgresql", life) for life in (first_run, damaged_files)]
"""Which control tables, and how a batch begins.

Over SQLite a process that dies after each step leaves the same to the same run. In the other lives PostgreSQL does
nothing that it does not do in these two.
"""


def replies(kind: str, names: list[str]) -> list[int]:
    """Return the instants after calls to parts; over a database, those to the database that change something."""
    return [
        number
        for number, name in enumerate(names)
        if name.startswith("after ") and is_of_a_part(name)
        if kind == "in_memory" or (changes_the_world(name) and " control." in name)
    ]


def assert_done_once(feed: WholeFeed, batches: int) -> None:
    """Hold a feed at rest against what was produced, and count what must not have happened twice."""
    assert_every_record_is_there_once(feed)
    assert Counter(feed.states().values()) == {BatchState.COMMITTED: batches}
    kinds = Counter(each.kind for each in feed.control.ledger_of_feed(feed.snapshot().feed_id))
    assert kinds == {"seeded": 1}
    for batch_id in feed.states():
        attempts = feed.control.attempts(batch_id)
        assert [attempt.state for attempt in attempts].count(AttemptState.PINNED) == 1


@pytest.mark.parametrize(("kind", "life"), [*IN_MEMORY, *IN_POSTGRESQL])
def test_the_same_run_continues_after_the_reply_to_any_call_was_lost(feeds: Feeds, kind: str, life: Life) -> None:
    may_fail = life is damaged_files
    clean = feeds.new(life)
    with watched(clean) as (seen, instants):
        Scheduler().run_one_batch(seen)
    at_rest(clean)
    batches = len(clean.states())

    beginning = feeds.beginning(life)
    for instant in replies(kind, instants.names):
        feed, scheduler = beginning.again()
        try:
            with watched(feed, losing(instant)) as (unlucky, _):
                if may_fail:
                    scheduler.run_one_batch(unlucky)
                else:
                    scheduler.resume(unlucky)  # raises nothing
            scheduler.lose_run()
            assert scheduler.run_until_rest(feed) == []
            assert_done_once(feed, batches)
            assert set(feed.airflow.announced) == set(feed.states())
            feed.log.produce(2, 1)
            at_rest(feed)
            assert_group_follows(feed)
        except BaseException as error:
            error.add_note(f"where the reply was lost {instants.names[instant]}")
            raise


# ── PostgreSQL ends a connection around a COMMIT ──────────────────────────────────────────────────────────────────────

AFTER = {"pin": BatchState.WRITTEN, "begin_commit": BatchState.COMMITTING, "complete_commit": BatchState.COMMITTED}
"""The steps of a batch, with its state once they are done."""

BEFORE = {"pin": BatchState.PLANNED, "begin_commit": BatchState.WRITTEN, "complete_commit": BatchState.COMMITTING}


class CutOff:
    """Control tables in PostgreSQL whose connection ends in one step, once.

    Before its COMMIT is sent, or before the answer.
    """

    def __init__(self, engine: Engine, administrator: Engine, step: str, cut: Callable[[Any, Engine], None]) -> None:
        self._control = SqlControlTables(engine)
        self._administrator = administrator
        self._step = step
        self._cut = cut
        self._is_due = False
        self.failure: ControlTablesUnavailableError | None = None
        self.found: BatchState | None = None
        event.listen(engine, "commit", self._before_commit)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._control, name)
        return call if name != self._step or self.failure is not None else self._doomed(call)

    def _doomed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def doomed(batch_id: UUID, *arguments: Any, **named: Any) -> Any:
            self._is_due = True
            try:
                return call(batch_id, *arguments, **named)
            except ControlTablesUnavailableError as error:
                self.failure = error
                self.found = self._control.batch(batch_id).state
                raise

        return doomed

    def _before_commit(self, connection: Connection) -> None:
        if self._is_due:
            self._is_due = False
            self._cut(connection, self._administrator)


def terminate(administrator: Engine, condition: str, **values: object) -> None:
    """End the one session that meets a condition, once there is one, and wait until it is gone."""
    query = text(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE {condition}")  # noqa: S608 - ours
    with administrator.connect() as connection:
        while not connection.execute(query, values).scalars().all():
            pass


def before_the_commit(connection: Connection, administrator: Engine) -> None:
    """The session ends when all but the COMMIT was sent."""
    pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    terminate(administrator, "pid = :pid", pid=pid)


def before_the_answer(connection: Connection, administrator: Engine) -> None:
    """The session ends when the COMMIT is on the server's record and not answered.

    It waits for a standby that never comes.
    """
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    threading.Thread(target=terminate, args=(administrator, "wait_event = 'SyncRep'"), daemon=True).start()


@pytest.fixture
def waits_for_standby(postgresql_server: PostgresqlServer) -> Iterator[None]:
    """Let the server answer a COMMIT only when a standby has it, where the session cares.

    The tests' sessions do not.
    """
    postgresql_server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    postgresql_server.execute("SELECT pg_reload_conf()")
    administrator = create_engine(postgresql_server.url("postgres"), isolation_level="AUTOCOMMIT")
    caring = create_engine(postgresql_server.url("postgres"), connect_args={"options": "-c synchronous_commit=on"})

    def commit_until_one_waits() -> None:
        with suppress(DBAPIError), caring.connect() as connection:
            while True:
                connection.exec_driver_sql("SELECT pg_logical_emit_message(true, 'probe', '')")
                connection.commit()

    threading.Thread(target=commit_until_one_waits, daemon=True).start()
    terminate(administrator, "wait_event = 'SyncRep'")  # the setting has arrived
    yield
    postgresql_server.execute("ALTER SYSTEM RESET synchronous_standby_names")
    postgresql_server.execute("SELECT pg_reload_conf()")
    caring.dispose()
    administrator.dispose()


@pytest.mark.usefixtures("waits_for_standby")
@pytest.mark.parametrize(("cut", "found"), [(before_the_commit, BEFORE), (before_the_answer, AFTER)])
@pytest.mark.parametrize("step", AFTER)
def test_a_step_whose_connection_ended_around_its_commit_is_done_once(
    postgresql: SqlStore, lake: Path, step: str, cut: Callable[[Any, Engine], None], found: dict[str, BatchState]
) -> None:
    administrator = create_engine(postgresql.settings.url, isolation_level="AUTOCOMMIT")
    control = CutOff(postgresql.open(), administrator, step, cut)
    feed = Feeds(lake, lambda: control).new(first_run)

    Scheduler().resume(feed)

    assert "terminat" in str(control.failure)
    assert "it then shows whether it was done" in str(control.failure)
    assert control.found is found[step]
    assert_group_follows(at_rest(feed))
    assert_done_once(feed, batches=2)
    administrator.dispose()
