"""The commands that end a batch, publish an abandoned one's files, or remove expired staged output."""

from typing import Annotated, Any
from uuid import UUID

import typer

from kafka_ingest.assembly import control_tables
from kafka_ingest.backfilling.restore import RestoreDecision, decide_restore
from kafka_ingest.backfilling.restore import restore as restore_batch
from kafka_ingest.cli.arguments import (
    SINKS,
    DryRun,
    Execute,
    Json,
    Reason,
    ReasonToExecute,
    actor,
    decided_if,
    feed_parts,
)
from kafka_ingest.cli.output import answers, out, print_json, show
from kafka_ingest.cli.write_and_commit import commit_batch
from kafka_ingest.commands.abandon import abandon as abandon_batch
from kafka_ingest.commands.clean import clean_all, clean_batch, clean_named
from kafka_ingest.commands.decided import Decided, reason_given
from kafka_ingest.commands.documents import range_document
from kafka_ingest.commands.named_batch import id_of_batch
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.connections import find_connection_from_shell


def abandon(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id.")],
    *,
    reason: Reason,
    lost_output: Annotated[
        bool, typer.Option("--lost-output", help="Its output is gone for good, and need not be asked.")
    ] = False,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Abandon an open batch. No offset moves: the next plan reads its ranges again. Refused once it is published."""
    with answers(as_json=as_json):
        decided = Decided(actor(), reason_given(reason))
        control, batch_id = control_tables(find_connection_from_shell), id_of_batch(batch)
        asked = None if only_show else decided
        show(abandon_batch(batch_id, control, SINKS, asked, output_is_lost=lost_output), as_json=as_json)


def restore(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="The abandoned batch's id.")],
    *,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Publish the staged files of an abandoned batch: new batches hold those of its offsets that no other batch has."""
    with answers(as_json=as_json):
        batch_id = id_of_batch(batch)
        control = control_tables(find_connection_from_shell)
        parts = feed_parts(control.batch(batch_id).feed_name)
        decision = decide_restore(batch_id, control, parts.sinks)
        parts.check_output_known()
        into: list[UUID] = []
        if execute:
            why = reason_given(reason)
            into = restore_batch(decision, control, parts.kafka, parts.sinks, reason=why, actor=actor())
            for each in into:
                commit_batch(parts, each)
        if as_json:
            print_json(restored_document(decision, into, executed=execute and not decision.is_nothing))
            return
        print_restored(decision, into, executed=execute)


def restored_document(decision: RestoreDecision, into: list[UUID], *, executed: bool) -> dict[str, Any]:
    """Return what is restored as ``--json`` shows it."""
    return {
        "feed": decision.rows.feed.name,
        "batch_id": str(decision.batch.batch_id),
        "attempt": decision.attempt.attempt,
        "live": [range_document(each) for each in decision.live],
        "fill": [range_document(each) for each in decision.fill],
        "held": [range_document(each) for each in decision.held],
        "cut_off": [range_document(each) for each in decision.cut_off],
        "begun": [str(each.batch_id) for each in decision.begun],
        "into": [str(each) for each in into],
        "executed": executed,
    }


def print_restored(decision: RestoreDecision, into: list[UUID], *, executed: bool) -> None:
    """Print what is restored, and what is not."""
    texts = (
        (decision.live, "from the stored offset on, which moves"),
        (decision.fill, "below the stored offset, where it closes the gaps"),
        (decision.held, "left out: other batches hold it, or are about to"),
        (decision.cut_off, "left out: the log was truncated since, and other records lie there now"),
    )
    for ranges, text in texts:
        for each in ranges:
            out.print(f"{each}: {text}", markup=False, soft_wrap=True)
    for begun in decision.begun:
        out.print(f"batch {begun.batch_id} was planned by an earlier call and is {begun.state}", soft_wrap=True)
    if decision.is_nothing:
        out.print(f"nothing of batch {decision.batch.batch_id} is left to restore", soft_wrap=True)
    elif executed:
        out.print(f"committed with {', '.join(map(str, into))}", soft_wrap=True)
    else:
        out.print("nothing was changed: --execute --reason … does it")


def clean(
    feed_name: Annotated[str | None, typer.Argument(metavar="[FEED]")] = None,
    *,
    batch: Annotated[
        str | None, typer.Option(metavar="ID", help="This batch alone, at once, last copies included; needs --reason.")
    ] = None,
    reason: ReasonToExecute = None,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove staged output of finished and abandoned batches and discarded attempts, after sink.staging_retention."""
    with answers(as_json=as_json):
        if batch is not None and feed_name is not None:
            raise WrongUseError("expected a feed or --batch, found both; a batch's id says which feed it is of")
        if batch is not None:
            batch_id, decided = id_of_batch(batch), decided_if(reason, execute=not only_show)
            answer = clean_batch(batch_id, control_tables(find_connection_from_shell), SINKS, decided)
        elif reason is not None:
            raise WrongUseError("expected --reason with --batch only: without it, sink.staging_retention decides")
        elif feed_name is not None:
            answer = clean_named(feed_name, find_connection_from_shell, only_show=only_show)
        else:
            answer = clean_all(find_connection_from_shell, only_show=only_show)
        show(answer, as_json=as_json)


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(abandon)
    app.command()(restore)
    app.command()(clean)
