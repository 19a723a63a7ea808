"""Sentences about the past: what happened to an offset, where its record is, whether a file matches its receipt."""

from kafka_ingest.answers.answer import number
from kafka_ingest.answers.tables import moment
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import listing
from kafka_ingest.observing.explain_file import ExplainedFile
from kafka_ingest.observing.locate import LocatedBatch, LocatedOffset, OffsetState, RecordState

PASSED_ON = (RecordState.REPLACED, RecordState.REPLAYED)
"""Another batch has the record now that one has committed."""


def describe_offset(found: LocatedOffset) -> str:
    """Return what happened to an offset, in a sentence."""
    stored, deciding = found.stored, found.deciding
    next_offset = stored.next_offset if stored else None
    batch = f"{deciding.batch.kind} batch {deciding.batch.batch_id}" if deciding else ""
    read_on = "" if found.is_read else "; no plan reads this topic now, since the feed file does not name it"
    again = next_offset is not None and found.offset >= next_offset
    texts = {
        OffsetState.COMMITTED: f"committed with {batch}"
        + (f"; {deciding.problem}" if deciding is not None and deciding.gone in PASSED_ON else "")
        + (f"; the stored offset went back to {number(next_offset)}, so it is read again" if again else ""),
        OffsetState.PENDING: f"not committed yet: {batch} is {deciding.batch.state if deciding else ''}",
        OffsetState.GAP: gap_in_words(found.gap) if found.gap else "",
        OffsetState.NOT_READ_YET: f"not read yet: the stored offset is {number(next_offset)}{read_on}",
        OffsetState.START_PENDING: "not read yet: the start is still to be resolved "
        f"({stored.seeded_by if stored else ''})",
        OffsetState.BEFORE_FIRST: f"before the feed's first offset {number(stored.first_offset if stored else None)} "
        f"(start rule {stored.seeded_by if stored else ''}): only a backfill would read it",
        OffsetState.FORGOTTEN: "the feed has no stored offset of this partition any more",
        OffsetState.UNACCOUNTED: f"below the stored offset {number(next_offset)}, but in no batch and no gap that the "
        "control tables know: was it in an output that `adopt` was not shown?",
    }
    return f"{found.topic_partition} offset {found.offset:,}: {texts[found.state]}"


def gap_in_words(gap: Gap) -> str:
    """Return what a gap means for the offsets in it."""
    fate = "will not be ingested once the stored offset gets there" if gap.state == "ahead" else "not ingested"
    when = moment(gap.decided_at)
    return f"{fate}: gap {gap.offset_range}, {gap.cause}, decided by {gap.decided_by} on {when} UTC: {gap.reason}"


def describe_files(located: LocatedBatch) -> list[str]:
    """Return where a committed batch has the record, line by line."""
    batch = located.batch
    if located.problem is not None:
        return [f"batch {batch.batch_id}: {located.problem}"]
    if located.record is RecordState.NONE:
        return [f"batch {batch.batch_id}: no record at this offset: compacted, aborted, a transaction marker"]
    if located.record is RecordState.FILTERED:
        return [f"batch {batch.batch_id}: filtered: the feed's where or transform has left the record out"]
    if located.record is RecordState.FILTERED_OR_NONE:
        counts = (
            f"it filtered {counted(located.filtered, 'record')}, and found "
            f"{counted(located.invisible, 'offset')} without one"
        )
        either = "the feed's where or transform has left the record out, or there was none"
        return [f"batch {batch.batch_id}: no row: {either}; of {batch.offset_range} {counts}"]
    if located.record is RecordState.DEAD_LETTER:
        holding = [file for file in located.dead_letters if file.holds_record]
        return [f"{file.path}: holds it as a dead letter, since it could not be decoded" for file in holding]
    return [
        f"{file.path}: "
        f"{'holds it' if file.holds_record else 'does not hold it' if file.problem is None else file.problem}"
        for file in (*(located.files or ()), *located.dead_letters)
    ]


def describe_file(found: ExplainedFile) -> str:
    """Return whether a file matches the receipt of its batch."""
    if found.differences is None:
        return f"it cannot be compared with its receipt: {found.receipt_problem}"
    if found.differences:
        return f"it differs from its receipt: {listing(found.differences)}"
    return "it matches its receipt: name, bytes, rows and offsets"


def describe_missing_batch(found: ExplainedFile) -> str | None:
    """Return why nothing is known of a file's batch; None where the batch is shown."""
    if found.control_error is not None:
        return f"{found.control_error.code} {found.control_error}"
    if found.batch is None:
        return (
            f"the control tables know no batch {found.place.batch_id}: they are another database, or older than this "
            "output (`kafka-ingest adopt` adopts it)"
        )
    return None
