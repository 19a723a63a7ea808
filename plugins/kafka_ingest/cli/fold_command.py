"""``kafka-ingest fold``: the control tables' rows of old batches become sums."""

from datetime import datetime
from typing import Annotated, Any

import typer

from kafka_ingest.cli.arguments import DryRun, FeedName, Json, actor, feed_parts
from kafka_ingest.cli.output import answers, counting, out, print_json
from kafka_ingest.commands.expire import time_before
from kafka_ingest.commands.tables import moment
from kafka_ingest.model.control_rows import Foldable, Folded


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
        cut = parts.fold_cut(time_before(before) if before is not None else None)
        there = parts.foldable(cut.before)
        done: list[Folded] = []
        if not only_show:
            with counting("batches folded") as advance:
                for folded in parts.fold(cut.before, actor=actor()):
                    done.append(folded)
                    advance(folded.batches)
        if as_json:
            print_json(fold_document(feed_name, cut.before, there, done, executed=not only_show))
            return
        print_folded(cut.before, there, done, executed=not only_show)


def fold_document(
    feed_name: str, before: datetime, there: Foldable, done: list[Folded], *, executed: bool
) -> dict[str, Any]:
    """Return the result of folding as ``--json`` shows it; the number of removed rows is known once it is done."""
    return {
        "feed": feed_name,
        "before": before.isoformat(),
        "executed": executed,
        "batches": sum(each.batches for each in done) if executed else there.batches,
        "ranges": sum(each.ranges for each in done) if executed else None,
        "attempts": sum(each.attempts for each in done) if executed else None,
        "events": sum(each.events for each in done) if executed else there.events,
        "kept": [{"reason": reason, "batches": batches} for reason, batches in kept(there)],
    }


def kept(there: Foldable) -> list[tuple[str, int]]:
    """Return why batches of that age stay, each reason with their number."""
    reasons = (
        ("their Asset events are not recorded yet: the feed's next run announces them", there.to_announce),
        ("their staged output is not removed yet: `kafka-ingest clean` does that", there.staged),
    )
    return [(reason, batches) for reason, batches in reasons if batches]


def print_folded(before: datetime, there: Foldable, done: list[Folded], *, executed: bool) -> None:
    """Print what became sums, and what stays."""
    for reason, batches in kept(there):
        out.print(f"{batches:,} batches stay as they are: {reason}", style="yellow", soft_wrap=True)
    if not executed:
        text = (
            f"would fold {there.batches:,} batches committed before {moment(before)} UTC, and remove {there.events:,} "
        )
        out.print(f"{text}lines of the journal", soft_wrap=True)
        return
    batches, ranges = sum(each.batches for each in done), sum(each.ranges for each in done)
    attempts, events = sum(each.attempts for each in done), sum(each.events for each in done)
    text = f"folded {batches:,} batches committed before {moment(before)} UTC: {ranges:,} ranges and {attempts:,} "
    out.print(f"{text}attempts became sums, {events:,} lines of the journal were removed", soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(fold)
