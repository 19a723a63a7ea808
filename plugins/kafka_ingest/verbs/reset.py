"""``reset``: move stored offsets."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from rich.text import Text as RichText

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import BatchStateError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.control_rows import FeedSnapshot, ResetMove
from kafka_ingest.model.coverage import CoverageRows, PartitionCoverage, coverage_of
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import Gap, GapCause, Jump, NewGap
from kafka_ingest.model.offsets import (
    OffsetRange,
    StoredOffset,
    TopicPartition,
    by_partition,
    intersect,
    listing,
    span_of,
    subtract,
)
from kafka_ingest.planning.positions import Way, gaps_by_partition
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.cluster import KafkaCluster
from kafka_ingest.ports.control import ControlReader, OperatorTables
from kafka_ingest.settings.run_request import InForm, Lines, Text
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, mirror_lines
from kafka_ingest.verbs.found_offsets import new_positions, partitions_meant
from kafka_ingest.verbs.request import RESET, TOPICS, Call, Option, Request
from kafka_ingest.verbs.reset_target import NewPosition, ResetTarget, named_partitions, reset_target


class Reset(Request):
    """Move stored offsets: back, and records are read again; forward, over a gap. Refused while a batch is open."""

    verb = command = "reset"
    does = "moves stored offsets"

    to: Annotated[
        Text,
        InForm(
            "Move to",
            "For reset: earliest, latest, timestamp=2026-01-31T00:00:00Z, group=NAME, "
            "offsets=TOPIC:PARTITION=OFFSET,…, or batch=ID, where it began.",
            RESET,
        ),
        Option(
            "earliest, latest, timestamp=TIME, group=NAME, offsets=TOPIC:PARTITION=OFFSET,… or batch=ID (where it "
            "began).",
            metavar="TARGET",
        ),
    ] = None
    shift_by: Annotated[
        int | None,
        Field(strict=True),
        InForm("Or move by", "For reset: this many offsets forward, or back: -100.", RESET),
        Option("This many offsets forward, or back: -100.", metavar="N"),
    ] = None
    topics: Annotated[
        Lines,
        TOPICS,
        Option("Only this topic, or these partitions; may be repeated.", flag="--topic", metavar="TOPIC[:PARTITION,…]"),
    ] = Field(default_factory=list)
    keep_group: Annotated[
        bool,
        InForm("Leave the consumer group", "For reset: the next commit takes the group along, not this run.", RESET),
        Option("Leave the consumer group where it is; the next commit takes it along."),
    ] = False

    def answer(self, call: Call) -> Answer:
        target = reset_target(self.to, self.shift_by, call.named)
        named = named_partitions(self.topics, target, call.named)
        parts, decided = call.parts, call.decided
        parts.check_output_known()
        reason = call.reason
        decision = decide_reset(target, named, parts.plan_settings, parts.control, parts.kafka, reason=reason)
        executed = decided is not None and bool(decision.moves)
        mirror_failure = None
        if decided is not None:
            if decision.moves:
                reset(decision, parts.control, reason=reason, actor=decided.actor)
            if not self.keep_group:
                # Also where nothing moves: this completes a reset that died between the control tables and the group.
                mirror_failure = parts.mirror(actor=decided.actor).failure
        return Answer(
            reset_document(decision, executed=executed) | {"mirror_failure": mirror_failure},
            lines_of(decision, mirror_failure, executed=executed),
            only_shown=bool(decision.moves) and not executed,
        )


@dataclass(frozen=True, slots=True)
class PartitionReset:
    """One partition before and after the reset. ``move`` is None where it stays.

    ``overlaps`` are committed and will be read a second time; ``ended`` are parts of open gaps that are read after all.
    """

    stored: StoredOffset
    move: ResetMove | None = None
    overlaps: Sequence[OffsetRange] = ()
    ended: Sequence[OffsetRange] = ()
    remark: str = ""

    @property
    def new_offset(self) -> int | None:
        """The stored offset as it would be; None where the start is pending."""
        return self.move.to_offset if self.move is not None else self.stored.next_offset

    @property
    def read_again(self) -> int:
        """How many offsets that the feed has passed it will read again."""
        return max(0, self.move.from_offset - self.move.to_offset) if self.move is not None else 0

    @property
    def skipped(self) -> int:
        return max(0, self.move.to_offset - self.move.from_offset) if self.move is not None else 0

    @property
    def gaps(self) -> list[OffsetRange]:
        jump = self.move.jump if self.move is not None else None
        return [gap.offset_range for gap in jump.gaps] if jump is not None else []


@dataclass(frozen=True, slots=True)
class ResetDecision:
    """The result of resetting a feed, decided on these control rows."""

    feed: FeedSnapshot
    partitions: Sequence[PartitionReset]

    @property
    def moves(self) -> list[ResetMove]:
        return [partition.move for partition in self.partitions if partition.move is not None]


def decide_reset(
    target: ResetTarget,
    named: Mapping[str, Collection[int]],
    settings: FeedPlanSettings,
    control: OperatorTables,
    kafka: KafkaCluster,
    *,
    reason: str,
) -> ResetDecision:
    """Return the result of resetting a feed; nothing is written.

    ``named`` restricts it to topics, and to some of their partitions where it names any. Raises BatchStateError where a
    batch is open, InvalidRangeError or WrongUseError where the target is not possible, and what planning raises where
    the cluster or a topic id has changed.
    """
    rows = control.coverage(settings.name) or CoverageRows(known_feed(control, settings.name))
    feed = rows.feed
    meant = partitions_meant(feed, named, target, settings)
    check_none_open(rows)
    positions = new_positions(target, meant, feed, settings.isolation, control, kafka)
    covered, ahead = coverage_of(rows), gaps_by_partition(feed)
    passed = by_partition(passed_before(meant, positions, covered, control, feed.feed_id))
    return ResetDecision(
        feed,
        [
            reset_of(covered[tp], position, ahead.get(tp, ()), passed.get(tp, ()), reason)
            for tp, position in sorted(positions.items())
        ],
    )


def check_none_open(rows: CoverageRows) -> None:
    feed, live = rows.feed, rows.feed.open_batch
    if live is not None:
        raise BatchStateError(
            f"feed {feed.name}: batch {live.batch_id} is {live.state}, and begins at the current stored offsets. "
            f"Finish it (`kafka-ingest run {feed.name}`, or its DAG), or abandon it (`kafka-ingest abandon "
            f"{live.batch_id} --reason …`), then reset. Nothing was changed."
        )
    backfill = next((each for each in rows.backfills if each.state.is_open), None)
    if backfill is not None:
        raise BatchStateError(
            f"feed {feed.name}: backfill batch {backfill.batch_id} is {backfill.state}, and reads below the current "
            f"stored offsets. Finish it (`kafka-ingest backfill {feed.name} open`), or abandon it (`kafka-ingest "
            f"abandon {backfill.batch_id} --reason …`), then reset. Nothing was changed."
        )


def passed_before(
    meant: Iterable[StoredOffset],
    positions: Mapping[TopicPartition, NewPosition],
    covered: Mapping[TopicPartition, PartitionCoverage],
    control: ControlReader,
    feed_id: UUID,
) -> list[OffsetRange]:
    """Return what partitions that go forward pass of what was committed before an operator let the feed go back.

    No gap is filed of it, since it is in the output: so a reset can be undone by another one.
    """
    passing = [
        OffsetRange(row.topic_partition, row.next_offset, offset)
        for row in meant
        if row.next_offset is not None
        and (offset := positions[row.topic_partition].offset) is not None
        and offset > row.next_offset
    ]
    again = intersect(passing, [interval for partition in covered.values() for interval in partition.rewound])
    return control.committed_within(feed_id, again) if again else []


def reset_of(
    partition: PartitionCoverage,
    position: NewPosition,
    ahead: Collection[Gap],
    passed: Collection[OffsetRange],
    reason: str,
) -> PartitionReset:
    """Return one partition's reset; ``passed`` is what it skips that is committed already."""
    old, new = partition.stored.next_offset, position.offset
    if old is None or new is None or new == old:
        return PartitionReset(partition.stored, remark=position.remark)
    if new < old:
        return back(partition, old, new, position.remark)
    jump = jump_to(partition.topic_partition, old, new, ahead, passed, reason)
    remarks = [
        position.remark,
        f"to the end of the gap that was filed over {new:,}" if jump.to_offset > new else "",
        f"{span_of(passed):,} are committed already, and no gap" if passed else "",
    ]
    move = ResetMove(partition.topic_partition, old, jump.to_offset, jump if jump.gaps or jump.passed else None)
    return PartitionReset(partition.stored, move, remark="; ".join(filter(None, remarks)))


def back(partition: PartitionCoverage, old: int, new: int, remark: str) -> PartitionReset:
    """Return a backward reset: committed offsets are read a second time, and open gaps are read after all."""
    again = [OffsetRange(partition.topic_partition, new, old)]
    return PartitionReset(
        partition.stored,
        ResetMove(partition.topic_partition, old, new),
        overlaps=intersect(again, partition.committed),
        ended=intersect(again, [gap.offset_range for gap in partition.open_gaps]),
        remark=remark,
    )


def jump_to(
    topic_partition: TopicPartition,
    old: int,
    new: int,
    ahead: Collection[Gap],
    passed: Collection[OffsetRange],
    reason: str,
) -> Jump:
    """Return a forward jump, with gaps over what is neither committed nor a gap already."""
    # A gap that begins at the new offset is passed by the next plan, like any other that is ahead.
    between = [gap for gap in ahead if gap.offset_range.start_offset < new]
    way = Way(topic_partition, old, sorted(between, key=lambda gap: gap.offset_range.start_offset))
    way.pass_to(new, GapCause.RESET, reason)
    left = subtract([gap.offset_range for gap in way.gaps], passed)
    gaps = tuple(NewGap(span, GapCause.RESET, reason) for span in left)
    return Jump(topic_partition, old, way.offset, gaps, tuple(way.passed))


def reset(decision: ResetDecision, control: OperatorTables, *, reason: str, actor: str) -> None:
    """Move the stored offsets as they were shown; raises FeedChangedError where the feed changed since."""
    control.reset_offsets(decision.feed, decision.moves, reason=reason, actor=actor)


def lines_of(decision: ResetDecision, mirror_failure: str | None, *, executed: bool) -> Iterator[Line | FittingTable]:
    yield reset_table(decision, executed=executed)
    yield from map(Line, consequences(decision, executed=executed))
    yield from mirror_lines(mirror_failure)


def reset_document(decision: ResetDecision, *, executed: bool) -> dict[str, Any]:
    return {
        "feed": decision.feed.name,
        "executed": executed,
        "partitions": [
            {
                **document_of(partition.stored, "topic_partition"),
                "old_offset": partition.stored.next_offset,
                **document_of(partition, "new_offset", "read_again", "skipped"),
                "overlaps": intervals(partition.overlaps),
                "gaps": intervals(partition.gaps),
                "gaps_ended": intervals(partition.ended),
                "remark": partition.remark or None,
            }
            for partition in decision.partitions
        ],
    }


def intervals(ranges: Iterable[OffsetRange]) -> list[dict[str, int]]:
    return [{"start_offset": each.start_offset, "end_offset": each.end_offset} for each in ranges]


def reset_table(decision: ResetDecision, *, executed: bool) -> FittingTable:
    numbers = ("partition", "old offset", "new offset") if executed else ("partition", "stored offset", "new offset")
    made = FittingTable(f"reset of feed {decision.feed.name}", "topic", *numbers, "change", "remark", numbers=numbers)
    for partition in decision.partitions:
        tp = partition.stored.topic_partition
        offsets, remark = (partition.stored.next_offset, partition.new_offset), RichText(partition.remark, "yellow")
        made.add_line(tp.topic, str(tp.partition), *offsets, change(partition), remark)
    return made


def change(partition: PartitionReset) -> str:
    if partition.skipped:
        return f"skips {partition.skipped:,}"
    if not partition.read_again:
        return "stays"
    return f"reads {partition.read_again:,}{' again' if partition.overlaps else ''}"


def consequences(decision: ResetDecision, *, executed: bool) -> list[str]:
    if not decision.moves:
        return ["nothing to move: every stored offset is at its target already, or stays"]
    overlaps = [each for partition in decision.partitions for each in partition.overlaps]
    gaps = [each for partition in decision.partitions for each in partition.gaps]
    ended = [each for partition in decision.partitions for each in partition.ended]
    lines: list[str] = []
    if overlaps:
        lines.append(
            f"overlaps: {listing(overlaps)}, {counted(span_of(overlaps), 'offset')} committed already: once read "
            "again, the output holds their records twice"
        )
    if gaps:
        filed = "filed gaps" if executed else "gaps that would be filed"
        lines.append(
            f"{filed}: {listing(gaps)}, {counted(span_of(gaps), 'offset')} not read; a backfill can close them"
        )
    if ended:
        over = "gaps that ended" if executed else "gaps that would end"
        lines.append(f"{over}: {listing(ended)}, {counted(span_of(ended), 'offset')} that will be read")
    if executed:
        lines.append(f"moved {counted(len(decision.moves), 'stored offset')}")
    return lines
