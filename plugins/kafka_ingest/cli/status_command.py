"""``kafka-ingest status``: where feeds stand."""

import os
from typing import Annotated

import typer

from kafka_ingest.answers.documents import never_planned_document, summary_document
from kafka_ingest.answers.tables import feeds_status_table, moment, status_table
from kafka_ingest.assembly import control_tables
from kafka_ingest.batches.known_output import check_output
from kafka_ingest.cli.arguments import SINKS, Json
from kafka_ingest.cli.output import answers, out, print_json, progress
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import KafkaIngestError, WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.observing.feed_status import FeedStatus, feed_status
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.settings.connections import find_connection_from_shell, kafka_settings
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile, feed_of
from kafka_ingest.settings.feed_files import feed_file_named, feeds_directory, read_feed_files

STATUS_TIMEOUT_S = 5.0


def status(feed_name: Annotated[str | None, typer.Argument(metavar="[FEED]")] = None, *, as_json: Json = False) -> None:
    """Show where a feed stands, partition by partition; without FEED, a line for each feed."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        if feed_name is None:
            show_all_feeds(control, as_json=as_json)
            return
        file = feed_file_named(feed_name, feeds_directory())
        # A contested feed may be running all the same.
        feed = file.contested or feed_of(file)
        kafka = ConfluentKafkaCluster(
            lambda: kafka_settings(find_connection_from_shell(feed.kafka.conn_id)), at_most_s=STATUS_TIMEOUT_S
        )
        found = feed_status(feed.name, control, kafka, group=feed.kafka.group, isolation=feed.kafka.isolation)
        output_error = output_problem(feed, control)
        if as_json:
            problems = {"output": output_error, "feed_file": str(file.error) if file.error else None}
            print_json(found.as_document() | {key: {"error": text} if text else None for key, text in problems.items()})
        else:
            print_status(found, output_error)
            print_broken([file])
        if found.kafka_error is not None:
            raise typer.Exit(1)


def show_all_feeds(control: ControlObserver, *, as_json: bool) -> None:
    """Print a line for each feed, also for those that were never planned."""
    summaries = control.feed_summaries()
    known = {summary.name for summary in summaries}
    files = read_feed_files(feeds_directory())
    feeds = [feed for file in files if (feed := file.feed or file.contested) is not None]
    never_planned = [feed.name for feed in feeds if feed.name not in known]
    broken = [file for file in files if file.error is not None]
    if as_json:
        print_json(
            {
                "feeds": [*map(summary_document, summaries), *map(never_planned_document, never_planned)],
                "errors": [{"file": str(file.path), "feed": file.name, "message": str(file.error)} for file in broken],
            }
        )
    else:
        out.print(feeds_status_table(summaries, never_planned))
        print_broken(broken)
    if broken:
        raise typer.Exit(WrongUseError.exit_code)


def print_broken(files: list[FeedFile]) -> None:
    """Print why files cannot be used."""
    for file in files:
        if file.error is not None:
            progress.print(f"✗ {file.error}", style="red", markup=False, soft_wrap=True)


def print_status(found: FeedStatus, output_error: str | None) -> None:
    """Print one feed's partitions, and below them what else a plan would find."""
    out.print(status_table(found))
    for problem in found.topic_problems:
        held = f" Held since {moment(problem.hold.since)} UTC." if problem.hold is not None else ""
        out.print(f"topic {problem.topic}: {problem.reason}{held}", style="yellow", markup=False, soft_wrap=True)
    if found.waiting_since is not None:
        out.print(f"few records wait for min_records since {moment(found.waiting_since)} UTC")
    if (others := found.not_rows).filtered or others.dead_letters:
        share = others.newest.filtered_percent
        newest = f", {share:.0f} % of the newest batch" if share else ""
        out.print(
            f"filtered: {counted(others.filtered, 'record')}{newest}; dead letters that are left: "
            f"{others.dead_letters:,}"
        )
    if found.open_batch is not None:
        out.print("open batch {batch_id}: {state} since {since}".format(**found.open_batch))
        if discarded := found.open_batch["discarded"]:
            out.print(
                f"attempt {found.open_batch['attempt']} was discarded: {discarded}",
                style="yellow",
                markup=False,
                soft_wrap=True,
            )
    if output_error is not None:
        out.print(output_error, style="red", markup=False, soft_wrap=True)
    elif found.cluster_id is None:
        out.print("never planned: the first run, or `kafka-ingest plan`, seeds its offsets")
    if found.kafka_error is not None:
        progress.print(found.kafka_error, style="red", markup=False, soft_wrap=True)


def output_problem(feed: Feed, control: SqlControlTables) -> str | None:
    """Return why the feed's plans stop because of what its output holds; None where they do not."""
    try:
        check_output(control.feed(feed.name), feed.plan_settings(os.environ), control, SINKS)
    except KafkaIngestError as error:
        return str(error)
    return None


def add_to(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(status)
