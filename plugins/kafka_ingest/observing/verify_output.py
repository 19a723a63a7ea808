"""Compare the output with the control tables: each committed range is counted where readers see it; none is missing."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from kafka_ingest.batches.known_feed import receipt_of_folded
from kafka_ingest.errors import OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation.counting import counted, grouped
from kafka_ingest.model.control_rows import CommittedBatch, CommittedRange
from kafka_ingest.model.coverage import CoverageRows, PartitionCoverage
from kafka_ingest.model.dead_letters import output_of_dead_letters, where_they_are
from kafka_ingest.model.gap import LostRange, Removal
from kafka_ingest.model.offsets import OffsetRange, TopicPartition, intersect, shared, subtract, union
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import FileProblem, PublishedCount, PublishedLook
from kafka_ingest.model.read_again import Replacement
from kafka_ingest.model.receipt import RangeCount
from kafka_ingest.ports.control import ControlReader
from kafka_ingest.ports.outputs import Inspector, Sink, Sinks
from kafka_ingest.ports.parts import REPLAY_DEAD_LETTERS, role_of


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the output, or the ranges in the control tables, are not as expected. ``where`` is a range or a path."""

    where: str
    expected: str
    found: str
    batch_id: str | None = None
    offset_range: OffsetRange | None = None
    files: tuple[FileProblem, ...] = ()
    """The files that make the difference, as far as a receipt names them."""

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class Counted:
    """One batch that was counted: what readers see of it, and the differences."""

    batch: CommittedBatch
    seen: Sequence[PublishedCount]
    differences: tuple[Difference, ...]
    removal: Removal | None = None

    @property
    def rows(self) -> int:
        return sum(count.rows for count in self.seen)


def count_batches(rows: CoverageRows, control: ControlReader, sinks: Sinks) -> Iterator[Counted]:
    """Yield every committed batch of the feed as its output holds it: row by row, from the columns of its files.

    Batches that were committed after the rows were read are left out: the rows do not cover them.
    """
    newest, was_open = rows.feed.newest_batch, open_batches(rows)
    for committed in control.committed_batches(rows.feed.feed_id):
        batch = committed
        if newest is None or batch.batch_id > newest or batch.batch_id in was_open:
            continue
        sink = sinks(batch.output)
        try:
            batch = with_ranges(batch, sinks)
            removal = sink.archive.removal(batch.batch_id)
            if removal is not None:
                yield Counted(batch, (), (), removal)
                continue
            inspector = role_of(batch.output, sink.inspector, "be counted batch by batch")
            look = inspector.look_at(batch.batch_id)
            lost = [each for each in rows.lost if each.batch_id == batch.batch_id]
            gone = replaced_of(batch.batch_id, rows.replacements, look, inspector)
            expected = expected_of(batch, lost, sink)
            expected |= {tp: RangeCount(expected[tp].offset_range, 0, None, None) for tp in gone & expected.keys()}
        except (OutputConflictError, OutputUnavailableError) as error:
            unreadable = Difference(str(batch.output), "files that can be read", str(error), str(batch.batch_id))
            yield Counted(batch, (), (unreadable,))
            continue
        known = {each.file for each in lost}
        problems = [each for each in look.problems if each.is_there or each.name not in known]
        differences = list(differences_of(batch, expected, replace(look, problems=problems)))
        differences += differences_of_dead_letters(batch, sinks)
        yield Counted(batch, look.counts, tuple(differences))


def with_ranges(batch: CommittedBatch, sinks: Sinks) -> CommittedBatch:
    """Return a batch with its ranges: a folded one's come from its receipt, which the plan's fingerprint verifies."""
    if batch.folded is None:
        return batch
    published = receipt_of_folded(batch.batch_id, batch.folded, batch.output, sinks)
    counts = published.receipt.range_counts(published.plan)
    return replace(
        batch, ranges=[CommittedRange(count, published.plan.topic_ids[count.offset_range.topic]) for count in counts]
    )


def open_batches(rows: CoverageRows) -> set[UUID]:
    live = {rows.feed.open_batch.batch_id} if rows.feed.open_batch is not None else set()
    replacing = {each.by for each in rows.replacements if each.is_open}
    replaying = {each.by for each in rows.replays if each.is_open}
    return live | replacing | replaying | {each.batch_id for each in rows.backfills if each.state.is_open}


def expected_of(batch: CommittedBatch, lost: Collection[LostRange], sink: Sink) -> dict[TopicPartition, RangeCount]:
    """Return what readers should see of each range: the control tables' counts, without files that were lost since."""
    planned = {each.count.offset_range.topic_partition: each.count for each in batch.ranges}
    if not lost:
        return planned
    receipt, gone = sink.archive.receipt(batch.batch_id), {each.file for each in lost}
    written = receipt.files if receipt is not None else ()
    spans = [span for file in written if file.name not in gone for span in file.spans]
    for topic_partition, count in planned.items():
        left = [(span, rows) for span, rows in spans if span.topic_partition == topic_partition]
        planned[topic_partition] = RangeCount(
            count.offset_range,
            sum(rows for _, rows in left),
            min((span.start_offset for span, _ in left), default=None),
            max((span.end_offset - 1 for span, _ in left), default=None),
        )
    return planned


def replaced_of(
    batch_id: UUID, replacements: Iterable[Replacement], look: PublishedLook, inspector: Inspector
) -> set[TopicPartition]:
    """Return of which partitions of a batch another one has replaced the rows.

    Where that was open when the rows were read, it may have replaced them since: all of a range, which its own rows
    there show, or nothing.
    """
    there = {count.topic_partition for count in look.counts}
    of_batch = [each for each in replacements if each.replaced.batch_id == batch_id]
    found = {each.replaced.topic_partition for each in of_batch if not each.is_open}
    for each in of_batch:
        topic_partition = each.replaced.topic_partition
        if each.is_open and topic_partition not in there:
            counts = inspector.look_at(each.by).counts
            found |= {topic_partition} & {count.topic_partition for count in counts}
    return found


def differences_of(
    batch: CommittedBatch, planned: Mapping[TopicPartition, RangeCount], look: PublishedLook
) -> Iterator[Difference]:
    found = {count.topic_partition: count for count in look.counts}
    batch_id = str(batch.batch_id)
    for topic_partition, count in sorted(planned.items()):
        expected, there = (
            described(count.rows, count.rows, count.smallest_offset, count.largest_offset),
            describe_published(found.get(topic_partition)),
        )
        if expected != there:
            files = tuple(problems_of(topic_partition, look))
            yield Difference(str(count.offset_range), expected, there, batch_id, count.offset_range, files)
    for topic_partition in sorted(found.keys() - planned.keys()):
        there = describe_published(found[topic_partition])
        yield Difference(str(topic_partition), "nothing in this batch", there, batch_id)
    for problem in look.problems:
        if problem.written is None:
            yield Difference(problem.name, "files that can be read", problem.problem, batch_id)


def differences_of_dead_letters(batch: CommittedBatch, sinks: Sinks) -> Iterator[Difference]:
    """Yield where a batch's dead letters, as their readers see them, are not as many as the control tables count."""
    counts = {each.count.offset_range: each.count.dead_letters for each in batch.ranges if each.count.dead_letters}
    if not counts:
        return
    output = output_of_dead_letters(batch.output)
    try:
        sink = sinks(output)
        if sink.archive.removal(batch.batch_id) is not None:
            return
        look = role_of(output, sink.inspector, "be counted batch by batch").look_at(batch.batch_id)
    except (OutputConflictError, OutputUnavailableError) as error:
        yield Difference(str(output), "files that can be read", str(error), str(batch.batch_id))
        return
    found = {count.topic_partition: count for count in look.counts}
    for offset_range, number in sorted(counts.items()):
        count = found.get(offset_range.topic_partition)
        if count is None or not count.rows == count.offsets == number:
            expected = f"{counted(number, 'dead letter')} in {where_they_are(batch.output)}"
            there = describe_published(count)
            yield Difference(str(offset_range), expected, there, str(batch.batch_id), offset_range)


def problems_of(topic_partition: TopicPartition, look: PublishedLook) -> Iterator[FileProblem]:
    for problem in look.problems:
        spans = problem.written.spans if problem.written is not None else []
        if any(span.topic_partition == topic_partition for span, _ in spans):
            yield problem


def described(rows: int, offsets: int, smallest: int | None, largest: int | None) -> str:
    if not rows:
        return "no rows"
    return f"{counted(rows, 'row')} of {counted(offsets, 'offset')} from {smallest:,} to {largest:,}"


def describe_published(count: PublishedCount | None) -> str:
    return described(count.rows, count.offsets, count.smallest_offset, count.largest_offset) if count else "no rows"


def holes_and_overlaps(
    coverage: Mapping[TopicPartition, PartitionCoverage], committed: Mapping[TopicPartition, list[OffsetRange]]
) -> Iterator[Difference]:
    """Yield holes and overlaps in the ranges of all committed batches, by partition (invariant 11)."""
    for topic_partition, partition in coverage.items():
        ranges = committed.get(topic_partition, [])
        reread = [rewind.offset_range for rewind in partition.rewinds]
        gaps = [gap.offset_range for gap in partition.open_gaps]
        # A folded batch's unreadable receipt is reported above; its offsets are committed all the same.
        folded = [each.offset_range for each in partition.folded]
        for hole in subtract(partition.read_through, [*ranges, *gaps, *folded]):
            yield Difference(str(hole), "a committed batch or an open gap", "neither")
        for twice in subtract(shared(ranges), reread):
            yield Difference(str(twice), "one committed batch", "more than one, and no reset that reads it again")
        beyond = [OffsetRange(topic_partition, 0, partition.stored.next_offset or 0), *reread]
        for above in subtract(union(ranges), beyond):
            yield Difference(str(above), "nothing beyond the stored offset", "a committed batch")


def held_by_replays(rows: CoverageRows, control: ControlReader, sinks: Sinks) -> list[OffsetRange]:
    """Return which offsets of lost files replays hold: no gap was filed of them. Of the topics as they are now.

    Raises what reading dead letters raises: which offsets these are, only their files say.
    """
    lost = grouped(
        (each.batch_id, each.offset_range)
        for each in rows.lost
        if (row := rows.feed.stored.get(each.offset_range.topic_partition)) is not None
        and row.topic_id == rows.id_now(each.offset_range.topic, each.topic_id)
    )
    found: list[OffsetRange] = []
    for batch_id, gone in lost.items():
        replayed = [each.letters for each in rows.replays if each.letters.batch_id == batch_id and not each.is_open]
        if not replayed:
            continue
        output = output_of_dead_letters(control.batch(batch_id).plan.output)
        reader = role_of(output, sinks(output).dead_letters, REPLAY_DEAD_LETTERS)
        found += intersect(reader.offsets(batch_id, replayed), gone)
    return found


def unknown_batches(
    outputs: Collection[OutputLocation], rows: CoverageRows, control: ControlReader, sinks: Sinks
) -> Iterator[Difference]:
    """Yield what is in the outputs that the feed has used and belongs to no batch of the feed."""
    for output in sorted(outputs):
        try:
            there = sinks(output).publisher.known_batches()
        except OutputUnavailableError:
            continue  # reported for each of its batches already
        # Asked after the output: what is published in between is known before it is visible.
        states = {str(batch_id) for batch_id in control.batch_states(rows.feed.feed_id)}
        for batch_id in there:
            if batch_id not in states:
                yield Difference(str(output), "batches that the control tables know", batch_id, batch_id)
