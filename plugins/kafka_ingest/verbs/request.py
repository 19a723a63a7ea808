"""A verb's request: each field says what it is on the command line, and what in the form, which are both made from it.

A field without ``Option`` or ``Argument`` is the form's alone, one without ``InForm`` the command line's alone.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field

from kafka_ingest.assembly import FeedParts, assemble_named, control_tables, feed_files, sinks_of
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import InvalidOperationError, UnknownBatchError, WrongUseError
from kafka_ingest.foundation.foreign_json import on_one_line
from kafka_ingest.model.offsets import listing
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.run_request import InForm, blank_is_none, of_kind
from kafka_ingest.settings.setting_types import Settings
from kafka_ingest.verbs.answer import Answer, Check, Line

LONGEST_REASON: Final = 2_000

MOST_LISTED: Final = 20
"""How many batches an error lists."""


@dataclass(frozen=True, slots=True)
class Argument:
    """What has a place on the command line."""

    help: str | None = None
    metavar: str | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """What has a flag on the command line: by default the field's name."""

    help: str
    flag: str | None = None
    metavar: str | None = None
    any_case: bool = False


@dataclass(frozen=True, slots=True)
class Needed:
    """A field that has to be there: what is expected, for the error of a form; an option is one without a default."""

    wanted: str


class Deciding(Enum):
    """How the command line asks to do something; a form has the tick of the dry run, and always a reason."""

    ONLY_SHOWS = auto()
    """Never."""

    EXECUTE = auto()
    """--execute, with --reason."""

    REASON = auto()
    """--reason, which is needed for --dry-run, too."""

    DRY_RUN = auto()
    """Unless with --dry-run; without a reason."""

    REPAIR = auto()
    """--repair, without a reason."""

    GIVE_UP = auto()
    """--give-up, with --reason."""


@dataclass(frozen=True, slots=True)
class Decided:
    """An operator's decision: the actor for the audit journal, and the reason that it keeps, where one is asked for."""

    actor: str
    reason: str


class Request(Settings):
    """What a verb is asked for. The docstring of its class is its help on the command line."""

    model_config = ConfigDict(defer_build=True)

    verb: ClassVar[str]
    """The action's name in the form."""

    does: ClassVar[str]
    """What the form and the docs say that it does."""

    command: ClassVar[str | None] = None
    """The words that call it on the command line; None for an option of another command."""

    like: ClassVar[str] = ""
    """The options with which the command does what the form's action does."""

    only_shows: ClassVar[bool] = False
    """Whether the form's action changes nothing, dry run or not."""

    deciding: ClassVar[Deciding] = Deciding.EXECUTE

    command_names_feed: ClassVar[bool] = True
    needs_feed: ClassVar[bool] = True
    """Without it the form's feed may be left empty; on the command line too, where it names one."""

    to_do: ClassVar[str | None] = None
    """What the command line says of how to do what was only shown, where it is not the same as for others."""

    def answer(self, call: "Call") -> Answer:
        """Do it where it is decided, or else show what would be done."""
        raise NotImplementedError

    @classmethod
    def what_there_is(cls, call: "Call", feed_name: str) -> str | None:
        """Return what the feed has of what a request did not name; None where a verb has nothing of its own to list."""
        _ = call, feed_name
        return None

    @classmethod
    def in_form(cls) -> dict[str, InForm]:
        return dict(of_kind(cls, InForm))

    @classmethod
    def flag(cls, name: str) -> str:
        option = dict(of_kind(cls, Option)).get(name)
        return (option.flag if option is not None else None) or f"--{name.replace('_', '-')}"

    @classmethod
    def dry_run_of(cls, feed_name: str, **fields: object) -> dict[str, Any]:
        """Return what the form is to say to show this about a feed, with all fields that can be set."""
        request = cls.model_validate(fields).model_dump(mode="json", include=set(cls.in_form()))
        return {"feed": feed_name, "action": cls.verb, "dry_run": True, "reason": None, **request}


@dataclass(frozen=True)
class Call:
    """A request's caller, by a form: for which feed, with which decision, and with what it is answered.

    ``decided`` is None where it is only to be shown. ``on_check`` is called after each of doctor's checks.
    """

    verb: type[Request]
    feed: str | None
    decided: Decided | None
    find_connection: FindConnection
    on_check: Callable[[Check], object]
    told: list[Line] = field(default_factory=list)

    is_shell: ClassVar[bool] = False
    """Whether the caller may read the files of this machine, and sees what records hold."""

    @cached_property
    def control(self) -> SqlControlTables:
        return control_tables(self.find_connection)

    @cached_property
    def sinks(self) -> Sinks:
        return sinks_of(self.find_connection)

    @cached_property
    def parts(self) -> FeedParts:
        return self.parts_of(self.feed_name)

    def parts_of(self, feed_name: str) -> FeedParts:
        return assemble_named(feed_name, self.find_connection)

    @property
    def feed_name(self) -> str:
        """The feed that was chosen; raises InvalidOperationError, which says which ones there are."""
        if self.feed is not None:
            return self.feed
        names = [file.feed.name for file in feed_files(self.find_connection) if file.feed is not None]
        raise InvalidOperationError(
            f"expected a feed with action {self.verb.verb}, found none. Feeds: {listing(names) or 'none'}. Nothing "
            "was changed."
        )

    @property
    def reason(self) -> str:
        """The decision's reason, or what stands in its place in a decision that is only shown."""
        return self.decided.reason if self.decided is not None else "shown only"

    def named(self, name: str) -> str:
        return name

    def counting(self, what: str) -> AbstractContextManager[Callable[..., object]]:
        """Show how many there are while a long step runs; what it gives is called with each number that is added."""
        _ = what
        return nullcontext(int)

    def step(self, title: str) -> AbstractContextManager[None]:
        _ = title
        return nullcontext()

    def tell(self, line: Line) -> None:
        self.told.append(line)

    def batch_named(self, batch_id: UUID | None) -> UUID:
        """Return a batch's id; raises InvalidOperationError where there is none, or the batch is another feed's."""
        if batch_id is None:
            raise self.missing("a batch's id")
        if self.feed is not None and (owner := self.control.batch(batch_id).feed_name) != self.feed:
            raise InvalidOperationError(
                f"expected a batch of feed {self.feed}, found {batch_id}, which is of feed {owner}. "
                f"{self.what_there_is()} Nothing was changed."
            )
        return batch_id

    def missing(self, wanted: str) -> WrongUseError:
        """Return the error about what is needed and was not said, with what the feed has."""
        return InvalidOperationError(
            f"expected {wanted} with action {self.verb.verb}, found none. {self.what_there_is()} Nothing was changed."
        )

    def what_there_is(self) -> str:
        """Return what an operator can decide about: batches, topics, what is held."""
        name = self.feed
        feed = self.control.feed(name) if name is not None else None
        if name is None or feed is None:
            names = [summary.name for summary in self.control.feed_summaries()]
            return f"Feeds in the control tables: {listing(names) or 'none'}."
        if (own := self.verb.what_there_is(self, name)) is not None:
            return own
        live = [feed.open_batch] if feed.open_batch is not None else []
        open_batches = live + self.control.open_backfills(feed.feed_id)
        batches = [f"{each.batch_id} ({each.plan.kind}, {each.state})" for each in open_batches]
        held = [f"{hold.topic_partition or hold.topic} ({hold.reason})" for hold in feed.holds]
        return (
            f"Feed {name} has open batches: {listing(batches) or 'none'}; held: {listing(held) or 'nothing'}; topics: "
            f"{listing(sorted(feed.topics)) or 'none'}."
        )


def reason_given(reason: str | None, named: str = "--reason") -> str:
    """Return a reason; raises WrongUseError where there is none, or where it is an option that should follow it."""
    if reason is not None and reason.startswith("--"):
        raise WrongUseError(f"expected {named} with a few words, found the option {reason!r} in their place")
    if reason is None or not reason.strip():
        raise WrongUseError(f"expected {named} with a few words, found none: the audit journal keeps why it was done")
    if len(reason) > LONGEST_REASON:
        raise WrongUseError(f"expected {named} with at most {LONGEST_REASON:,} characters, found {len(reason):,}")
    return on_one_line(reason)


def id_of_batch(text: str) -> UUID:
    """Return a batch's id; raises UnknownBatchError on a text that is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise UnknownBatchError(f"expected a batch's id, found {text!r}; `kafka-ingest batches` lists them") from error


BATCH: Final = InForm(
    "Batch",
    "Its id. abandon without one says which batches are open. clean with one: that batch alone, at once, last "
    "copies included. dead-letters without one: of all batches. restore and give-up-dead-letters without one "
    "say which there are, where a feed is chosen.",
    "abandon, restore, clean, lost, dead-letters, give-up-dead-letters",
)
BatchId = Annotated[UUID | None, BeforeValidator(blank_is_none), BATCH]

BEFORE: Final = InForm(
    "Written before, or committed before",
    "A date, a time with a zone, or how long ago: 2026-01-31, 2026-01-31T12:00:00Z, 90d. fold without one: "
    "the feed's control_retention decides.",
    "expire, fold",
)

RESET: Final = "reset, topic-changed"
TOPICS: Final = InForm(
    "Only these topics", "One per line; empty: all. For reset also TOPIC:0,1, some of its partitions.", RESET
)

ShowValues = Annotated[
    bool,
    Field(strict=True),
    InForm(
        "Show what records hold",
        "Rows, or the beginnings of keys and values, and errors that may quote them: in the log and in the XCom, for "
        "all who may read those of this DAG. Without it: where the records are, their columns and causes.",
        "preview, dead-letters",
    ),
]
WITHOUT_VALUES: Final = "what the records hold is not shown: show_values shows it, in this log and in the XCom"
