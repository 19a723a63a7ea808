"""Giving a batch up: plainly, or by revoking it while it is committed; never once it is published."""

import pytest
from tests.fakes import FeedInMemory, sinks

from kafka_ingest.errors import BatchRevokedError, BatchStateError, OutputConflictError
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.verbs.abandon import abandon, abandonable


def abandon_batch(feed: FeedInMemory, plan: BatchPlan, reason: str = "wrong topic") -> BatchState:
    return abandon(plan.batch_id, feed.control, sinks(feed.sink), reason=reason, actor="ops")


def could_be_abandoned(feed: FeedInMemory, plan: BatchPlan) -> tuple[BatchState, bool]:
    batch, may_be_published = abandonable(plan.batch_id, feed.control, sinks(feed.sink))
    return batch.state, may_be_published


def committing(feed: FeedInMemory) -> BatchPlan:
    return feed.open_in(BatchState.COMMITTING)


def test_a_planned_batch_is_abandoned_plainly_and_its_ranges_are_planned_again(feed: FeedInMemory) -> None:
    plan = feed.planned()
    assert abandon_batch(feed, plan) is BatchState.PLANNED
    again = feed.planned()
    assert (again.ranges, again.batch_id == plan.batch_id) == (plan.ranges, False)


def test_a_written_batch_is_abandoned_plainly_and_its_files_stay(feed: FeedInMemory) -> None:
    plan = feed.written()
    assert abandon_batch(feed, plan) is BatchState.WRITTEN
    assert feed.sink.staged
    assert feed.sink.revoked == set()


def test_a_committing_batch_is_revoked_and_its_records_come_with_the_next_one(feed: FeedInMemory) -> None:
    plan = committing(feed)
    assert could_be_abandoned(feed, plan) == (BatchState.COMMITTING, False)
    assert abandon_batch(feed, plan) is BatchState.COMMITTING
    assert feed.control.batch(plan.batch_id).state is BatchState.ABANDONED
    again = feed.committed()
    assert feed.sink.published_ranges() == sorted(plan.ranges)
    assert feed.stored_offsets() == {planned.topic_partition: planned.end_offset for planned in again.ranges}


def test_a_batch_that_is_published_already_only_rolls_forward(feed: FeedInMemory) -> None:
    plan = committing(feed)
    control, feed.control = feed.control, RefusesToComplete(feed.control)
    with pytest.raises(BrokenPipeError):
        feed.commit(plan.batch_id)
    feed.control = control

    for abandoning in (could_be_abandoned, abandon_batch):
        with pytest.raises(BatchStateError, match="published already"):
            abandoning(feed, plan)

    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTING
    assert feed.commit(plan.batch_id).batch.state is BatchState.COMMITTED


class RefusesToComplete:
    """Control tables whose server goes away at the last step."""

    def __init__(self, control: object) -> None:
        self._control = control

    def __getattr__(self, name: str) -> object:
        return getattr(self._control, name)

    def complete_commit(self, *_: object, **__: object) -> None:
        raise BrokenPipeError


def test_after_a_crash_between_revoking_and_saying_so_a_commit_is_refused_and_abandon_finishes(
    feed: FeedInMemory,
) -> None:
    plan = committing(feed)
    attempt = feed.control.attempts(plan.batch_id)[0]
    feed.sink.publisher.revoke(attempt.directory, plan.batch_id)

    with pytest.raises(BatchRevokedError):
        feed.commit(plan.batch_id)
    assert could_be_abandoned(feed, plan) == (BatchState.COMMITTING, False)
    assert abandon_batch(feed, plan) is BatchState.COMMITTING

    feed.committed()
    assert feed.sink.published_ranges() == sorted(plan.ranges)


def test_a_commit_that_lost_against_an_operator_shows_who_abandoned_the_batch_and_why(feed: FeedInMemory) -> None:
    plan = committing(feed)
    feed.sink.interleaved = lambda: abandon_batch(feed, plan, reason="its table was dropped")

    with pytest.raises(BatchStateError, match=r"was abandoned by ops \(its table was dropped\)"):
        feed.commit(plan.batch_id)

    assert feed.sink.published == {}


def test_a_commit_that_begins_while_an_operator_gives_the_batch_up_plainly_is_revoked(feed: FeedInMemory) -> None:
    plan = feed.written()
    read, begun = feed.control.batch, []

    def batch_before_a_commit_begins(batch_id: object) -> object:
        found = read(batch_id)
        if not begun:
            begun.append(feed.control.begin_commit(plan.batch_id, 1))
        return found

    feed.control.batch = batch_before_a_commit_begins
    assert abandon_batch(feed, plan) is BatchState.COMMITTING
    assert feed.sink.revoked == {plan.batch_id}


@pytest.mark.parametrize("end", ["commit", "abandon"])
def test_a_batch_that_ended_is_not_abandoned_again(feed: FeedInMemory, end: str) -> None:
    plan = feed.written()
    if end == "commit":
        feed.commit(plan.batch_id)
    else:
        abandon_batch(feed, plan)
    nothing = r"(committed by run 1|abandoned by ops .*): there is nothing to abandon"
    for asked in (could_be_abandoned, abandon_batch):
        with pytest.raises(BatchStateError, match=nothing):
            asked(feed, plan)


def test_a_committing_batch_whose_output_refuses_it_has_a_way_out(feed: FeedInMemory) -> None:
    plan = committing(feed)
    feed.sink.staged.clear()
    with pytest.raises(OutputConflictError):
        feed.commit(plan.batch_id)
    abandon_batch(feed, plan)
    feed.committed()
    assert feed.sink.published_ranges() == sorted(plan.ranges)
