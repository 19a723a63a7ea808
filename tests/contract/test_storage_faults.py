"""Storage that is full, read-only, broken or away in the middle of a task.

An error that names the cause, nothing half done.

Once the storage is available, the same run continues and ends right.
"""

import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.contract.conftest import PostgresqlServer, SqlStore
from tests.contract.every_record_once import assert_every_record_is_there_once, assert_group_follows
from tests.contract.interference import QUESTIONS, watched
from tests.contract.lives import STORES, Feeds, feeds_in, first_run
from tests.contract.ordinary_user import ordinary_user
from tests.contract.whole_feed import DagRun, WholeFeed, at_rest
from tests.fakes import InMemoryControlTables

from kafka_ingest.control import database as control_database
from kafka_ingest.errors import (
    ControlTablesUnavailableError,
    KafkaIngestError,
    OutputNotUsableError,
    OutputUnavailableError,
    SparkFailedError,
)
from kafka_ingest.model.batch import BatchState

OF_STORAGE = (ControlTablesUnavailableError, OutputUnavailableError, SparkFailedError)


def before_task(feed: WholeFeed, task: str) -> DagRun:
    """Run a feed's DAG up to a task."""
    run = DagRun("run 1")
    while run.left[0] != task:
        run.run_task(feed, run.left.pop(0))
    return run


def failure_of(
    run: DagRun, feed: WholeFeed, expected: tuple[type[KafkaIngestError], ...] = OF_STORAGE
) -> KafkaIngestError:
    """Let a run fail, with all its retries; return how."""
    with pytest.raises(expected) as caught:
        run.resume(feed)
    return caught.value


def assert_not_committed(feed: WholeFeed) -> None:
    """No offset has moved, and where a batch is known it is open."""
    snapshot = feed.control.feed(feed.settings.name)
    if snapshot is not None:
        assert {row.next_offset for row in snapshot.stored.values()} == {0}
        assert set(feed.states().values()) <= {BatchState.PLANNED, BatchState.WRITTEN, BatchState.COMMITTING}


def assert_continues(run: DagRun, feed: WholeFeed) -> None:
    """Clear the failed task, now that the storage is available, and hold all there is against what was produced."""
    run.resume(feed)
    at_rest(feed)
    assert_every_record_is_there_once(feed)
    assert_group_follows(feed)


# ── The output's storage ──────────────────────────────────────────────────────────────────────────────────────────────

WORKS_ON_A_FULL_DISK = ("os.unlink", "os.rmdir")


def failing_from(instant: int, number_of_error: int) -> Callable[[int, str], None]:
    """Return what lets every change of the file system fail from an instant on."""

    def fail(number: int, name: str) -> None:
        call = name.removeprefix("before ")
        if number_of_error == errno.ENOSPC and call.startswith(WORKS_ON_A_FULL_DISK):
            return
        if number >= instant and call.startswith("os."):
            raise OSError(number_of_error, os.strerror(number_of_error))

    return fail


@pytest.mark.parametrize(
    "number_of_error",
    [errno.ENOSPC, *(pytest.param(each, marks=pytest.mark.long) for each in (errno.EROFS, errno.EIO))],
)
def test_an_output_that_fails_from_any_file_call_on_stops_the_task_by_name_and_the_run_continues_later(
    lake: Path, number_of_error: int
) -> None:
    feeds = Feeds(lake, InMemoryControlTables)
    with watched(feeds.new(first_run)) as (seen, instants):
        DagRun("run 1").resume(seen)
    file_calls = [number for number, name in enumerate(instants.names) if name.startswith("before os.")]
    assert len(file_calls) > 30
    for instant in file_calls:
        feed, run = feeds.new(first_run), DagRun("run 1")
        try:
            with watched(feed, failing_from(instant, number_of_error)) as (unlucky, _):
                failure = failure_of(run, unlucky)
            assert os.strerror(number_of_error) in str(failure)
            assert_not_committed(feed)
            assert_continues(run, feed)
        except BaseException as error:
            error.add_note(f"{os.strerror(number_of_error)} from {instants.names[instant]} on")
            raise


@contextmanager
def no_room() -> Iterator[None]:
    """Let every write of this process to a file fail in the system, as on a full disk; in the middle of a file, too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


WITHOUT_ROOM = [
    ("sqlite", "plan"),  # the others' plans write no file
    *((kind, task) for kind in STORES for task in ("write", "commit")),
]


@pytest.mark.parametrize(("kind", "task"), WITHOUT_ROOM)
def test_a_task_without_room_for_its_files_says_so_and_continues_when_there_is(
    request: pytest.FixtureRequest, lake: Path, kind: str, task: str
) -> None:
    with feeds_in(kind, request, lake) as feeds:
        feed = feeds.new(first_run)
        run = before_task(feed, task)
        with no_room():
            failure = failure_of(run, feed)
        of_sqlite = ("disk I/O error", "disk is full")
        assert any(cause in str(failure) for cause in (of_sqlite if kind == "sqlite" else ["File too large"]))
        assert_not_committed(feed)
        assert_continues(run, feed)


@pytest.mark.parametrize(
    ("task", "directory", "kind_of_error"),
    [
        ("plan", ".", OutputNotUsableError),
        ("write", "orders.kafka-ingest/staging", OutputUnavailableError),
        ("commit", "orders", OutputNotUsableError),
        ("commit", "orders.kafka-ingest/receipts", OutputNotUsableError),
    ],
)
def test_a_task_that_may_not_write_its_directory_names_it_and_continues_when_it_may(
    lake: Path, task: str, directory: str, kind_of_error: type[KafkaIngestError]
) -> None:
    lake.chmod(0o777)
    with ordinary_user():
        feed = Feeds(lake, InMemoryControlTables).new(first_run)
        run = before_task(feed, task)
        closed = feed.output.parent / directory
        closed.chmod(0o555)
        failure = failure_of(run, feed, (kind_of_error,))
        closed.chmod(0o755)

        assert "ermission denied" in str(failure) or "without that right" in str(failure)
        assert str(feed.output.parent / directory).rstrip(".") in str(failure)
        assert_not_committed(feed)
        assert_continues(run, feed)


# ── The control database ──────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def locked(store: SqlStore, _server: PostgresqlServer) -> Iterator[None]:
    """Let another process hold a SQLite database exclusively."""
    with closing(sqlite3.connect(str(store.settings.sqlite_file), isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def closed(store: SqlStore, server: PostgresqlServer) -> Iterator[None]:
    """Let PostgreSQL refuse every connection."""
    server.execute(f"ALTER DATABASE {store.settings.url.database} ALLOW_CONNECTIONS false")
    yield
    server.execute(f"ALTER DATABASE {store.settings.url.database} ALLOW_CONNECTIONS true")


def any_change(name: str) -> bool:
    """Whether an instant lies before a call that writes: who only reads a SQLite file is not held up by who writes."""
    return name.startswith("before control.") and name.removeprefix("before ") not in QUESTIONS


def first_question_and_any_change(name: str) -> bool:
    """The same, and before the first call of all: one question finds no connection as another does."""
    return name == "before control.feed" or any_change(name)


@pytest.mark.parametrize(
    ("kind", "away", "steps", "cause"),
    [
        ("sqlite", locked, any_change, "database is locked"),
        ("postgresql", closed, first_question_and_any_change, "not currently accepting connections"),
    ],
    ids=["sqlite", "postgresql"],
)
def test_a_control_database_that_goes_away_before_any_change_stops_the_task_by_name_and_the_run_continues_later(
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    postgresql_server: PostgresqlServer,
    lake: Path,
    kind: str,
    away: Callable[[SqlStore, PostgresqlServer], AbstractContextManager[None]],
    steps: Callable[[str], bool],
    cause: str,
) -> None:
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.02)
    store = request.getfixturevalue(kind)
    feeds = Feeds(lake, store.connect_for_each_step)
    with watched(feeds.new(first_run)) as (seen, instants):
        DagRun("run 1").resume(seen)
    for name in [each for each in dict.fromkeys(instants.names) if steps(each)]:
        instant = instants.names.index(name)
        feed, run = feeds.new(first_run), DagRun("run 1")
        try:
            with ExitStack() as until_it_is_back:
                leave = partial(until_it_is_back.enter_context, away(store, postgresql_server))
                with watched(feed, doing_at(instant, leave)) as (unlucky, _):
                    failure = failure_of(run, unlucky)
            assert cause in str(failure)
            assert_whole(feed)
            assert_continues(run, feed)
        except BaseException as error:
            error.add_note(f"where the database went away {name}")
            raise


def doing_at(instant: int, something: Callable[[], object]) -> Callable[[int, str], None]:
    """Return what does something at an instant."""

    def happens(number: int, _name: str) -> None:
        if number == instant:
            something()

    return happens


def assert_whole(feed: WholeFeed) -> None:
    """The offsets have moved where a batch is committed, and only there."""
    snapshot = feed.control.feed(feed.settings.name)
    if snapshot is not None:
        moved = any(row.next_offset for row in snapshot.stored.values())
        assert moved == (BatchState.COMMITTED in feed.states().values())
