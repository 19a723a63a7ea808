"""The stores in memory with one guard taken out of each: what the model has to find."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import tests.fakes
from tests.fakes import ControlState, InMemoryControlTables, InMemorySink

import kafka_ingest.batches.commit_batch
import kafka_ingest.batches.mirror_group
from kafka_ingest.model.batch import AttemptState, Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.model.published_output import PublishedReceipt

Patch = pytest.MonkeyPatch


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


# ── Offsets and plans ─────────────────────────────────────────────────────────────────────────────────────────────────


def offsets_are_not_compared(patch: Patch) -> None:
    """A commit moves the stored offsets to the end of its ranges, wherever they are."""
    patch.setattr(ControlState, "check_offsets_in_place", nothing)


def only_offsets_in_place_move(patch: Patch) -> None:
    """A commit moves those stored offsets that are in place, and leaves the others."""

    def advance(state: ControlState, batch: Batch) -> None:
        feed_id = batch.plan.feed_id
        in_place = tuple(
            planned
            for planned in batch.ranges_read
            if state.stored[feed_id, planned.topic_partition].next_offset == planned.start_offset
        )
        if in_place:
            original(state, replace(batch, plan=replace(batch.plan, ranges=in_place), left_out=()))

    original = tests.fakes.advance_stored_offsets
    patch.setattr(ControlState, "check_offsets_in_place", nothing)
    patch.setattr(tests.fakes, "advance_stored_offsets", advance)


def backfills_move_offsets(patch: Patch) -> None:
    """A backfill's commit moves the stored offsets to the end of its ranges, too."""

    def complete(control: InMemoryControlTables, batch_id: UUID, *, actor: str) -> Batch:
        done = original(control, batch_id, actor=actor)
        if done.plan.kind is BatchKind.BACKFILL:
            with control.transaction() as state:
                tests.fakes.advance_stored_offsets(state, done)
        return done

    original = InMemoryControlTables.complete_commit
    patch.setattr(InMemoryControlTables, "complete_commit", complete)


def backfills_are_not_kept_apart(patch: Patch) -> None:
    """Neither revision nor ranges keep two backfills from one hole, and neither looks again when it commits."""
    revision_is_not_checked(patch)
    patch.setattr(tests.fakes, "check_apart", nothing)
    patch.setattr(tests.fakes, "check_not_overtaken", nothing)


def revision_is_not_checked(patch: Patch) -> None:
    """What was read is not checked again under the lock."""
    patch.setattr(tests.fakes, "require_revision", nothing)


def second_open_batch_is_let_in(patch: Patch) -> None:
    """No unique index says that one live batch is open."""

    def insert(state: ControlState, plan: BatchPlan, actor: str) -> None:
        state.check_offsets_in_place(plan)
        name = state.feeds[plan.feed_id].name
        state.batches[plan.batch_id] = Batch(name, plan, BatchState.PLANNED, actor, plan.planned_at)

    patch.setattr(tests.fakes, "insert_plan", insert)


def neither_revision_nor_open_batch_is_checked(patch: Patch) -> None:
    """Both guards of the one open batch are gone."""
    revision_is_not_checked(patch)
    second_open_batch_is_let_in(patch)


# ── Receipts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def written_batch_is_pinned_again(patch: Patch) -> None:
    """The last receipt counts, not the first."""

    def pin(control: InMemoryControlTables, batch_id: UUID, attempt: int, *receipt: Any) -> None:
        if control.state.attempts[batch_id, attempt].state is AttemptState.OPEN:
            batch = control.batch(batch_id)
            control.state.batches[batch_id] = replace(batch, state=BatchState.PLANNED)
        original(control, batch_id, attempt, *receipt)

    original = InMemoryControlTables.pin
    patch.setattr(InMemoryControlTables, "pin", pin)


def discarded_attempt_is_pinned(patch: Patch) -> None:
    """An attempt need not be OPEN any more."""

    def pin(control: InMemoryControlTables, batch_id: UUID, attempt: int, *receipt: Any) -> None:
        row = control.state.attempts[batch_id, attempt]
        if control.batch(batch_id).state is BatchState.PLANNED:
            control.state.attempts[batch_id, attempt] = replace(row, state=AttemptState.OPEN)
        original(control, batch_id, attempt, *receipt)

    original = InMemoryControlTables.pin
    patch.setattr(InMemoryControlTables, "pin", pin)


def rivals_stay_open(patch: Patch) -> None:
    """Only the pinned attempt is discarded, not those that are still being written."""

    def discard(control: InMemoryControlTables, batch_id: UUID, attempt: int, *, reason: str, actor: str) -> None:
        rivals = {key: row for key, row in control.state.attempts.items() if row.state is AttemptState.OPEN}
        original(control, batch_id, attempt, reason=reason, actor=actor)
        with control.transaction() as state:
            state.attempts.update(rivals)

    original = InMemoryControlTables.discard_written
    patch.setattr(InMemoryControlTables, "discard_written", discard)


# ── Publishing and revoking ───────────────────────────────────────────────────────────────────────────────────────────


def publishing_does_not_look(patch: Patch) -> None:
    """The files are moved without a look at whether they were moved before."""

    def publish(sink: InMemorySink, directory: Path, published: PublishedReceipt) -> None:
        known = sink.published.pop(published.receipt.batch_id, None)
        try:
            original(sink, directory, published)
        finally:
            if known is not None:
                sink.published[published.receipt.batch_id] = known

    original = InMemorySink.publish
    patch.setattr(InMemorySink, "publish", publish)


def publishing_adds_once_more(patch: Patch) -> None:
    """The records are appended each time, as a table format does that is not asked whether it has them."""

    def publish(sink: InMemorySink, directory: Path, published: PublishedReceipt) -> None:
        if (batch_id := published.receipt.batch_id) in sink.published:
            sink.published[UUID(int=batch_id.int + 1)] = published
        else:
            original(sink, directory, published)

    original = InMemorySink.publish
    patch.setattr(InMemorySink, "publish", publish)


def revoking_does_not_look(patch: Patch) -> None:
    """A batch is revoked whether it is visible or not."""

    def revoke(sink: InMemorySink, directory: Path, batch_id: UUID, **_: Any) -> None:
        sink.staged.discard(directory)
        sink.revoked.add(batch_id)

    patch.setattr(InMemorySink, "revoke", revoke)


def revoking_does_nothing(patch: Patch) -> None:
    """A COMMITTING batch is abandoned, and its files stay where a publisher finds them."""
    patch.setattr(InMemorySink, "revoke", nothing)


def publishing_takes_what_was_revoked(patch: Patch) -> None:
    """A batch is published whether it was revoked or not."""

    def publish(sink: InMemorySink, directory: Path, published: PublishedReceipt) -> None:
        if (batch_id := published.receipt.batch_id) in sink.revoked:
            sink.published[batch_id] = published
        else:
            original(sink, directory, published)

    original = InMemorySink.publish
    patch.setattr(InMemorySink, "publish", publish)


def committing_is_abandoned_plainly(patch: Patch) -> None:
    """A batch that may be visible is abandoned like one that cannot be."""

    def abandon(state: ControlState, batch: Batch, reason: str, actor: str, _: object) -> None:
        original(state, batch, reason, actor, {batch.state})

    original = tests.fakes.abandon_batch
    patch.setattr(tests.fakes, "abandon_batch", abandon)


def loser_does_not_look_again(patch: Patch) -> None:
    """Of two committers the slower one does not look again at what became of the batch."""
    patch.setattr(kafka_ingest.batches.commit_batch, "LATER", dict.fromkeys(BatchState, frozenset()))


# ── The mirror ────────────────────────────────────────────────────────────────────────────────────────────────────────


def mirror_does_not_look_again(patch: Patch) -> None:
    """The group is set once, to what was read before."""
    patch.setattr(kafka_ingest.batches.mirror_group, "TRIES", 1)
