"""Decide what a backfill replaces: whole ranges of committed batches, all of which can be read again. Pure.

Whole ranges, because then nothing of the earlier batch's rows in that partition may be left, which can be proven at any
time; and the rows of each file that stay need no counting.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from kafka_ingest.batches.backfill_request import NOTHING_DONE
from kafka_ingest.errors import BatchFoldedError, InvalidBackfillError, RangesTakenError, RecordsDeletedError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import HeldRange
from kafka_ingest.model.coverage import PartitionCoverage
from kafka_ingest.model.offsets import (
    LogBounds,
    OffsetRange,
    TopicPartition,
    intersect,
    listing,
    shared,
    span_of,
    subtract,
    union,
)
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import ReplacedRange

Coverage = Mapping[TopicPartition, PartitionCoverage]


def to_replace(
    wanted: Sequence[OffsetRange],
    held: Sequence[HeldRange],
    coverage: Coverage,
    bounds: Mapping[TopicPartition, LogBounds],
    output: OutputLocation,
) -> list[ReplacedRange]:
    """Return the ranges that are to be replaced, each as a batch has committed it.

    Raises the error that names what cannot be replaced: what no batch has committed, what is not in this output any
    more, what another replacement is about to replace, a part of a range, and what cannot be read again.
    """
    check_committed(wanted, coverage)
    check_not_claimed(wanted, coverage)
    check_in_output(wanted, held, coverage, output)
    check_held_once(held)
    check_whole(wanted, held)
    check_not_truncated(held)
    check_readable(held, bounds)
    return sorted(ReplacedRange(each.offset_range, each.batch_id) for each in held)


def check_committed(wanted: Sequence[OffsetRange], coverage: Coverage) -> None:
    """Raise InvalidBackfillError where no batch has committed some of it."""
    committed = [each for partition in coverage.values() for each in partition.committed]
    if missing := subtract(wanted, committed):
        raise InvalidBackfillError(
            f"expected ranges that batches have committed, found that none has {listing(missing)}: there is nothing to "
            f"replace. {NOTHING_DONE} Leave them out; `fill` reads what is missing below the stored offsets."
        )


def check_not_claimed(wanted: Sequence[OffsetRange], coverage: Coverage) -> None:
    """Raise RangesTakenError where an open batch is about to replace some of it."""
    is_open = [each for partition in coverage.values() for each in partition.replacements if each.is_open]
    taken = [each for each in is_open if intersect(wanted, [each.replaced.offset_range])]
    if taken:
        batches, gone = sorted({str(each.by) for each in taken}), union(each.replaced.offset_range for each in taken)
        raise RangesTakenError(
            f"expected ranges that no open batch replaces, found {listing(batches)}: {listing(gone)}. "
            f"{NOTHING_DONE} Continue those: `kafka-ingest backfill FEED open`, or the form's open chunks; or end one: "
            "`abandon`."
        )


def check_in_output(
    wanted: Sequence[OffsetRange], held: Sequence[HeldRange], coverage: Coverage, output: OutputLocation
) -> None:
    """Raise the error that names what is not in this output, or by which batch is not known."""
    expired = [each for partition in coverage.values() for each in partition.expired]
    if gone := intersect(wanted, expired):
        raise InvalidBackfillError(
            f"expected ranges whose rows are in the output, found that {listing(gone)} have expired. {NOTHING_DONE} "
            "Leave them out; a copy can read them (`--copy-to`)."
        )
    folded = [each.offset_range for partition in coverage.values() for each in partition.folded]
    replaced = [each for partition in coverage.values() for each in partition.replaced]  # by batches that never fold
    if old := intersect(wanted, subtract(folded, replaced)):
        raise BatchFoldedError(
            f"expected ranges whose batches are in the control tables, found that {listing(old)} are folded: which "
            f"batch read which of them, only receipts know. {NOTHING_DONE} Leave them out, or copy them (`--copy-to`)."
        )
    if unknown := subtract(wanted, [each.offset_range for each in held]):
        raise InvalidBackfillError(
            f"expected ranges whose rows are in the output, found no batch that holds {listing(unknown)}. "
            f"{NOTHING_DONE} `kafka-ingest coverage FEED --verify` shows what is there."
        )
    if elsewhere := [each for each in held if each.output != output]:
        raise InvalidBackfillError(
            f"expected ranges in {output}, found {listing(map(described, elsewhere))} in "
            f"{listing(sorted({str(each.output) for each in elsewhere}))}, the feed's output before. {NOTHING_DONE}"
        )


def check_held_once(held: Sequence[HeldRange]) -> None:
    """Raise InvalidBackfillError where an offset is in the output more than once."""
    if twice := shared([each.offset_range for each in held]):
        batches = [each for each in held if intersect([each.offset_range], twice)]
        raise InvalidBackfillError(
            f"expected ranges that are in the output once, found that {listing(twice)} are there more than once since "
            f"a reset: {listing(map(described, batches))}. {NOTHING_DONE}"
        )


def check_whole(wanted: Sequence[OffsetRange], held: Sequence[HeldRange]) -> None:
    """Raise InvalidBackfillError where only a part of a range is to be replaced; whole ones are named."""
    if [each for each in held if subtract([each.offset_range], wanted)]:
        whole = union(each.offset_range for each in held)
        raise InvalidBackfillError(
            f"expected whole ranges as batches have committed them, found parts of some: {listing(wanted)}. "
            f"{NOTHING_DONE} Name these: {listing(map(as_written, whole), limit=20)}."
        )


def check_not_truncated(held: Sequence[HeldRange]) -> None:
    """Raise InvalidBackfillError where a log was truncated within a range: Kafka holds other records there now."""
    cut = [each for each in held if each.cut_off_at is not None and each.cut_off_at < each.offset_range.end_offset]
    if cut:
        raise InvalidBackfillError(
            "expected ranges whose records Kafka still holds, found that logs were truncated within "
            f"{listing(map(described, cut))} since: their rows from there on are of records that are gone. "
            f"{NOTHING_DONE} Leave them out."
        )


def check_readable(held: Sequence[HeldRange], bounds: Mapping[TopicPartition, LogBounds]) -> None:
    """Raise RecordsDeletedError where Kafka has deleted records; what can be read again is named."""
    readable = [
        each
        for each in held
        if each.offset_range.start_offset >= bounds[each.offset_range.topic_partition].log_start_offset
    ]
    if len(readable) == len(held):
        return
    deleted = intersect(
        [each.offset_range for each in held],
        [OffsetRange(tp, 0, found.log_start_offset) for tp, found in bounds.items()],
    )
    rest = union(each.offset_range for each in readable)
    raise RecordsDeletedError(
        f"expected records that Kafka still holds, found that retention has deleted {listing(deleted, limit=20)} "
        f"({counted(span_of(deleted), 'offset')}): replacing would lose their rows. {NOTHING_DONE} "
        + (f"Name what can be read again: {listing(map(as_written, rest), limit=20)}." if rest else "Nothing is left.")
    )


def described(held: HeldRange) -> str:
    return f"{held.offset_range} of batch {held.batch_id}"


def as_written(offset_range: OffsetRange) -> str:
    """Return a range as a request names it."""
    start, end = offset_range.start_offset, offset_range.end_offset
    return f"{offset_range.topic}:{offset_range.partition}={start}-{end}"


def whole_chunks(
    replaced: Collection[ReplacedRange], max_records: int, most: int
) -> tuple[list[tuple[ReplacedRange, ...]], list[OffsetRange]]:
    """Return the first ``most`` chunks of whole ranges, in reading order, and what is left then.

    A chunk has about ``max_records`` offsets at most, but one range at least, and of each partition only ranges that
    follow each other: a batch reads one range of a partition.
    """
    chunks: list[list[ReplacedRange]] = []
    ends: dict[TopicPartition, int] = {}
    size = 0
    for each in sorted(replaced):
        start, end = each.offset_range.start_offset, each.offset_range.end_offset
        follows = ends.get(each.topic_partition, start) == start
        if not chunks or not follows or size + each.offset_range.span > max_records:
            chunks.append([])
            ends, size = {}, 0
        chunks[-1].append(each)
        ends[each.topic_partition] = end
        size += each.offset_range.span
    left = [each.offset_range for chunk in chunks[most:] for each in chunk]
    return [tuple(chunk) for chunk in chunks[:most]], union(left)


def read_by(chunk: Iterable[ReplacedRange]) -> tuple[OffsetRange, ...]:
    return tuple(union(each.offset_range for each in chunk))


def batches_in(replaced: Iterable[ReplacedRange]) -> list[UUID]:
    return sorted({each.batch_id for each in replaced})
