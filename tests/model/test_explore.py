"""The search itself, on a world of two clerks who each add 1 to a number: read it, then write it back."""

from dataclasses import dataclass, field, replace

import pytest
from tests.model.explore import CRASH, Standing, State, ViolationError, explore, is_crash


@dataclass
class Clerk:
    """Reads, then writes; ``read`` is what it knows in between."""

    read: int | None = None
    outcome: str | None = None


@dataclass
class Counter:
    """The clerks' world. ``expected`` is what the number has to be when both are done.

    ``hidden``: the number depends on how many steps there were, which its state does not show.
    """

    expected: int = 0
    crashes: int = 0
    hidden: bool = False
    number: int = 0
    steps: int = 0
    clerks: dict[str, Clerk] = field(default_factory=lambda: {"A": Clerk(), "B": Clerk()})
    lines: list[str] = field(default_factory=list)

    def state(self) -> State:
        standings = [
            (name, Standing(clerk.read, clerk.outcome, can_crash=True)) for name, clerk in sorted(self.clerks.items())
        ]
        return State(self.number, tuple(standings), self.crashes)

    def take(self, choice: str) -> None:
        clerk = self.clerks[choice.removeprefix(CRASH)]
        self.lines.append(choice)
        self.steps += 1
        if is_crash(choice):
            self.crashes -= 1
            clerk.outcome = "crashed"
        elif clerk.read is None:
            clerk.read = self.number
        else:
            self.number = clerk.read + 1 + (self.steps if self.hidden else 0)
            clerk.read, clerk.outcome = None, "done"

    def finish(self) -> None:
        if self.number < self.expected:
            raise ViolationError(f"expected {self.expected}, found {self.number}")

    def story(self) -> list[str]:
        return self.lines

    def close(self) -> None:
        pass


def test_all_schedules_are_counted_and_each_state_once() -> None:
    explored = explore(Counter)
    # Two actors of two steps each: 4! / (2! 2!) ways, two of which lead to 2 and four to 1.
    assert (explored.schedules, explored.ends, explored.counterexample) == (6, 2, None)
    assert explored.states == 12


def test_a_lost_update_is_found_and_shown_by_one_of_the_shortest_ways() -> None:
    found = explore(lambda: Counter(expected=2)).counterexample
    assert found is not None
    first, *steps = found.splitlines()
    assert first == "expected 2, found 1"
    assert [step.split()[-1] for step in steps[:2]] == ["A", "B"]
    assert len(steps) == 4


def test_an_actor_dies_at_every_step_but_no_more_often_than_allowed() -> None:
    explored = explore(lambda: Counter(crashes=1))
    assert explored.outcomes == {("A", "done"), ("A", "crashed"), ("B", "done"), ("B", "crashed")}
    assert explore(lambda: Counter(expected=1, crashes=1)).counterexample is None
    assert explore(lambda: Counter(expected=1, crashes=2)).counterexample is not None


def test_a_state_that_does_not_show_all_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="depends on more than its state shows"):
        explore(lambda: Counter(hidden=True))


def test_an_actor_that_waits_continues_when_the_other_has_ended() -> None:
    waiting = Standing("waits", waits_for="B")
    state = State(None, (("A", waiting), ("B", Standing("works"))))
    assert list(state.choices()) == ["B"]
    over = replace(state, actors=(("A", waiting), ("B", Standing(None, "done"))))
    assert list(over.choices()) == ["A"]
