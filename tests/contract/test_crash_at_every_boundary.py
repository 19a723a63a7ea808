"""A crash at any instant of the life of a batch, over control tables and a real output (invariant 5).

Each case is a feed of its own in the same control tables: it lives up to an instant, its process dies there, the DAG
runs again as Airflow would run it, and the output is compared record by record with what was produced.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event
from tests.contract.conftest import SqlStore
from tests.contract.every_record_once import assert_every_record_is_there_once, assert_group_follows
from tests.contract.interference import (
    QUESTIONS,
    Died,
    Instants,
    OtherWorlds,
    changes_the_world,
    dying_at,
    is_of_a_part,
    watched,
)
from tests.contract.lives import (
    LIVES,
    Beginning,
    Begun,
    Feeds,
    Life,
    damaged_files,
    first_run,
)
from tests.contract.whole_feed import Scheduler, WholeFeed
from tests.fakes import InMemoryControlTables

from kafka_ingest.control.control_tables import SqlControlTables

pytestmark = pytest.mark.long

THE_LIFE_OF_A_BATCH = {
    "sink.prepare": "the places for output and staging are made",
    "control.record_plan": "the plan is written down: PLANNED",
    "control.open_attempt": "an attempt is opened",
    "sink.open_attempt": "its directory is made, with the document for Spark",
    "spark.write_half_a_data_file": "Spark writes",
    "spark.write_data_file": "a data file is complete",
    "spark.write_receipt": "Spark has written all",
    "control.pin": "the receipt is pinned: WRITTEN",
    "sink.can_take": "the output can take the batch",
    "sink.verify": "the staged files are what the receipt says, and on the disk",
    "control.begin_commit": "the commit begins: COMMITTING",
    "sink.publish": "the batch is published, in two steps:",
    "os.rename <id>.json": "the receipt is kept",
    "os.rename kafka_batch=<id>": "the files are visible",
    "control.complete_commit": "the stored offsets move: COMMITTED",
    "kafka.set_group_offsets": "the consumer group follows",
    "airflow.announce": "the batch is announced",
    "airflow.trigger_next": "the next run is triggered",
}
"""Every step of a part that changes something, and both of publishing, in the order in which they are first taken."""


# ── When to crash ─────────────────────────────────────────────────────────────────────────────────────────────────────

Choice = Callable[[str], bool]


def every_file_too(name: str) -> bool:
    """After each call that changes something, those to the file system included, and before each of those.

    A file is written between two such calls. Before and after a question, and before a call to a part, the world is
    the one that the call before has left.
    """
    return changes_the_world(name) or name.startswith("before os.")


def every_world(name: str) -> bool:
    """After each call to a part that changes something: between two of those the world stays the same."""
    return is_of_a_part(name) and changes_the_world(name)


def every_world_and_half_a_publish(name: str) -> bool:
    """The same, and in the middle of publishing: the receipt is kept and the files are not visible yet."""
    return every_world(name) or name == "after os.rename <id>.json"


def every_world_of_a_database(name: str) -> bool:
    """At the beginning, after each change of the control tables, and between publishing and moving the offsets."""
    return name in {"before control.feed", "after sink.publish"} or (every_world(name) and " control." in name)


CHOICES = {"in_memory": every_file_too, "sqlite": every_world_of_a_database}
"""Memory is fast enough for all. A database is the same after steps of other parts, and what those left is tried with
memory; what PostgreSQL keeps of a step, test_lost_replies tries."""


# ── Dying and recovering ──────────────────────────────────────────────────────────────────────────────────────────────

Recovery = Callable[[WholeFeed, Scheduler], None]


def same_run(_feed: WholeFeed, _scheduler: Scheduler) -> None:
    """Airflow finds the task dead and tries it again: the run continues from there."""


def another_run(feed: WholeFeed, scheduler: Scheduler) -> None:
    """Airflow died as well, and an hour later the next run starts: the first one never continues."""
    scheduler.lose_run()
    feed.log.produce(1, 2)


def instants_of_one_batch(feed: WholeFeed, scheduler: Scheduler, choice: Choice) -> tuple[list[str], list[int]]:
    """Return the instants that one batch passes where nothing happens, and the numbers of those to be tried.

    Those are the chosen ones at which there is another world than at the chosen one before.
    """
    others = OtherWorlds(feed, choice, scheduler.remembered)
    with watched(feed, others.look) as (seen, instants):
        scheduler.run_one_batch(seen)
    return instants.names, others.found


def die(feed: WholeFeed, scheduler: Scheduler, instant: int) -> list[str]:
    """Let a feed's process die at an instant; return the instants up to that one."""
    with watched(feed, dying_at(instant)) as (doomed, instants), pytest.raises(Died):
        scheduler.run_until_rest(doomed)
    return instants.names[: instant + 1]


def assert_recovers(feed: WholeFeed, scheduler: Scheduler, *, after: str, may_fail: bool = False) -> None:
    """Run the DAG until nothing is new, and hold all there is against what was produced."""
    try:
        failures = scheduler.run_until_rest(feed)
        assert may_fail or not failures
        assert_every_record_is_there_once(feed)
        assert_group_follows(feed)
    except BaseException as error:
        error.add_note(f"after a crash {after}")
        raise


def assert_airflow_was_notified(feed: WholeFeed) -> None:
    """Every committed batch is announced at least once, and a run follows where records may be left behind."""
    batches = [feed.control.batch(batch_id) for batch_id in feed.states()]
    assert set(feed.airflow.announced) == {batch.batch_id for batch in batches}
    expected = {batch.batch_id for batch in batches if batch.plan.capped or batch.planned_by != batch.committed_by}
    assert feed.airflow.triggered == expected


# ── One crash ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_list_names_every_step_of_the_life_of_a_batch_in_order(lake: Path) -> None:
    with watched(Feeds(lake, InMemoryControlTables).new(first_run)) as (feed, instants):
        Scheduler().run_one_batch(feed)

    changes = [call for call in instants.calls if call not in QUESTIONS and not call.startswith("os.")]
    assert list(dict.fromkeys(changes)) == [step for step in THE_LIFE_OF_A_BATCH if not step.startswith("os.")]
    named = [call for call in instants.calls if call in THE_LIFE_OF_A_BATCH]
    assert list(dict.fromkeys(named)) == list(THE_LIFE_OF_A_BATCH)


@pytest.mark.parametrize(
    ("kind", "recovery"), [("in_memory", same_run), ("in_memory", another_run), ("sqlite", same_run)]
)
@pytest.mark.parametrize("life", LIVES)
def test_a_crash_at_any_instant_loses_nothing_and_duplicates_nothing(
    feeds: Feeds, kind: str, life: Life, recovery: Recovery
) -> None:
    """By other runs what is left in a database is resumed in the histories, whose control tables are in SQLite."""
    names, to_try = instants_of_one_batch(feeds.new(life), Scheduler(), CHOICES[kind])
    beginning = feeds.beginning(life)
    for instant in to_try:
        feed, scheduler = beginning.again()
        assert die(feed, scheduler, instant) == names[: instant + 1]
        recovery(feed, scheduler)
        assert_recovers(feed, scheduler, after=names[instant], may_fail=life is damaged_files)
        if recovery is same_run:
            assert_airflow_was_notified(feed)


# ── Two crashes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_crash_while_the_first_is_repaired_is_repaired_like_it(lake: Path) -> None:
    """Over control tables in memory: what the histories do at random they do over a database.

    By another run, which repeats each step that the same run would; of that the model tries every two crashes.
    """
    feeds, choice = Feeds(lake, InMemoryControlTables), every_world_and_half_a_publish
    beginning = feeds.beginning(first_run)

    def crashed(first: int) -> Begun:
        feed, scheduler = beginning.again()
        die(feed, scheduler, first)
        another_run(feed, scheduler)
        return feed, scheduler

    names, to_try = instants_of_one_batch(feeds.new(first_run), Scheduler(), choice)
    for first in to_try:
        crash = Beginning(partial(crashed, first))
        then, to_try_then = instants_of_one_batch(*crash.again(), choice)
        for second in to_try_then:
            feed, scheduler = crash.again()
            assert die(feed, scheduler, second) == then[: second + 1]
            another_run(feed, scheduler)
            assert_recovers(feed, scheduler, after=f"{names[first]}, and {then[second]}")


# ── A crash inside a step of the control tables ───────────────────────────────────────────────────────────────────────


COMMIT = "before sql.COMMIT"


@contextmanager
def watched_statements(engine: Engine, instants: Instants) -> Iterator[None]:
    """Let every statement that changes a database, and every COMMIT, pass an instant before it is sent."""

    def before_statement(*arguments: Any) -> None:
        verb = arguments[2].split(maxsplit=1)[0]
        if verb in {"INSERT", "UPDATE", "DELETE"}:
            instants.pass_by(f"before sql.{verb}")

    def before_commit(_connection: object) -> None:
        instants.pass_by(COMMIT)

    event.listen(engine, "before_cursor_execute", before_statement)
    event.listen(engine, "commit", before_commit)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", before_statement)
        event.remove(engine, "commit", before_commit)


def test_a_crash_between_two_statements_of_a_step_leaves_nothing_of_it(sqlite: SqlStore, lake: Path) -> None:
    engine = sqlite.open()
    control = SqlControlTables(engine)
    feeds = Feeds(lake, lambda: control)
    instants = Instants()
    with watched_statements(engine, instants):
        Scheduler().run_one_batch(feeds.new(first_run))
    assert len(instants.names) > 30
    # What was sent since the last COMMIT is gone, wherever the process died: with all but one sent, and with all.
    of_writes = [each for each in pairwise(enumerate(instants.names)) if each[1][1] == COMMIT != each[0][1]]
    assert len(of_writes) == 5
    for instant, name in chain.from_iterable(of_writes):
        feed, scheduler = feeds.new(first_run), Scheduler()
        with watched_statements(engine, Instants(dying_at(instant))), pytest.raises(Died):
            scheduler.run_one_batch(feed)
        assert_recovers(feed, scheduler, after=f"{name} number {instant}")
