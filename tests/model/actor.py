"""An actor: a greenlet that runs the real code, and stops before every call that others see or that sees others.

The search lets it continue, or crash there. A crash after a call is the crash before the next one: nothing can be seen
of it in between.
"""

import functools
from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from greenlet import greenlet
from tests.fakes import FeedInMemory
from tests.model.explore import Standing

from kafka_ingest.errors import KafkaIngestError

if TYPE_CHECKING:
    from tests.model.world import World


class Crashed(BaseException):
    """The process is gone: nothing handles this."""


class Actor(greenlet):
    """A process or operator that works on the feed, and what it knows: a digest of all answers since its task began."""

    def __init__(
        self, world: "World", name: str, number: int, work: Callable[["Actor"], str], *, can_crash: bool
    ) -> None:
        super().__init__(self._live)
        self.world = world
        self.name = name
        self.number = number
        self.can_crash = can_crash
        self.work = work
        self.ids = 0
        self.next_call = ""
        self.waits_for: Actor | None = None
        self.known: Hashable = None
        self.outcome: str | None = None
        self.error: KafkaIngestError | None = None
        self.feed = watched_by(self, world.feed)

    def _live(self) -> None:
        try:
            self.outcome = self.work(self)
        except Crashed:
            self.outcome = "crashed"
        except KafkaIngestError as error:
            self.error = error
            self.outcome = f"refused: {error.code}"

    def begin(self, *task: Hashable) -> None:
        """Forget all but what is passed to this task."""
        self.known = task

    def pause(self, call: str) -> None:
        """Let the search decide who goes next."""
        self.next_call = call
        self.parent.switch()

    def wait_for(self, other: "Actor") -> None:
        """Go on when another actor has ended."""
        self.waits_for = other
        try:
            self.pause(f"sees that {other.name} has ended")
        finally:
            self.waits_for = None

    def learn(self, answer: Hashable) -> None:
        """Add an answer to what is known."""
        self.known = hash((self.known, answer))

    def standing(self) -> Standing:
        """Return what its future depends on."""
        if self.outcome is not None:
            return Standing(None, self.outcome)
        waits_for = self.waits_for.name if self.waits_for is not None else None
        return Standing(hash((self.next_call, self.ids, self.known)), None, waits_for, self.can_crash)


class Part:
    """One of the feed's parts as one actor sees it: every call is a step."""

    def __init__(self, real: object, kind: str, actor: Actor) -> None:
        self._real = real
        self._kind = kind
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        return functools.partial(self._call, name, found) if callable(found) else found

    def _call(self, name: str, found: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        actor = self._actor
        if not is_quiet(self._kind, name, arguments, actor.world.feed):
            actor.pause(f"{self._kind}.{name}")
        try:
            answer = found(*arguments, **named)
        except KafkaIngestError as error:
            actor.learn((type(error), str(error)))
            actor.world.note(f"{type(error).__name__}: {error}")
            raise
        actor.learn(actor.world.token(answer))
        return answer


def is_quiet(kind: str, name: str, arguments: tuple[Any, ...], feed: FeedInMemory) -> bool:
    """Whether nobody's step before or after this call can change its answer, nor this call another's: it needs no turn.

    The cluster stays as it is but for its group; what a batch has read and where its ledger lies is settled when it is
    COMMITTING, an ended batch stays as it is forever, and so does a receipt that is there. Whichever batch is the
    newest that was published, its receipt is kept. What is asked of the rows of a feed, its coverage as much as its
    batches, needs a turn.
    """
    match kind, name:
        case "kafka", _:
            return name not in {"set_group_offsets", "group_offsets"}
        case "sink", "attempt_directory" | "data_needs" | "prepare" | "is_kept":
            return True
        case "control", "ledger" | "range_counts" | "newest_published" | "newest_of_kinds":
            return True
        case "sink", "read_receipt":
            return arguments[0] in feed.sink.receipts
        case "control", "batch":
            return not feed.control.batch(arguments[0]).state.is_open
    return False


def watched_by(actor: Actor, feed: FeedInMemory) -> FeedInMemory:
    """Return the same feed, every call to which is one of the actor's steps."""
    return replace(
        feed,
        kafka=Part(feed.kafka, "kafka", actor),
        control=Part(feed.control, "control", actor),
        sink=Part(feed.sink, "sink", actor),
    )
