"""How often a step asks the database: each statement is a round trip, and a task's step has a handful of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, event
from tests.contract.conftest import SqlStore
from tests.contract.lives import produce
from tests.contract.whole_feed import WholeFeed, whole_feed

from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.model.offsets import Isolation
from kafka_ingest.observing.feed_status import feed_status

AT_MOST = {
    "open the control tables": 3,
    "first plan": 11,
    "plan again": 14,
    "write": 25,
    "commit": 35,
    "commit again": 14,
    "next plan": 19,
    "status": 14,
    "status of all feeds": 5,
    "batches": 4,
}
"""BEGIN is one of them. The second and later plans read more than the first: what the output holds, and speeds."""


@contextmanager
def counted(engine: Engine, found: list[str]) -> Iterator[None]:
    """Note the statements that an engine is sent inside."""

    def note(*call: object) -> None:
        found.append(str(call[2]))

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)


def steps_of(engine: Engine, lake: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the steps of a feed's first two batches, by name; each is to be taken before the next is asked for."""
    made: list[SqlControlTables] = []
    yield "open the control tables", lambda: made.append(SqlControlTables(engine))
    [control] = made
    feed: WholeFeed = whole_feed("orders", control, lake)
    produce(feed)
    yield "first plan", lambda: feed.plan("planner")
    yield "plan again", lambda: feed.plan("planner")
    [batch_id] = feed.states()
    yield "write", lambda: feed.write(batch_id, "writer")
    yield "commit", lambda: feed.commit(batch_id, "committer")
    yield "commit again", lambda: feed.commit(batch_id, "committer")
    produce(feed)
    yield (
        "status",
        lambda: feed_status("orders", control, feed.kafka, group="orders", isolation=Isolation.READ_COMMITTED),
    )
    yield "next plan", lambda: feed.plan("planner")
    yield "status of all feeds", control.feed_summaries
    yield "batches", control.batch_summaries


def test_no_step_asks_the_database_more_often_than_it_has_to(sqlite: SqlStore, lake: Path) -> None:
    engine = sqlite.open()
    asked: dict[str, list[str]] = {}
    for name, take in steps_of(engine, lake):
        with counted(engine, asked.setdefault(name, [])):
            take()

    assert asked.keys() == AT_MOST.keys()
    assert {name: found for name, found in asked.items() if len(found) > AT_MOST[name]} == {}
