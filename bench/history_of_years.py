"""`make bench-history`: what a feed's steps and questions take on its first day and after years. See README.md."""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient
from control_databases import DATABASES, NewDatabase, control_databases
from folding_of_years import fold_years, lines_of
from many_partitions import create_topic, produce
from one_step import Measured, Task
from places import directory_for_data, run_in_a_directory
from sqlalchemy import create_engine, func, make_url, select
from step_after_years import STEPS
from step_process import in_a_process_of_its_own
from talking import BenchmarkError, say
from years_of_batches import Years, fill_output, fill_tables

from embedded_broker import EmbeddedBroker
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control import schema

SIZES = (1, 10_000, 1_000_000)
PARTITIONS, REPETITIONS = 4, 5
AT_ONCE = 200_000
STEP_TIMEOUT_S = 600.0
COUNTED = ("batch", "attempt", "batch_range", "event")


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed with its history, in one kind of control tables."""

    database: str
    batches: int
    task: Task


def main() -> int:
    options = parse_options()
    return run_in_a_directory(partial(compare, options), options.directory)


def compare(options: argparse.Namespace, directory: Path) -> None:
    """Make the histories, measure on all of them in turn, and print what was found."""
    counts, found = measure_all(options, directory)
    if options.json:
        rows = [
            {"database": database, "batches": batches, "step": step, "measured": [asdict(each) for each in measured]}
            for (database, batches, step), measured in found.items()
        ]
        print(json.dumps({"version": 1, "rows": rows}))
    else:
        print("\n".join([*counts, "", *table(found)]))


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(prog="make bench-history ARGS=…", description=__doc__)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, metavar="BATCHES", help=f"committed ones; default: {SIZES}"
    )
    parser.add_argument("--partitions", type=int, default=PARTITIONS, help=f"of each batch; default: {PARTITIONS}")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help=f"default: {REPETITIONS}")
    parser.add_argument("--databases", nargs="+", choices=DATABASES, default=DATABASES, help="default: both")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=tuple(STEPS), help="default: all")
    parser.add_argument("--directory", type=directory_for_data, help="where all data is kept, some GB; default: /tmp")
    parser.add_argument("--json", action="store_true", help="print every single measurement")
    options = parser.parse_args()
    for name in ("partitions", "repetitions"):
        if getattr(options, name) < 1:
            parser.error(f"expected --{name} of 1 or more, found {getattr(options, name)}")
    if min(options.sizes) < 1:
        parser.error(f"expected --sizes of 1 or more, found {min(options.sizes)}")
    return options


def measure_all(
    options: argparse.Namespace, directory: Path
) -> tuple[list[str], dict[tuple[str, int, str], list[Measured]]]:
    """Return how many rows there are, before and after folding, and the measurements.

    They are of all histories in turn, step by step, repetition by repetition.
    """
    with (
        control_databases(options.databases, directory) as databases,
        EmbeddedBroker(directory / "kafka") as broker,
    ):
        feeds: list[Feed] = []
        for batches in sorted(set(options.sizes)):
            feeds += histories(databases, broker.bootstrap_servers, batches, options.partitions, directory)
        counts = rows_in(feeds)
        found: dict[tuple[str, int, str], list[Measured]] = {}
        for feed in feeds:
            # The first look at an output reads all its names, once, and notes that each has its receipt.
            in_a_process_of_its_own("step_after_years.py", replace(feed.task, step="plan, nothing new"), STEP_TIMEOUT_S)
        for number in range(1, options.repetitions + 1):
            started = time.monotonic()
            for step, feed, measured in one_repetition(feeds, options, broker.bootstrap_servers):
                found.setdefault((feed.database, feed.batches, step), []).append(measured)
            say(f"{number} of {options.repetitions} in {time.monotonic() - started:.0f} s")
        # The last of all: of batches that are folded the questions above would be others.
        folded = [fold_years(make_url(feed.task.database)) for feed in feeds]
    return [*counts, "", *lines_of(folded)], {
        place: measured for place, measured in found.items() if place[2] in options.steps
    }


def histories(
    databases: Mapping[str, NewDatabase], bootstrap_servers: str, batches: int, partitions: int, directory: Path
) -> list[Feed]:
    """Return feeds of ``batches`` batches, one for each kind of control tables; a topic holds just what they read."""
    started, topic = time.monotonic(), f"bench-{batches}"
    create_topic(AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0}), topic, partitions)
    for first in range(0, batches, AT_ONCE):
        more = min(AT_ONCE, batches - first)
        produce(bootstrap_servers, topic, dict.fromkeys(range(partitions), more))
    say(f"{batches * partitions:,} records: {time.monotonic() - started:.0f} s")
    settings = KafkaClientSettings("bench", {"bootstrap.servers": bootstrap_servers})
    kafka = ConfluentKafkaCluster(lambda: settings)
    topic_id = kafka.describe_topics([topic])[topic].topic_id
    if topic_id is None:
        raise BenchmarkError(f"expected the broker to know the id of {topic}")
    feeds: list[Feed] = []
    for kind, new_database in databases.items():
        started, url = time.monotonic(), new_database()
        output = directory / f"output-{kind}-{batches}" / "bench"
        years = Years(topic, topic_id, kafka.cluster_id(), partitions, batches, output, datetime.now(UTC))
        fill_tables(url, years)
        fill_output(years)
        say(f"{batches:,} batches, {kind}: {time.monotonic() - started:.0f} s")
        database = url.render_as_string(hide_password=False)
        task = Task("", database, bootstrap_servers, topic, f"bench-{kind}-{batches}", str(output), 1_000_000)
        feeds.append(Feed(kind, batches, task))
    return feeds


def rows_in(feeds: Sequence[Feed]) -> list[str]:
    """Return how many rows the control tables hold, as lines of a Markdown table."""
    lines = [f"| batches | control tables | {' | '.join(COUNTED)} |", f"|--:|---|{'--:|' * len(COUNTED)}"]
    for feed in feeds:
        engine = create_engine(feed.task.database)
        with engine.connect() as connection:
            counted = [
                connection.execute(select(func.count()).select_from(schema.metadata.tables[name])).scalar_one()
                for name in COUNTED
            ]
        engine.dispose()
        lines.append(f"| {feed.batches:,} | {feed.database} | {' | '.join(f'{count:,}' for count in counted)} |")
    return lines


def one_repetition(
    feeds: Sequence[Feed], options: argparse.Namespace, bootstrap_servers: str
) -> list[tuple[str, Feed, Measured]]:
    """Take every feed through every step, all feeds in turn for each.

    A new record a partition comes after the first steps.
    """
    found: list[tuple[str, Feed, Measured]] = []
    tasks = {feed.task.database: feed.task for feed in feeds}
    for step in STEPS:
        if step == "plan":
            for topic in {feed.task.topic for feed in feeds}:
                produce(bootstrap_servers, topic, dict.fromkeys(range(options.partitions), 1))
        for feed in feeds:
            measured = in_a_process_of_its_own(
                "step_after_years.py", replace(tasks[feed.task.database], step=step), STEP_TIMEOUT_S
            )
            if measured.work.batch_id:
                feed_id, batch_id = measured.work.feed_id, measured.work.batch_id
                tasks[feed.task.database] = replace(tasks[feed.task.database], feed_id=feed_id, batch_id=batch_id)
            found.append((step, feed, measured))
    return found


def table(found: Mapping[tuple[str, int, str], Sequence[Measured]]) -> list[str]:
    """Return the medians in milliseconds, and the ratio of the most batches to the fewest for each."""
    sizes = sorted({batches for _, batches, _ in found})
    head = " | ".join(f"{size:,}" for size in sizes)
    lines = [
        f"| step, ms by batches | control tables | {head} | ratio | rows |",
        f"|---|---|{'--:|' * (len(sizes) + 2)}",
    ]
    for step in STEPS:
        for database in DATABASES:
            measured = [found[database, size, step] for size in sizes if (database, size, step) in found]
            if not measured:
                continue
            medians = [statistics.median(each.seconds for each in of_size) for of_size in measured]
            # Each repetition's own: the machine's hours differ.
            pairs = zip(measured[0], measured[-1], strict=True)
            ratio = statistics.median(last.seconds / first.seconds for first, last in pairs)
            cells = " | ".join(f"{1_000 * seconds:,.0f}" for seconds in medians)
            lines.append(f"| {step} | {database} | {cells} | {ratio:.2f} | {measured[-1][-1].work.rows:,} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
