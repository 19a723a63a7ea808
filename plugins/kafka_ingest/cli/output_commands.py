"""The commands about an output's files: old batches that expire, files that were lost."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter

from kafka_ingest.cli.arguments import (
    SINKS,
    DryRun,
    Execute,
    FeedName,
    Json,
    ReasonToExecute,
    actor,
    feed_parts,
)
from kafka_ingest.cli.output import answers, counting, out, print_json, progress
from kafka_ingest.commands.answer import number
from kafka_ingest.commands.decided import reason_given
from kafka_ingest.commands.documents import range_document
from kafka_ingest.commands.named_batch import id_of_batch
from kafka_ingest.commands.tables import moment, table
from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.operating.expire import ExpireDecision, decide_expiry
from kafka_ingest.operating.expire import expire as expire_batches
from kafka_ingest.operating.lost import SALVAGE, LostDecision, decide_lost, record_lost
from kafka_ingest.ports.role_of_format import role_of
from kafka_ingest.settings.setting_types import DURATION, Duration


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
        parts = feed_parts(feed_name)
        sink = parts.sinks(parts.plan_settings.output)
        decision = decide_expiry(parts.plan_settings, time_before(before), parts.control, parts.sinks)
        why = reason_given(reason) if execute else ""
        if execute:
            with counting("batches removed") as advance:
                for _ in expire_batches(decision, parts.control, sink, reason=why, actor=actor()):
                    advance()
        if as_json:
            print_json(expiry_document(feed_name, decision, executed=execute))
            return
        print_expiry(decision, executed=execute)


def time_before(text: str) -> datetime:
    """Return the time that --before names; a date is its beginning in UTC, a duration is counted back from now."""
    try:
        if DURATION.fullmatch(text):
            return datetime.now(UTC) - TypeAdapter(Duration).validate_python(text)
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise WrongUseError(
            "--before: expected a date, a time with a zone, or a duration, such as 2026-01-31, 2026-01-31T12:00:00Z "
            f"or 90d; found {text!r}"
        ) from error
    if found.tzinfo is None:
        if found != datetime.combine(found.date(), datetime.min.time()) or "T" in text:
            raise WrongUseError(f"--before: expected a time with a zone, such as {found.isoformat()}Z, found {text!r}")
        return found.replace(tzinfo=UTC)
    return found.astimezone(UTC)


def expiry_document(feed_name: str, decision: ExpireDecision, *, executed: bool) -> dict[str, Any]:
    """Return the result of expiring as ``--json`` shows it."""
    return {
        "feed": feed_name,
        "before": decision.before.isoformat(),
        "batches": [batch_document(published) for published in decision.batches],
        "finished": [str(published.plan.batch_id) for published in decision.begun],
        "kept": [{"batch_id": str(batch_id), "reason": why} for batch_id, why in decision.kept.items()],
        "rows": decision.rows,
        "size_bytes": decision.size_bytes,
        "executed": executed,
    }


def batch_document(published: PublishedReceipt) -> dict[str, Any]:
    """Return a batch that expires as ``--json`` shows it."""
    return {
        "batch_id": str(published.plan.batch_id),
        "kind": published.plan.kind.value,
        "written_at": published.receipt.written_at.isoformat(),
        "rows": published.receipt.rows,
        "size_bytes": published.receipt.size_bytes,
        "ranges": [range_document(planned) for planned in published.ranges_read],
    }


def print_expiry(decision: ExpireDecision, *, executed: bool) -> None:
    """Print which batches are removed, what stays and why."""
    if decision.batches:
        made = table(
            f"batches written before {moment(decision.before)} UTC",
            *("batch", "kind", "written (UTC)", "rows", "MB"),
            numbers=("rows", "MB"),
        )
        for published in decision.batches:
            receipt = published.receipt
            cells = (str(receipt.batch_id), published.plan.kind.value, moment(receipt.written_at))
            made.add_line(*cells, number(receipt.rows), f"{receipt.size_bytes / 1e6:,.1f}")
        out.print(made)
    for batch_id, why in decision.kept.items():
        progress.print(f"batch {batch_id} stays: {why}", style="yellow", markup=False, soft_wrap=True)
    verb = "removed" if executed else "would remove"
    size = f"{decision.rows:,} rows, {decision.size_bytes / 1e6:,.1f} MB"
    out.print(f"{verb} {len(decision.batches):,} batches: {size}", soft_wrap=True)
    if decision.begun:
        done = "finished" if executed else "would finish"
        out.print(f"{done} removing {len(decision.begun):,} batches that an earlier call began with", soft_wrap=True)
    if not executed and (decision.batches or decision.begun):
        out.print("nothing was changed: --execute --reason … does it")


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
        parts = feed_parts(feed_name)
        decision = decide_lost(feed_name, id_of_batch(batch), parts.control, parts.sinks)
        executed = execute and bool(decision.files)
        if execute:
            why = reason_given(reason)
            record_lost(decision, parts.control, parts.sinks, reason=why, actor=actor())
        if as_json:
            print_json(lost_document(feed_name, decision, executed=executed))
            return
        print_lost(feed_name, decision, executed=executed)


def lost_document(feed_name: str, decision: LostDecision, *, executed: bool) -> dict[str, Any]:
    """Return what was lost as ``--json`` shows it."""
    return {
        "feed": feed_name,
        "batch_id": str(decision.batch.batch_id),
        "files": [{"file": each.name, "problem": each.problem, "is_there": each.is_there} for each in decision.files],
        "lost": [each.as_document() for each in decision.lost],
        "gaps": [range_document(each) for each in decision.gaps],
        "executed": executed,
    }


def print_lost(feed_name: str, decision: LostDecision, *, executed: bool) -> None:
    """Print which files were lost, and what happens to their offsets."""
    batch_id = decision.batch.batch_id
    if not decision.files:
        out.print(f"batch {batch_id}: all its files match its receipt, or are recorded as lost", soft_wrap=True)
        return
    for file in decision.files:
        out.print(f"{file.name}: {file.problem}", style="red", markup=False, soft_wrap=True)
    verb = "is" if executed else "would be"
    for gap in decision.gaps:
        out.print(f"{gap} {verb} a gap, open for a backfill", markup=False, soft_wrap=True)
    if decision.lost and not decision.gaps:
        out.print(
            "no gap is filed: other batches hold these offsets, or are still to read them, or their topic is gone",
            soft_wrap=True,
        )
    if decision.damaged:
        moved = "moved" if executed else "would move"
        output = decision.batch.plan.output
        aside = role_of(output, SINKS(output).salvage, SALVAGE).aside(decision.batch.batch_id)
        out.print(f"{moved} {len(decision.damaged):,} damaged files to {aside}", markup=False, soft_wrap=True)
    if executed:
        out.print(
            f"`kafka-ingest backfill {feed_name} gaps` reads them, as far as Kafka still holds them", soft_wrap=True
        )
    else:
        out.print("nothing was changed: --execute --reason … does it")


def add_to(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(expire)
    app.command()(lost)
