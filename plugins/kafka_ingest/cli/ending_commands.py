"""The commands that end a batch, publish an abandoned one's files, or remove expired staged output."""

from functools import partial
from typing import Annotated

import typer

from kafka_ingest.assembly import control_tables
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
from kafka_ingest.cli.output import TO_EXECUTE, answers, show
from kafka_ingest.cli.write_and_commit import commit_batch
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.verbs.abandon import abandon as abandon_batch
from kafka_ingest.verbs.clean import clean_all, clean_batch, clean_named
from kafka_ingest.verbs.decided import Decided, reason_given
from kafka_ingest.verbs.named_batch import id_of_batch
from kafka_ingest.verbs.restore import restore as restore_batch


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
        parts = feed_parts(control_tables(find_connection_from_shell).batch(batch_id).feed_name)
        decided = decided_if(reason, execute=execute)
        answer = restore_batch(parts, batch_id, decided, partial(commit_batch, parts))
        show(answer, as_json=as_json, to_do=TO_EXECUTE)


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
