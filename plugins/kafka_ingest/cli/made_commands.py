"""Commands that are made from requests: their arguments and options, how they are asked to decide, and their help."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, get_origin
from uuid import UUID

import typer
from pydantic.fields import FieldInfo
from rich.markup import escape

from kafka_ingest.batches.known_feed import batch_of_feed
from kafka_ingest.cli.arguments import DryRun, Execute, FeedName, Json, Reason, ReasonToExecute, actor
from kafka_ingest.cli.output import TO_EXECUTE, answers, counting, out, progress, show, step
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.run_request import limit_of, type_of
from kafka_ingest.verbs.answer import Check, Line
from kafka_ingest.verbs.request import (
    Argument,
    Call,
    Decided,
    Deciding,
    Needed,
    Option,
    Request,
    id_of_batch,
    reason_given,
)

Repair = Annotated[bool, typer.Option("--repair", help="Set the group to the stored offsets now.")]
GiveUp = Annotated[
    bool, typer.Option("--give-up", help="Remove those of --batch for good, or record that they are lost.")
]
OptionalFeed = Annotated[str | None, typer.Argument(metavar="FEED")]

OPTIONS: Final[Mapping[Deciding, dict[str, tuple[Any, Any]]]] = {
    Deciding.ONLY_SHOWS: {},
    Deciding.EXECUTE: {"execute": (Execute, False), "reason": (ReasonToExecute, None)},
    Deciding.REASON: {"reason": (Reason, inspect.Parameter.empty), "only_show": (DryRun, False)},
    Deciding.DRY_RUN: {"only_show": (DryRun, False)},
    Deciding.REPAIR: {"repair": (Repair, False)},
    Deciding.GIVE_UP: {"gives_up": (GiveUp, False), "reason": (ReasonToExecute, None)},
}
"""The options by which each kind of verb is asked to decide, with their defaults."""


@dataclass(frozen=True)
class ShellCall(Call):
    """A request's caller, by the command line: errors name options, and progress is on stderr."""

    is_shell: ClassVar[bool] = True

    def named(self, name: str) -> str:
        return self.verb.flag(name)

    def batch_named(self, batch_id: UUID | None) -> UUID:
        """Return a batch's id; raises UnknownBatchError where a feed was named and the batch is another's."""
        if batch_id is None or self.feed is None:
            return super().batch_named(batch_id)
        return batch_of_feed(batch_id, self.feed, self.control).batch_id

    def missing(self, wanted: str) -> WrongUseError:
        return WrongUseError(f"expected {wanted} with --execute, found none. Nothing was changed.")

    def counting(self, what: str) -> AbstractContextManager[Callable[..., object]]:
        return counting(what)

    def step(self, title: str) -> AbstractContextManager[None]:
        return step(title)

    def tell(self, line: Line) -> None:
        progress.print(f"  {line.text}", style=line.style, markup=False, soft_wrap=True)


def command_of(verb: type[Request]) -> Callable[..., None]:
    """Return a verb's command, as typer reads it: a function with its options in its signature."""

    def command(*, as_json: bool, feed_name: str | None = None, **given: object) -> None:
        with answers(as_json=as_json):
            decided = decision(verb.deciding, given)
            taken = {name: given[name] for name in dict(parameters(verb)) if given[name] is not None}
            # As they are: typer has read their types, and a path may hold bytes that are no text.
            fields: dict[str, Any] = {name: read(verb.model_fields[name], value) for name, value in taken.items()}
            request = verb.model_construct(**fields)

            def print_check(check: Check) -> None:
                if not as_json:
                    out.print(checks_line(check), soft_wrap=True)

            answer = request.answer(ShellCall(verb, feed_name, decided, find_connection_from_shell, print_check))
            to_do = TO_EXECUTE if verb.deciding is Deciding.EXECUTE else None
            show(answer, as_json=as_json, to_do=verb.to_do or to_do)

    found: dict[str, tuple[Any, Any]] = {}
    if verb.command_names_feed:
        found["feed_name"] = (FeedName, inspect.Parameter.empty) if verb.needs_feed else (OptionalFeed, None)
    found |= dict(parameters(verb)) | OPTIONS[verb.deciding] | {"as_json": (Json, False)}
    command.__dict__["__signature__"] = inspect.Signature(
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in found.items()
        ]
    )
    return command


def parameters(verb: type[Request]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the arguments and options of a verb's own, each with its type and its default."""
    for name, info in verb.model_fields.items():
        is_list = get_origin(info.annotation) is list
        kind: Any = info.annotation if is_list else str if type_of(info) is UUID else type_of(info)
        limits: dict[str, Any] = {"min": limit_of(info, "ge"), "max": limit_of(info, "le")}
        is_needed = any(isinstance(each, Needed) for each in info.metadata)
        for noted in info.metadata:
            if isinstance(noted, Argument):
                argument = typer.Argument(metavar=noted.metavar, help=noted.help, **limits)
                may_be_left_out = info.default is None
                given = (Annotated[kind | None, argument], None) if may_be_left_out else None
                yield name, given or (Annotated[kind, argument], inspect.Parameter.empty)
            elif isinstance(noted, Option):
                option = typer.Option(
                    verb.flag(name), metavar=noted.metavar, help=noted.help, case_sensitive=not noted.any_case, **limits
                )
                default = inspect.Parameter.empty if is_needed else None if is_list else info.default
                yield name, (Annotated[kind | None if default is None else kind, option], default)


def read(info: FieldInfo, value: object) -> object:
    return id_of_batch(value) if type_of(info) is UUID and isinstance(value, str) else value


def decision(deciding: Deciding, given: Mapping[str, object]) -> Decided | None:
    """Return the decision, None where it is only to be shown; raises WrongUseError where it lacks a reason."""
    found, only_show = given.get("reason"), given.get("only_show")
    reason = found if isinstance(found, str) else None
    match deciding:
        case Deciding.EXECUTE:
            return Decided(actor(), reason_given(reason)) if given["execute"] else None
        case Deciding.REASON:
            decided = Decided(actor(), reason_given(reason))
            return None if only_show else decided
        case Deciding.GIVE_UP:
            return Decided(actor(), reason_given(reason)) if given["gives_up"] else None
        case Deciding.REPAIR:
            return Decided(actor(), "") if given["repair"] else None
        case Deciding.DRY_RUN:
            return None if only_show else Decided(actor(), "")
        case Deciding.ONLY_SHOWS:
            return None


def checks_line(check: Check) -> str:
    if check.error is None:
        return f"[green]✓[/green] {escape(check.about)}: {escape(check.found)}"
    return f"[red]✗[/red] {escape(check.about)}: {escape(str(check.error))}"
