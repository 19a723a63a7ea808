"""The commands. Each looks things up, calls one function, and prints its answer."""

import io
import signal
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pkgutil import resolve_name
from typing import Annotated, Any, Final

import typer
from typer.exceptions import Abort, TyperException

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
from kafka_ingest.foundation.without_garbage_collection import importing

Commands = Mapping[str, str]
"""Where each command is: a module, and in it a verb's request or a function."""

GROUP: Final = "db"
OF_GROUP: Final[Commands] = {"upgrade": "verbs.database:Upgrade", "copy": "verbs.database:CopyTables"}
PANELS: Final[Mapping[str, Commands]] = {
    "Set up": {"jars": "cli.set_up:jars", "init": "cli.set_up:init"},
    "Run": {
        "feeds": "verbs.listings:Feeds",
        "doctor": "verbs.doctor:Doctor",
        "preview": "verbs.preview:PreviewRecords",
        "plan": "verbs.plan:Plan",
        "run": "cli.run_command:run",
    },
    "Look": {
        "status": "verbs.status:Status",
        "partitions": "verbs.status:Partitions",
        "batches": "verbs.listings:Batches",
        "history": "verbs.listings:History",
        "coverage": "verbs.coverage:Coverage",
        "gaps": "verbs.listings:Gaps",
        "dead-letters": "verbs.dead_letters:DeadLetters",
        "locate": "verbs.locate:Locate",
        "explain": "verbs.explain:Explain",
        "verify": "verbs.verify:Verify",
    },
    "Read again": {"backfill": "cli.backfill_command:backfill", "replay": "cli.backfill_command:replay"},
    "Decide": {
        "abandon": "verbs.abandon:Abandon",
        "restore": "verbs.abandon:Restore",
        "skip": "verbs.skip:Skip",
        "reset": "verbs.reset:Reset",
        "topic-changed": "verbs.topic_changed:TopicChanged",
        "mirror": "verbs.mending:Mirror",
        "rename-feed": "verbs.database:Rename",
    },
    "Keep in order": {
        "clean": "verbs.clean:Clean",
        "fold": "verbs.database:Fold",
        "expire": "verbs.expire:Expire",
        "lost": "verbs.lost:Lost",
        "adopt": "verbs.adopt:Adopt",
        "mend-statistics": "verbs.mending:MendStatistics",
        GROUP: "",
    },
}
"""The commands as --help lists them."""
VERSION = "Show the version and exit."


def app_of(words: Sequence[str] = ()) -> typer.Typer:
    """Return the command that these words call, for which its own modules alone are imported; or all of them."""
    called = words[0] if words else None
    is_known = any(called in commands for commands in PANELS.values())
    app = typer.Typer(
        help="Bounded Kafka batches over explicit offset ranges, committed once.",
        no_args_is_help=True,
        add_completion=False,
        # Rich tracebacks show local variables, and those may hold a password.
        pretty_exceptions_enable=False,
    )
    app.callback()(all_commands)
    for panel, commands in PANELS.items():
        for name, place in commands.items():
            if is_known and name != called:
                continue
            if name == GROUP:
                group = typer.Typer(help="The control tables' schema.", no_args_is_help=True)
                for of_group, at in OF_GROUP.items():
                    add(group, of_group, at)
                app.add_typer(group, name=GROUP, rich_help_panel=panel)
            else:
                add(app, name, place, panel)
    return app


def add(app: typer.Typer, name: str, place: str, panel: str | None = None) -> None:
    with importing():
        found = resolve_name(f"kafka_ingest.{place}")
        command_of = resolve_name("kafka_ingest.cli.made_commands:command_of") if isinstance(found, type) else None
    if command_of is not None:
        app.command(name, help=found.__doc__, rich_help_panel=panel)(command_of(found))
    else:
        app.command(name, rich_help_panel=panel)(found)


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
            app_of(sys.argv[1:])()
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
        return int(app_of(sys.argv[1:])(standalone_mode=False) or 0)
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


def all_commands(
    *, _: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help=VERSION)] = False
) -> None:
    """Take the options of no command."""
