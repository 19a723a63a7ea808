"""Each guard of the protocol is taken out once, and the model has to find, in a small world, what it was for."""

import logging
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from tests.model import broken_guards as broken
from tests.model.scenarios import (
    A_RUN_AND_A_PLAN,
    ABANDONS,
    REVOKED,
    SCENARIOS,
    Scenario,
    commit,
    committing,
    planned,
    planned_and_damaged,
    published,
    written,
    written_and_damaged,
)
from tests.model.world import Bounds

ONE_COMMIT = {"commit": commit}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of executions would log the same lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


ABANDONED_IS_SEEN = "7: batch .* is visible, and ABANDONED"

GUARDS: list[tuple[Callable[[pytest.MonkeyPatch], None], Scenario, str]] = [
    (
        broken.offsets_are_not_compared,
        SCENARIOS["a run and a rude operator"],
        "3, 4: stored offsets moved orders-0 50 → 100, orders-1 35 → 50",
    ),
    (
        broken.only_offsets_in_place_move,
        SCENARIOS["a run and a rude operator"],
        "3, 4: stored offsets moved orders-0 50 → 100, expected orders-0 50 → 100, orders-1 25 → 50",
    ),
    (
        broken.backfills_move_offsets,
        SCENARIOS["a run and a backfill's commit"],
        "3, 4: stored offsets moved orders-0 .* → 60, expected none",
    ),
    (
        broken.neither_revision_nor_open_batch_is_checked,
        SCENARIOS["two later plans at once"],
        "2: 2 live batches are open",
    ),
    (broken.revision_is_not_checked, SCENARIOS["a run and a skip"], "run A ended with OFFSETS_MOVED"),
    (
        broken.revision_is_not_checked,
        SCENARIOS["two backfills of one hole"],
        "backfill . ended with RANGES_TAKEN",
    ),
    (
        broken.backfills_are_not_kept_apart,
        SCENARIOS["two backfills of one hole"],
        r"orders-0: offset 50 is visible 2 times",
    ),
    (
        broken.written_batch_is_pinned_again,
        Scenario(planned, A_RUN_AND_A_PLAN),
        "6: attempt . was pinned, now attempt . is",
    ),
    (
        broken.discarded_attempt_is_pinned,
        Scenario(planned_and_damaged, A_RUN_AND_A_PLAN),
        "6: attempt 1 was discarded, and is pinned now",
    ),
    (
        broken.rivals_stay_open,
        Scenario(written_and_damaged, ONE_COMMIT),
        "recovery 1, pin: 6: attempt 1 was discarded, and is pinned now",
    ),
    (broken.publishing_does_not_look, Scenario(published, ONE_COMMIT), "commit ended with OUTPUT_CONFLICT"),
    (broken.publishing_adds_once_more, Scenario(published, ONE_COMMIT), "7: batch .* is visible, and not known"),
    (broken.revoking_does_not_look, Scenario(committing, ONE_COMMIT | ABANDONS, REVOKED), ABANDONED_IS_SEEN),
    (broken.revoking_does_nothing, Scenario(committing, ONE_COMMIT | ABANDONS, REVOKED), ABANDONED_IS_SEEN),
    (broken.publishing_takes_what_was_revoked, Scenario(committing, ONE_COMMIT | ABANDONS, REVOKED), ABANDONED_IS_SEEN),
    (broken.committing_is_abandoned_plainly, Scenario(written, ONE_COMMIT | ABANDONS, REVOKED), ABANDONED_IS_SEEN),
    (
        broken.loser_does_not_look_again,
        SCENARIOS["two commits, WRITTEN"],
        "commit . ended with OUTPUT_CONFLICT",
    ),
    (
        broken.mirror_does_not_look_again,
        SCENARIOS["a commit and one of the batch before"],
        "the group is at",
    ),
]


@pytest.mark.parametrize(("broken_guard", "scenario", "expected"), GUARDS, ids=[guard.__name__ for guard, *_ in GUARDS])
def test_without_a_guard_the_model_finds_what_it_was_for(
    broken_guard: Callable[[pytest.MonkeyPatch], None],
    scenario: Scenario,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken_guard(monkeypatch)
    # Nobody has to die for it: rivals are enough.
    explored = replace(scenario, bounds=Bounds(group=scenario.bounds.group)).explored()
    found = explored.counterexample or f"nothing was found in {explored}"
    sys.stdout.write(f"{broken_guard.__doc__} {explored}\n{found}\n")
    assert re.match(expected, found), found


@pytest.mark.parametrize("broken_guard", [broken.revision_is_not_checked, broken.second_open_batch_is_let_in])
@pytest.mark.parametrize("scenario", ["two first plans at once", "two later plans at once"])
def test_the_one_open_batch_is_held_by_the_index_and_by_the_revision_each_alone(
    scenario: str, broken_guard: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_guard(monkeypatch)
    assert SCENARIOS[scenario].explored().counterexample is None
