"""Every schedule of small worlds: who goes next, call by call, and where processes die.

Then the feed recovers by itself.

The real planning, submitting, committing and operating code runs on the stores in memory. The bounds: one feed of two
partitions, 150 records in two batches; two DAG runs, or two tasks, and an operator at most; a process dies at one call
(two where one run is alone), before or after it; a task is tried three times; Spark applications of killed tasks
continue. The cluster stays as it is while a schedule lasts, and each call is atomic: what happens inside a transaction
or a rename is for the contract tests. ``MODEL_DEPTH=deep`` explores larger worlds, in minutes.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache

import pytest
from tests.model.explore import Explored
from tests.model.scenarios import DEEP, SCENARIOS

pytestmark = pytest.mark.long

IS_DEEP = os.environ.get("MODEL_DEPTH") == "deep"
EXPLORED = {**SCENARIOS, **(DEEP if IS_DEEP else {})}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of executions would log the same lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@cache
def explored_once(name: str) -> Explored:
    """Explore a world; two tests look at some of them."""
    return EXPLORED[name].explored()


@pytest.mark.parametrize("name", EXPLORED)
def test_no_schedule_breaks_an_invariant_or_leaves_a_feed_that_does_not_recover(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    explored = explored_once(name)
    record_property("explored", str(explored))
    sys.stdout.write(f"{name}: {explored}\n")
    assert explored.counterexample is None, f"{name}\n{explored.counterexample}"


WAYS_TO_END = {
    "two later plans at once": {
        ("plan A", "planned"),
        ("plan B", "planned"),
        ("plan A", "resumed"),
        ("plan B", "resumed"),
    },
    "two backfills of one hole": {
        ("backfill A", "planned 1"),
        ("backfill A", "claimed by another"),
        ("backfill B", "planned 1"),
        ("backfill B", "claimed by another"),
    },
    "two commits, damaged": {("commit A", "refused: BATCH_STATE"), ("commit B", "refused: BATCH_STATE")},
    "a run and an abandon, COMMITTING": {
        ("run A", "done"),
        ("run A", "refused: BATCH_REVOKED"),
        ("run A", "refused: BATCH_STATE"),
        ("operator", "abandoned, was COMMITTING"),
        ("operator", "refused: BATCH_STATE"),
        ("operator", "no batch is open"),
    },
    "a run and a skip": {
        ("operator", "skipped"),
        ("operator", "refused: FEED_CHANGED"),
        ("operator", "refused: BATCH_STATE"),
    },
    "a run and a rude operator": {("run A", "done"), ("run A", "refused: OFFSETS_MOVED")},
}


@pytest.mark.parametrize("name", WAYS_TO_END)
def test_each_side_of_a_race_wins_in_some_schedule(name: str) -> None:
    assert explored_once(name).outcomes >= WAYS_TO_END[name]
