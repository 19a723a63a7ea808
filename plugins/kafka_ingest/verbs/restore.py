"""``restore``: publish the staged files of an abandoned batch."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.documents import range_document
from kafka_ingest.assembly import FeedParts
from kafka_ingest.backfilling.restore import RestoreDecision, decide_restore
from kafka_ingest.backfilling.restore import restore as restore_batch
from kafka_ingest.verbs.decided import Decided


def restore(parts: FeedParts, batch_id: UUID, decided: Decided | None, commit: Callable[[UUID], object]) -> Answer:
    """Restore an abandoned batch, or show what that comes to. ``parts`` are its feed's.

    ``commit`` is called for each batch that takes its records over.
    """
    decision = decide_restore(batch_id, parts)
    parts.check_output_known()
    into: list[UUID] = []
    if decided is not None:
        into = restore_batch(decision, parts, reason=decided.reason, actor=decided.actor)
        for each in into:
            commit(each)
    executed = decided is not None and not decision.is_nothing
    return Answer(
        restored_document(decision, into, executed=executed),
        shown_restored(decision, into),
        only_shown=not executed and not decision.is_nothing,
    )


def restored_document(decision: RestoreDecision, into: list[UUID], *, executed: bool) -> dict[str, Any]:
    """Return what is restored as ``--json`` shows it."""
    return {
        "feed": decision.rows.feed.name,
        "batch_id": str(decision.batch.batch_id),
        "attempt": decision.attempt.attempt,
        "live": [range_document(each) for each in decision.live],
        "fill": [range_document(each) for each in decision.fill],
        "held": [range_document(each) for each in decision.held],
        "cut_off": [range_document(each) for each in decision.cut_off],
        "begun": [str(each.batch_id) for each in decision.begun],
        "into": [str(each) for each in into],
        "executed": executed,
    }


def shown_restored(decision: RestoreDecision, into: list[UUID]) -> Iterator[Line]:
    """Yield what is restored, and what is not."""
    texts = (
        (decision.live, "from the stored offset on, which moves"),
        (decision.fill, "below the stored offset, where it closes the gaps"),
        (decision.held, "left out: other batches hold it, or are about to"),
        (decision.cut_off, "left out: the log was truncated since, and other records lie there now"),
    )
    for ranges, text in texts:
        for each in ranges:
            yield Line(f"{each}: {text}")
    for begun in decision.begun:
        yield Line(f"batch {begun.batch_id} was planned by an earlier call and is {begun.state}")
    if decision.is_nothing:
        yield Line(f"nothing of batch {decision.batch.batch_id} is left to restore")
    elif into:
        yield Line(f"committed with {', '.join(map(str, into))}")
