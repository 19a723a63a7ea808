"""Explore every schedule of a small world, running the real code only for steps that were not seen before.

What a step does depends on its actor, what that knows, and what is stored; not on what others know. So a step is run
once for each such combination, in a new world that is brought there by repeating the choices that lead to it, and its
effect is remembered: all other states in which it can be taken are put together from remembered effects. Each time a
world is brought to a state, it has to be in the very state that was put together: that checks the search itself.

States are visited breadth first, so a counterexample is one of the shortest.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

CRASH = "crash "

AHEAD = 30
"""How many states are looked through for a step that was not seen yet, before another world is made for it."""


class ViolationError(AssertionError):
    """Something happened that must never happen."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where one actor stands.

    ``knows`` is a digest of all that its future depends on; ``outcome`` says that it has ended.
    """

    knows: Hashable
    outcome: str | None = None
    waits_for: str | None = None
    can_crash: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """A state of the world: what is stored, where each actor stands (by name), and how many crashes may come."""

    stores: Hashable
    actors: tuple[tuple[str, Standing], ...]
    crashes: int = 0

    def standing(self, name: str | None) -> Standing | None:
        """Return where an actor stands, None where there is no such actor."""
        return next((standing for actor, standing in self.actors if actor == name), None)

    def choices(self) -> Iterator[str]:
        """Yield what can happen next: an actor's next step, or its crash instead."""
        for name, standing in self.actors:
            if standing.outcome is not None:
                continue
            awaited = self.standing(standing.waits_for)
            if awaited is None or awaited.outcome is not None:
                yield name
            if self.crashes and standing.can_crash:
                yield CRASH + name


@dataclass(frozen=True, slots=True)
class Effect:
    """What a step changed: what is stored (nothing for a crash), where its actor stands, and whom it started."""

    stores: Hashable | None
    changed: Mapping[str, Standing]


class World(Protocol):
    """One execution under way. Deterministic: the same choices lead to the same state."""

    def state(self) -> State:
        """Return the state."""

    def take(self, choice: str) -> None:
        """Let an actor take its step, or crash; raises ViolationError."""

    def finish(self) -> None:
        """Look at the end, when no actor can continue; raises ViolationError."""

    def story(self) -> Sequence[str]:
        """Return what happened so far, a line a step."""

    def close(self) -> None:
        """Let go of what is still under way."""


@dataclass
class Explored:
    """What a search came to. ``executions`` ran real code; ``schedules`` is how many ways there are through the states.

    ``outcomes`` are all the ways in which each actor ended somewhere; ``counterexample`` is None where nothing was
    violated.
    """

    schedules: int = 0
    executions: int = 0
    steps: int = 0
    states: int = 0
    transitions: int = 0
    ends: int = 0
    outcomes: set[tuple[str, str]] = field(default_factory=set)
    counterexample: str | None = None

    def __str__(self) -> str:
        return (
            f"{self.schedules:.2g} schedules; {self.states:,} states, {self.transitions:,} transitions, {self.ends:,} "
            f"ends; {self.executions:,} executions of {self.steps:,} steps"
        )


@dataclass
class Search:
    """Explores one world. ``reached`` says from where, and by which choice, each state was reached first."""

    new_world: Callable[[], World]
    explored: Explored = field(default_factory=Explored)
    effects: dict[Hashable, Effect] = field(default_factory=dict)
    reached: dict[State, tuple[State, str] | None] = field(default_factory=dict)
    following: dict[State, list[State]] = field(default_factory=dict)
    ended: set[Hashable] = field(default_factory=set)

    def run(self) -> Explored:
        """Explore all schedules, up to the first violation."""
        world = self.new_world()
        first = world.state()
        world.close()
        self.reached[first] = None
        to_visit = deque([first])
        try:
            while to_visit:
                to_visit.extend(self.visit(to_visit.popleft()))
        except ViolationError as violation:
            self.explored.counterexample = str(violation)
        else:
            self.explored.schedules = self.ways_from(first, {})
        self.explored.states = len(self.reached)
        ends = (actor for state in self.reached for actor in state.actors)
        self.explored.outcomes = {(name, standing.outcome) for name, standing in ends if standing.outcome is not None}
        return self.explored

    def visit(self, state: State) -> Iterator[State]:
        """Yield the states that are reached from here for the first time."""
        choices = list(state.choices())
        if not choices and (state.stores, state.crashes) not in self.ended:
            # Those who ended cannot change anything any more: one look at what they left behind is enough.
            self.ended.add((state.stores, state.crashes))
            self.explored.ends += 1
            self.execute(state, None)
        followers = self.following[state] = []
        for choice in choices:
            self.explored.transitions += 1
            key = key_of(state, choice)
            if key not in self.effects:
                self.execute(state, choice)
            found = after(state, choice, self.effects[key])
            followers.append(found)
            if found not in self.reached:
                self.reached[found] = (state, choice)
                yield found

    def execute(self, state: State, choice: str | None) -> None:
        """Bring a new world to a state, and let the choice happen there; None looks at the end."""
        world = self.new_world()
        self.explored.executions += 1
        try:
            for earlier in self.way_to(state):
                self.explored.steps += 1
                world.take(earlier)
            require(world, state)
            if choice is None:
                world.finish()
                return
            self.learn_more(world, self.learn(world, state, choice))
        except ViolationError as violation:
            raise ViolationError(f"{violation}\n{story_of(world)}") from violation
        finally:
            world.close()

    def learn(self, world: World, state: State, choice: str) -> State:
        """Let a choice happen, remember its effect, and return the state after it."""
        self.explored.steps += 1
        world.take(choice)
        found = world.state()
        changed = {name: standing for name, standing in found.actors if state.standing(name) != standing}
        self.effects[key_of(state, choice)] = Effect(None if is_crash(choice) else found.stores, changed)
        return found

    def learn_more(self, world: World, state: State) -> None:
        """Learn more effects while the world is there, also by way of steps that are known.

        A violation can wait until the search gets to it by the shortest way.
        """
        with contextlib.suppress(ViolationError):
            while (way := self.way_on(state)) is not None:
                *known, fresh = way
                for choice in known:
                    self.explored.steps += 1
                    world.take(choice)
                    state = after(state, choice, self.effects[key_of(state, choice)])
                if known:
                    require(world, state)
                state = self.learn(world, state, fresh)

    def way_on(self, state: State) -> list[str] | None:
        """Return the choices from a state to the next effect that is not known; None where none is near."""
        ways: dict[State, list[str]] = {state: []}
        to_look_at = deque([state])
        while to_look_at:
            here = to_look_at.popleft()
            for choice in sorted(here.choices(), key=is_crash):
                way = [*ways[here], choice]
                effect = self.effects.get(key_of(here, choice))
                if effect is None:
                    return way
                found = after(here, choice, effect)
                if found not in ways and len(ways) < AHEAD:
                    ways[found] = way
                    to_look_at.append(found)
        return None

    def ways_from(self, state: State, known: dict[State, int]) -> int:
        """Return how many schedules continue from a state.

        Nobody's knowledge is ever the same again, so each has an end.
        """
        if state not in known:
            followers = self.following[state]
            known[state] = sum(self.ways_from(follower, known) for follower in followers) if followers else 1
        return known[state]

    def way_to(self, state: State) -> list[str]:
        """Return the choices that led to a state first."""
        way: list[str] = []
        while (came := self.reached[state]) is not None:
            state, choice = came
            way.append(choice)
        return way[::-1]


def explore(new_world: Callable[[], World]) -> Explored:
    """Explore all schedules, up to the first violation."""
    return Search(new_world).run()


def require(world: World, state: State) -> None:
    """Raise RuntimeError unless a world is in the state that was put together."""
    if world.state() != state:
        raise RuntimeError("a step depends on more than its state shows: " + story_of(world))


def is_crash(choice: str) -> bool:
    """Whether a choice is an actor's crash, and not its next step."""
    return choice.startswith(CRASH)


def key_of(state: State, choice: str) -> Hashable:
    """Return all that the effect of a choice depends on."""
    name = choice.removeprefix(CRASH)
    standing = state.standing(name)
    assert standing is not None
    if is_crash(choice):
        return choice, standing
    return state.stores, choice, standing, state.standing(standing.waits_for)


def after(state: State, choice: str, effect: Effect) -> State:
    """Return the state in which a choice results."""
    actors = dict(state.actors) | effect.changed
    if is_crash(choice):
        return State(state.stores, tuple(sorted(actors.items())), state.crashes - 1)
    return State(effect.stores, tuple(sorted(actors.items())), state.crashes)


def story_of(world: World) -> str:
    """Return a world's story with numbered lines."""
    return "\n".join(f"{number:4}. {line}" for number, line in enumerate(world.story(), start=1))
