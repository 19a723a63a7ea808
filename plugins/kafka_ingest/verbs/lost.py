"""``lost``: file gaps for the records of lost or damaged published files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

from kafka_ingest.batches.known_feed import batch_of_feed, known_feed, whole_plan
from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.errors import BatchStateError, OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import Batch, BatchKind, BatchState
from kafka_ingest.model.coverage import CoverageRows
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import GapCause, LostRange, NewGap, RemovalCause
from kafka_ingest.model.offsets import OffsetRange, intersect, listing, subtract
from kafka_ingest.model.published_output import FileProblem, PublishedLook
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sink, Sinks
from kafka_ingest.ports.parts import REPLAY_DEAD_LETTERS, role_of
from kafka_ingest.verbs.answer import Answer, Line
from kafka_ingest.verbs.request import BatchId, Call, Needed, Option, Request

NOTHING_DONE = "Nothing was changed."
SALVAGE = "have single files taken out of readers' sight"


class Lost(Request):
    """File gaps for the records of lost or damaged published files, so that `backfill FEED gaps` reads them again.

    All of the batch's files are read, every column. Intact files stay; a damaged one is moved out of readers' sight.
    """

    verb = command = "lost"
    does = "files gaps for the records of a batch's lost or damaged files"

    batch_id: Annotated[
        BatchId,
        Needed("a batch's id"),
        Option("The batch whose files were lost or damaged.", flag="--batch", metavar="ID"),
    ] = None

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        name = parts.feed.name
        if self.batch_id is None:
            raise call.missing("a batch's id")
        decision = decide_lost(name, self.batch_id, parts.control, parts.sinks)
        executed = decided is not None and bool(decision.files)
        if decided is not None:
            record_lost(decision, parts.control, parts.sinks, reason=decided.reason, actor=decided.actor)
        return Answer(
            {
                "feed": name,
                "batch_id": str(self.batch_id),
                "files": [
                    {"file": each.name, "problem": each.problem, "is_there": each.is_there} for each in decision.files
                ],
                **document_of(decision, "lost", "gaps"),
                "executed": executed,
            },
            shown_lost(name, decision, parts.sinks, executed=executed),
            only_shown=not executed and bool(decision.files),
        )


@dataclass(frozen=True, slots=True)
class LostDecision:
    """Which files of a batch are lost, what they held, and which of that becomes a gap.

    The rest of ``lost`` is in the output in another batch, is still to be read, or is of a deleted topic.
    """

    rows: CoverageRows
    batch: Batch
    files: Sequence[FileProblem]
    lost: Sequence[LostRange]
    gaps: Sequence[OffsetRange]

    @property
    def damaged(self) -> list[str]:
        return [file.name for file in self.files if file.is_there]


def decide_lost(feed_name: str, batch_id: UUID, control: OperatorTables, sinks: Sinks) -> LostDecision:
    """Return what is lost of a batch, after reading all of its files; nothing is written.

    Raises UnknownBatchError and BatchStateError where it is no committed batch of the feed's output,
    OutputUnavailableError where its storage is not available, OutputConflictError where it is unknown what is lost.
    """
    rows = control.coverage(feed_name) or CoverageRows(known_feed(control, feed_name))
    batch = batch_of_feed(batch_id, feed_name, control)
    check_can_be_lost(batch)
    # An empty folder in the place of a mount must not be taken for files that are lost.
    check_output_there(rows.feed.feed_id, batch.plan.output, control, sinks)
    sink = sinks(batch.plan.output)
    check_receipt_there(batch, sink)
    check_not_expired(batch, sink)
    topic_ids = whole_plan(batch.plan, sinks).topic_ids
    replayed = replayed_letters(batch, rows, sinks)
    role_of(batch.plan.output, sink.salvage, SALVAGE)
    look = role_of(batch.plan.output, sink.inspector, "be read batch by batch").look_at(batch_id, closely=True)
    check_no_strangers(batch, look)
    known = {each.file for each in rows.lost if each.batch_id == batch_id}
    files = [file for file in look.problems if file.name not in known or file.is_there]
    lost = [
        LostRange(batch_id, file.name, span, topic_ids[span.topic], count)
        for file in files
        if file.written is not None and file.name not in known
        for span, count in file.written.spans
    ]
    return LostDecision(rows, batch, files, lost, subtract(gaps_of(rows, batch_id, lost, control), replayed))


def check_can_be_lost(batch: Batch) -> None:
    if batch.state is not BatchState.COMMITTED:
        raise BatchStateError(
            f"batch {batch.batch_id} is {batch.state}: expected a COMMITTED one, whose files readers see. "
            f"{NOTHING_DONE}"
        )
    if batch.plan.kind is BatchKind.COPY:
        raise BatchStateError(
            f"batch {batch.batch_id} is a copy into {batch.plan.output}, and the feed's gaps do not cover copies. "
            f"{NOTHING_DONE} Copy its ranges again into another output."
        )
    if batch.plan.kind is BatchKind.REPLAY:
        batches = listing(sorted({str(each.batch_id) for each in batch.plan.replays}))
        raise BatchStateError(
            f"batch {batch.batch_id} has replayed dead letters, and its ranges are those of other batches: gaps would "
            f"read their records again. {NOTHING_DONE} Restore its files from a backup. The records as they came are "
            f"in the dead letters of {batches}."
        )


def replayed_letters(batch: Batch, rows: CoverageRows, sinks: Sinks) -> list[OffsetRange]:
    """Return which offsets of a batch are in replays of its dead letters: a gap would read their records again.

    Raises BatchStateError where a replay is open: it is not known yet whether it will hold them.
    """
    found = [each for each in rows.replays if each.letters.batch_id == batch.batch_id]
    if still_open := sorted({str(each.by) for each in found if each.is_open}):
        raise BatchStateError(
            f"batch {batch.batch_id}: {listing(still_open)} is to replay its dead letters. {NOTHING_DONE} Finish that "
            f"first (`kafka-ingest backfill {batch.feed_name} open`), or abandon it."
        )
    if not found:
        return []
    output = output_of_dead_letters(batch.plan.output)
    reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
    return reader.offsets(batch.batch_id, [each.letters for each in found])


def check_receipt_there(batch: Batch, sink: Sink) -> None:
    """Raise OutputUnavailableError where a batch's receipt is missing: the output may be an unmounted former one."""
    if not sink.archive.is_kept(batch.batch_id):
        raise OutputUnavailableError(
            f"batch {batch.batch_id}: expected its receipt beside {batch.plan.output}, found none. Is that storage "
            f"mounted? {NOTHING_DONE} Without the receipt it is unknown what its files held; restore it from a backup."
        )


def check_not_expired(batch: Batch, sink: Sink) -> None:
    """Raise BatchStateError where an operator expired a batch: its files were removed on purpose."""
    removal = sink.archive.removal(batch.batch_id)
    if removal is not None and removal.cause is RemovalCause.EXPIRED:
        raise BatchStateError(
            f"batch {batch.batch_id}: {removal}. Its files were removed on purpose, and its offsets stay committed. "
            f"{NOTHING_DONE} To have its records again: `kafka-ingest backfill {batch.feed_name} "
            f"batch={batch.batch_id} --copy-to PATH`."
        )


def check_no_strangers(batch: Batch, look: PublishedLook) -> None:
    """Raise OutputConflictError where there are files beside a batch's that may hold the same records."""
    if look.problems and look.strangers:
        raise OutputConflictError(
            f"batch {batch.batch_id}: {listing(look.strangers)} are among its files but not in its receipt, so it is "
            f"unknown which of its records are lost: {listing(file.problem for file in look.problems)}. {NOTHING_DONE} "
            "Move them elsewhere, or restore the batch's files."
        )


def gaps_of(
    rows: CoverageRows, batch_id: UUID, lost: Sequence[LostRange], control: OperatorTables
) -> list[OffsetRange]:
    """Return which lost offsets no batch holds and none will read: those become gaps."""
    stored = rows.feed.stored
    of_topics_now = [
        each.offset_range
        for each in lost
        if (row := stored.get(each.offset_range.topic_partition)) is not None
        and row.topic_id == rows.id_now(each.offset_range.topic, each.topic_id)
    ]
    passed = [OffsetRange(tp, 0, row.next_offset) for tp, row in stored.items() if row.next_offset]
    missing = intersect(of_topics_now, passed)
    if not missing:
        return []
    in_gaps = [gap.offset_range for gap in rows.gaps if gap.is_open]
    held = control.committed_within(rows.feed.feed_id, missing, apart_from=batch_id)
    return subtract(missing, [*held, *in_gaps])


def record_lost(decision: LostDecision, control: OperatorTables, sinks: Sinks, *, reason: str, actor: str) -> None:
    """Do what was decided; raises FeedChangedError where the feed changed since. Safe to repeat after a crash.

    Damaged files are hidden from readers before the gaps are there, and so before their records are read again.
    """
    batch = decision.batch
    if decision.damaged:
        salvage = role_of(batch.plan.output, sinks(batch.plan.output).salvage, SALVAGE)
        salvage.set_aside(batch.batch_id, decision.damaged)
    if not decision.lost:
        return
    gaps = [NewGap(each, GapCause.OUTPUT_LOST, reason) for each in decision.gaps]
    control.record_lost(decision.rows.feed, decision.lost, gaps, reason=reason, actor=actor)


def shown_lost(feed_name: str, decision: LostDecision, sinks: Sinks, *, executed: bool) -> Iterator[Line]:
    batch_id = decision.batch.batch_id
    if not decision.files:
        yield Line(f"batch {batch_id}: all its files match its receipt, or are recorded as lost")
        return
    for file in decision.files:
        yield Line(f"{file.name}: {file.problem}", "red")
    verb = "is" if executed else "would be"
    for gap in decision.gaps:
        yield Line(f"{gap} {verb} a gap, open for a backfill")
    if decision.lost and not decision.gaps:
        yield Line(
            "no gap is filed: other batches hold these offsets, or are still to read them, or their topic is gone"
        )
    if decision.damaged:
        moved = "moved" if executed else "would move"
        output = decision.batch.plan.output
        aside = role_of(output, sinks(output).salvage, SALVAGE).aside(decision.batch.batch_id)
        yield Line(f"{moved} {counted(len(decision.damaged), 'damaged file')} to {aside}")
    if executed:
        yield Line(f"`kafka-ingest backfill {feed_name} gaps` reads them, as far as Kafka still holds them")
