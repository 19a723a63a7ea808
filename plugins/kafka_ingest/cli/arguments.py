"""Arguments and options that several commands share, and what they are turned into."""

import getpass
import os
import socket
from datetime import UTC, datetime
from typing import Annotated

import typer

from kafka_ingest.assembly import FeedParts, assemble_named, sinks_of
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.storable_text import storable
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.run_request import RunRequest
from kafka_ingest.verbs.decided import Decided, reason_given

SINKS = sinks_of(find_connection_from_shell)
"""Finds the sink of any output, with connections looked up as in a shell."""

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


def run_request(max_records: int | None, end_timestamp: str | None, end_offsets: list[str] | None) -> RunRequest:
    """Return the request that a manual run's options make."""
    by_topic: dict[str, dict[str, int]] = {}
    for text in end_offsets or []:
        place, _, offset = text.partition("=")
        topic, _, partition = place.rpartition(":")
        if not (
            place.isascii()
            and offset.isascii()
            and topic
            and partition.isdecimal()
            and offset.replace("_", "").isdecimal()
        ):
            raise WrongUseError(f"expected --end-offset TOPIC:PARTITION=OFFSET, such as orders:0=1200, found {text!r}")
        if partition in by_topic.setdefault(topic, {}):
            raise WrongUseError(f"expected one --end-offset for each partition, found {topic}:{partition} twice")
        by_topic[topic][partition] = int(offset)
    return RunRequest.of({"max_records": max_records, "end_timestamp": end_timestamp, "end_offsets": by_topic})


def decided_if(reason: str | None, *, execute: bool) -> Decided | None:
    """Return the decision to execute a command, None where it only shows; raises WrongUseError without a reason."""
    return Decided(actor(), reason_given(reason)) if execute else None


def time_with_zone(text: str | None) -> datetime | None:
    """Return a time; raises WrongUseError where it cannot be read or has no zone."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise WrongUseError(f"--since: expected a time such as 2026-01-31T00:00:00Z, found {text!r}") from error
    raise WrongUseError(f"--since: expected a time with a zone, such as {found.isoformat()}Z, found {text!r}")


def actor() -> str:
    """Return the actor for the audit journal."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a number without a name
        user = str(os.getuid())
    return storable(f"cli:{user}@{socket.gethostname()}/{os.getpid()}")
