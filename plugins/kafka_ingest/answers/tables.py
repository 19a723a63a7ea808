"""Tables for people."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rich.markup import escape
from rich.text import Text

from kafka_ingest.answers.answer import number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.checks.doctor import Check
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.gap import Gap
from kafka_ingest.model.summaries import BatchSummary, FeedSummary
from kafka_ingest.observing.feed_status import FeedStatus, PartitionStatus
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.settings.defaults import Value
from kafka_ingest.settings.feed_file import FeedFile


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> FittingTable:
    """Return an empty table; the named columns hold numbers."""
    return FittingTable(title, columns, numbers=numbers)


def moment(value: datetime | None) -> str:
    """Return a time for a table."""
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def status_table(status: FeedStatus) -> FittingTable:
    """Return a feed's partitions, with a total; columns without any value are left out."""
    rows = [status_cells(partition) for partition in status.partitions]
    always = ("stored offset", "log start", "LSO", "high watermark", "lag", "headroom", "rows")
    used = {name for row in rows for name, cell in row.items() if cell.plain not in {"", "-", "0"}}
    numbers = [name for name in STATUS_NUMBERS if name in always or name in used]
    columns = [*numbers, *(["remarks"] if "remarks" in used else [])]
    made = table(f"feed {status.feed}", "topic", "partition", *columns, numbers=("partition", *numbers))
    for partition, row in zip(status.partitions, rows, strict=True):
        tp = partition.stored.topic_partition
        made.add_line(tp.topic, str(tp.partition), *(row[name] for name in columns))
    totals = {
        "lag": total(partition.lag for partition in status.partitions),
        "in gaps": sum(partition.gap_offsets for partition in status.partitions),
        "rows": sum(partition.rows for partition in status.partitions),
    }
    made.add_section()
    made.add_line("total", number(len(rows)), *(number(totals[name]) if name in totals else "" for name in columns))
    return made


STATUS_NUMBERS = (
    "stored offset",
    "log start",
    "LSO",
    "high watermark",
    "lag",
    "headroom",
    "group offset",
    "drift",
    "in gaps",
    "rows",
)


def status_cells(partition: PartitionStatus) -> dict[str, Text]:
    """Return the cells of one partition."""
    bounds = partition.bounds
    return {
        "stored offset": Text(number(partition.stored.next_offset)),
        "log start": Text(number(bounds.log_start_offset if bounds else None)),
        "LSO": Text(number(bounds.last_stable_offset if bounds else None)),
        "high watermark": Text(number(bounds.high_watermark if bounds else None)),
        "lag": Text(number(partition.lag)),
        "headroom": Text(number(partition.headroom), style="red" if (partition.headroom or 0) < 0 else ""),
        "group offset": Text(number(partition.group_offset)),
        "drift": Text(number(partition.drift), style="yellow" if partition.drift else ""),
        "in gaps": Text(number(partition.gap_offsets), style="yellow" if partition.gap_offsets else ""),
        "rows": Text(number(partition.rows)),
        "remarks": Text(remarks(partition), style="yellow"),
    }


def total(values: Iterable[int | None]) -> int | None:
    """Return the sum of what is known, None where nothing is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def remarks(partition: PartitionStatus) -> str:
    """Return the remarks on a partition."""
    document = partition.as_document()
    found: list[str] = []
    if partition.stored.is_pending:
        found.append(f"start pending: {partition.stored.seeded_by}")
    if document["unavailable"]:
        found.append("{reason}{since}".format(**document["unavailable"] | {"since": since(document["unavailable"])}))
    if partition.lost:
        held_since = f", held{since(document['offsets_lost'])}" if document["offsets_lost"] else ""
        found.append(
            f"{counted(partition.lost, 'offset')} {were(partition.lost)} deleted before they were read{held_since}"
        )
    if partition.is_beyond_log and not document["beyond_log"]:
        found.append("stored offset above the log's end")
    if not partition.is_read:
        found.append("not read: the feed file does not name its topic")
    if document["open_transaction"]:
        behind = document["open_transaction"]["offsets_behind_it"]
        found.append(f"open transaction, {counted(behind, 'offset')} behind it{since(document['open_transaction'])}")
    held = filter(None, (document["unreadable"], document["beyond_log"]))
    found.extend(f"{hold['reason']}{since(hold)}" for hold in held)
    return "; ".join(found)


def since(document: Mapping[str, Any]) -> str:
    """Return since when something is known, for the end of a remark."""
    return f", since {moment(datetime.fromisoformat(document['since']))}" if document["since"] else ""


def feeds_status_table(summaries: list[FeedSummary], never_planned: list[str]) -> FittingTable:
    """Return one line per feed."""
    made = table(
        "feeds",
        *("feed", "partitions", "rows committed", "filtered", "dead letters", "last commit (UTC)", "open batch"),
        numbers=("partitions", "rows committed", "filtered", "dead letters"),
    )
    for summary in summaries:
        open_batch = f"{summary.open_batch_state} {summary.open_batch}" if summary.open_batch else "none"
        made.add_line(
            summary.name,
            number(summary.partitions),
            number(summary.rows_committed),
            number(summary.not_rows.filtered),
            number(summary.not_rows.dead_letters),
            moment(summary.last_committed_at),
            open_batch,
        )
    for name in never_planned:
        made.add_line(name, "0", "0", "0", "0", "never planned", "none")
    return made


def feed_files_table(files: list[FeedFile]) -> FittingTable:
    """Return the feed files that can be used."""
    made = table("feeds", "feed", "topics", "schedule", "output", "file")
    for file in files:
        if file.feed is not None:
            made.add_line(
                file.feed.name,
                file.feed.kafka.described(),
                file.feed.schedule or "none",
                f"{file.feed.sink.format} {file.feed.sink.path}",
                file.path.name,
            )
    return made


def written_values_table(name: str, values: Iterable[Value]) -> FittingTable:
    """Return what a feed comes to: each value as JSON, and which line of which file says it."""
    made = table(f"feed {name}", "key", "value", "from")
    for each in values:
        line = f":{each.line}" if each.line is not None else ""
        made.add_line(each.key, json.dumps(each.value, ensure_ascii=False), f"{each.path}{line}")
    return made


def batches_table(batches: list[BatchSummary]) -> FittingTable:
    """Return batches, newest first."""
    letters = {batch.batch_id: sum(each.dead_letters or 0 for each in batch.ranges) for batch in batches}
    filtered = {batch.batch_id: sum(each.filtered or 0 for each in batch.ranges) for batch in batches}
    counted = {
        name: counts for name, counts in (("dead letters", letters), ("filtered", filtered)) if any(counts.values())
    }
    numbers = ("ranges", "rows", *counted, "MB")
    made = table(
        "batches", *("batch", "feed", "kind", "state", "planned by", "committed (UTC)"), *numbers, numbers=numbers
    )
    for batch in batches:
        made.add_line(
            str(batch.batch_id),
            batch.feed,
            batch.kind,
            batch.state.value,
            Text(batch.planned_by),
            moment(batch.committed_at),
            number_of_ranges(batch),
            number(batch.rows),
            *(number(counts[batch.batch_id]) for counts in counted.values()),
            "-" if batch.size_bytes is None else f"{batch.size_bytes / 1e6:,.1f}",
        )
    return made


def number_of_ranges(batch: BatchSummary) -> str:
    """Return a batch's number of ranges, and of how many planned ones where it left some out; a folded one has none."""
    if batch.folded:
        return "folded"
    read = len(batch.ranges)
    return f"{number(read)} of {number(read + len(batch.left_out))}" if batch.left_out else number(read)


def decision_table(feed: str, decision: PlanDecision) -> FittingTable:
    """Return what the next plan would be."""
    numbers = ("start offset", "end offset", "records at most")
    made = table(f"next batch of feed {feed}", "topic", "partition", *numbers, "start", numbers=("partition", *numbers))
    seeds = {seed.topic_partition: seed for seed in decision.seeds}
    for offset_range in decision.ranges:
        seed = seeds.get(offset_range.topic_partition)
        made.add_line(
            offset_range.topic,
            str(offset_range.partition),
            number(offset_range.start_offset),
            number(offset_range.end_offset),
            number(offset_range.span),
            f"start rule: {seed.seeded_by}" if seed else "stored offset",
        )
    read = {offset_range.topic_partition for offset_range in decision.ranges}
    for tp, seed in seeds.items():
        if tp not in read:
            offset = number(seed.next_offset)
            made.add_line(tp.topic, str(tp.partition), offset, offset, "0", f"start rule: {seed.seeded_by}")
    made.add_section()
    made.add_line("total", str(len(decision.ranges)), "", "", number(sum(r.span for r in decision.ranges)), "")
    return made


def checks_line(check: Check) -> str:
    """Return one line of ``doctor``."""
    if check.error is None:
        return f"[green]✓[/green] {escape(check.about)}: {escape(check.found)}"
    return f"[red]✗[/red] {escape(check.about)}: {escape(str(check.error))}"


def gaps_table(gaps: list[tuple[str, Gap]]) -> FittingTable:
    """Return the gap ledger."""
    numbers = ("partition", "start offset", "end offset", "offsets")
    closed = ["closed by"] if any(gap.closed_by_batch for _, gap in gaps) else []
    made = table(
        "gaps",
        *("feed", "topic", *numbers, "cause", "state", *closed, "decided (UTC)", "by", "reason"),
        numbers=numbers,
    )
    for feed, gap in gaps:
        span = gap.offset_range
        made.add_line(
            feed,
            span.topic,
            str(span.partition),
            number(span.start_offset),
            number(span.end_offset),
            number(span.span),
            gap.cause.value,
            gap.state,
            *([str(gap.closed_by_batch or "-")] if closed else []),
            moment(gap.decided_at),
            Text(gap.decided_by),
            Text(gap.reason),
        )
    return made
