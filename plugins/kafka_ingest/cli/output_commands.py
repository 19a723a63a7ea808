"""The commands about an output's files: old batches that expire, files that were lost, and statistics."""

from typing import Annotated

import typer

from kafka_ingest.cli.arguments import DryRun, Execute, FeedName, Json, ReasonToExecute, decided_if, feed_parts
from kafka_ingest.cli.output import TO_EXECUTE, answers, counting, show
from kafka_ingest.errors import WrongUseError
from kafka_ingest.verbs.expire import expire as expire_batches
from kafka_ingest.verbs.lost import lost as record_lost
from kafka_ingest.verbs.mend_statistics import mend_statistics as mend_output
from kafka_ingest.verbs.named_batch import id_of_batch


def expire(
    feed_name: FeedName,
    *,
    before: Annotated[
        str,
        typer.Option(
            metavar="TIME|DURATION",
            help="Batches written before this time, or longer ago: 2026-01-31, 2026-01-31T12:00:00Z, 90d.",
        ),
    ],
    only_show: DryRun = False,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Remove old batches from a feed's output. Their receipts stay: the offsets stay committed, listed as expired."""
    with answers(as_json=as_json):
        if only_show and execute:
            raise WrongUseError("expected --dry-run or --execute, found both")
        parts, decided = feed_parts(feed_name), decided_if(reason, execute=execute)
        if decided is None:
            answer = expire_batches(parts, before, None)
        else:
            with counting("batches removed") as advance:
                answer = expire_batches(parts, before, decided, advance)
        show(answer, as_json=as_json, to_do=TO_EXECUTE)


def lost(
    feed_name: FeedName,
    *,
    batch: Annotated[str, typer.Option(metavar="ID", help="The batch whose files were lost or damaged.")],
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """File gaps for the records of lost or damaged published files, so that `backfill FEED gaps` reads them again.

    All of the batch's files are read, every column. Intact files stay; a damaged one is moved out of readers' sight.
    """
    with answers(as_json=as_json):
        parts, decided = feed_parts(feed_name), decided_if(reason, execute=execute)
        show(record_lost(parts, id_of_batch(batch), decided), as_json=as_json, to_do=TO_EXECUTE)


def mend_statistics(
    feed_name: FeedName,
    *,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Let readers of a Delta table look for the bounds that all of its files have: some miss rows without the others.

    One commit, which names columns; no file changes.
    """
    with answers(as_json=as_json):
        parts, decided = feed_parts(feed_name), decided_if(reason, execute=execute)
        show(mend_output(parts, decided), as_json=as_json, to_do=TO_EXECUTE)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(expire)
    app.command()(lost)
    app.command("mend-statistics")(mend_statistics)
