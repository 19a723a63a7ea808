"""``status``: where feeds stand. A command only: the page shows it in Airflow."""

import os
from collections.abc import Iterator

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.documents import never_planned_document, summary_document
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import feeds_status_table, moment, status_table
from kafka_ingest.batches.known_output import check_output
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.errors import KafkaIngestError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.observing.feed_status import FeedStatus, feed_status
from kafka_ingest.settings.connections import kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.settings.feed_files import feed_file_named, feeds_directory, read_feed_files
from kafka_ingest.verbs.request import Call, Deciding, Request

STATUS_TIMEOUT_S = 5.0


class Status(Request):
    """Show where a feed stands, partition by partition; without FEED, a line for each feed."""

    command = "status"
    deciding = Deciding.ONLY_SHOWS
    needs_feed = False

    def answer(self, call: Call) -> Answer:
        """Show where a feed stands, or all feeds. Exit code 1: Kafka does not answer; 2: a feed file cannot be used."""
        return of_feed(call, call.feed) if call.feed is not None else of_all_feeds(call)


def of_feed(call: Call, feed_name: str) -> Answer:
    """Show a feed's partitions. A contested feed may be running all the same."""
    file = feed_file_named(feed_name, feeds_directory())
    feed = file.contested or feed_of(file)
    kafka = ConfluentKafkaCluster(
        lambda: kafka_settings(call.find_connection(feed.kafka.conn_id)), at_most_s=STATUS_TIMEOUT_S
    )
    found = feed_status(feed.name, call.control, kafka, group=feed.kafka.group, isolation=feed.kafka.isolation)
    output_error = output_problem(feed, call)
    problems = {"output": output_error, "feed_file": str(file.error) if file.error else None}
    return Answer(
        found.as_document() | {key: {"error": text} if text else None for key, text in problems.items()},
        [*lines_of(found, output_error), *broken_lines([file])],
        1 if found.kafka_error is not None else 0,
    )


def of_all_feeds(call: Call) -> Answer:
    """Show a line for each feed, also for those that were never planned."""
    summaries = call.control.feed_summaries()
    known = {summary.name for summary in summaries}
    files = read_feed_files(feeds_directory())
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
    """Return why files cannot be used."""
    return [Line(f"✗ {file.error}", "red", aside=True) for file in files if file.error is not None]


def lines_of(found: FeedStatus, output_error: str | None) -> Iterator[Line | FittingTable]:
    """Yield one feed's partitions, and below them what else a plan would find."""
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
