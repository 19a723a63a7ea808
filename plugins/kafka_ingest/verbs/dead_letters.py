"""``dead-letters``: which records became dead letters, and why; with ``--give-up`` a batch's are removed for good."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from itertools import chain
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field
from rich.text import Text

from kafka_ingest.assembly import file_of_feed
from kafka_ingest.errors import BatchStateError, KafkaIngestError, WrongUseError
from kafka_ingest.foundation.counting import counted, grouped
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.coverage import CoverageRows
from kafka_ingest.model.dead_letters import (
    PREVIEW_BYTES,
    DeadLetter,
    DeadLettersOfFile,
    DecodingError,
    output_of_dead_letters,
)
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import listing
from kafka_ingest.ports.control import ControlObserver, OperatorTables
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.parts import role_of
from kafka_ingest.settings.feed_file import feed_of
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.request import (
    MOST_LISTED,
    WITHOUT_VALUES,
    BatchId,
    Call,
    Deciding,
    Needed,
    Option,
    Request,
    ShowValues,
)


@dataclass(frozen=True, slots=True)
class Cause:
    """All dead letters of one cause, and the newest samples."""

    error: DecodingError
    records: int
    samples: tuple[DeadLetter, ...]

    def as_document(self, *, show_values: bool = True) -> dict[str, Any]:
        return {
            **document_of(self.error, "part", "error_class"),
            "records": self.records,
            "samples": [sample_document(each, show_values=show_values) for each in self.samples],
        }


@dataclass(frozen=True, slots=True)
class DeadLettersOfBatch:
    """What is in the files of one batch. ``counted`` is what the control tables have of it, without what was replayed.

    ``problem`` is why the files cannot be read.
    """

    batch_id: UUID
    counted: int
    files: tuple[DeadLettersOfFile, ...]
    problem: str | None = None


def sample_document(letter: DeadLetter, *, show_values: bool = True) -> dict[str, Any]:
    """Return a dead letter as ``--json`` shows it, with the beginnings of key and value as text.

    Without ``show_values`` it is where and of when the record is: its error may quote it.
    """
    where = document_of(letter, "topic_partition", "offset", "timestamp")
    if not show_values:
        return where
    return where | {"error": letter.error, "key": preview(letter.key), "value": preview(letter.value)}


def preview(content: bytes | None) -> str | None:
    """Return the beginning of some bytes as text that is safe to print."""
    if content is None:
        return None
    text = content[:PREVIEW_BYTES].decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text) + (
        "…" if len(content) > PREVIEW_BYTES else ""
    )


def dead_letters_of(
    rows: CoverageRows, control: ControlObserver, sinks: Sinks, *, samples: int, only: UUID | None = None
) -> Iterator[DeadLettersOfBatch]:
    """Yield the dead letters of a feed's committed batches that no replay has decoded; newest first, or of one batch.

    A batch whose dead letters cannot be read is yielded with the reason.
    """
    left = grouped((each.batch_id, each.left) for each in rows.dead_letters if each.left)
    counted = {batch_id: sum(numbers) for batch_id, numbers in left.items()}
    replayed = grouped((each.letters.batch_id, each.letters) for each in rows.replays if not each.is_open)
    once = cache(sinks)  # a table is read once
    for batch_id in sorted(counted, reverse=True):
        if only is not None and batch_id != only:
            continue
        found, problem = tuple[DeadLettersOfFile, ...](), None
        try:
            output = output_of_dead_letters(control.batch(batch_id).plan.output)
            sink = once(output)
            if sink.archive.removal(batch_id) is None:
                reader = role_of(output, sink.dead_letters, "be asked for dead letters")
                found = tuple(reader.of_batch(batch_id, samples=samples, without=replayed.get(batch_id, ())))
        except (KafkaIngestError, OSError) as error:
            problem = str(error)
        yield DeadLettersOfBatch(batch_id, counted[batch_id], found, problem)


def by_cause(batches: Iterable[DeadLettersOfBatch], samples: int) -> list[Cause]:
    counts: Counter[DecodingError] = Counter()
    found: dict[DecodingError, list[DeadLetter]] = defaultdict(list)
    for file in (each for batch in batches for each in batch.files):
        counts.update(file.counts)
        for letter in file.samples:
            if len(found[letter.cause]) < samples:
                found[letter.cause].append(letter)
    return [Cause(error, number, tuple(found[error])) for error, number in counts.most_common()]


class GiveUpDeadLetters(Request):
    """Remove a batch's dead letters for good, or record that they are lost."""

    verb = "give-up-dead-letters"
    like = "dead-letters --give-up"
    does = "removes a batch's dead letters for good, or records that they are lost"
    needs_feed = False

    batch_id: Annotated[BatchId, Needed("a batch's id")] = None

    def answer(self, call: Call) -> Answer:
        batch_id, decided = call.batch_named(self.batch_id), call.decided
        if decided is None:
            return would_give_up(batch_id, call.control, call.sinks)
        records = give_up_dead_letters(batch_id, call.control, call.sinks, reason=decided.reason, actor=decided.actor)
        document = {"feed": call.control.batch(batch_id).feed_name, "batch_id": str(batch_id), "given_up": records}
        return Answer(document, [Line(f"gave up {counted(records, 'dead letter')} of batch {batch_id}")])

    @classmethod
    def what_there_is(cls, call: Call, feed_name: str) -> str:
        """Return a feed's batches with dead letters that no replay has read, the newest first."""
        rows = call.control.coverage(feed_name)
        left: Counter[UUID] = Counter()
        for each in rows.dead_letters if rows is not None else ():
            left[each.batch_id] += each.left
        batches = sorted((each for each in left.items() if each[1]), reverse=True)[:MOST_LISTED]
        found = listing(f"{batch_id} ({number(records)})" for batch_id, records in batches)
        return f"Feed {feed_name} has batches with dead letters: {found or 'none'}."


@dataclass(frozen=True, slots=True)
class LettersOfBatch:
    """How many dead letters a batch has; ``removal``: they were given up, or removed, before."""

    batch: Batch
    records: int
    removal: Removal | None


def letters_to_give_up(batch_id: UUID, control: OperatorTables, sinks: Sinks) -> LettersOfBatch:
    """Return what would be given up; nothing is changed.

    Raises BatchStateError unless the batch is COMMITTING or COMMITTED, WrongUseError where it has no dead letters.
    """
    batch = control.batch(batch_id)
    if batch.state not in {BatchState.COMMITTING, BatchState.COMMITTED}:
        raise BatchStateError(
            f"batch {batch_id} is {batch.state}: expected one whose rows are published. Nothing was changed."
        )
    number = sum(count.dead_letters for count in control.range_counts(batch_id))
    if not number:
        raise WrongUseError(f"batch {batch_id} has no dead letters. Nothing was changed.")
    sink = sinks(output_of_dead_letters(batch.plan.output))
    if sink.remover is not None:
        sink.remover.check_can_remove()
    return LettersOfBatch(batch, number, sink.archive.removal(batch_id))


def give_up_dead_letters(batch_id: UUID, control: OperatorTables, sinks: Sinks, *, reason: str, actor: str) -> int:
    """Record that the dead letters of a batch are gone, and return how many there were; safe to repeat.

    Whatever is left of them is taken out of readers' sight. Raises what :func:`letters_to_give_up` raises.
    """
    found = letters_to_give_up(batch_id, control, sinks)
    sink = sinks(output_of_dead_letters(found.batch.plan.output))
    sink.publisher.prepare()
    # Noted after the journal's line: where there is a note that they expired, that line was written, too.
    if found.removal is None or found.removal.cause is not RemovalCause.EXPIRED:
        detail = {"records": found.records, "reason": reason}
        feed_id = found.batch.plan.feed_id
        control.record_event(feed_id, "dead_letters_given_up", actor=actor, batch_id=batch_id, detail=detail)
        sink.archive.note_removal(Removal(batch_id, RemovalCause.EXPIRED, datetime.now(UTC), actor, reason))
    if sink.remover is not None:
        sink.remover.hide(batch_id)
        sink.remover.delete_hidden(batch_id)
    return found.records


def would_give_up(batch_id: UUID, control: OperatorTables, sinks: Sinks) -> Answer:
    found = letters_to_give_up(batch_id, control, sinks)
    feed, removal = found.batch.feed_name, found.removal
    rows = control.coverage(feed)
    replays = [each for each in (rows.replays if rows is not None else ()) if each.letters.batch_id == batch_id]
    replayed = sum(each.letters.number for each in replays if not each.is_open)
    still_open = sorted({str(each.by) for each in replays if each.is_open})
    return Answer(
        {
            "feed": feed,
            "batch_id": str(batch_id),
            "dead_letters": found.records,
            "replayed": replayed,
            "open_replays": still_open,
            "removed_before": removal is not None,
            "executed": False,
        },
        [
            Line(would_be_given_up(found, replayed)),
            *(
                Line(f"batch {each} is about to replay some of them: finish it first, or abandon it", aside=True)
                for each in still_open
            ),
        ],
        only_shown=removal is None,
    )


def would_be_given_up(found: LettersOfBatch, replayed: int) -> str:
    letters = f"{counted(found.records, 'dead letter')} of batch {found.batch.batch_id} of feed {found.batch.feed_name}"
    if found.removal is not None:
        removal = found.removal
        by = f"{removal.actor} on {moment(removal.at)} UTC: {removal.reason}"
        return f"the {letters} were removed before, by {by}"
    but = f"; {number(replayed)} of them were replayed, and their rows stay" if replayed else ""
    return f"would give up the {letters}, and remove them{but}"


class DeadLetters(Request):
    """Show how many records of a feed became dead letters, by cause, with samples of the newest."""

    verb = command = "dead-letters"
    does = "only shows which records became dead letters, by cause"
    only_shows = True
    deciding = Deciding.GIVE_UP

    batch_id: Annotated[BatchId, Option("Only those of this batch.", flag="--batch")] = None
    samples: Annotated[int, Field(ge=0, le=1_000), Option("How many to show of each cause.")] = 3
    show_values: ShowValues = False

    def answer(self, call: Call) -> Answer:
        """Count what became dead letters, of a feed or of one of its batches; on the command line also give it up.

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
            feed_of(
                file_of_feed(feed_name, call.find_connection)
            )  # never planned, so there are none; an unknown one is an error
        batches = []
        with call.counting("batches read") as on_batch:
            if rows is not None:
                for each in dead_letters_of(rows, call.control, call.sinks, samples=self.samples, only=batch_id):
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
    if not batches:
        yield Line(f"feed {feed_name} has no dead letters")
    else:
        made = FittingTable(f"dead letters of feed {feed_name}", "cause", "of", "records", numbers=("records",))
        for cause in causes:
            made.add_line(Text(cause.error.error_class), Text(cause.error.part), number(cause.records))
        yield made
        for cause in causes:
            yield from samples_of(cause, show_values=show_values)
        yield Line(f"{counted(records, 'dead letter')} in {counted(batches, 'batch')}")
    for problem in problems:
        yield Line(problem, "red", aside=True)


def samples_of(cause: Cause, *, show_values: bool) -> Iterator[Line]:
    """Yield some of the records of a cause; an error's text may quote them."""
    for letter in cause.samples:
        where = f"{letter.topic_partition} offset {letter.offset:,}"
        found = preview(letter.key if cause.error.part == "key" else letter.value)
        text = f"{letter.error}: {found}" if show_values else cause.error.error_class
        yield Line(f"{where}: {text}")
