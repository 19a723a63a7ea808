"""``expire``: remove old batches from a feed's output."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from typing import Annotated, Any
from uuid import UUID

from pydantic import TypeAdapter

from kafka_ingest.batches.known_feed import known_feed
from kafka_ingest.batches.known_output import check_output_known, check_output_there
from kafka_ingest.errors import WrongUseError
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.gap import LostRange, Removal, RemovalCause, RemovedRange
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import Sink, Sinks
from kafka_ingest.ports.parts import role_of
from kafka_ingest.settings.run_request import Text, time_with_zone
from kafka_ingest.settings.setting_types import DURATION, Duration
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.from_receipts import (
    also_in,
    held,
    is_visible,
    lost_of_batches,
    not_in,
    rows_left,
    with_replaced,
)
from kafka_ingest.verbs.request import BEFORE, Call, Needed, Option, Request

AT_ONCE = 100
"""How many batches are recorded in one transaction; they are hidden before it and deleted after it."""


class Expire(Request):
    """Remove old batches from a feed's output. Their receipts stay: the offsets stay committed, listed as expired."""

    verb = command = "expire"
    does = "removes old batches from the output; their receipts stay"

    before: Annotated[
        Text,
        BEFORE,
        Needed("before, such as 2026-01-31 or 90d,"),
        Option(
            "Batches written before this time, or longer ago: 2026-01-31, 2026-01-31T12:00:00Z, 90d.",
            metavar="TIME|DURATION",
        ),
    ] = None

    only_show: Annotated[bool, Option("Show what would be done and write nothing.", flag="--dry-run")] = False

    def answer(self, call: Call) -> Answer:
        if self.only_show and call.decided is not None:
            raise WrongUseError("expected --dry-run or --execute, found both")
        parts, decided = call.parts, call.decided
        sink = parts.sinks(parts.plan_settings.output)
        before = time_before(self.before or "", call.named("before"))
        decision = decide_expiry(parts.plan_settings, before, parts.control, parts.sinks)
        if decided is not None:
            with call.counting("batches removed") as on_batch:
                for _ in expire(decision, parts.control, sink, reason=decided.reason, actor=decided.actor):
                    on_batch()
        executed = decided is not None
        return Answer(
            {
                "feed": parts.feed.name,
                "before": before.isoformat(),
                "batches": [batch_document(published) for published in decision.batches],
                "finished": [str(published.plan.batch_id) for published in decision.begun],
                "kept": [{"batch_id": str(batch_id), "reason": why} for batch_id, why in decision.kept.items()],
                **document_of(decision, "rows", "size_bytes"),
                "executed": executed,
            },
            shown_expiry(decision, executed=executed),
            only_shown=not executed and bool(decision.batches or decision.begun),
        )


@dataclass(frozen=True, slots=True)
class ExpireDecision:
    """Which batches of a feed's output expire, oldest first; ``begun`` are those that an earlier call did not finish.

    ``kept`` are old enough but stay, for a reason. ``lost`` is what lost files of batches held: it does not expire with
    them. Neither does what is ``visible`` of other batches that read the same offsets again.
    """

    feed: FeedSnapshot
    output: OutputLocation
    before: datetime
    batches: Sequence[PublishedReceipt]
    begun: Sequence[PublishedReceipt] = ()
    kept: Mapping[UUID, str] = field(default_factory=dict)
    lost: Mapping[UUID, Sequence[LostRange]] = field(default_factory=dict)
    visible: Sequence[RemovedRange] = ()

    def ranges_of(self, batches: Iterable[PublishedReceipt]) -> list[RemovedRange]:
        return not_in([each for published in batches for each in held(published, self.lost)], self.visible)

    @property
    def rows(self) -> int:
        return sum(rows_left(published) for published in self.batches)

    @property
    def size_bytes(self) -> int:
        return sum(published.receipt.size_bytes for published in self.batches)


def decide_expiry(
    settings: FeedPlanSettings, before: datetime, control: OperatorTables, sinks: Sinks
) -> ExpireDecision:
    """Return which batches expire whose files were written before a time; nothing is written.

    Only COMMITTED batches in the feed's current output; never the newest live one, which identifies the output. Raises
    OutputUnknownError where the output holds batches that the control tables do not have, OutputUnavailableError where
    its storage is not available.
    """
    feed = known_feed(control, settings.name)
    check_output_known(feed, settings, control, sinks)
    check_output_there(feed.feed_id, settings.output, control, sinks)
    sink = sinks(settings.output)
    states = control.batch_states(feed.feed_id)
    newest = control.newest_published(feed.feed_id)
    rows = control.coverage(settings.name)
    lost = lost_of_batches(rows.lost if rows is not None else ())
    replacements = rows.replacements if rows is not None else ()
    about_to_be_replaced = {each.replaced.batch_id: each.by for each in replacements if each.is_open}
    remover = role_of(settings.output, sink.remover, "let batches expire")
    remover.check_can_remove()
    unfinished = set(remover.unfinished())
    batches: list[PublishedReceipt] = []
    removed: list[PublishedReceipt] = []
    kept: dict[UUID, str] = {}
    visible: list[RemovedRange] = []
    for published in with_replaced(list(sink.publisher.published_receipts())):
        batch_id = published.plan.batch_id
        if published.removal is not None:
            removed.append(published)
            continue
        if published.receipt.written_at < before and published.receipt.files:
            if (state := states.get(batch_id)) is not BatchState.COMMITTED:
                kept[batch_id] = f"it is {state}"
            elif newest is not None and newest.batch_id == batch_id:
                kept[batch_id] = "it is the feed's newest"
            elif batch_id in about_to_be_replaced:
                kept[batch_id] = f"batch {about_to_be_replaced[batch_id]} is about to replace its rows"
            elif published.files.state in {FilesState.INTACT, FilesState.CHANGED, FilesState.GONE}:
                batches.append(published)
                continue
        if is_visible(published):
            visible += held(published, lost)
    # As few ranges as possible: they are searched for every hundred batches.
    decision = ExpireDecision(feed, settings.output, before, batches, kept=kept, lost=lost, visible=not_in(visible, ()))
    noted = rows.removed if rows is not None else ()
    not_noted = not_in(decision.ranges_of(filter(is_expired, removed)), noted)
    begun = [
        published
        for published in removed
        if str(published.plan.batch_id) in unfinished
        or (not_noted and is_expired(published) and also_in(decision.ranges_of([published]), not_noted))
    ]
    return replace(decision, begun=begun)


def is_expired(published: PublishedReceipt) -> bool:
    """Whether an operator expired a batch; files that were only found missing are recorded by adopting."""
    return published.removal is not None and published.removal.cause is RemovalCause.EXPIRED


def expire(decision: ExpireDecision, control: OperatorTables, sink: Sink, *, reason: str, actor: str) -> Iterator[UUID]:
    """Remove batches, some at once, and yield each that was removed; after a crash at any line the next call continues.

    1. a mark beside the output records that a batch is removed, by whom, when and why;
    2. the batch is hidden from readers in one atomic step: they see all of a batch, or nothing;
    3. the control tables record which committed offsets expired;
    4. the files are deleted.
    """
    remover = role_of(decision.output, sink.remover, "let batches expire")
    begun = [([each], each.removal.reason if each.removal is not None else reason) for each in decision.begun]
    starts = range(0, len(decision.batches), AT_ONCE)
    for batches, why in (*begun, *((decision.batches[start : start + AT_ONCE], reason) for start in starts)):
        ids = [published.plan.batch_id for published in batches]
        for batch_id in ids:
            sink.archive.note_removal(Removal(batch_id, RemovalCause.EXPIRED, datetime.now(UTC), actor, why))
            remover.hide(batch_id)
        control.record_removed(decision.feed.feed_id, ids, decision.ranges_of(batches), reason=why, actor=actor)
        for batch_id in ids:
            remover.delete_hidden(batch_id)
            yield batch_id


def time_before(text: str, named: str = "--before") -> datetime:
    """Return the time before which something is old; a date is its beginning in UTC, a duration counted back from now.

    ``named`` is what the error calls the option or the field.
    """
    try:
        if DURATION.fullmatch(text):
            return datetime.now(UTC) - TypeAdapter(Duration).validate_python(text)
        return datetime.combine(date.fromisoformat(text), time.min, UTC)
    except (ValueError, OverflowError):  # more days ago than there are
        expected = "a date, a time with a zone, or a duration, such as 2026-01-31, 2026-01-31T12:00:00Z or 90d"
        return time_with_zone(text, named, expected)


def batch_document(published: PublishedReceipt) -> dict[str, Any]:
    return {
        **document_of(published.plan, "batch_id", "kind"),
        **document_of(published.receipt, "written_at", "rows", "size_bytes"),
        "ranges": [planned.as_document() for planned in published.ranges_read],
    }


def shown_expiry(decision: ExpireDecision, *, executed: bool) -> Iterator[Line | FittingTable]:
    if decision.batches:
        made = FittingTable(
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
