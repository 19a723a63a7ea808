"""``reset``: move stored offsets."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from kafka_ingest.answers.answer import Answer, Line, mirror_lines, number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import table
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offset_sets import span_of
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.operating.reset_offsets import PartitionReset, ResetDecision, decide_reset
from kafka_ingest.operating.reset_offsets import reset as move_offsets
from kafka_ingest.operating.reset_target import ResetTarget
from kafka_ingest.verbs.decided import Decided

SHOWN_ONLY = "shown only"


def reset(
    parts: FeedParts,
    target: ResetTarget,
    named: Mapping[str, Collection[int]],
    decided: Decided | None,
    *,
    keep_group: bool,
) -> Answer:
    """Move stored offsets, or show what that comes to."""
    parts.check_output_known()
    reason = decided.reason if decided is not None else SHOWN_ONLY
    decision = decide_reset(target, named, parts.plan_settings, parts.control, parts.kafka, reason=reason)
    executed = decided is not None and bool(decision.moves)
    mirror_failure = None
    if decided is not None:
        if decision.moves:
            move_offsets(decision, parts.control, reason=reason, actor=decided.actor)
        if not keep_group:
            # Also where nothing moves: this completes a reset that died between the control tables and the group.
            mirror_failure = parts.mirror(actor=decided.actor).failure
    return Answer(
        reset_document(decision, executed=executed) | {"mirror_failure": mirror_failure},
        lines_of(decision, mirror_failure, executed=executed),
        only_shown=bool(decision.moves) and not executed,
    )


def lines_of(decision: ResetDecision, mirror_failure: str | None, *, executed: bool) -> Iterator[Line | FittingTable]:
    """Yield the stored offsets before and after, what that means, and why the group stays where it does."""
    yield reset_table(decision, executed=executed)
    yield from map(Line, consequences(decision, executed=executed))
    yield from mirror_lines(mirror_failure)


def reset_document(decision: ResetDecision, *, executed: bool) -> dict[str, Any]:
    """Return the result of a reset as ``--json`` shows it."""
    return {
        "feed": decision.feed.name,
        "executed": executed,
        "partitions": [
            {
                "topic": partition.stored.topic_partition.topic,
                "partition": partition.stored.topic_partition.partition,
                "old_offset": partition.stored.next_offset,
                "new_offset": partition.new_offset,
                "read_again": partition.read_again,
                "skipped": partition.skipped,
                "overlaps": intervals(partition.overlaps),
                "gaps": intervals(partition.gaps),
                "gaps_ended": intervals(partition.ended),
                "remark": partition.remark or None,
            }
            for partition in decision.partitions
        ],
    }


def intervals(ranges: Iterable[OffsetRange]) -> list[dict[str, int]]:
    """Return intervals of a partition that the document names elsewhere."""
    return [{"start_offset": each.start_offset, "end_offset": each.end_offset} for each in ranges]


def reset_table(decision: ResetDecision, *, executed: bool) -> FittingTable:
    """Return the stored offsets as they were and are, or as they are and would be."""
    numbers = ("partition", "old offset", "new offset") if executed else ("partition", "stored offset", "new offset")
    made = table(f"reset of feed {decision.feed.name}", "topic", *numbers, "change", "remark", numbers=numbers)
    for partition in decision.partitions:
        tp = partition.stored.topic_partition
        made.add_line(
            tp.topic,
            str(tp.partition),
            number(partition.stored.next_offset),
            number(partition.new_offset),
            change(partition),
            Text(partition.remark, style="yellow"),
        )
    return made


def change(partition: PartitionReset) -> str:
    """Return the effect of moving one stored offset, in a few words."""
    if partition.skipped:
        return f"skips {partition.skipped:,}"
    if not partition.read_again:
        return "stays"
    return f"reads {partition.read_again:,}{' again' if partition.overlaps else ''}"


def consequences(decision: ResetDecision, *, executed: bool) -> list[str]:
    """Return the lines below the table: which offsets repeat, which gaps are filed, and which end."""
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
