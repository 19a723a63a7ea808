"""An operator gives up dead letters of a batch whose files are gone: they stay counted, and nobody looks for them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.errors import BatchStateError, WrongUseError
from kafka_ingest.model.batch import Batch, BatchState
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.removal import Removal, RemovalCause
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sinks


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
    return LettersOfBatch(batch, number, sinks(output_of_dead_letters(batch.plan.output)).archive.removal(batch_id))


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
