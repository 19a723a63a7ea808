"""``dead-letters``: which records could not be decoded, and why."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import UUID

from rich.text import Text

from kafka_ingest.answers.answer import Answer, Line, number
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import table
from kafka_ingest.assembly import sink_connections
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.foundation.counting import counted
from kafka_ingest.observing.dead_letters import Cause, by_cause, dead_letters_of, preview
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.settings.connections import FindConnection
from kafka_ingest.settings.feed_files import feed_named, feeds_directory
from kafka_ingest.sinks.choose import dead_letters_in_file

SAMPLES = 3


def dead_letters(
    control: SqlControlTables,
    sinks: Sinks,
    find_connection: FindConnection,
    feed_name: str,
    *,
    batch_id: UUID | None = None,
    samples: int = SAMPLES,
    show_values: bool = True,
    on_batch: Callable[[], object] = int,
) -> Answer:
    """Count the records of a feed, or of one batch, that could not be decoded, by cause, with samples of the newest.

    Without ``show_values`` the samples show where records are, and nothing of what they hold. ``on_batch`` is called
    after each batch that was read.
    """
    rows = control.coverage(feed_name)
    if rows is None:
        feed_named(feed_name, feeds_directory())  # never planned, so there are none; an unknown one is an error
    in_file = partial(dead_letters_in_file, connections=sink_connections(find_connection))
    batches = []
    if rows is not None:
        for each in dead_letters_of(rows, control, sinks, in_file, samples=samples, only=batch_id):
            batches.append(each)
            on_batch()
    causes = by_cause(batches, samples)
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
    return Answer(document, lines, exit_code=1 if problems else 0)


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
    made = table(f"dead letters of feed {feed_name}", "cause", "of", "records", numbers=("records",))
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
