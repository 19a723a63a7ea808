"""``expire``: remove old batches from a feed's output."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter

from kafka_ingest.answers.answer import Answer, Line, number
from kafka_ingest.answers.documents import range_document
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import moment, table
from kafka_ingest.assembly import FeedParts
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.operating.expire import ExpireDecision, decide_expiry
from kafka_ingest.operating.expire import expire as expire_batches
from kafka_ingest.settings.setting_types import DURATION, Duration
from kafka_ingest.verbs.decided import Decided


def expire(parts: FeedParts, before: str, decided: Decided | None, on_batch: Callable[[], object] = int) -> Answer:
    """Remove batches that were written before a time, or show which ones those are.

    ``on_batch`` is called after each that was removed.
    """
    sink = parts.sinks(parts.plan_settings.output)
    decision = decide_expiry(parts.plan_settings, time_before(before), parts.control, parts.sinks)
    if decided is not None:
        for _ in expire_batches(decision, parts.control, sink, reason=decided.reason, actor=decided.actor):
            on_batch()
    executed = decided is not None
    return Answer(
        expiry_document(parts.feed.name, decision, executed=executed),
        shown_expiry(decision, executed=executed),
        only_shown=not executed and bool(decision.batches or decision.begun),
    )


def time_before(text: str) -> datetime:
    """Return the time that --before names; a date is its beginning in UTC, a duration is counted back from now."""
    try:
        if DURATION.fullmatch(text):
            return datetime.now(UTC) - TypeAdapter(Duration).validate_python(text)
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError) as error:  # the year 1 or 9999, which is no year in UTC
        raise WrongUseError(
            "--before: expected a date, a time with a zone, or a duration, such as 2026-01-31, 2026-01-31T12:00:00Z "
            f"or 90d; found {text!r}"
        ) from error
    if found != datetime.combine(found.date(), datetime.min.time()) or "T" in text:
        raise WrongUseError(f"--before: expected a time with a zone, such as {found.isoformat()}Z, found {text!r}")
    return found.replace(tzinfo=UTC)


def expiry_document(feed_name: str, decision: ExpireDecision, *, executed: bool) -> dict[str, Any]:
    """Return the result of expiring as ``--json`` shows it."""
    return {
        "feed": feed_name,
        "before": decision.before.isoformat(),
        "batches": [batch_document(published) for published in decision.batches],
        "finished": [str(published.plan.batch_id) for published in decision.begun],
        "kept": [{"batch_id": str(batch_id), "reason": why} for batch_id, why in decision.kept.items()],
        "rows": decision.rows,
        "size_bytes": decision.size_bytes,
        "executed": executed,
    }


def batch_document(published: PublishedReceipt) -> dict[str, Any]:
    """Return a batch that expires as ``--json`` shows it."""
    return {
        "batch_id": str(published.plan.batch_id),
        "kind": published.plan.kind.value,
        "written_at": published.receipt.written_at.isoformat(),
        "rows": published.receipt.rows,
        "size_bytes": published.receipt.size_bytes,
        "ranges": [range_document(planned) for planned in published.ranges_read],
    }


def shown_expiry(decision: ExpireDecision, *, executed: bool) -> Iterator[Line | FittingTable]:
    """Yield which batches are removed, what stays and why."""
    if decision.batches:
        made = table(
            f"batches written before {moment(decision.before)} UTC",
            *("batch", "kind", "written (UTC)", "rows", "MB"),
            numbers=("rows", "MB"),
        )
        for published in decision.batches:
            receipt = published.receipt
            cells = (str(receipt.batch_id), published.plan.kind.value, moment(receipt.written_at))
            made.add_line(*cells, number(receipt.rows), f"{receipt.size_bytes / 1e6:,.1f}")
        yield made
    for batch_id, why in decision.kept.items():
        yield Line(f"batch {batch_id} stays: {why}", "yellow", aside=True)
    verb = "removed" if executed else "would remove"
    yield Line(
        f"{verb} {counted(len(decision.batches), 'batch')}: {counted(decision.rows, 'row')}, "
        f"{decision.size_bytes / 1e6:,.1f} MB"
    )
    if decision.begun:
        done = "finished" if executed else "would finish"
        yield Line(f"{done} removing {counted(len(decision.begun), 'batch')} that an earlier call began with")
