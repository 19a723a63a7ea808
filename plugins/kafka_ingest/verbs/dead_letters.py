"""``dead-letters``: which records could not be decoded, and why."""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Annotated

from pydantic import Field
from rich.text import Text

from kafka_ingest.answers.answer import Answer, Line, number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.assembly import sink_connections
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.observing.dead_letters import Cause, by_cause, dead_letters_of, preview
from kafka_ingest.settings.feed_files import feed_named, feeds_directory
from kafka_ingest.sinks.choose import dead_letters_in_file
from kafka_ingest.verbs.fields import WITHOUT_VALUES, BatchId, ShowValues
from kafka_ingest.verbs.give_up_dead_letters import GiveUpDeadLetters
from kafka_ingest.verbs.request import Call, Deciding, Option, Request


class DeadLetters(Request):
    """Show how many records of a feed could not be decoded, by cause, with samples of the newest."""

    verb = command = "dead-letters"
    does = "only shows which records could not be decoded, by cause"
    only_shows = True
    deciding = Deciding.GIVE_UP

    batch_id: Annotated[BatchId, Option("Only those of this batch.", flag="--batch")] = None
    samples: Annotated[int, Field(ge=0, le=1_000), Option("How many to show of each cause.")] = 3
    show_values: ShowValues = False

    def answer(self, call: Call) -> Answer:
        """Count what could not be decoded, of a feed or of one of its batches; on the command line also give it up.

        Without ``show_values`` the samples show where records are, and nothing of what they hold.
        """
        feed_name, show_values = call.feed_name, self.show_values or call.is_shell
        batch_id = call.batch_named(self.batch_id) if self.batch_id is not None else None
        if call.decided is not None:
            if batch_id is None:
                raise WrongUseError(f"expected --batch with a batch of feed {feed_name}, found none")
            return GiveUpDeadLetters(batch_id=batch_id).answer(call)
        rows = call.control.coverage(feed_name)
        if rows is None:
            feed_named(feed_name, feeds_directory())  # never planned, so there are none; an unknown one is an error
        in_file = partial(dead_letters_in_file, connections=sink_connections(call.find_connection))
        batches = []
        with call.counting("batches read") as on_batch:
            if rows is not None:
                for each in dead_letters_of(
                    rows, call.control, call.sinks, in_file, samples=self.samples, only=batch_id
                ):
                    batches.append(each)
                    on_batch()
        causes = by_cause(batches, self.samples)
        problems = [f"batch {each.batch_id}: {each.problem}" for each in batches if each.problem is not None]
        counted = sum(each.counted for each in batches)
        document = {
            "feed": feed_name,
            "batches": len(batches),
            "dead_letters": counted,
            "causes": [cause.as_document(show_values=show_values) for cause in causes],
            "problems": problems,
        }
        lines = shown(feed_name, causes, len(batches), counted, problems, show_values=show_values)
        hidden = [Line(WITHOUT_VALUES)] if causes and not show_values else []
        return Answer(document, chain(lines, hidden), exit_code=1 if problems else 0)


def shown(
    feed_name: str, causes: list[Cause], batches: int, records: int, problems: Sequence[str], *, show_values: bool
) -> Iterator[Line | FittingTable]:
    """Yield how many there are of each cause, and some of them."""
    if not batches:
        yield Line(f"feed {feed_name} has no dead letters")
    else:
        yield causes_table(feed_name, causes)
        for cause in causes:
            yield from samples_of(cause, show_values=show_values)
        yield Line(f"{counted(records, 'dead letter')} in {counted(batches, 'batch')}")
    for problem in problems:
        yield Line(problem, "red", aside=True)


def causes_table(feed_name: str, causes: list[Cause]) -> FittingTable:
    """Return how many dead letters there are of each cause."""
    made = FittingTable(f"dead letters of feed {feed_name}", "cause", "of", "records", numbers=("records",))
    for cause in causes:
        made.add_line(Text(cause.error.error_class), Text(cause.error.part), number(cause.records))
    return made


def samples_of(cause: Cause, *, show_values: bool) -> Iterator[Line]:
    """Yield some of the records of a cause; an error's text may quote them."""
    for letter in cause.samples:
        where = f"{letter.topic_partition} offset {letter.offset:,}"
        found = preview(letter.key if cause.error.part == "key" else letter.value)
        text = f"{letter.error}: {found}" if show_values else cause.error.error_class
        yield Line(f"{where}: {text}", quotes=True)
