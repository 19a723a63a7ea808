"""``kafka-ingest dead-letters``: which records could not be decoded, and why."""

from typing import Annotated
from uuid import UUID

import typer

from kafka_ingest.answers.answer import Answer
from kafka_ingest.assembly import control_tables
from kafka_ingest.batches.batch_of_feed import batch_of_feed
from kafka_ingest.cli.arguments import SINKS, FeedName, Json, ReasonToExecute, actor
from kafka_ingest.cli.output import answers, counting, show
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.connections import find_connection_from_shell
from kafka_ingest.verbs.dead_letters import SAMPLES
from kafka_ingest.verbs.dead_letters import dead_letters as count_dead_letters
from kafka_ingest.verbs.decided import Decided, reason_given
from kafka_ingest.verbs.give_up_dead_letters import give_up_dead_letters


def dead_letters(
    feed_name: FeedName,
    *,
    batch: Annotated[UUID | None, typer.Option(help="Only those of this batch.")] = None,
    samples: Annotated[int, typer.Option(min=0, max=1_000, help="How many to show of each cause.")] = SAMPLES,
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
            decided = Decided(actor(), reason_given(reason))
            show(given_up(feed_name, control, batch, decided), as_json=as_json)
            return
        if batch is not None:
            batch_of_feed(batch, feed_name, control)
        with counting("batches read") as advance:
            answer = count_dead_letters(
                control,
                SINKS,
                find_connection_from_shell,
                feed_name,
                batch_id=batch,
                samples=samples,
                on_batch=advance,
            )
        show(answer, as_json=as_json)


def given_up(feed_name: str, control: SqlControlTables, batch_id: UUID | None, decided: Decided) -> Answer:
    """Give the dead letters of one of the feed's batches up."""
    if batch_id is None:
        raise WrongUseError(f"expected --batch with a batch of feed {feed_name}, found none")
    return give_up_dead_letters(batch_of_feed(batch_id, feed_name, control).batch_id, control, SINKS, decided)


def add_to(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command(name="dead-letters")(dead_letters)
