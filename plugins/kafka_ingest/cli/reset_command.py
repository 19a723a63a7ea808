"""``kafka-ingest reset``: move stored offsets."""

from typing import Annotated

import typer

from kafka_ingest.cli.arguments import Execute, FeedName, Json, ReasonToExecute, decided_if, feed_parts
from kafka_ingest.cli.output import TO_EXECUTE, answers, show
from kafka_ingest.verbs.reset import reset as move_offsets
from kafka_ingest.verbs.reset_options import named_partitions, reset_target


def reset(
    feed_name: FeedName,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="earliest, latest, timestamp=TIME, group=NAME, offsets=TOPIC:PARTITION=OFFSET,… or batch=ID (where it "
            "began).",
        ),
    ] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="This many offsets forward, or back: -100.")] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:PARTITION,…]", help="Only this topic, or these partitions; may come again."),
    ] = None,
    keep_group: Annotated[
        bool, typer.Option("--keep-group", help="Leave the consumer group where it is; the next commit takes it along.")
    ] = False,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Move stored offsets: back, and records are read again; forward, over a gap. Refused while a batch is open."""
    with answers(as_json=as_json):
        target = reset_target(to, shift_by)
        named = named_partitions(topic or [], target)
        decided = decided_if(reason, execute=execute)
        answer = move_offsets(feed_parts(feed_name), target, named, decided, keep_group=keep_group)
        show(answer, as_json=as_json, to_do=TO_EXECUTE)


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command()(reset)
