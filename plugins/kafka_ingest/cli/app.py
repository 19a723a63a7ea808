"""The commands. Each looks things up, calls one function, and prints its answer."""

import io
import signal
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.exceptions import Abort, TyperException
from typer.models import CommandInfo

from kafka_ingest.cli import backfill_command, run_command, set_up
from kafka_ingest.cli.made_commands import add_made_commands
from kafka_ingest.cli.output import (
    STOPPED,
    check_printed,
    out,
    print_error_json,
    printing,
    progress,
    unexpected_in_json,
)
from kafka_ingest.errors import NotPrintedError

app = typer.Typer(
    help="Bounded Kafka batches over explicit offset ranges, committed once.",
    no_args_is_help=True,
    add_completion=False,
    # Rich tracebacks show local variables, and those may hold a password.
    pretty_exceptions_enable=False,
)
PANELS = {
    "Set up": ("jars", "init"),
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
app.command()(backfill_command.backfill)
app.command()(backfill_command.replay)
app.command()(run_command.run)
app.command()(set_up.jars)
app.command()(set_up.init)
add_made_commands(app, {"db": db})


def main() -> None:
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
    try:
        return int(app(standalone_mode=False) or 0)
    except TyperException as error:
        print_error_json("WRONG_USE", error.format_message(), error.exit_code)
        return error.exit_code
    except Abort:
        print_error_json("STOPPED", STOPPED, 128 + signal.SIGINT)
        return 128 + signal.SIGINT


def print_version(*, asked: bool) -> None:
    if asked:
        out.print(f"kafka-ingest {version('kafka-ingest')}")
        raise typer.Exit


@app.callback()
def all_commands(
    *, _: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help=VERSION)] = False
) -> None:
    """Take the options of no command."""


def in_panels(commands: list[CommandInfo]) -> list[CommandInfo]:
    by_name = {each.name or str(getattr(each.callback, "__name__", "")): each for each in commands}
    found = [(panel, by_name.pop(name, None)) for panel, names in PANELS.items() for name in names]
    for panel, command in found:
        if command is not None:  # one that is a group of commands
            command.rich_help_panel = panel
    return [*(command for _, command in found if command is not None), *by_name.values()]


app.registered_commands = in_panels(app.registered_commands)
