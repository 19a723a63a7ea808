"""``coverage``: which offset is where, and whether every offset is accounted for."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

from rich.text import Text

from kafka_ingest.assembly import file_of_feed
from kafka_ingest.errors import OperatorDecisionError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.without_garbage_collection import without_garbage_collection
from kafka_ingest.model.coverage import CoverageRows, PartitionCoverage, coverage_of, kept_of
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.folded import FoldedRange
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, listing
from kafka_ingest.observing.offset_sums import (
    HEADINGS,
    PARTS,
    CommittedSums,
    FoldedProof,
    offset_counts,
    parts_of,
    used_headings,
)
from kafka_ingest.observing.verify_output import (
    Difference,
    count_batches,
    held_by_replays,
    holes_and_overlaps,
    unknown_batches,
)
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.feed_file import feed_of
from kafka_ingest.verbs.answer import Answer, FittingTable, Line
from kafka_ingest.verbs.request import Call, Deciding, Option, Request

if TYPE_CHECKING:
    from kafka_ingest.model.place import OutputLocation


class Coverage(Request):
    """Show where every offset is: committed, pending or in a gap. Exit code 3: some are unaccounted for."""

    verb = "verify-coverage"
    command = "coverage"
    like = "--verify"
    does = "only checks that every offset is accounted for, and counts the output"
    only_shows = True
    deciding = Deciding.ONLY_SHOWS

    verify: Annotated[bool, Option("Also count the output, row by row, batch by batch.")] = False

    def answer(self, call: Call) -> Answer:
        """Show where every offset is, and count the output: by form always. Exit code 3: some are unaccounted for."""
        with without_garbage_collection():
            return coverage(call, verify=self.verify or not call.is_shell)


def coverage(call: Call, *, verify: bool) -> Answer:
    feed_name = call.feed_name
    rows = call.control.coverage(feed_name)
    if rows is None:
        feed_of(file_of_feed(feed_name, call.find_connection))  # never planned; an unknown one is an error
    partitions = coverage_of(rows) if rows is not None else {}
    verified = None
    if verify and rows is not None:
        with call.counting("batches counted") as advance:
            verified = verify_output(rows, partitions, call.control, call.sinks, advance)
    is_accounted = all(partition.is_accounted for partition in partitions.values())
    is_different = verified is not None and bool(verified["differences"])
    return Answer(
        {
            "feed": feed_name,
            "accounted": is_accounted,
            "partitions": [partition_document(partition) for partition in partitions.values()],
            "verified": verified,
        },
        lines_of(feed_name, partitions, verified),
        0 if is_accounted and not is_different else OperatorDecisionError.exit_code,
    )


def lines_of(
    feed_name: str, partitions: Mapping[TopicPartition, PartitionCoverage], verified: Mapping[str, Any] | None
) -> Iterator[Line | FittingTable]:
    yield coverage_table(feed_name, partitions)
    for partition in partitions.values():
        for problem in partition.problems:
            yield Line(problem, "red")
    if not partitions:
        yield Line("never planned: there are no offsets yet")
    if verified is not None:
        yield from lines_of_verified(verified)


def verify_output(
    rows: CoverageRows,
    partitions: Mapping[TopicPartition, PartitionCoverage],
    control: ControlObserver,
    sinks: Sinks,
    advance: Callable[..., object] = int,
) -> dict[str, Any]:
    """Count what readers see of each committed batch, and return the differences from the control tables.

    ``advance`` is called after each batch. ``counts`` are those of :class:`CommittedSums`, and ``rows`` is what readers
    see: in the feed's outputs, and in copies.
    """
    committed: dict[TopicPartition, list[OffsetRange]] = {}
    found: list[Difference] = []
    outputs: set[OutputLocation] = set()
    folded = FoldedProof(control.folded(rows.feed.feed_id))
    sums = CommittedSums(rows.replacements)
    batches, counted, removed, proven = 0, 0, 0, 0
    for each in count_batches(rows, control, sinks):
        batches, counted = batches + 1, counted + each.rows
        sums.add(each)
        removed += each.removal is not None
        found += each.differences
        outputs.add(each.batch.output)
        folded.add(each.batch)
        proven += each.batch.folded is not None and bool(each.batch.ranges)
        for of_batch in each.batch.ranges:
            topic_partition = of_batch.count.offset_range.topic_partition
            known = partitions.get(topic_partition)
            if not each.batch.kind.commits_offsets:
                continue
            if known is not None and known.stored.topic_id == rows.id_now(topic_partition.topic, of_batch.topic_id):
                kept = kept_of(rows, each.batch.batch_id, of_batch.count.offset_range)
                committed.setdefault(topic_partition, []).extend(kept)
        advance()
    for span in held_by_replays(rows, control, sinks):
        committed.setdefault(span.topic_partition, []).append(span)
    found += folded.differences()
    found += holes_and_overlaps(partitions, committed)
    found += unknown_batches(outputs, rows, control, sinks)
    counts = sums.as_documents()
    return {
        "batches": batches,
        "rows": counted,
        "copied": sums.copied,
        "filtered": sum(each["filtered"] for each in counts),
        "counts": counts,
        "removed_batches": removed,
        "folded_batches": proven,
        "differences": [difference_document(each) for each in found],
    }


def difference_document(difference: Difference) -> dict[str, Any]:
    span = difference.offset_range
    return {
        **document_of(difference, "where", "batch_id", "expected", "found"),
        "range": span.as_document() if span is not None else None,
        "files": [
            {"file": each.name, "problem": each.problem}
            | {"ranges": [span.as_document() for span, _ in each.written.spans] if each.written else []}
            for each in difference.files
        ],
    }


def partition_document(partition: PartitionCoverage) -> dict[str, Any]:
    pending = [each.as_document() | {"kind": "live"} for each in partition.pending_live]
    pending += [
        each.offset_range.as_document()
        | {"kind": "backfill", "batch_id": str(each.batch_id), "state": each.state.value}
        for each in partition.backfills
        if each.state.is_open
    ]
    return {
        **document_of(partition.stored, "topic_partition", "topic_id", "first_offset"),
        "stored_offset": partition.stored.next_offset,
        "accounted": partition.is_accounted,
        "problems": partition.problems,
        "offsets": offset_counts(partition),
        "live": [each.as_document() for each in partition.live],
        "backfilled": [
            each.offset_range.as_document() | {"batch_id": str(each.batch_id)}
            for each in partition.backfills
            if not each.state.is_open
        ],
        "before_first": [each.as_document() for each in partition.before_first],
        "expired": [each.as_document() for each in partition.expired],
        "replaced": [
            each.replaced.offset_range.as_document()
            | {"batch_id": str(each.replaced.batch_id), "by": str(each.by), "open": each.is_open}
            for each in partition.replacements
        ],
        "folded": [folded_document(each) for each in partition.folded],
        "pending": pending,
        "dead_letters": [
            document_of(each, "offset_range", "batch_id", "count", "replayed") for each in partition.dead_letters
        ],
        "replays": [
            each.letters.as_document() | {"by": str(each.by), "open": each.is_open} for each in partition.replays
        ],
        "gaps": [{"state": gap.state, **gap.as_document()} for gap in partition.gaps],
        "read_again": [
            each.offset_range.as_document() | {"at": each.at.isoformat(), "who": each.actor, "reason": each.reason}
            for each in partition.rewinds
        ],
    }


def folded_document(folded: FoldedRange) -> dict[str, Any]:
    return folded.offset_range.as_document() | {
        "topic_id": folded.topic_id,
        **parts_of(folded),
        "batches": folded.batches,
        "oldest_commit": folded.oldest.isoformat(),
        "newest_commit": folded.newest.isoformat(),
    }


def coverage_table(feed_name: str, partitions: Mapping[TopicPartition, PartitionCoverage]) -> FittingTable:
    counts = {tp: offset_counts(partition) for tp, partition in partitions.items()}
    used = used_headings(counts.values())
    numbers = ("first", "stored offset", *(HEADINGS[name] for name in used))
    made = FittingTable(
        f"offsets of feed {feed_name}", *("topic", "partition", *numbers, "accounted"), numbers=("partition", *numbers)
    )
    for tp, partition in partitions.items():
        ends = (partition.stored.first_offset, partition.stored.next_offset)
        is_accounted = "yes" if partition.is_accounted else Text("NO", style="red")
        made.add_line(tp.topic, str(tp.partition), *ends, *(counts[tp][name] for name in used), is_accounted)
    made.add_section()
    totals = [sum(count[name] for count in counts.values()) for name in used]
    made.add_line("total", str(len(partitions)), "", "", *totals, "")
    return made


LOST: Final = (
    "Restore such files from a backup, or file gaps for their records, which a backfill reads again: `kafka-ingest "
    "lost FEED --batch {batch}` shows which."
)


def lines_of_verified(verified: Mapping[str, Any]) -> Iterator[Line]:
    for each in verified["differences"]:
        of_batch = f" (batch {each['batch_id']})" if each["batch_id"] else ""
        yield Line(f"{each['where']}{of_batch}: expected {each['expected']}, found {each['found']}", "red", aside=True)
        for file in each["files"]:
            ranges = listing(
                f"{span['topic']}-{span['partition']}[{span['start_offset']}, {span['end_offset']})"
                for span in file["ranges"]
            )
            yield Line(f"  {file['file']} ({ranges}): {file['problem']}", "red", aside=True)
    damaged = sorted({each["batch_id"] for each in verified["differences"] if each["files"]})
    if damaged:
        yield Line(LOST.format(batch=damaged[0]), "yellow", aside=True)
    count = len(verified["differences"])
    result = f"{count:,} difference{'s' if count > 1 else ''}" if count else "no difference"
    removed = f", {verified['removed_batches']:,} of them removed" if verified["removed_batches"] else ""
    copied = f", {verified['copied']:,} of the rows in copies" if verified["copied"] else ""
    yield Line(
        f"counted {counted(verified['rows'], 'row')} in "
        f"{counted(verified['batches'], 'batch')}{removed}{copied}: {result}"
    )
    sums = {name: sum(count[name] for count in verified["counts"]) for name in ("offsets", *PARTS, "in_output")}
    if not sums["offsets"] == sums["rows"] == sums["in_output"]:
        gone = f" ({sums['in_output']:,} are in the output)" if sums["rows"] != sums["in_output"] else ""
        yield Line(
            f"{counted(sums['offsets'], 'committed offset')}: {counted(sums['rows'], 'row')}{gone}, "
            f"{sums['filtered']:,} "
            f"filtered, "
            f"{counted(sums['dead_letters'], 'dead letter')}, {sums['invisible']:,} without a record"
        )
