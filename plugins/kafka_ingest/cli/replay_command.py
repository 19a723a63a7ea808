"""``kafka-ingest replay``: dead letters, decoded again from their own bytes, chunk by chunk, without a scheduler."""

from typing import Annotated, Any
from uuid import UUID

import typer

from kafka_ingest.answers.answer import number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.backfilling.decide import BackfillDecision
from kafka_ingest.backfilling.request import Mode
from kafka_ingest.cli.arguments import DryRun, FeedName, Json, feed_parts
from kafka_ingest.cli.backfill_command import end_with, planned, run_chunks
from kafka_ingest.cli.output import answers, out, print_json, progress
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.settings.form_fields import time_with_zone


def replay(
    feed_name: FeedName,
    *,
    batch: Annotated[UUID | None, typer.Option(help="Only the dead letters of this batch.")] = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only those of batches committed at or after this time, e.g. 2026-01-31T00:00:00Z."),
    ] = None,
    error: Annotated[
        list[str] | None,
        typer.Option(metavar="CAUSE", help="Only those of this cause, such as DOES_NOT_FIT; may come again."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option(min=1, help="Of a chunk, at most; those of one batch and range stay together.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why; kept in the audit journal.")] = None,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Decode dead letters as the feed says now: what is good becomes rows, the rest stays with its new error.

    Kafka is not asked. Each letter is replayed once, whatever crashes; run it again to replay what is left.
    """
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        fields = {
            "feed": feed_name,
            "mode": Mode.REPLAY.value,
            "batch_id": batch,
            "from_timestamp": time_with_zone(since, "--since") if since is not None else None,
            "causes": error,
            "max_records": max_records,
            "reason": reason,
        }
        request = BackfillForm.of(fields).request(parts.feed)
        chunks, decision = planned(parts, request, only_show=only_show)
        if not as_json:
            print_letters(feed_name, decision, executed=not only_show)
        done, errors = ([], []) if only_show else run_chunks(parts, chunks)
        if as_json:
            print_json({"feed": feed_name, "executed": not only_show, "chunks": done} | letters_document(decision))
        end_with(errors, feed_name, len(chunks), "gives its dead letters back")


def letters_document(decision: BackfillDecision | None) -> dict[str, Any]:
    """Return which dead letters are replayed as ``--json`` shows it, and which are not, and why."""
    chunks = decision.replays if decision is not None else ()
    return {
        "records": sum(each.number for chunk in chunks for each in chunk),
        "letters": [each.as_document() for chunk in chunks for each in chunk],
        "left_out": list(decision.letters_left_out) if decision is not None else [],
        "for_later": len(decision.for_later) if decision is not None else 0,
    }


def print_letters(feed_name: str, decision: BackfillDecision | None, *, executed: bool) -> None:
    if decision is None:
        return
    if not decision.replays:
        out.print(f"feed {feed_name}: no dead letters to replay")
    else:
        title = f"dead letters of feed {feed_name}{'' if executed else ', as they would be replayed'}"
        made = FittingTable(title, "chunk", "of batch", "cause", "records", numbers=("chunk", "records"))
        for number_of_chunk, chunk in enumerate(decision.replays, start=1):
            for (batch_id, cause), records in sums(chunk).items():
                made.add_line(number(number_of_chunk), str(batch_id), cause, number(records))
        made.add_section()
        made.add_line("total", "", "", number(decision.records_at_most))
        out.print(made)
    for left_out in decision.letters_left_out:
        progress.print(f"left out, {left_out}", style="yellow", markup=False, soft_wrap=True)
    if decision.for_later:
        text = f"left for the next replay, since it is more than one takes: {counted(len(decision.for_later), 'range')}"
        progress.print(text, style="yellow", markup=False, soft_wrap=True)


def sums(chunk: tuple[ReplayedLetters, ...]) -> dict[tuple[UUID, str], int]:
    found: dict[tuple[UUID, str], int] = {}
    for each in sorted(chunk, key=lambda each: each.batch_id):
        for cause, records in each.records:
            found[each.batch_id, cause] = found.get((each.batch_id, cause), 0) + records
    return found
