"""What must hold after every step. The numbers are those of the design's list of invariants."""

from collections.abc import Hashable, Iterator

from tests.fakes import ControlState
from tests.model.explore import ViolationError
from tests.model.world import Moment

from kafka_ingest.errors import KafkaIngestError, OperatorDecisionError, WrongUseError
from kafka_ingest.model.batch import TRANSITIONS, AttemptState, Batch, BatchKind, BatchState, sha256
from kafka_ingest.model.offsets import TopicPartition

OPERATOR = "operator"
RUDE = "rude operator"
"""Who may move stored offsets behind the protocol's back."""

Moved = dict[TopicPartition, tuple[int, int | None]]


class Invariants:
    """Looks at every step. ``expected`` names the errors by which a run or an operator may be refused here."""

    def __init__(self, *expected: type[KafkaIngestError]) -> None:
        self.expected = expected
        self.discarded: frozenset[tuple[object, int]] = frozenset()
        self.moved_by_hand = False

    @property
    def memory(self) -> Hashable:
        """What is remembered of the way."""
        return self.discarded, self.moved_by_hand

    def after_step(self, actor: str, before: Moment, after: Moment) -> None:
        """Raise ViolationError where a step broke an invariant."""
        if after.control is before.control and after.published == before.published:
            return
        if actor == RUDE:
            self.moved_by_hand = True
        else:
            check_moves(before.control, after)
        if not self.moved_by_hand:
            check_starts(after.control)
        check_one_open_batch(after.control)
        check_transitions(before.control, after.control)
        check_visible(before, after)
        self.check_discarded(before.control, after.control)

    def check_discarded(self, before: ControlState, after: ControlState) -> None:
        """6: what was open when a batch's output was discarded can never be pinned, however late its receipt comes."""
        for event in (event for _, event in after.events[len(before.events) :]):
            if event.kind == "attempts_discarded":
                self.discarded |= {key for key in before.attempts if key[0] == event.batch_id}
        for key in self.discarded:
            if after.attempts[key].state is AttemptState.PINNED:
                raise ViolationError(f"6: attempt {key[1]} was discarded, and is pinned now")

    def of_outcome(self, actor: str, error: KafkaIngestError | None) -> None:
        """Every refusal has a harmless name; only what is expected here asks for an operator."""
        if isinstance(error, OperatorDecisionError | WrongUseError) and not isinstance(error, self.expected):
            raise ViolationError(f"{actor} ended with {error.code}, and nobody did anything that asks for it: {error}")


def check_one_open_batch(control: ControlState) -> None:
    """2: at most one open live batch."""
    live = [batch for batch in control.batches.values() if batch.plan.kind is BatchKind.LIVE and batch.state.is_open]
    if len(live) > 1:
        raise ViolationError(
            f"2: {len(live)} live batches are open: {', '.join(str(batch.batch_id) for batch in live)}"
        )


def check_starts(control: ControlState) -> None:
    """3: an open live batch starts exactly at the stored offsets."""
    for batch in control.batches.values():
        if batch.plan.kind is not BatchKind.LIVE or not batch.state.is_open:
            continue
        for planned in batch.ranges_read:
            row = control.stored.get((batch.plan.feed_id, planned.topic_partition))
            if row is None or row.next_offset != planned.start_offset:
                found = row.next_offset if row is not None else None
                raise ViolationError(f"3: {batch.state} batch reads {planned}, the stored offset is {found}")


def check_moves(before: ControlState, after: Moment) -> None:
    """3, 4, 10: stored offsets move by a published live batch's commit, all partitions at once, a gap, or a reset."""
    moved = {
        key[1]: (was.next_offset, now.next_offset if (now := after.control.stored.get(key)) is not None else None)
        for key, was in before.stored.items()
        if was.next_offset is not None and after.control.stored.get(key) != was
    }
    moved = {tp: way for tp, way in moved.items() if way[0] != way[1]}
    allowed = {**resets(before, after.control), **gaps(before, after.control)}
    for batch in committed_now(before, after.control):
        if batch.batch_id not in after.published:
            raise ViolationError(f"4: batch {batch.batch_id} is COMMITTED, and not published")
        allowed |= {each.topic_partition: (each.start_offset, each.end_offset) for each in batch.ranges_read}
    if moved != allowed:
        raise ViolationError(f"3, 4: stored offsets moved {in_words(moved)}, expected {in_words(allowed)}")


def committed_now(before: ControlState, after: ControlState) -> Iterator[Batch]:
    """Yield the live batches that this step made COMMITTED."""
    for batch_id, batch in after.batches.items():
        was = before.batches.get(batch_id)
        is_new = was is None or was.state is not BatchState.COMMITTED
        if is_new and batch.state is BatchState.COMMITTED and batch.plan.kind is BatchKind.LIVE:
            yield batch


def gaps(before: ControlState, after: ControlState) -> Moved:
    """Return the moves over gaps that this step filed."""
    filed = [gap for gap_id, (_, gap) in after.gaps.items() if gap_id not in before.gaps and gap.applied_at is not None]
    spans = [gap.offset_range for gap in filed]
    return {span.topic_partition: (span.start_offset, span.end_offset) for span in spans}


def resets(before: ControlState, after: ControlState) -> Moved:
    """Return the moves that a reset of this step has in the audit journal."""
    moves: Moved = {}
    for event in (event for _, event in after.events[len(before.events) :] if event.kind == "reset"):
        is_now = {(row["topic"], row["partition"]): row["next_offset"] for row in event.detail["partitions"]}
        for row in event.detail["removed"]:
            position = (row["topic"], row["partition"])
            if row["next_offset"] != is_now[position]:
                moves[TopicPartition(*position)] = (row["next_offset"], is_now[position])
    return moves


def in_words(moves: Moved) -> str:
    """Say which offsets moved from where to where."""
    return ", ".join(f"{tp} {was} → {now}" for tp, (was, now) in sorted(moves.items())) or "none"


def check_transitions(before: ControlState, after: ControlState) -> None:
    """A batch moves only as the table allows, and its receipt is settled unless it is PLANNED again (6)."""
    for batch_id, batch in after.batches.items():
        was = before.batches.get(batch_id)
        if was is None or was is batch:
            continue
        if batch.state is not was.state and batch.state not in TRANSITIONS[was.state]:
            raise ViolationError(f"batch {batch_id} went from {was.state} to {batch.state}")
        if was.pinned_attempt is not None and batch.pinned_attempt not in {was.pinned_attempt, None}:
            raise ViolationError(f"6: attempt {was.pinned_attempt} was pinned, now attempt {batch.pinned_attempt} is")
        if batch.state is BatchState.ABANDONED and was.state is not BatchState.PLANNED:
            check_operator_decided(after, batch)
        if batch.plan != was.plan:
            raise ViolationError(f"1: the plan of batch {batch_id} changed")


def check_operator_decided(control: ControlState, batch: Batch) -> None:
    """What is written may be the last copy of the records: only an operator abandons it."""
    (actor,) = [
        event.actor for _, event in control.events if (event.kind, event.batch_id) == ("abandoned", batch.batch_id)
    ]
    if actor != OPERATOR:
        raise ViolationError(f"{actor} abandoned batch {batch.batch_id}, which was written")


def check_visible(before: Moment, after: Moment) -> None:
    """5, 6, 7: what readers see is of batches that are COMMITTING or COMMITTED, once, with the pinned receipt."""
    for batch_id, was in before.published.items():
        if after.published.get(batch_id) != was:
            raise ViolationError(f"5: what is published of batch {batch_id} changed")
    for batch_id, published in after.published.items():
        batch = after.control.batches.get(batch_id)
        if batch is None or batch.state not in {BatchState.COMMITTING, BatchState.COMMITTED}:
            state = batch.state if batch is not None else "not known"
            raise ViolationError(f"7: batch {batch_id} is visible, and {state}")
        if published.plan != batch.plan or published.receipt.plan_fingerprint != batch.plan.fingerprint:
            raise ViolationError(f"5: batch {batch_id} is published with another plan")
        if published.receipt.attempt != batch.pinned_attempt:
            raise ViolationError(
                f"6: attempt {published.receipt.attempt} is published, {batch.pinned_attempt} is pinned"
            )
        attempt = after.control.attempts[batch_id, published.receipt.attempt]
        if attempt.receipt_sha256 != sha256(published.receipt.as_bytes()):
            raise ViolationError(f"6: batch {batch_id} is published with another receipt than the pinned one")
