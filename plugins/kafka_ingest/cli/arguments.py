"""Arguments and options that several commands share, and what they are turned into."""

import getpass
import os
import socket
from typing import Annotated

import typer

from kafka_ingest.assembly import FeedParts, assemble_named
from kafka_ingest.foundation.storable_text import storable
from kafka_ingest.settings.connections import find_connection_from_shell

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")]
FeedName = Annotated[str, typer.Argument(metavar="FEED", help="A feed's name, as in its file.")]
Reason = Annotated[str, typer.Option(help="Why; kept in the audit journal.")]
ReasonToExecute = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit journal.")]
Execute = Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done and write nothing.")]
MaxRecords = Annotated[int | None, typer.Option(min=1, help="A smaller limit for this run.")]
EndTimestamp = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="End before the first record of this time, e.g. 2026-01-31T00:00:00Z."),
]
EndOffsets = Annotated[
    list[str] | None,
    typer.Option(metavar="TOPIC:PARTITION=OFFSET", help="Read only this partition, up to this offset; may come again."),
]


def feed_parts(feed_name: str) -> FeedParts:
    """Return a feed's parts, with connections looked up as in a shell."""
    return assemble_named(feed_name, find_connection_from_shell)


def actor() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = str(os.getuid())
    return storable(f"cli:{user}@{socket.gethostname()}/{os.getpid()}")
