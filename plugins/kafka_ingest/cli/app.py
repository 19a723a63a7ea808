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

from kafka_ingest.answers.documents import batch_document, decision_document
from kafka_ingest.answers.tables import (
    batches_table,
    checks_line,
    feed_files_table,
)
from kafka_ingest.assembly import FeedParts, control_tables
from kafka_ingest.batches.plan_batch import PlanResult, why_nothing
from kafka_ingest.checks.doctor import Check
from kafka_ingest.cli import (
    backfill_command,
    coverage_command,
    dead_letters_command,
    ending_commands,
    fold_command,
    history_commands,
    operator_commands,
    output_commands,
    preview_command,
    replay_command,
    reset_command,
    status_command,
)
from kafka_ingest.cli.arguments import (
    DryRun,
    EndOffsets,
    EndTimestamp,
    FeedName,
    Json,
    MaxRecords,
    actor,
    feed_parts,
    run_request,
    time_with_zone,
)
from kafka_ingest.cli.output import (
    STOPPED,
    answers,
    out,
    print_error_json,
    print_json,
    print_shown,
    progress,
    show,
    step,
    unexpected_in_json,
)
from kafka_ingest.cli.printed import check_printed, printing
from kafka_ingest.cli.write_and_commit import commit_batch, write_batch
from kafka_ingest.errors import NotPrintedError, WrongUseError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.offsets import listing
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.settings.connections import CONTROL_CONN_ID, control_database, find_connection_from_shell
from kafka_ingest.settings.feed_files import feed_named, feeds_directory, read_feed_files
from kafka_ingest.settings.run_request import NOT_APPLIED, RunRequest
from kafka_ingest.sinks.choose import FORMATS
from kafka_ingest.verbs.doctor import doctor as examine_feeds
from kafka_ingest.verbs.plan import lines_of_gaps_and_holds
from kafka_ingest.verbs.plan import plan as plan_batch

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
    "Look": ("status", "batches", "history", "coverage", "gaps", "dead-letters", "locate", "explain"),
    "Read again": ("backfill", "replay"),
    "Decide": ("abandon", "restore", "skip", "reset", "topic-changed", "mirror", "rename-feed"),
    "Keep in order": ("clean", "fold", "expire", "lost", "adopt", "mend-statistics", "db"),
}
"""The commands as --help lists them."""
VERSION = "Show the version and exit."
db = typer.Typer(help="The control tables' schema.", no_args_is_help=True)
app.add_typer(db, name="db", rich_help_panel="Keep in order")
status_command.add_to(app)
backfill_command.add_to(app)
coverage_command.add_to(app)
dead_letters_command.add_to(app)
ending_commands.add_to(app)
operator_commands.add_to(app)
output_commands.add_to(app)
preview_command.add_to(app)
replay_command.add_to(app)
fold_command.add_to(app)
history_commands.add_to(app)
reset_command.add_to(app)


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
def feeds(*, as_json: Json = False) -> None:
    """Validate all feed files and list them. Exit code 2 where one cannot be used."""
    with answers(as_json=as_json):
        files = read_feed_files(feeds_directory())
        broken = [file for file in files if file.error is not None]
        if as_json:
            print_json(
                {
                    "feeds": [
                        file.feed.model_dump(mode="json")
                        | {"file": str(file.path), "guarantee": FORMATS[file.feed.sink.format].guarantee}
                        for file in files
                        if file.feed
                    ],
                    "errors": [{"file": str(file.path), "message": str(file.error)} for file in broken],
                }
            )
        else:
            out.print(feed_files_table(files))
            for file in broken:
                progress.print(f"✗ {file.error}", style="red", markup=False, soft_wrap=True)
        if broken:
            raise typer.Exit(WrongUseError.exit_code)


@app.command()
def plan(
    feed_name: FeedName,
    *,
    only_show: DryRun = False,
    max_records: MaxRecords = None,
    end_timestamp: EndTimestamp = None,
    end_offset: EndOffsets = None,
    as_json: Json = False,
) -> None:
    """Plan the feed's next batch, as the DAG's plan task does; with --dry-run only show it."""
    with answers(as_json=as_json):
        request = run_request(max_records, end_timestamp, end_offset)
        show(plan_batch(feed_parts(feed_name), request, actor=None if only_show else actor()), as_json=as_json)


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
        request = run_request(max_records, end_timestamp, end_offset)
        parts = feed_parts(feed_name)
        nothing, hint = "", ""
        while not isinstance(batch := run_one_batch(parts, request), str):
            done.append(batch)
            # A batch that was open does not cover later records; on ranges that one left out a plan decides.
            was_open = batch["result"] == PlanResult.RESUMED.value
            may_be_more = batch["capped"] or was_open or bool(batch["ranges_left_out"])
            if not until_caught_up or not may_be_more:
                hint = MAY_BE_MORE if may_be_more else ""
                break
        else:
            nothing = batch
        if as_json:
            print_json({"feed": feed_name, "batches": done, "ended_with": nothing or None})
        elif not done:
            out.print(f"feed {feed_name}: {nothing}")
        elif hint:
            progress.print(f"  {hint}", soft_wrap=True)


@app.command()
def batches(
    feed_name: Annotated[str | None, typer.Argument(metavar="[FEED]")] = None,
    *,
    kind: Annotated[list[BatchKind] | None, typer.Option(help="Only batches of this kind; may come again.")] = None,
    state: Annotated[
        list[BatchState] | None, typer.Option(case_sensitive=False, help="Only in this state; may come again.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")] = 20,
    since: Annotated[str | None, typer.Option(help="Planned at or after this time, e.g. 2026-01-31T00:00:00Z.")] = None,
    as_json: Json = False,
) -> None:
    """List batches, newest first."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        if feed_name is not None and control.feed(feed_name) is None:
            feed_named(
                feed_name, feeds_directory()
            )  # a feed that was never planned has none; an unknown one is an error
        found = control.batch_summaries(
            feed_name, kinds=kind or [], states=state or [], since=time_with_zone(since), limit=limit
        )
        if as_json:
            print_json({"batches": [batch_document(batch) for batch in found]})
        else:
            out.print(batches_table(found))


@app.command()
def doctor(feed_name: Annotated[str | None, typer.Argument(metavar="[FEED]")] = None, *, as_json: Json = False) -> None:
    """Check before the first run that all parts are installed, reachable and of matching versions."""
    with answers(as_json=as_json):

        def print_check(check: Check) -> None:
            if not as_json:
                out.print(checks_line(check), soft_wrap=True)

        show(examine_feeds(feed_name, find_connection_from_shell, print_check), as_json=as_json)


@db.command()
def upgrade(
    *,
    create: Annotated[bool, typer.Option("--create", help="Make the control tables where there are none yet.")] = False,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Bring the control tables to this version's schema. Nothing else ever creates or changes them."""
    from kafka_ingest.verbs.upgrade import upgrade as upgrade_tables  # noqa: PLC0415 - Alembic, for this command only

    with answers(as_json=as_json):
        settings = control_database(find_connection_from_shell(CONTROL_CONN_ID))
        show(upgrade_tables(settings, create=create, execute=not only_show), as_json=as_json)


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
