"""Several tasks at the same control tables at the same moment, on real databases.

One effect, and a clear answer for each.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, Executable, event, insert, select, text, update
from tests.contract.builders import (
    FIRST_PLAN,
    NOON,
    ORDERS_FEED,
    STEPS,
    RivalProcess,
    at_once,
    attempt_of,
    batch_id_of,
    bring_to,
    commit,
    orders,
    pin,
    plan_first,
    plan_next,
    plan_of,
    publish,
    seed,
    snapshot_of,
    stored,
    write,
)
from tests.contract.conftest import SqlStore

from kafka_ingest.control import database as control_database
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import BatchStateError, ControlTablesUnavailableError, FeedChangedError, OffsetsMovedError
from kafka_ingest.model.batch import AttemptState, Batch, BatchPlan, BatchState
from kafka_ingest.ports.control import ControlTables


@pytest.fixture(params=range(3))
def each_round() -> None:
    """A race has another outcome another time."""


def kinds(outcomes: list[Any]) -> Counter[type]:
    """Return how many calls ended in what: None for those that went through without an answer."""
    return Counter(type(outcome) for outcome in outcomes)


def clients(database: SqlStore, count: int = 8) -> list[SqlControlTables]:
    """Return clients with connections of their own, as tasks in processes of their own have."""
    return [database.connect() for _ in range(count)]


def feed_id_of(number: int) -> UUID:
    return UUID(f"01890000-0000-7000-8000-00000000f{number:03d}")


# ── One wins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_eight_first_plans_at_once_one_is_recorded(database: SqlStore):
    plans = [plan_of((orders(0), 0, 100 + number), number=number, feed_id=feed_id_of(number)) for number in range(1, 9)]

    def first_plan(control: ControlTables, plan: BatchPlan) -> Callable[[], object]:
        return lambda: plan_first(control, plan) and None

    outcomes = at_once(*(first_plan(control, plan) for control, plan in zip(clients(database), plans, strict=True)))

    assert kinds(outcomes) == {type(None): 1, FeedChangedError: 7}
    winner = plans[outcomes.index(None)]
    assert snapshot_of(database.connect()).open_batch == database.connect().batch(winner.batch_id)
    assert {name: len(rows) for name, rows in database.dump().items() if rows} == {
        "feed": 1,
        "batch": 1,
        "batch_range": 1,
        "stored_offset": 1,
        "event": 1,
    }


def test_of_eight_later_plans_at_once_one_is_recorded(database: SqlStore):
    plan_first(database.connect(), None, seed(orders(0), 0))
    snapshot = snapshot_of(database.connect())

    def later_plan(control: ControlTables, number: int) -> Callable[[], object]:
        plan = plan_of((orders(0), 0, 100 + number), number=number)
        return lambda: plan_next(control, plan, seed(orders(number), 0), snapshot=snapshot)

    outcomes = at_once(*(later_plan(control, number) for number, control in enumerate(clients(database), start=1)))

    assert kinds(outcomes) == {type(None): 1, FeedChangedError: 7}
    winner = outcomes.index(None) + 1
    assert [line.batch_id for line in database.connect().batch_summaries()] == [batch_id_of(winner)]
    assert stored(database.connect()) == {orders(0): 0, orders(winner): 0}


def test_of_eight_attempts_of_the_same_number_one_is_opened(database: SqlStore):
    plan_first(database.connect())

    def open_first(control: ControlTables) -> Callable[[], object]:
        return lambda: control.open_attempt(attempt_of(FIRST_PLAN, 1))

    outcomes = at_once(*(open_first(control) for control in clients(database)))

    assert kinds(outcomes) == {type(None): 1, FeedChangedError: 7}
    assert len(database.connect().attempts(FIRST_PLAN.batch_id)) == 1


def test_of_eight_receipts_at_once_one_is_pinned(database: SqlStore):
    control = database.connect()
    plan_first(control)
    for number in range(1, 9):
        control.open_attempt(attempt_of(FIRST_PLAN, number))

    def pin_own(rival: ControlTables, number: int) -> Callable[[], object]:
        return lambda: pin(rival, FIRST_PLAN, number, rows={orders(0): number})

    outcomes = at_once(*(pin_own(rival, number) for number, rival in enumerate(clients(database), start=1)))

    assert kinds(outcomes) == {type(None): 1, BatchStateError: 7}
    winner = outcomes.index(None) + 1
    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.state, batch.pinned_attempt, batch.rows) == (BatchState.WRITTEN, winner, winner + 10)
    assert [count.rows for count in control.range_counts(FIRST_PLAN.batch_id)] == [winner, 10]
    states = [attempt.state for attempt in control.attempts(FIRST_PLAN.batch_id)]
    assert states == [AttemptState.PINNED if number == winner else AttemptState.OPEN for number in range(1, 9)]


def test_of_eight_runs_that_begin_a_commit_all_may_continue(database: SqlStore):
    control = database.connect()
    plan_first(control)
    write(control, FIRST_PLAN)

    def begin(rival: ControlTables) -> Callable[[], object]:
        return lambda: rival.begin_commit(FIRST_PLAN.batch_id, 1)

    outcomes = at_once(*(begin(rival) for rival in clients(database)))

    assert outcomes == [None] * 8
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTING


def complete(control: ControlTables, number: int) -> Callable[[], Batch]:
    return lambda: control.complete_commit(FIRST_PLAN.batch_id, actor=f"committer {number}")


def test_of_eight_runs_that_complete_a_commit_one_moves_the_offsets_and_all_learn_who(database: SqlStore):
    control = database.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)

    outcomes = at_once(*(complete(rival, number) for number, rival in enumerate(clients(database))))

    assert kinds(outcomes) == {Batch: 8}
    assert len({(batch.committed_by, batch.committed_at) for batch in outcomes}) == 1
    assert outcomes[0] == control.batch(FIRST_PLAN.batch_id)
    assert stored(control) == {orders(0): 100, orders(1): 50}


COMMIT_WHEN_RESUMED = """
import sys
from uuid import UUID
from sqlalchemy import make_url
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.control_tables import SqlControlTables

url, batch_id, actor = sys.argv[1:]
control = SqlControlTables(open_database(ControlDatabaseSettings(make_url(url))))
print("ready", flush=True)
sys.stdin.readline()
print(control.complete_commit(UUID(batch_id), actor=actor).committed_by)
"""


def url_of(database: SqlStore) -> str:
    return database.settings.url.render_as_string(hide_password=False)


def test_of_three_processes_that_complete_a_commit_one_moves_the_offsets_and_all_learn_who(database: SqlStore):
    control = database.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)
    rivals = [
        RivalProcess(COMMIT_WHEN_RESUMED, url_of(database), str(FIRST_PLAN.batch_id), f"process {number}")
        for number in range(3)
    ]
    assert [rival.wait_for_line() for rival in rivals] == ["ready"] * 3
    for rival in rivals:
        rival.resume()

    winner = control_batch_after(rivals, control).committed_by
    assert winner in {"process 0", "process 1", "process 2"}
    assert stored(control) == {orders(0): 100, orders(1): 50}


def control_batch_after(rivals: list[RivalProcess], control: ControlTables) -> Batch:
    """Return the batch when all processes have ended, each with the name of who committed it."""
    answers = [rival.answer() for rival in rivals]
    batch = control.batch(FIRST_PLAN.batch_id)
    assert answers == [(batch.committed_by, "")] * len(rivals)
    return batch


# ── One against another ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_decided_while_the_batch_was_committing_is_refused_whenever_the_commit_lands(database: SqlStore):
    planner, committer = clients(database, 2)
    plan_first(planner)
    publish(committer, FIRST_PLAN)
    snapshot = snapshot_of(planner)
    eager = plan_of((orders(0), 100, 110), number=2)

    planned, committed = at_once(lambda: plan_next(planner, eager, snapshot=snapshot), complete(committer, 1))

    assert isinstance(planned, FeedChangedError)
    assert committed.state is BatchState.COMMITTED
    assert [line.batch_id for line in planner.batch_summaries()] == [FIRST_PLAN.batch_id]
    assert stored(planner) == {orders(0): 100, orders(1): 50}


def test_planner_and_committer_side_by_side_read_every_offset_once(database: SqlStore):
    planner, committer = clients(database, 2)
    plan_first(planner, None, seed(orders(0), 0))

    def plan_ten_batches() -> None:
        number = 0
        while number < 10:
            feed = snapshot_of(planner)
            if feed.open_batch is None:
                start = feed.stored[orders(0)].next_offset
                assert start is not None
                number += 1
                plan_next(planner, plan_of((orders(0), start, start + number), number=number), snapshot=feed)

    def commit_ten_batches() -> None:
        for number in range(1, 11):
            while (batch := snapshot_of(committer).open_batch) is None:
                pass
            assert batch.batch_id == batch_id_of(number)
            commit(committer, batch.plan)

    assert at_once(plan_ten_batches, commit_ten_batches) == [None, None]
    assert stored(planner) == {orders(0): 55}
    assert [(line.state, line.rows) for line in planner.batch_summaries()] == [
        (BatchState.COMMITTED, rows) for rows in range(10, 0, -1)
    ]


@pytest.mark.usefixtures("each_round")
def test_of_abandoning_and_beginning_to_commit_at_once_exactly_one_wins(database: SqlStore):
    operator, committer = clients(database, 2)
    plan_first(operator)
    write(operator, FIRST_PLAN)

    abandoned, begun = at_once(
        lambda: operator.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops"),
        lambda: committer.begin_commit(FIRST_PLAN.batch_id, 1),
    )

    won = BatchState.ABANDONED if abandoned is None else BatchState.COMMITTING
    assert kinds([abandoned, begun]) == {type(None): 1, BatchStateError: 1}
    assert operator.batch(FIRST_PLAN.batch_id).state is won
    assert len(operator.journal(ORDERS_FEED, kinds=["abandoned"], limit=2)) == (1 if won is BatchState.ABANDONED else 0)


@pytest.mark.usefixtures("each_round")
def test_of_discarding_and_beginning_to_commit_at_once_exactly_one_wins(database: SqlStore):
    first, second = clients(database, 2)
    plan_first(first)
    write(first, FIRST_PLAN)

    discarded, begun = at_once(
        lambda: first.discard_written(FIRST_PLAN.batch_id, 1, reason="damaged", actor="first"),
        lambda: second.begin_commit(FIRST_PLAN.batch_id, 1),
    )

    won = BatchState.PLANNED if discarded is None else BatchState.COMMITTING
    assert kinds([discarded, begun]) == {type(None): 1, BatchStateError: 1}
    assert first.batch(FIRST_PLAN.batch_id).state is won


@pytest.mark.usefixtures("each_round")
def test_a_batch_abandoned_while_it_is_pinned_stays_abandoned(database: SqlStore):
    operator, writer = clients(database, 2)
    plan_first(operator)
    operator.open_attempt(attempt_of(FIRST_PLAN, 1))

    abandoned, pinned = at_once(
        lambda: operator.abandon(FIRST_PLAN.batch_id, reason="wrong topic", actor="ops"),
        lambda: pin(writer, FIRST_PLAN, 1),
    )

    assert abandoned is None
    assert pinned is None or isinstance(pinned, BatchStateError)
    assert operator.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED
    assert stored(operator) == {orders(0): 0, orders(1): 40}


@pytest.mark.usefixtures("each_round")
def test_a_reset_while_a_commit_is_completed_comes_before_or_after_all_of_it(database: SqlStore):
    control = database.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)

    _, committed = at_once(lambda: database.reset_by_hand(orders(1), 7), complete(control, 1))

    if isinstance(committed, OffsetsMovedError):
        assert stored(control) == {orders(0): 0, orders(1): 7}
    else:
        assert committed.state is BatchState.COMMITTED
        assert stored(control) == {orders(0): 100, orders(1): 7}


def test_an_offset_moved_past_the_lock_at_the_last_moment_holds_back_all_of_the_batch(postgresql: SqlStore):
    engine = postgresql.open()
    control = SqlControlTables(engine)
    plan_first(control)
    publish(control, FIRST_PLAN)

    @event.listens_for(engine, "before_cursor_execute")
    def reset_just_before_the_offsets_move(*arguments: Any) -> None:
        if arguments[2].startswith("UPDATE stored_offset"):
            postgresql.reset_by_hand(orders(1), 30)

    with pytest.raises(OffsetsMovedError, match="None was moved"):
        control.complete_commit(FIRST_PLAN.batch_id, actor="committer")

    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTING
    assert stored(control) == {orders(0): 0, orders(1): 30}


def test_eight_feeds_commit_at_once(database: SqlStore):
    plans = [
        plan_of((orders(0), 0, 10), number=number, feed_id=feed_id_of(number), feed_name=f"feed {number}")
        for number in range(1, 9)
    ]

    def whole_life(control: ControlTables, plan: BatchPlan) -> Callable[[], object]:
        def live() -> None:
            plan_first(control, plan)
            commit(control, plan)

        return live

    outcomes = at_once(*(whole_life(control, plan) for control, plan in zip(clients(database), plans, strict=True)))

    assert outcomes == [None] * 8
    assert [summary.rows_committed for summary in database.connect().feed_summaries()] == [10] * 8


# ── The feed's lock ───────────────────────────────────────────────────────────────────────────────────────────────────

READY_FOR = {
    "open_attempt": BatchState.PLANNED,
    "pin": BatchState.PLANNED,
    "discard_written": BatchState.WRITTEN,
    "begin_commit": BatchState.WRITTEN,
    "complete_commit": BatchState.COMMITTING,
    "abandon": BatchState.PLANNED,
}


@contextmanager
def feed_locked(database: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hold the feed's lock as a step in another task does; new connections wait for it a moment only."""
    monkeypatch.setattr(control_database, "BUSY_TIMEOUT_S", 0.05)
    if database.settings.sqlite_file is None:
        database.execute(f"ALTER DATABASE {database.settings.url.database} SET lock_timeout = '50ms'")
    with database.by_hand() as connection:
        connection.execute(select(schema.feed).where(schema.feed.c.name == "orders").with_for_update())
        yield


@pytest.mark.parametrize("step", STEPS)
def test_every_step_waits_for_the_feeds_lock(database: SqlStore, monkeypatch: pytest.MonkeyPatch, step: str):
    bring_to(database.connect(), READY_FOR[step])
    before = database.dump()

    with (
        feed_locked(database, monkeypatch),
        pytest.raises(ControlTablesUnavailableError, match=r"lock(ed| timeout)"),
    ):
        STEPS[step](database.connect(), FIRST_PLAN)

    assert database.dump() == before
    STEPS[step](database.connect(), FIRST_PLAN)


def test_a_plan_waits_for_the_feeds_lock(database: SqlStore, monkeypatch: pytest.MonkeyPatch):
    plan_first(database.connect(), None, seed(orders(0), 0))
    before = database.dump()

    with (
        feed_locked(database, monkeypatch),
        pytest.raises(ControlTablesUnavailableError, match=r"lock(ed| timeout)"),
    ):
        plan_next(database.connect(), plan_of((orders(0), 0, 10)))

    assert database.dump() == before


def test_an_event_waits_for_the_feeds_lock(database: SqlStore, monkeypatch: pytest.MonkeyPatch):
    plan_first(database.connect())
    before = database.dump()

    with (
        feed_locked(database, monkeypatch),
        pytest.raises(ControlTablesUnavailableError, match=r"lock(ed| timeout)"),
    ):
        database.connect().record_event(ORDERS_FEED, "reset", actor="ops", batch_id=None, detail={})

    assert database.dump() == before


def outcome_after_waiting_for(database: SqlStore, change: Executable, step: Callable[[], object]) -> object:
    """Change a row under the feed's lock while a step waits for it; return how the step ends then."""
    with ThreadPoolExecutor(max_workers=1) as pool:
        with database.by_hand() as connection:
            connection.execute(select(schema.feed).with_for_update())
            connection.execute(change)
            outcome = pool.submit(step)
            while database.settings.sqlite_file is None and not outcome.done() and not is_step_waiting(connection):
                pass
        return outcome.exception(timeout=60) or outcome.result()


def is_step_waiting(connection: Connection) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return connection.execute(text(query)).scalar_one() > 0


def test_a_plan_that_waited_for_the_lock_is_compared_with_what_was_written_while_it_waited(database: SqlStore):
    control = database.connect()
    plan_first(control, None, seed(orders(0), 0))
    snapshot = snapshot_of(control)

    outcome = outcome_after_waiting_for(
        database,
        update(schema.feed).values(revision=schema.feed.c.revision + 1),
        lambda: plan_next(control, None, seed(orders(1), 0), snapshot=snapshot),
    )

    assert isinstance(outcome, FeedChangedError)
    assert stored(control) == {orders(0): 0}


def test_a_commit_that_waited_for_the_lock_does_not_begin_where_an_offset_was_moved(database: SqlStore):
    control = database.connect()
    plan_first(control)
    write(control, FIRST_PLAN)

    outcome = outcome_after_waiting_for(
        database,
        update(schema.stored_offset).values(next_offset=7),
        lambda: control.begin_commit(FIRST_PLAN.batch_id, 1),
    )

    assert isinstance(outcome, OffsetsMovedError)
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.WRITTEN


def test_a_commit_that_waited_for_the_lock_has_in_its_ledger_what_was_recorded_while_it_waited(database: SqlStore):
    control = database.connect()
    plan_first(control)
    write(control, FIRST_PLAN)

    outcome = outcome_after_waiting_for(
        database,
        insert(schema.event).values(feed_id=ORDERS_FEED, kind="reset", at=NOON, actor="ops", detail={}),
        lambda: control.begin_commit(FIRST_PLAN.batch_id, 1),
    )

    assert outcome is None
    assert [event.kind for event in control.ledger(FIRST_PLAN.batch_id)] == ["seeded", "reset"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_that_waited_for_the_lock_is_refused_on_a_batch_that_was_abandoned(database: SqlStore, step: str):
    control = database.connect()
    bring_to(control, READY_FOR[step])
    abandon = update(schema.batch).values(state="ABANDONED", reason="wrong topic")

    outcome = outcome_after_waiting_for(database, abandon, lambda: STEPS[step](control, FIRST_PLAN))

    assert isinstance(outcome, BatchStateError)
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.ABANDONED


def test_readers_do_not_wait_for_the_feeds_lock(database: SqlStore, monkeypatch: pytest.MonkeyPatch):
    bring_to(database.connect(), BatchState.COMMITTING)

    with feed_locked(database, monkeypatch):
        reader = database.connect()
        assert stored(reader) == {orders(0): 0, orders(1): 40}
        assert reader.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTING
        assert len(reader.attempts(FIRST_PLAN.batch_id)) == 2


def test_on_postgresql_one_feeds_lock_does_not_hold_up_another_feed(
    postgresql: SqlStore, monkeypatch: pytest.MonkeyPatch
):
    plan_first(postgresql.connect())
    refunds = plan_of((orders(0), 5, 6), number=2, feed_id=feed_id_of(2), feed_name="refunds")

    with feed_locked(postgresql, monkeypatch):
        control = postgresql.connect()
        plan_first(control, refunds)
        commit(control, refunds)

    assert stored(control, "refunds") == {orders(0): 6}


# ── A task that is killed ─────────────────────────────────────────────────────────────────────────────────────────────

STOP_BEFORE_COMMIT = """
import sys
from sqlalchemy import event, make_url
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.control_tables import SqlControlTables
from tests.contract.builders import FIRST_PLAN, STEPS

url, step = sys.argv[1:]
engine = open_database(ControlDatabaseSettings(make_url(url)))
control = SqlControlTables(engine)

@event.listens_for(engine, "commit")
def stop(connection):
    if connection.get_execution_options()["kafka_ingest_kind"] == "write":
        print("all but the COMMIT is through", flush=True)
        sys.stdin.readline()

STEPS[step](control, FIRST_PLAN)
"""


def test_a_task_killed_just_before_its_commit_leaves_nothing_behind_and_locks_nobody_out(database: SqlStore):
    control = database.connect()
    plan_first(control)
    publish(control, FIRST_PLAN)
    before = database.dump()
    task = RivalProcess(STOP_BEFORE_COMMIT, url_of(database), "complete_commit")
    assert task.wait_for_line() == "all but the COMMIT is through"
    task.kill()

    assert database.dump() == before
    assert control.complete_commit(FIRST_PLAN.batch_id, actor="next run").committed_by == "next run"
    assert stored(control) == {orders(0): 100, orders(1): 50}
