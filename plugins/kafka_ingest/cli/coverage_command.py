"""``kafka-ingest coverage``: which offset is where, and whether every offset is accounted for."""

from typing import Annotated

import typer

from kafka_ingest.assembly import control_tables
from kafka_ingest.cli.arguments import SINKS, FeedName, Json
from kafka_ingest.cli.output import answers, counting, show
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.verbs.coverage import coverage as coverage_of_feed


def coverage(
    feed_name: FeedName,
    *,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also count the output, row by row, batch by batch.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show where every offset is: committed, pending or in a gap. Exit code 3: some are unaccounted for."""
    with answers(as_json=as_json), without_garbage_collection():
        control = control_tables(find_connection_from_shell)
        if verify and control.feed(feed_name) is not None:
            with counting("batches counted") as advance:
                answer = coverage_of_feed(control, feed_name, SINKS, verify=True, advance=advance)
        else:
            answer = coverage_of_feed(control, feed_name, SINKS, verify=False)
        show(answer, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(coverage)
