"""``locate``: what happened to one offset."""

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.observing.locate import LocatedBatch, LocatedOffset, OffsetState, RecordState, locate
from kafka_ingest.settings.run_request import LARGEST_OFFSET, LARGEST_PARTITION, RECORD, InForm, Text, record_named
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.request import Argument, Call, Deciding, Needed, Request


class Locate(Request):
    """Show what happened to one offset: which batch ingested it, who ran it, and its file, or why there is none."""

    verb = command = "locate"
    does = "only shows what happened to one offset: its batch, its file, or why there is none"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS

    record: Annotated[
        Text,
        InForm("Record", "TOPIC:PARTITION=OFFSET, such as orders:0=1200.", "locate", {"pattern": RECORD}),
        Needed("record, such as orders:0=1200,"),
    ] = None
    topic: Annotated[str, Argument()] = ""
    partition: Annotated[int, Field(ge=0, le=LARGEST_PARTITION), Argument()] = 0
    offset: Annotated[int, Field(ge=0, le=LARGEST_OFFSET), Argument()] = 0

    def answer(self, call: Call) -> Answer:
        place = record_named(self.record) if self.record else (TopicPartition(self.topic, self.partition), self.offset)
        found = locate(call.control, call.sinks, call.feed_name, *place)
        return Answer(found.as_document(), shown(found))


def shown(found: LocatedOffset) -> Iterator[Line | FittingTable]:
    yield Line(describe_offset(found))
    if found.batches:
        yield located_table(found)
    for batch in found.batches:
        yield from map(Line, describe_files(batch))


PASSED_ON = (RecordState.REPLACED, RecordState.REPLAYED)
"""Another batch has the record now that one has committed."""


def describe_offset(found: LocatedOffset) -> str:
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
    fate = "will not be ingested once the stored offset gets there" if gap.state == "ahead" else "not ingested"
    when = moment(gap.decided_at)
    return f"{fate}: gap {gap.offset_range}, {gap.cause}, decided by {gap.decided_by} on {when} UTC: {gap.reason}"


def describe_files(located: LocatedBatch) -> list[str]:
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
        return [f"{file.path}: holds it as a dead letter" for file in holding]
    return [
        f"{file.path}: "
        f"{'holds it' if file.holds_record else 'does not hold it' if file.problem is None else file.problem}"
        for file in (*(located.files or ()), *located.dead_letters)
    ]


RECORD_IN_WORDS = {
    RecordState.IN_FILE: "in a file",
    RecordState.EXPIRED: "expired",
    RecordState.LOST: "lost",
    RecordState.DEAD_LETTER: "dead letter",
    RecordState.REPLAYED: "replayed",
    RecordState.REPLACED: "replaced",
    RecordState.FILTERED: "filtered",
    RecordState.FILTERED_OR_NONE: "filtered or none",
    RecordState.NONE: "none",
    RecordState.NOT_KNOWN: "not known",
    None: "-",
}


def located_table(found: LocatedOffset) -> FittingTable:
    numbers = ("start offset", "end offset")
    used = [*(["topic"] if any(batch.is_earlier_topic for batch in found.batches) else [])]
    made = FittingTable(
        f"batches of feed {found.feed} that hold {found.topic_partition} offset {found.offset:,}",
        *("batch", "kind", "state", "planned by", "committed (UTC)", "committed by", *numbers, *used, "record"),
        numbers=numbers,
    )
    for located in found.batches:
        batch, span = located.batch, located.batch.offset_range
        committed = (batch.committed_at, batch.committed_by or None)
        what = (*([of_topic(located)] if used else []), RECORD_IN_WORDS[located.record])
        of_batch = (batch.batch_id, batch.kind, batch.state, batch.planned_by)
        made.add_line(*of_batch, *committed, span.start_offset, span.end_offset, *what)
    return made


def of_topic(located: LocatedBatch) -> str:
    topic_id = located.batch.topic_id or "not known"
    return f"{topic_id}, an earlier topic of that name" if located.is_earlier_topic else topic_id
