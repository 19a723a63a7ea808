"""Tables about the past: events, the batches of an offset, what is in a file."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from kafka_ingest.answers.answer import number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import moment, table
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.observing.explain_file import BatchOfFile, ExplainedFile
from kafka_ingest.observing.history import HistoryLine
from kafka_ingest.observing.locate import LocatedBatch, LocatedOffset, RecordState

if TYPE_CHECKING:
    from kafka_ingest.model.data_file import PartitionContents

INTERVALS_SHOWN = 20

RECORD = {
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


def history_table(feed: str, lines: list[HistoryLine]) -> FittingTable:
    """Return a feed's events."""
    made = table(f"history of feed {feed}", "when (UTC)", "who", "what", "batch", "old → new", "why")
    for line in lines:
        event = line.event
        made.add_line(
            moment(event.at),
            Text(event.actor),
            event.kind,
            str(event.batch_id or "-"),
            Text(line.text.summary),
            Text(line.text.reason or "-"),
        )
    return made


def located_table(found: LocatedOffset) -> FittingTable:
    """Return the batches that hold an offset, newest first."""
    numbers = ("start offset", "end offset")
    used = [*(["topic"] if any(batch.is_earlier_topic for batch in found.batches) else [])]
    made = table(
        f"batches of feed {found.feed} that hold {found.topic_partition} offset {found.offset:,}",
        *("batch", "kind", "state", "planned by", "committed (UTC)", "committed by", *numbers, *used, "record"),
        numbers=numbers,
    )
    for located in found.batches:
        batch = located.batch
        made.add_line(
            str(batch.batch_id),
            batch.kind.value,
            batch.state.value,
            Text(batch.planned_by),
            moment(batch.committed_at),
            Text(batch.committed_by or "-"),
            number(batch.offset_range.start_offset),
            number(batch.offset_range.end_offset),
            *([of_topic(located)] if used else []),
            RECORD[located.record],
        )
    return made


def of_topic(located: LocatedBatch) -> str:
    """Return the topic id of a batch, and whether it is an earlier topic's."""
    topic_id = located.batch.topic_id or "not known"
    return f"{topic_id}, an earlier topic of that name" if located.is_earlier_topic else topic_id


def explained_table(found: ExplainedFile) -> FittingTable:
    """Return what is in a file, and which batch it belongs to, one fact per line."""
    contents = found.contents
    made = table(found.path.name, "fact", "value")
    facts = {
        "file": str(found.path),
        "rows": number(contents.rows),
        **facts_of_partitions(contents.partitions),
        "columns": ", ".join(f"{name} ({kind})" for name, kind in contents.columns),
        "bytes": number(contents.size_bytes),
        "batch": str(found.place.batch_id),
        **({"filtered of these partitions": number(found.filtered)} if found.filtered else {}),
        "published": "yes" if found.place.attempt is None else f"no, staged by attempt {found.place.attempt}",
    }
    for fact, value in (facts | facts_of_batch(found.batch)).items():
        made.add_line(fact, Text(value))
    return made


def facts_of_partitions(partitions: "Sequence[PartitionContents]") -> dict[str, str]:
    """Return which offsets are in a file; of one that holds several partitions, where each begins and ends."""
    if len(partitions) > 1:
        each = (
            f"{held.topic_partition}: {counted(held.rows, 'row')}, offsets {held.smallest_offset:,} to "
            f"{held.largest_offset:,}"
            for held in partitions
        )
        return {f"{counted(len(partitions), 'partition')}": listing(each)}
    only = partitions[0] if partitions else None
    return {
        "topic": only.topic_partition.topic if only else "-",
        "partition": str(only.topic_partition.partition) if only else "-",
        "smallest offset": number(only.smallest_offset if only else None),
        "largest offset": number(only.largest_offset if only else None),
        "intervals": intervals_in_words(only.intervals, only.interval_count) if only else "none",
    }


def facts_of_batch(found: BatchOfFile | None) -> dict[str, str]:
    """Return what the control tables say of a file's batch."""
    if found is None:
        return {}
    batch = found.batch
    return {
        "feed": batch.feed_name,
        "kind": batch.plan.kind.value,
        "state": batch.state.value,
        "planned range": listing(found.planned) or "none of this partition",
        "planned by": f"{batch.planned_by}, {moment(batch.plan.planned_at)} UTC",
        "committed by": f"{batch.committed_by}, {moment(batch.committed_at)} UTC" if batch.committed_by else "-",
        **({"attempt": found.attempt.state.value} if found.attempt else {}),
    }


def intervals_in_words(intervals: Sequence[OffsetRange], count: int) -> str:
    """Return the first intervals of offsets, and how many more there are."""
    shown = intervals[:INTERVALS_SHOWN]
    more = f" and {count - len(shown):,} more" if count > len(shown) else ""
    return (", ".join(f"[{run.start_offset:,}, {run.end_offset:,})" for run in shown) or "none") + more
