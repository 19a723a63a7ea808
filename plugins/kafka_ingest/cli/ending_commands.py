"""The commands that end a batch, publish an abandoned one's files, or remove expired staged output."""

from typing import Annotated, Any
from uuid import UUID

import typer

from kafka_ingest.assembly import assemble, control_tables
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
    feed_parts,
    reason_given,
)
from kafka_ingest.cli.documents import range_document
from kafka_ingest.cli.output import answers, out, print_json, progress
from kafka_ingest.cli.tables import staged_table
from kafka_ingest.cli.write_and_commit import commit_batch
from kafka_ingest.errors import KafkaIngestError, UnknownBatchError, WrongUseError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.operating.abandon import abandon as abandon_batch
from kafka_ingest.operating.clean import StagedOutput, clean_up, staged_outputs_of_batch
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import feed_of
from kafka_ingest.settings.feed_files import feed_file_named, feeds_directory, read_feed_files


def abandon(
    batch: Annotated[str, typer.Argument(metavar="BATCH", help="The batch's id.")],
    *,
    reason: Reason,
    lost_output: Annotated[
        bool, typer.Option("--lost-output", help="Its output is gone for good, and need not be asked.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Abandon an open batch. No offset moves: the next plan reads its ranges again. Refused once it is published."""
    with answers(as_json=as_json):
        reason = reason_given(reason)
        batch_id = id_of_batch(batch)
        control = control_tables(find_connection_from_shell)
        was = abandon_batch(batch_id, control, SINKS, reason=reason, actor=actor(), output_is_lost=lost_output)
        if as_json:
            print_json({"batch_id": str(batch_id), "was": was.value, "state": BatchState.ABANDONED.value})
        else:
            files = "its staged files were revoked" if was is BatchState.COMMITTING else "its files stay where they are"
            out.print(f"batch {batch_id} is abandoned; {files}, and no offset moved", soft_wrap=True)


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
        errors: list[KafkaIngestError] = []
        if batch is not None and feed_name is not None:
            raise WrongUseError("expected a feed or --batch, found both; a batch's id says which feed it is of")
        if batch is not None:
            found = clean_batch(id_of_batch(batch), reason, only_show=only_show)
        elif reason is not None:
            raise WrongUseError("expected --reason with --batch only: without it, sink.staging_retention decides")
        elif feed_name is not None:
            file = feed_file_named(feed_name, feeds_directory())
            # A contested feed may be running all the same: its staged output expires as any other.
            found = clean_feed(file.contested or feed_of(file), only_show=only_show)
        else:
            found, errors = clean_all_feeds(only_show=only_show)
        print_cleaned(found, errors, executed=not only_show, as_json=as_json)
        exit_codes = [error.exit_code for error in errors] + [1 for staged in found if staged.failed]
        if exit_codes:
            raise typer.Exit(max(exit_codes))


def clean_all_feeds(*, only_show: bool) -> tuple[list[StagedOutput], list[KafkaIngestError]]:
    """Clean up every feed; one that cannot be cleaned up, or used at all, does not stop the others."""
    found: list[StagedOutput] = []
    errors: list[KafkaIngestError] = []
    for file in read_feed_files(feeds_directory()):
        if file.error is not None:
            errors.append(file.error)
        feed = file.feed or file.contested
        if feed is None:
            continue
        try:
            found += clean_feed(feed, only_show=only_show)
        except KafkaIngestError as error:
            errors.append(error)
    return found, errors


def print_cleaned(found: list[StagedOutput], errors: list[KafkaIngestError], *, executed: bool, as_json: bool) -> None:
    """Print what was removed, what stays and why, and which feeds were left out."""
    gone = [staged for staged in found if staged.kept is None]
    freed = sum(staged.size_bytes for staged in gone)
    if as_json:
        attempts = [staged_document(staged) for staged in found]
        left_out = [{"code": error.code, "message": str(error), "exit_code": error.exit_code} for error in errors]
        print_json({"executed": executed, "freed_bytes": freed, "attempts": attempts, "errors": left_out})
        return
    if found:
        out.print(staged_table(found, executed=executed))
    for error in errors:
        progress.print(f"left out: {error.code} {error}", style="yellow", markup=False, soft_wrap=True)
    out.print(f"{'removed' if executed else 'would remove'} {len(gone):,} attempts, {freed / 1e6:,.1f} MB")


def clean_feed(feed: Feed, *, only_show: bool) -> list[StagedOutput]:
    """Clean up one feed, or only show what would be removed; one that was never planned has nothing."""
    parts = assemble(feed, find_connection_from_shell)
    if parts.control.feed(feed.name) is None:
        return []
    if only_show:
        return list(parts.staged_outputs())
    cleaned = list(parts.clean_up())
    parts.sort_receipts()
    return cleaned


def clean_batch(batch_id: UUID, reason: str | None, *, only_show: bool) -> list[StagedOutput]:
    """Remove one batch's staged output at an operator's request, and record the actor and the reason."""
    control = control_tables(find_connection_from_shell)
    found = staged_outputs_of_batch(batch_id, control, SINKS)
    if only_show or not found:
        return found
    detail = {"reason": reason_given(reason), "attempts": [staged_document(staged) for staged in found]}
    feed_id = control.batch(batch_id).plan.feed_id
    # Before the files go: a last copy must not vanish without a trace.
    control.record_event(feed_id, "cleaned", actor=actor(), batch_id=batch_id, detail=detail)
    return list(clean_up(found, control, SINKS))


def staged_document(staged: StagedOutput) -> dict[str, Any]:
    """Return staged output as ``--json`` shows it."""
    return {
        "feed": staged.batch.feed_name,
        "batch_id": str(staged.batch.batch_id),
        "state": staged.batch.state.value,
        "attempt": staged.attempt.attempt,
        "directory": str(staged.attempt.directory),
        "size_bytes": staged.size_bytes,
        "kept": staged.kept,
        "failed": staged.failed,
    }


def id_of_batch(text: str) -> UUID:
    """Return a batch's id; raises UnknownBatchError on a text that is none."""
    try:
        return UUID(text)
    except ValueError as error:
        raise UnknownBatchError(f"expected a batch's id, found {text!r}; `kafka-ingest batches` lists them") from error


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(abandon)
    app.command()(restore)
    app.command()(clean)
