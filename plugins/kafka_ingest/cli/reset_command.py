"""``kafka-ingest reset``: show where stored offsets would go, with the consequences, and move them."""

from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.text import Text

from kafka_ingest.cli.arguments import Execute, FeedName, Json, ReasonToExecute, actor, feed_parts, reason_given
from kafka_ingest.cli.fitting_table import FittingTable
from kafka_ingest.cli.operator_commands import print_mirror_failure
from kafka_ingest.cli.output import answers, number, out, print_json
from kafka_ingest.cli.reset_options import named_partitions, reset_target
from kafka_ingest.cli.tables import table
from kafka_ingest.model.offset_sets import span_of
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.operating.reset_offsets import PartitionReset, ResetDecision, decide_reset
from kafka_ingest.operating.reset_offsets import reset as move_offsets

SHOWN_ONLY = "shown only"


def reset(
    feed_name: FeedName,
    *,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="earliest, latest, timestamp=TIME, group=NAME, offsets=TOPIC:PARTITION=OFFSET,… or batch=ID (where it "
            "began).",
        ),
    ] = None,
    shift_by: Annotated[int | None, typer.Option(metavar="N", help="This many offsets forward, or back: -100.")] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC[:PARTITION,…]", help="Only this topic, or these partitions; may come again."),
    ] = None,
    keep_group: Annotated[
        bool, typer.Option("--keep-group", help="Leave the consumer group where it is; the next commit takes it along.")
    ] = False,
    execute: Execute = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Move stored offsets: back, and records are read again; forward, over a gap. Refused while a batch is open."""
    with answers(as_json=as_json):
        target = reset_target(to, shift_by)
        named = named_partitions(topic or [], target)
        why = reason_given(reason) if execute else SHOWN_ONLY
        parts = feed_parts(feed_name)
        parts.check_output_known()
        decision = decide_reset(target, named, parts.plan_settings, parts.control, parts.kafka, reason=why)
        executed = execute and bool(decision.moves)
        if executed:
            move_offsets(decision, parts.control, reason=why, actor=actor())
        # Also where nothing moves: this completes a reset that died between the control tables and the group.
        mirror_failure = parts.mirror(actor=actor()).failure if execute and not keep_group else None
        if as_json:
            print_json(reset_document(decision, executed=executed) | {"mirror_failure": mirror_failure})
            return
        out.print(reset_table(decision, executed=executed))
        for line in consequences(decision, executed=executed):
            out.print(line, markup=False, soft_wrap=True)
        print_mirror_failure(mirror_failure)


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
    """Return the lines below the table: which offsets repeat, which gaps are filed and which end, and the next step."""
    if not decision.moves:
        return ["nothing to move: every stored offset is at its target already, or stays"]
    overlaps = [each for partition in decision.partitions for each in partition.overlaps]
    gaps = [each for partition in decision.partitions for each in partition.gaps]
    ended = [each for partition in decision.partitions for each in partition.ended]
    lines: list[str] = []
    if overlaps:
        lines.append(
            f"overlaps: {listing(overlaps)}, {span_of(overlaps):,} offsets that are committed: once they are read "
            "again, the output holds their records twice"
        )
    if gaps:
        filed = "filed gaps" if executed else "gaps that would be filed"
        lines.append(
            f"{filed}: {listing(gaps)}, {span_of(gaps):,} offsets that are not read; a backfill can close them"
        )
    if ended:
        over = "gaps that ended" if executed else "gaps that would end"
        lines.append(f"{over}: {listing(ended)}, {span_of(ended):,} offsets that will be read")
    moved = f"{len(decision.moves):,} stored offsets"
    lines.append(f"moved {moved}" if executed else "nothing was changed: --execute --reason … does it")
    return lines


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command()(reset)
