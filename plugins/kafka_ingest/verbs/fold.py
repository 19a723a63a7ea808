"""``fold``: the control tables' rows of old batches become sums."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted, were
from kafka_ingest.model.control_rows import Foldable, FoldCut, Folded
from kafka_ingest.model.documents import document_of
from kafka_ingest.ports.control import FoldingTables
from kafka_ingest.settings.feed import LEAST_RETENTION, Feed
from kafka_ingest.settings.run_request import Text
from kafka_ingest.verbs.answer import Answer, Line, moment
from kafka_ingest.verbs.expire import time_before
from kafka_ingest.verbs.request import BEFORE, Call, Deciding, Option, Request


class Fold(Request):
    """Sum up the control tables' rows of old live batches. Their receipts keep the ranges; coverage stays provable.

    An interruption leaves nothing half done; run it again to continue.
    """

    verb = command = "fold"
    does = "replaces what the control tables hold of old batches by sums; coverage stays provable"
    deciding = Deciding.DRY_RUN

    before: Annotated[
        Text,
        BEFORE,
        Option(
            "Batches committed before this time, or longer ago: 2026-01-31, 2026-01-31T12:00:00Z, 365d; "
            "without, the feed's control_retention.",
            metavar="TIME|DURATION",
        ),
    ] = None

    def answer(self, call: Call) -> Answer:
        parts, decided = call.parts, call.decided
        named = call.named("before")
        cut = cut_of(parts.feed, time_before(self.before, named) if self.before is not None else None, named)
        feed_id = known_feed(parts.control, parts.feed.name).feed_id
        there = parts.control.foldable(feed_id, cut)
        done: list[Folded] = []
        if decided is not None:
            with call.counting("batches folded") as on_folded:
                for folded in fold(feed_id, cut, parts.control, actor=decided.actor, reason=decided.reason or None):
                    done.append(folded)
                    on_folded(folded.batches)
        total = sum_of(done) if decided is not None else None
        return Answer(
            fold_document(parts.feed.name, cut.before, there, total),
            shown_folded(cut.before, there, total),
            only_shown=total is None and (there.batches > 0 or there.events > 0),
        )


def cut_of(feed: Feed, before: datetime | None = None, named: str = "before") -> FoldCut:
    """Return what may be folded; raises WrongUseError where neither the caller nor the feed says what is old."""
    now = datetime.now(UTC)
    if before is None and feed.control_retention is None:
        raise WrongUseError(
            f"feed {feed.name}: expected {named}, or control_retention in its file, found neither: nothing says what "
            "is old. Nothing was changed."
        )
    return cut_before(before or now - (feed.control_retention or timedelta()), now)


def cut_before(before: datetime, now: datetime) -> FoldCut:
    """Return what may be folded; raises WrongUseError on a time that is too near."""
    if before > now - LEAST_RETENTION:
        raise WrongUseError(
            f"expected a time {LEAST_RETENTION.days} days ago or earlier, found {before.isoformat()}: the control "
            "tables keep every range of younger batches. Nothing was changed."
        )
    return FoldCut(before)


def fold(
    feed_id: UUID, cut: FoldCut, control: FoldingTables, *, actor: str, reason: str | None = None
) -> Iterator[Folded]:
    """Fold everything old enough, and yield what each transaction has folded; finally add a line to the journal.

    Each transaction folds a few whole batches under the feed's lock: a run never waits long, after an interruption no
    batch is half folded, and two calls at once share the work.
    """
    done: list[Folded] = []
    while not (folded := control.fold(feed_id, cut)).is_nothing:
        done.append(folded)
        yield folded
    if done:
        detail = {"before": cut.before.astimezone(UTC).isoformat(), **document_of(sum_of(done))}
        detail |= {"reason": reason} if reason is not None else {}
        control.record_event(feed_id, "folded", actor=actor, batch_id=None, detail=detail)


def sum_of(done: Sequence[Folded]) -> Folded:
    names = [each.name for each in fields(Folded)]
    return Folded(**{name: sum(getattr(each, name) for each in done) for name in names})


def fold_document(feed_name: str, before: datetime, there: Foldable, done: Folded | None) -> dict[str, Any]:
    return {
        "feed": feed_name,
        "before": before.isoformat(),
        "executed": done is not None,
        "batches": there.batches if done is None else done.batches,
        "ranges": None if done is None else done.ranges,
        "attempts": None if done is None else done.attempts,
        "events": there.events if done is None else done.events,
        "kept": [{"reason": reason, "batches": batches} for reason, batches in kept(there)],
    }


def kept(there: Foldable) -> list[tuple[str, int]]:
    reasons = (
        ("their Asset events are not recorded yet: the feed's next run announces them", there.to_announce),
        ("their staged output is not removed yet: `kafka-ingest clean` does that", there.staged),
    )
    return [(reason, batches) for reason, batches in reasons if batches]


def shown_folded(before: datetime, there: Foldable, done: Folded | None) -> Iterator[Line]:
    for reason, batches in kept(there):
        yield Line(f"{counted(batches, 'batch')} not folded: {reason}", "yellow")
    if done is None:
        text = f"would fold {counted(there.batches, 'batch')} committed before {moment(before)} UTC, and remove "
        yield Line(f"{text}{counted(there.events, 'line')} of the journal")
        return
    text = f"folded {counted(done.batches, 'batch')} committed before {moment(before)} UTC: "
    yield Line(
        f"{text}{counted(done.ranges, 'range')} and {counted(done.attempts, 'attempt')} became sums, "
        f"{counted(done.events, 'line')} of the journal {were(done.events)} removed"
    )
