"""An operator expires old batches of the output; their receipts stay, so their offsets stay committed.

The steps for a batch, safe to repeat after a crash at any line:

1. a mark beside the output records that the batch is removed, by whom, when and why;
2. the batch is hidden from readers in one atomic step: they see all of a batch, or nothing;
3. the control tables record which committed offsets expired;
4. the files are deleted.

A marked batch that is not finished is finished by the next call, whatever time that call is given.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from kafka_ingest.batches.known_output import check_output_known
from kafka_ingest.batches.used_output import check_output_there
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.control_rows import FeedSnapshot
from kafka_ingest.model.output_location import OutputLocation
from kafka_ingest.model.published_output import FilesState, PublishedReceipt
from kafka_ingest.model.removal import LostRange, Removal, RemovalCause, RemovedRange
from kafka_ingest.operating.held_offsets import also_in, held, is_visible, lost_of_batches, not_in
from kafka_ingest.operating.known_feed import known_feed
from kafka_ingest.operating.replaced_output import rows_left, with_replaced
from kafka_ingest.planning.settings import FeedPlanSettings
from kafka_ingest.ports.control import OperatorTables
from kafka_ingest.ports.outputs import ReceiptArchive, Remover, Sink, Sinks
from kafka_ingest.ports.role_of_format import role_of

AT_ONCE = 100
"""How many batches are recorded in one transaction; they are hidden before it and deleted after it."""


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
        """Return which offsets expire with some batches."""
        return not_in([each for published in batches for each in held(published, self.lost)], self.visible)

    @property
    def rows(self) -> int:
        """How many rows expire, of those that are decided on now."""
        return sum(rows_left(published) for published in self.batches)

    @property
    def size_bytes(self) -> int:
        """How many bytes expire, of those that are decided on now."""
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
    """Expire batches, and yield each that was removed."""
    remover = role_of(decision.output, sink.remover, "let batches expire")
    for published in decision.begun:
        removal = published.removal
        why = removal.reason if removal is not None else reason
        yield from remove([published], decision, control, sink.archive, remover, reason=why, actor=actor)
    for start in range(0, len(decision.batches), AT_ONCE):
        some = decision.batches[start : start + AT_ONCE]
        yield from remove(some, decision, control, sink.archive, remover, reason=reason, actor=actor)


def remove(
    batches: Sequence[PublishedReceipt],
    decision: ExpireDecision,
    control: OperatorTables,
    archive: ReceiptArchive,
    remover: Remover,
    *,
    reason: str,
    actor: str,
) -> Iterator[UUID]:
    """Take the steps of the module's description for some batches, and yield each that was removed."""
    ids = [published.plan.batch_id for published in batches]
    for batch_id in ids:
        archive.note_removal(Removal(batch_id, RemovalCause.EXPIRED, datetime.now(UTC), actor, reason))
        remover.hide(batch_id)
    control.record_removed(decision.feed.feed_id, ids, decision.ranges_of(batches), reason=reason, actor=actor)
    for batch_id in ids:
        remover.delete_hidden(batch_id)
        yield batch_id
