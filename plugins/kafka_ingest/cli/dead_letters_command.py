"""``kafka-ingest dead-letters``: which records could not be decoded, and why."""

from functools import partial
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from kafka_ingest.assembly import control_tables, sink_connections
from kafka_ingest.cli.arguments import SINKS, FeedName, Json, ReasonToExecute, actor
from kafka_ingest.cli.output import answers, counting, out, print_json, progress
from kafka_ingest.commands.answer import number
from kafka_ingest.commands.decided import reason_given
from kafka_ingest.commands.fitting_table import FittingTable
from kafka_ingest.commands.tables import table
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import WrongUseError
from kafka_ingest.observing.dead_letters import Cause, by_cause, dead_letters_of, preview
from kafka_ingest.operating.give_up_dead_letters import give_up_dead_letters
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.settings.feed_files import feed_named, feeds_directory
from kafka_ingest.sinks.choose import dead_letters_in_file

LETTERS_IN_FILE = partial(dead_letters_in_file, connections=sink_connections(find_connection_from_shell))


def dead_letters(
    feed_name: FeedName,
    *,
    batch: Annotated[UUID | None, typer.Option(help="Only those of this batch.")] = None,
    samples: Annotated[int, typer.Option(min=0, max=1_000, help="How many to show of each cause.")] = 3,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Remove those of --batch for good, or record that they are lost.")
    ] = False,
    reason: ReasonToExecute = None,
    as_json: Json = False,
) -> None:
    """Show how many records of a feed could not be decoded, by cause, with samples of the newest."""
    with answers(as_json=as_json):
        control = control_tables(find_connection_from_shell)
        if give_up:
            given_up(feed_name, control, batch, reason_given(reason), as_json=as_json)
            return
        rows = control.coverage(feed_name)
        if rows is None:
            feed_named(feed_name, feeds_directory())  # never planned, so there are none; an unknown one is an error
        batches = []
        if rows is not None:
            with counting("batches read") as advance:
                for each in dead_letters_of(rows, control, SINKS, LETTERS_IN_FILE, samples=samples, only=batch):
                    batches.append(each)
                    advance()
        causes = by_cause(batches, samples)
        problems = [f"batch {each.batch_id}: {each.problem}" for each in batches if each.problem is not None]
        counted = sum(each.counted for each in batches)
        if as_json:
            print_json(
                {
                    "feed": feed_name,
                    "batches": len(batches),
                    "dead_letters": counted,
                    "causes": [cause.as_document() for cause in causes],
                    "problems": problems,
                }
            )
        elif not batches:
            out.print(f"feed {feed_name} has no dead letters")
        else:
            out.print(causes_table(feed_name, causes))
            print_samples(causes)
            out.print(f"{number(counted)} dead letters in {number(len(batches))} batches")
        for problem in problems:
            progress.print(problem, style="red", markup=False, soft_wrap=True)
        if problems:
            raise typer.Exit(1)


def given_up(feed_name: str, control: SqlControlTables, batch_id: UUID | None, reason: str, *, as_json: bool) -> None:
    """Give the dead letters of one batch up, and print the result."""
    if batch_id is None or control.batch(batch_id).feed_name != feed_name:
        raise WrongUseError(f"expected --batch with a batch of feed {feed_name}, found {batch_id or 'none'}")
    records = give_up_dead_letters(batch_id, control, SINKS, reason=reason, actor=actor())
    if as_json:
        print_json({"feed": feed_name, "batch_id": str(batch_id), "given_up": records})
    else:
        out.print(f"gave up {number(records)} dead letters of batch {batch_id}")


def causes_table(feed_name: str, causes: list[Cause]) -> FittingTable:
    """Return how many dead letters there are of each cause."""
    made = table(f"dead letters of feed {feed_name}", "cause", "of", "records", numbers=("records",))
    for cause in causes:
        made.add_line(Text(cause.error.error_class), Text(cause.error.part), number(cause.records))
    return made


def print_samples(causes: list[Cause]) -> None:
    """Print some of the records of each cause."""
    for cause in causes:
        for letter in cause.samples:
            found = preview(letter.key if cause.error.part == "key" else letter.value)
            where = f"{letter.topic_partition} offset {letter.offset:,}"
            out.print(f"{where}: {letter.error}: {found}", markup=False, soft_wrap=True)


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(name="dead-letters")(dead_letters)
