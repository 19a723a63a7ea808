"""Tables for people."""

from datetime import datetime

from rich import box
from rich.markup import escape
from rich.table import Table

from kafka_ingest.cli.output import number
from kafka_ingest.control.reader import BatchSummary, FeedSummary
from kafka_ingest.feed_files import FeedFile
from kafka_ingest.observing.doctor import Check
from kafka_ingest.observing.feed_status import FeedStatus
from kafka_ingest.planning.decide import PlanDecision


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table; the named columns hold numbers."""
    made = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD, padding=(0, 0))
    for column in columns:
        # On a narrow terminal text folds before a heading's words, or an id that somebody wants to copy, are torn.
        longest_word = max(len(word) for word in column.split())
        made.add_column(
            column,
            justify="right" if column in numbers else "left",
            overflow="fold",
            min_width=longest_word,
            no_wrap=column == "batch",
        )
    return made


def moment(value: datetime | None) -> str:
    """Return a time for a table."""
    return "-" if value is None else value.strftime("%Y-%m-%d %H:%M:%S")


def status_table(status: FeedStatus) -> Table:
    """Return a feed's partitions, with a total."""
    numbers = ("stored offset", "log start", "log end", "lag", "headroom", "group offset", "rows")
    made = table(f"feed {status.feed}", "topic", "partition", *numbers, numbers=("partition", *numbers))
    for partition in status.partitions:
        bounds = partition.bounds
        tp = partition.stored.topic_partition
        made.add_row(
            tp.topic,
            str(tp.partition),
            number(partition.stored.next_offset),
            number(bounds.log_start_offset if bounds else None),
            number(bounds.high_watermark if bounds else None),
            number(partition.lag),
            number(partition.headroom),
            number(partition.group_offset),
            number(partition.rows),
        )
    lags = [partition.lag for partition in status.partitions]
    made.add_section()
    made.add_row(
        "total",
        str(len(status.partitions)),
        *["", "", ""],
        number(sum(lag for lag in lags if lag is not None) if any(lag is not None for lag in lags) else None),
        *["", ""],
        number(sum(partition.rows for partition in status.partitions)),
    )
    return made


def feeds_status_table(summaries: list[FeedSummary], never_planned: list[str]) -> Table:
    """Return a line a feed."""
    made = table(
        "feeds",
        *("feed", "partitions", "rows committed", "last commit (UTC)", "open batch"),
        numbers=("partitions", "rows committed"),
    )
    for summary in summaries:
        open_batch = f"{summary.open_batch_state} {summary.open_batch}" if summary.open_batch else "none"
        made.add_row(
            summary.name,
            number(summary.partitions),
            number(summary.rows_committed),
            moment(summary.last_committed_at),
            open_batch,
        )
    for name in never_planned:
        made.add_row(name, "0", "0", "never planned", "none")
    return made


def feed_files_table(files: list[FeedFile]) -> Table:
    """Return the feed files that can be used."""
    made = table("feeds", "feed", "topics", "schedule", "output", "file")
    for file in files:
        if file.feed is not None:
            made.add_row(
                file.feed.name,
                ", ".join(topic.name for topic in file.feed.kafka.topics),
                file.feed.schedule or "none",
                f"{file.feed.sink.format} {file.feed.sink.path}",
                file.path.name,
            )
    return made


def batches_table(batches: list[BatchSummary]) -> Table:
    """Return batches, newest first."""
    made = table(
        "batches",
        *("batch", "feed", "state", "committed (UTC)", "ranges", "rows", "MB"),
        numbers=("ranges", "rows", "MB"),
    )
    for batch in batches:
        made.add_row(
            str(batch.batch_id),
            batch.feed,
            batch.state.value,
            moment(batch.committed_at),
            number(len(batch.ranges)),
            number(batch.rows),
            "-" if batch.size_bytes is None else f"{batch.size_bytes / 1e6:,.1f}",
        )
    return made


def decision_table(feed: str, decision: PlanDecision) -> Table:
    """Return what the next plan would be."""
    numbers = ("start offset", "end offset", "records at most")
    made = table(f"next batch of feed {feed}", "topic", "partition", *numbers, "start", numbers=("partition", *numbers))
    seeds = {seed.topic_partition: seed for seed in decision.seeds}
    for offset_range in decision.ranges:
        seed = seeds.get(offset_range.topic_partition)
        made.add_row(
            offset_range.topic,
            str(offset_range.partition),
            number(offset_range.start_offset),
            number(offset_range.end_offset),
            number(offset_range.span),
            f"start rule: {seed.seeded_by}" if seed else "stored offset",
        )
    made.add_section()
    made.add_row("total", str(len(decision.ranges)), "", "", number(sum(r.span for r in decision.ranges)), "")
    return made


def checks_line(check: Check) -> str:
    """Return one line of ``doctor``."""
    if check.error is None:
        return f"[green]✓[/green] {escape(check.about)}: {escape(check.found)}"
    return f"[red]✗[/red] {escape(check.about)}: {escape(str(check.error))}"
