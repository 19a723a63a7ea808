"""``fold``: the control tables' rows of old batches become sums."""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.tables import moment
from kafka_ingest.assembly import FeedParts
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.control_rows import Foldable, Folded
from kafka_ingest.verbs.expire import time_before


def fold(
    parts: FeedParts,
    before: str | None,
    *,
    actor: str | None,
    reason: str | None = None,
    on_folded: Callable[[int], object] = int,
) -> Answer:
    """Fold batches committed before a time, or without an actor show what that comes to.

    Without a time the feed's ``control_retention`` decides. ``on_folded`` is called with the number of batches of each
    transaction.
    """
    cut = parts.fold_cut(time_before(before) if before is not None else None)
    there = parts.foldable(cut.before)
    done: list[Folded] = []
    if actor is not None:
        for folded in parts.fold(cut.before, actor=actor, reason=reason):
            done.append(folded)
            on_folded(folded.batches)
    executed = actor is not None
    return Answer(
        fold_document(parts.feed.name, cut.before, there, done, executed=executed),
        shown_folded(cut.before, there, done, executed=executed),
        only_shown=not executed and (there.batches > 0 or there.events > 0),
    )


def fold_document(
    feed_name: str, before: datetime, there: Foldable, done: list[Folded], *, executed: bool
) -> dict[str, Any]:
    """Return the result of folding as ``--json`` shows it; the number of removed rows is known once it is done."""
    return {
        "feed": feed_name,
        "before": before.isoformat(),
        "executed": executed,
        "batches": sum(each.batches for each in done) if executed else there.batches,
        "ranges": sum(each.ranges for each in done) if executed else None,
        "attempts": sum(each.attempts for each in done) if executed else None,
        "events": sum(each.events for each in done) if executed else there.events,
        "kept": [{"reason": reason, "batches": batches} for reason, batches in kept(there)],
    }


def kept(there: Foldable) -> list[tuple[str, int]]:
    """Return why batches of that age stay, each reason with their number."""
    reasons = (
        ("their Asset events are not recorded yet: the feed's next run announces them", there.to_announce),
        ("their staged output is not removed yet: `kafka-ingest clean` does that", there.staged),
    )
    return [(reason, batches) for reason, batches in reasons if batches]


def shown_folded(before: datetime, there: Foldable, done: list[Folded], *, executed: bool) -> Iterator[Line]:
    """Yield what became sums, and what stays."""
    for reason, batches in kept(there):
        yield Line(f"{counted(batches, 'batch')} not folded: {reason}", "yellow")
    if not executed:
        text = f"would fold {counted(there.batches, 'batch')} committed before {moment(before)} UTC, and remove "
        yield Line(f"{text}{counted(there.events, 'line')} of the journal")
        return
    batches, ranges = sum(each.batches for each in done), sum(each.ranges for each in done)
    attempts, events = sum(each.attempts for each in done), sum(each.events for each in done)
    text = f"folded {counted(batches, 'batch')} committed before {moment(before)} UTC: {counted(ranges, 'range')} and "
    yield Line(
        f"{text}{counted(attempts, 'attempt')} became sums, {counted(events, 'line')} of the journal "
        f"{were(events)} removed"
    )
