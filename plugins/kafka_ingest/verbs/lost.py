"""``lost``: file gaps for the records of lost or damaged published files."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.documents import range_document
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted
from kafka_ingest.operating.lost import SALVAGE, LostDecision, decide_lost, record_lost
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.role_of_format import role_of
from kafka_ingest.verbs.decided import Decided


def lost(parts: FeedParts, batch_id: UUID, decided: Decided | None) -> Answer:
    """File gaps for what is lost of a batch's files, or show what that is."""
    name = parts.feed.name
    decision = decide_lost(name, batch_id, parts.control, parts.sinks)
    executed = decided is not None and bool(decision.files)
    if decided is not None:
        record_lost(decision, parts.control, parts.sinks, reason=decided.reason, actor=decided.actor)
    return Answer(
        lost_document(name, decision, executed=executed),
        shown_lost(name, decision, parts.sinks, executed=executed),
        only_shown=not executed and bool(decision.files),
    )


def lost_document(feed_name: str, decision: LostDecision, *, executed: bool) -> dict[str, Any]:
    """Return what was lost as ``--json`` shows it."""
    return {
        "feed": feed_name,
        "batch_id": str(decision.batch.batch_id),
        "files": [{"file": each.name, "problem": each.problem, "is_there": each.is_there} for each in decision.files],
        "lost": [each.as_document() for each in decision.lost],
        "gaps": [range_document(each) for each in decision.gaps],
        "executed": executed,
    }


def shown_lost(feed_name: str, decision: LostDecision, sinks: Sinks, *, executed: bool) -> Iterator[Line]:
    """Yield which files were lost, and what happens to their offsets."""
    batch_id = decision.batch.batch_id
    if not decision.files:
        yield Line(f"batch {batch_id}: all its files match its receipt, or are recorded as lost")
        return
    for file in decision.files:
        yield Line(f"{file.name}: {file.problem}", "red")
    verb = "is" if executed else "would be"
    for gap in decision.gaps:
        yield Line(f"{gap} {verb} a gap, open for a backfill")
    if decision.lost and not decision.gaps:
        yield Line(
            "no gap is filed: other batches hold these offsets, or are still to read them, or their topic is gone"
        )
    if decision.damaged:
        moved = "moved" if executed else "would move"
        output = decision.batch.plan.output
        aside = role_of(output, sinks(output).salvage, SALVAGE).aside(decision.batch.batch_id)
        yield Line(f"{moved} {counted(len(decision.damaged), 'damaged file')} to {aside}")
    if executed:
        yield Line(f"`kafka-ingest backfill {feed_name} gaps` reads them, as far as Kafka still holds them")
