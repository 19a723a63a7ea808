"""``kafka-ingest fold``: the control tables' rows of old batches become sums."""

from typing import Annotated

import typer

from kafka_ingest.cli.arguments import DryRun, FeedName, Json, actor, feed_parts
from kafka_ingest.cli.output import answers, counting, show
from kafka_ingest.verbs.fold import fold as fold_batches


def fold(
    feed_name: FeedName,
    *,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="TIME|DURATION",
            help="Batches committed before this time, or longer ago: 2026-01-31, 2026-01-31T12:00:00Z, 365d; "
            "without, the feed's control_retention.",
        ),
    ] = None,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Sum up the control tables' rows of old live batches. Their receipts keep the ranges; coverage stays provable.

    An interruption leaves nothing half done; run it again to continue.
    """
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        if only_show:
            answer = fold_batches(parts, before, actor=None)
        else:
            with counting("batches folded") as advance:
                answer = fold_batches(parts, before, actor=actor(), on_folded=advance)
        show(answer, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(fold)
