"""``status`` and ``partitions``: where feeds stand, and which of their hours or days are complete. Commands only."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from rich.text import Text

from kafka_ingest.assembly import feed_files, file_of_feed
from kafka_ingest.batches.known_output import check_output
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.errors import KafkaIngestError, RetryableError, WrongUseError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.completion import CompletionRules, Period
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.summaries import NONE_LEFT_OUT, FeedSummary
from kafka_ingest.observing.feed_status import FeedStatus, PartitionStatus, feed_status
from kafka_ingest.settings.connections import kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.explain import TRANSACTIONS
from kafka_ingest.verbs.listings import MOST_LINES
from kafka_ingest.verbs.request import Call, Deciding, Option, Request

STATUS_TIMEOUT_S = 5.0


class Status(Request):
    """Show where a feed stands, partition by partition; without FEED, a line for each feed."""

    command = "status"
    deciding = Deciding.ONLY_SHOWS
    needs_feed = False

    def answer(self, call: Call) -> Answer:
        return of_feed(call, call.feed) if call.feed is not None else of_all_feeds(call)


def of_feed(call: Call, feed_name: str) -> Answer:
    file = file_of_feed(feed_name, call.find_connection)
    feed = file.contested or feed_of(file)
    kafka = ConfluentKafkaCluster(
        lambda: kafka_settings(call.find_connection(feed.kafka.conn_id)), at_most_s=STATUS_TIMEOUT_S
    )
    found = feed_status(feed.name, call.control, kafka, group=feed.kafka.group, isolation=feed.kafka.isolation)
    output_error = output_problem(feed, call)
    problems = {"output": output_error, "feed_file": str(file.error) if file.error else None}
    in_one = newest_in_one(feed, call)
    said = [] if in_one is None else [Line(f"newest batch: rows and stored offsets were {TRANSACTIONS[in_one]}")]
    return Answer(
        found.as_document()
        | {key: {"error": text} if text else None for key, text in problems.items()}
        | {"newest_in_one_transaction": in_one},
        [*lines_of(found, output_error), *said, *broken_lines([file])],
        1 if found.kafka_error is not None else 0,
    )


def of_all_feeds(call: Call) -> Answer:
    """Show a line for each feed, also for those that were never planned."""
    summaries = call.control.feed_summaries()
    known = {summary.name for summary in summaries}
    files = feed_files(call.find_connection)
    feeds = [feed for file in files if (feed := file.feed or file.contested) is not None]
    never_planned = [feed.name for feed in feeds if feed.name not in known]
    broken = [file for file in files if file.error is not None]
    return Answer(
        {
            "feeds": [*map(summary_document, summaries), *map(never_planned_document, never_planned)],
            "errors": [{"file": str(file.path), "feed": file.name, "message": str(file.error)} for file in broken],
        },
        [feeds_status_table(summaries, never_planned), *broken_lines(broken)],
        WrongUseError.exit_code if broken else 0,
    )


def broken_lines(files: list[FeedFile]) -> list[Line]:
    return [Line(f"✗ {file.error}", "red", aside=True) for file in files if file.error is not None]


def lines_of(found: FeedStatus, output_error: str | None) -> Iterator[Line | FittingTable]:
    yield status_table(found)
    for problem in found.topic_problems:
        held = f" Held since {moment(problem.hold.since)} UTC." if problem.hold is not None else ""
        yield Line(f"topic {problem.topic}: {problem.reason}{held}", "yellow")
    if found.waiting_since is not None:
        yield Line(f"few records wait for min_records since {moment(found.waiting_since)} UTC")
    if (others := found.not_rows).filtered or others.dead_letters:
        share = others.newest.filtered_percent
        newest = f", {share:.0f} % of the newest batch" if share else ""
        yield Line(
            f"filtered: {counted(others.filtered, 'record')}{newest}; dead letters that are left: "
            f"{others.dead_letters:,}"
        )
    if found.open_batch is not None:
        yield Line("open batch {batch_id}: {state} since {since}".format(**found.open_batch))
        if discarded := found.open_batch["discarded"]:
            yield Line(f"attempt {found.open_batch['attempt']} was discarded: {discarded}", "yellow")
    if output_error is not None:
        yield Line(output_error, "red")
    elif found.cluster_id is None:
        yield Line("never planned: the first run, or `kafka-ingest plan`, seeds its offsets")
    if found.kafka_error is not None:
        yield Line(found.kafka_error, "red", aside=True)


def output_problem(feed: Feed, call: Call) -> str | None:
    """Return why the feed's plans stop because of what its output holds; None where they do not."""
    try:
        check_output(call.control.feed(feed.name), feed.plan_settings(os.environ), call.control, call.sinks)
    except KafkaIngestError as error:
        return str(error)
    return None


def newest_in_one(feed: Feed, call: Call) -> bool | None:
    """Return whether rows and stored offsets of the newest batch were one transaction; None where nothing says it."""
    with suppress(KafkaIngestError):  # an output that does not answer is a problem of its own
        known = call.control.feed(feed.name)
        newest = call.control.newest_published(known.feed_id) if known is not None else None
        if newest is not None and (in_one := call.sinks(newest.output).in_one) is not None:
            return in_one(newest.batch_id)
    return None


def status_table(status: FeedStatus) -> FittingTable:
    rows = [status_cells(partition) for partition in status.partitions]
    always = ("stored offset", "log start", "LSO", "high watermark", "lag", "headroom", "rows")
    used = {name for row in rows for name, cell in row.items() if cell.plain not in {"", "-", "0"}}
    numbers = [name for name in STATUS_NUMBERS if name in always or name in used]
    columns = [*numbers, *(["remarks"] if "remarks" in used else [])]
    made = FittingTable(f"feed {status.feed}", "topic", "partition", *columns, numbers=("partition", *numbers))
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
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def remarks(partition: PartitionStatus) -> str:
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
    return f", since {moment(datetime.fromisoformat(document['since']))}" if document["since"] else ""


def feeds_status_table(summaries: list[FeedSummary], never_planned: list[str]) -> FittingTable:
    made = FittingTable(
        "feeds",
        *("feed", "partitions", "rows committed", "filtered", "dead letters", "last commit (UTC)", "open batch"),
        numbers=("partitions", "rows committed", "filtered", "dead letters"),
    )
    for summary in summaries:
        open_batch = f"{summary.open_batch_state} {summary.open_batch}" if summary.open_batch else "none"
        counts = (summary.partitions, summary.rows_committed, summary.not_rows.filtered, summary.not_rows.dead_letters)
        made.add_line(summary.name, *counts, summary.last_committed_at, open_batch)
    for name in never_planned:
        made.add_line(name, "0", "0", "0", "0", "never planned", "none")
    return made


def summary_document(summary: FeedSummary) -> dict[str, Any]:
    names = ("cluster_id", "partitions", "open_batch", "open_batch_state", "last_committed_at", "rows_committed")
    return {"feed": summary.name, **document_of(summary, *names), **summary.not_rows.as_document()}


def never_planned_document(feed_name: str) -> dict[str, Any]:
    """Return the line of a feed that was never planned, with the same keys."""
    nothing = dict.fromkeys(("cluster_id", "open_batch", "open_batch_state", "last_committed_at"))
    return {"feed": feed_name, "partitions": 0, "rows_committed": 0, **nothing, **NONE_LEFT_OUT.as_document()}


class Partitions(Request):
    """Show which hours or days of a feed are complete, newest first, and which partitions the next one waits for."""

    command = "partitions"
    deciding = Deciding.ONLY_SHOWS

    limit: Annotated[int, Field(ge=1, le=MOST_LINES), Option("How many complete ones at most.")] = 24

    def answer(self, call: Call) -> Answer:
        parts, error = call.parts, None
        rules, feed = parts.feed.complete_rules(), parts.control.feed(parts.feed.name)
        found = parts.control.periods(feed.feed_id, rules.by, limit=self.limit + 1) if feed is not None else []
        complete = [each for each in found if each.completed_at is not None][: self.limit]
        waiting: dict[str, Any] | None = None
        try:
            if (next_one := parts.complete(actor=None)) is not None:
                waits_for = [document_of(each) for each in next_one.waits_for]
                waiting = {"began_at": next_one.began_at.isoformat(), "waits_for": waits_for}
        except RetryableError as failure:
            error = str(failure)
        document = {
            "feed": parts.feed.name,
            "by": rules.by.value,
            "complete": [each.as_document() for each in complete],
            "waiting": waiting,
            "kafka": {"error": error} if error is not None else None,
        }
        lines = [*map(str, next_one.waits_for)] if error is None and next_one is not None else []
        return Answer(document, shown(parts.feed.name, rules, complete, waiting, lines, error), 1 if error else 0)


def shown(
    name: str,
    rules: CompletionRules,
    complete: Sequence[Period],
    waiting: dict[str, Any] | None,
    waits_for: Sequence[str],
    error: str | None,
) -> Iterator[Line | FittingTable]:
    if complete:
        made = FittingTable(
            f"complete {rules.by}s of feed {name}",
            rules.by.value,
            "complete since",
            "by",
            "late rows",
            "announced",
            numbers=("late rows",),
        )
        for each in complete:
            late, announced = number(each.late_rows), moment(each.announced_at)
            made.add_line(each.key, moment(each.completed_at), str(each.completed_by), late, announced)
        yield made
    if error is not None:
        yield Line(error, "red", aside=True)
    elif waiting is None:
        yield Line("never planned: the first run plans it")
    else:
        yield Line(
            f"waiting for {rules.by} {waiting['began_at']}" + ("" if waits_for else ": the next run completes it")
        )
        yield from (Line(f"  {each}") for each in waits_for)
