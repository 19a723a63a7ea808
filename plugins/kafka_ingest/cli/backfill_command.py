"""``backfill`` and ``replay``: offsets or dead letters, read again chunk by chunk, without a scheduler."""

import itertools
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

import typer

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.backfill_request import BackfillRequest, Mode, OnMissing, OnOverlap
from kafka_ingest.batches.decide_backfill import BackfillDecision
from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.replacing import batches_in
from kafka_ingest.cli.arguments import DryRun, FeedName, Json, actor, feed_parts, print_committed, submit
from kafka_ingest.cli.output import answers, out, print_json, progress, step
from kafka_ingest.errors import InvalidBackfillError, KafkaIngestError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import OffsetRange, listing, span_of
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.settings.backfill_form import BackfillForm
from kafka_ingest.settings.run_request import time_with_zone
from kafka_ingest.verbs.answer import FittingTable, number
from kafka_ingest.write_step import write_batch

OPEN, GAPS = "open", "gaps"
FIELDS = {"from": "from_timestamp", "to": "to_timestamp", "batch": "batch_id", "dag-run": "dag_run_id"}
REPLACE = Mode.REPLACE.value
CASES = {"overlap": [*(each.value for each in OnOverlap), REPLACE], "missing": [each.value for each in OnMissing]}

WHAT = (
    "TOPIC:PARTITION=FROM-TO (several), from=TIME and/or to=TIME, batch=ID, dag-run=RUN, or gaps; "
    "only=TOPIC[:PARTITION] (several) limits it. Alone: open, the chunks that are open already."
)
WHEN = (
    "overlap=cut (the default) leaves out what is in the output already, overlap=refuse plans nothing then, "
    "overlap=replace replaces its rows: whole ranges as batches have committed them, each chunk in one commit; "
    "missing=refuse (the default) plans nothing where retention has deleted some, missing=record_gap reads the rest "
    "and keeps a gap on record."
)


def backfill(
    feed_name: FeedName,
    what: Annotated[list[str], typer.Argument(metavar="WHAT", help=WHAT)],
    *,
    copy_to: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Write into this directory instead; the feed's output is not changed."),
    ] = None,
    when: Annotated[list[str] | None, typer.Option(metavar="CASE=CHOICE", help=WHEN)] = None,
    max_records: Annotated[int | None, typer.Option(min=1, help="Of a chunk, at most.")] = None,
    reason: Annotated[str | None, typer.Option(help="Why; kept in the audit journal.")] = None,
    only_show: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read offsets again, or skipped ones, in chunks. Neither the stored offsets nor the consumer group move."""
    with answers(as_json=as_json):
        parts = feed_parts(feed_name)
        chunks: Sequence[BatchPlan] = []
        decision = None
        if what == [OPEN]:
            if copy_to or when or max_records or reason:
                raise InvalidBackfillError(
                    "expected open alone: open chunks continue as they were planned. Nothing was planned."
                )
            chunks = [
                batch.plan for batch in parts.control.open_backfills(known_feed(parts.control, feed_name).feed_id)
            ]
        else:
            fields = {
                "feed": feed_name,
                "max_records": max_records,
                "reason": reason,
                **fields_of(what),
                **choices(when, copy_to),
            }
            if copy_to is not None:
                fields |= {"mode": Mode.COPY.value, "output": copy_to}
            request = BackfillForm.of(fields).request(parts.feed, anywhere=True)
            chunks, decision = planned(parts, request, only_show=only_show)
        if not as_json:
            print_decision(feed_name, decision, executed=not only_show)
            for chunk in chunks if only_show else ():
                out.print(f"open {chunk.kind} {chunk.batch_id}: {listing(chunk.ranges)}", markup=False, soft_wrap=True)
        done, errors = ([], []) if only_show else run_chunks(parts, chunks)
        if as_json:
            shown = [{"batch_id": str(chunk.batch_id), "ranges": ranges_document(chunk.ranges)} for chunk in chunks]
            document = {"feed": feed_name, "executed": not only_show, "chunks": shown if only_show else done}
            print_json(document | decision_document(decision, only_show=only_show))
        elif not chunks and (decision is None or not decision.chunks):
            out.print(f"feed {feed_name}: nothing to read")
        end_with(errors, feed_name, len(chunks), "frees its offsets")


def end_with(errors: Sequence[KafkaIngestError], feed_name: str, chunks: int, frees: str) -> None:
    """Say how to continue, and exit, where chunks failed; ``frees`` says what abandoning one does besides."""
    if errors:
        text = (
            f"{chunks - len(errors):,} of {chunks:,} chunks are committed. `kafka-ingest backfill {feed_name} open` "
            f"continues with the others; `kafka-ingest abandon BATCH --reason …` abandons one and {frees}."
        )
        progress.print(text, style="yellow", markup=False, soft_wrap=True)
        raise typer.Exit(max(error.exit_code for error in errors))


def fields_of(what: Sequence[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {"offset_ranges": [], "only": []}
    for word in what:
        key, _, value = word.partition("=")
        if ":" in key:
            fields["offset_ranges"].append(word)
        elif key == "only" and value:
            fields["only"].append(value)
        elif key in FIELDS and value and FIELDS[key] not in fields:
            fields[FIELDS[key]] = value
        elif word == GAPS:
            fields["open_gaps"] = True
        else:
            raise InvalidBackfillError(f"expected each once: {WHAT} Found {word!r}. Nothing was planned.")
    return fields


def choices(when: Sequence[str] | None, copy_to: str | None) -> dict[str, str]:
    found = {}
    for text in when or ():
        case, _, choice = text.partition("=")
        if case not in CASES or choice not in CASES[case] or case in found:
            raise InvalidBackfillError(f"expected each once: {WHEN} Found {text!r}. Nothing was planned.")
        found[case] = choice
    if found.get("overlap") != REPLACE:
        return found
    if copy_to is not None:
        raise InvalidBackfillError(
            "expected --copy-to or overlap=replace, found both: a copy changes no rows. Nothing was planned."
        )
    del found["overlap"]
    return found | {"mode": REPLACE}


def planned(
    parts: FeedParts, request: BackfillRequest, *, only_show: bool
) -> tuple[Sequence[BatchPlan], BackfillDecision | None]:
    with step("plan"):
        outcome = parts.plan_backfill(request, actor=None if only_show else actor())
    return outcome.chunks, outcome.decision


def run_chunks(parts: FeedParts, chunks: Sequence[BatchPlan]) -> tuple[list[dict[str, Any]], list[KafkaIngestError]]:
    """Write and commit chunk after chunk, and return each one's result; one that fails does not stop the others."""
    done: list[dict[str, Any]] = []
    errors: list[KafkaIngestError] = []
    for number_of_chunk, chunk in enumerate(chunks, start=1):
        about = f"chunk {number_of_chunk:,} of {len(chunks):,}, {chunk.kind} {chunk.batch_id}"
        progress.print(f"{about}: {listing(chunk.ranges)}", markup=False, soft_wrap=True)
        result = {
            "batch_id": str(chunk.batch_id),
            "kind": chunk.kind.value,
            "ranges": ranges_document(chunk.ranges),
            "output": str(chunk.output),
        }
        try:
            with step("write (Spark)"):
                write_batch(parts, chunk.batch_id, submit, actor=actor())
            with step("commit"):
                committed = parts.commit(chunk.batch_id, actor=actor())
            print_committed(committed)
        except KafkaIngestError as error:
            progress.print(f"  {error.code} {error}", style="red", markup=False, soft_wrap=True)
            errors.append(error)
            done.append(result | {"error": {"code": error.code, "message": str(error), "exit_code": error.exit_code}})
        else:
            rows = sum(count.rows for count in committed.counts)
            done.append(result | {"state": BatchState.COMMITTED.value, "rows": rows})
    return done, errors


def ranges_document(ranges: Sequence[OffsetRange]) -> list[dict[str, Any]]:
    return [each.as_document() for each in ranges]


def decision_document(decision: BackfillDecision | None, *, only_show: bool) -> dict[str, Any]:
    if decision is None:
        return dict.fromkeys(("left_out", "gaps"))
    found: dict[str, Any] = {
        "left_out": {
            "committed": ranges_document(decision.committed),
            "claimed": ranges_document(decision.claimed),
            "deleted": ranges_document(decision.deleted),
            "for_later": ranges_document(decision.for_later),
        },
        "gaps": [document_of(gap) for gap in decision.gaps],
    }
    if decision.rows_replaced is not None:
        rows = decision.rows_replaced
        found["replaced"] = {
            "batches": [str(each) for each in batches_in(itertools.chain.from_iterable(decision.replaces))],
            "ranges": [each.as_document() for chunk in decision.replaces for each in chunk],
            "rows": rows.rows,
            "files": rows.files,
            "files_rewritten": rows.rewritten,
        }
    if only_show:
        found["chunks"] = [{"ranges": ranges_document(chunk)} for chunk in decision.chunks]
    return found


def print_decision(feed_name: str, decision: BackfillDecision | None, *, executed: bool) -> None:
    if decision is None:
        return
    if decision.chunks:
        numbers = ("chunk", "partition", "start offset", "end offset", "records at most")
        made = FittingTable(
            f"backfill of feed {feed_name}{'' if executed else ', as it would be planned'}",
            "chunk",
            "topic",
            *numbers[1:],
            numbers=numbers,
        )
        for number_of_chunk, chunk in enumerate(decision.chunks, start=1):
            for each in chunk:
                cells = (number(each.start_offset), number(each.end_offset), number(each.span))
                made.add_line(number(number_of_chunk), each.topic, str(each.partition), *cells)
        made.add_section()
        made.add_line("total", "", "", "", "", number(decision.records_at_most))
        out.print(made)
    if (rows := decision.rows_replaced) is not None:
        batches = batches_in(itertools.chain.from_iterable(decision.replaces))
        out.print(
            f"{'replaces' if executed else 'would replace'} {counted(rows.rows, 'row')} of "
            f"{counted(len(batches), 'batch')} in "
            f"{counted(rows.files, 'file')}, {rows.rewritten:,} of which hold other rows, too, and are rewritten: "
            f"{listing(batches)}",
            markup=False,
            soft_wrap=True,
        )
    for why, ranges in decision.not_read():
        text = f"left out, {why}: {counted(span_of(ranges), 'offset')}: {listing(ranges)}"
        progress.print(text, style="yellow", markup=False, soft_wrap=True)
    for gap in decision.gaps:
        progress.print(f"gap {gap.offset_range}: {gap.reason}", style="yellow", markup=False, soft_wrap=True)


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
        typer.Option(metavar="CAUSE", help="Only those of this cause, such as DOES_NOT_FIT; may be repeated."),
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
