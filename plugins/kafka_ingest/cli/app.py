"""The commands. Each looks things up, calls one function, and prints its answer."""

import io
import signal
import sys
import time
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException
from typer.models import CommandInfo

from kafka_ingest.answers.documents import decision_document
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.plan_batch import PlanResult, why_nothing
from kafka_ingest.cli import (
    backfill_command,
    replay_command,
)
from kafka_ingest.cli.arguments import (
    EndOffsets,
    EndTimestamp,
    FeedName,
    Json,
    MaxRecords,
    actor,
    feed_parts,
)
from kafka_ingest.cli.made_commands import add_made_commands
from kafka_ingest.cli.output import (
    STOPPED,
    answers,
    out,
    print_error_json,
    print_json,
    print_shown,
    progress,
    step,
    unexpected_in_json,
)
from kafka_ingest.cli.printed import check_printed, printing
from kafka_ingest.cli.write_and_commit import commit_batch, write_batch
from kafka_ingest.errors import KafkaIngestError, NotPrintedError
from kafka_ingest.model.offsets import listing
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.settings.run_request import NOT_APPLIED, RunRequest
from kafka_ingest.verbs.plan import lines_of_gaps_and_holds, run_request

MAY_BE_MORE = "there may be more records to read: the next run reads them; --until-caught-up reads them at once"

app = typer.Typer(
    help="Bounded Kafka batches over explicit offset ranges, committed once.",
    no_args_is_help=True,
    add_completion=False,
    # Rich tracebacks show local variables, and those may hold a password.
    pretty_exceptions_enable=False,
)
PANELS = {
    "Run": ("feeds", "doctor", "preview", "plan", "run"),
    "Look": (
        "status",
        "partitions",
        "batches",
        "history",
        "coverage",
        "gaps",
        "dead-letters",
        "locate",
        "explain",
        "verify",
    ),
    "Read again": ("backfill", "replay"),
    "Decide": ("abandon", "restore", "skip", "reset", "topic-changed", "mirror", "rename-feed"),
    "Keep in order": ("clean", "fold", "expire", "lost", "adopt", "mend-statistics", "db"),
}
"""The commands as --help lists them."""
VERSION = "Show the version and exit."
db = typer.Typer(help="The control tables' schema.", no_args_is_help=True)
app.add_typer(db, name="db", rich_help_panel="Keep in order")
backfill_command.add_to(app)
replay_command.add_to(app)
add_made_commands(app, {"db": db})


def main() -> None:
    """Run the command line."""
    # A SIGTERM, from `timeout` or a service manager, is meant for Spark, too: unwind instead of exiting at once.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    # A terminal without ✓ gets another sign instead of a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    streams = printing()
    code: Any = 0
    try:
        if "--json" in sys.argv:
            sys.excepthook = unexpected_in_json
            code = answer_in_json()
        else:
            app()
    except SystemExit as ended:
        code = ended.code
    try:
        check_printed(*streams)
    except NotPrintedError as error:
        progress.print(f"{error.code} {error}", style="red", markup=False, soft_wrap=True)
        code = code or error.exit_code
    sys.exit(code)


def answer_in_json() -> int:
    """Run the command line so that also a wrong option or argument is answered with a JSON object."""
    try:
        return int(app(standalone_mode=False) or 0)
    except TyperException as error:
        print_error_json("WRONG_USE", error.format_message(), error.exit_code)
        return error.exit_code
    except Abort:
        print_error_json("STOPPED", STOPPED, 128 + signal.SIGINT)
        return 128 + signal.SIGINT


def print_version(*, asked: bool) -> None:
    """Print the version and end, where it is asked for."""
    if asked:
        out.print(f"kafka-ingest {version('kafka-ingest')}")
        raise typer.Exit


@app.callback()
def all_commands(
    *, _: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help=VERSION)] = False
) -> None:
    """Take the options of no command."""


@app.command()
def run(
    feed_name: FeedName,
    *,
    until_caught_up: Annotated[
        bool, typer.Option("--until-caught-up", help="Continue batch by batch until no records are left.")
    ] = False,
    max_records: MaxRecords = None,
    end_timestamp: EndTimestamp = None,
    end_offset: EndOffsets = None,
    as_json: Json = False,
) -> None:
    """Plan, write and commit without a scheduler."""
    done: list[dict[str, Any]] = []
    with answers(as_json=as_json):
        request = run_request(max_records, end_timestamp, end_offset or [])
        parts = feed_parts(feed_name)
        nothing, hint = "", ""
        while not isinstance(batch := run_one_batch(parts, request), str):
            done.append(batch)
            # Also between batches: hours are complete long before a backlog is.
            complete(parts)
            # A batch that was open does not cover later records; on ranges that one left out a plan decides.
            was_open = batch["result"] == PlanResult.RESUMED.value
            may_be_more = batch["capped"] or was_open or bool(batch["ranges_left_out"])
            if not until_caught_up or not may_be_more:
                hint = MAY_BE_MORE if may_be_more else ""
                break
        else:
            nothing = batch
            complete(parts)
        if as_json:
            print_json({"feed": feed_name, "batches": done, "ended_with": nothing or None})
        elif not done:
            out.print(f"feed {feed_name}: {nothing}")
        elif hint:
            progress.print(f"  {hint}", soft_wrap=True)


def complete(parts: FeedParts) -> None:
    """Complete the feed's hours or days; what fails the next run does, and what is committed stays committed."""
    if parts.feed.complete is None:
        return
    try:
        with step("complete"):
            waiting = parts.complete(actor=actor())
        if waiting is not None:
            said = f"waiting for {waiting.began_at:%Y-%m-%d %H:%M} UTC: {listing(waiting.waits_for, 2)}"
            progress.print(f"  {said}", markup=False, soft_wrap=True)
    except KafkaIngestError as error:
        progress.print(f"  {error.code} {error}", style="yellow", markup=False, soft_wrap=True)


def run_one_batch(parts: FeedParts, request: RunRequest) -> dict[str, Any] | str:
    """Plan, write and commit one batch and return its result; where there is none, the reason in a few words."""
    started = time.monotonic()
    with step("plan"):
        outcome = parts.plan(actor=actor(), end=request.end(), max_records=request.max_records)
    print_gaps_and_holds(outcome.decision)
    if outcome.result is PlanResult.RESUMED and request != RunRequest():
        progress.print(f"  {NOT_APPLIED}", style="yellow", soft_wrap=True)
    if outcome.batch is None:
        return why_nothing(outcome.decision)
    planned = time.monotonic()
    batch_id = outcome.batch.batch_id
    progress.print(
        f"  {outcome.result.value} batch {batch_id}: {listing(outcome.batch.ranges)}", markup=False, soft_wrap=True
    )
    write_batch(parts, batch_id)
    written = time.monotonic()
    committed = commit_batch(parts, batch_id)
    ended = time.monotonic()
    steps = {"plan": planned - started, "write": written - planned, "commit": ended - written}
    return {
        "batch_id": str(batch_id),
        "result": outcome.result.value,
        "state": committed.batch.state.value,
        "committed_by": committed.batch.committed_by,
        "rows": sum(count.rows for count in committed.counts),
        "capped": outcome.batch.capped,
        "output": str(outcome.batch.output),
        "left_out": decision_document(outcome.decision)["left_out"],
        "ranges_left_out": [each.as_document() for each in committed.batch.left_out],
        "mirror_failure": committed.mirrored.failure,
        "seconds": round(ended - started, 3),
        "step_seconds": {name: round(seconds, 3) for name, seconds in steps.items()},
    }


def print_gaps_and_holds(decision: PlanDecision | None) -> None:
    """Print what a plan found besides its ranges."""
    for line in lines_of_gaps_and_holds(decision) if decision is not None else ():
        print_shown(line)


def in_panels(commands: list[CommandInfo]) -> list[CommandInfo]:
    """Return the commands in the order in which --help lists them, each with its panel."""
    by_name = {each.name or str(getattr(each.callback, "__name__", "")): each for each in commands}
    found = [(panel, by_name.pop(name, None)) for panel, names in PANELS.items() for name in names]
    for panel, command in found:
        if command is not None:  # one that is a group of commands
            command.rich_help_panel = panel
    return [*(command for _, command in found if command is not None), *by_name.values()]


app.registered_commands = in_panels(app.registered_commands)
