"""The commands about the past: who changed what, which batch ingested an offset, which offsets are in a file."""

from typing import Annotated

import typer

from kafka_ingest.answers.history_tables import history_table
from kafka_ingest.assembly import control_tables
from kafka_ingest.cli.arguments import SINKS, FeedName, Json, time_with_zone
from kafka_ingest.cli.output import answers, out, print_json, show
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.history import history as history_of
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed_files import feed_named, feeds_directory
from kafka_ingest.verbs.explain import explain as explain_file
from kafka_ingest.verbs.locate import locate as locate_offset

LARGEST_PARTITION = 2**31 - 1
LARGEST_OFFSET = 2**63 - 1


def history(
    feed_name: FeedName,
    *,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="How many at most.")] = 50,
    since: Annotated[str | None, typer.Option(help="At or after this time, e.g. 2026-01-31T00:00:00Z.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only events of this kind; may come again.")] = None,
    as_json: Json = False,
) -> None:
    """Show who changed what about a feed, when and why, newest first: offsets, gaps, abandoned batches, its name."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        feed = control.feed(feed_name)
        if feed is None:
            feed_named(feed_name, feeds_directory())  # never planned, so nothing was; an unknown one is an error
        earliest = time_with_zone(since)
        lines = (
            history_of(control, feed.feed_id, kinds=kind or [], since=earliest, limit=limit) if feed is not None else []
        )
        if as_json:
            print_json({"feed": feed_name, "events": [line.as_document() for line in lines]})
        else:
            out.print(history_table(feed_name, lines))


def locate(
    feed_name: FeedName,
    topic: Annotated[str, typer.Argument()],
    partition: Annotated[int, typer.Argument(min=0, max=LARGEST_PARTITION)],
    offset: Annotated[int, typer.Argument(min=0, max=LARGEST_OFFSET)],
    *,
    as_json: Json = False,
) -> None:
    """Show what happened to one offset: which batch ingested it, who ran it, and its file, or why there is none."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        answer = locate_offset(control, SINKS, feed_name, TopicPartition(topic, partition), offset)
        show(answer, as_json=as_json)


def explain(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A data file of an output, or one that is staged.")],
    *,
    as_json: Json = False,
) -> None:
    """Show which offsets are in a file, which batch it belongs to, and whether it matches that batch's receipt."""
    with answers(as_json=as_json):
        show(explain_file(file, lambda: control_tables(find_connection_from_shell), SINKS), as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(history)
    app.command()(locate)
    app.command()(explain)
