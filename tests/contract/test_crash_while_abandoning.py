"""A crash while an operator abandons a batch, or cleans up after one.

Never both published and abandoned, always a way out.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from uuid import UUID

import pytest
from tests.contract.every_record_once import assert_every_record_is_there_once, assert_group_follows
from tests.contract.interference import Died, OtherWorlds, changes_the_world, dying_at, is_of_a_part, watched
from tests.contract.lives import (
    Beginning,
    Feeds,
    Life,
    empty_batch,
    produce,
    second_batch,
    stop_before,
)
from tests.contract.whole_feed import Scheduler, WholeFeed, at_rest

from kafka_ingest.errors import BatchRevokedError, BatchStateError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.clean import StagedOutput, clean_up, staged_outputs, staged_outputs_of_batch

pytestmark = pytest.mark.long


def is_step(name: str) -> bool:
    """Whether an instant is the first, or lies after a call to a part that changed something."""
    return name == "before control.batch" or (is_of_a_part(name) and changes_the_world(name))


def stopped(feeds: Feeds, life: Life, before: str) -> tuple[WholeFeed, UUID]:
    """Return a feed whose process died before a call, and the batch that is open since."""
    feed = feeds.new(life)
    stop_before(feed, before)
    batch = feed.snapshot().open_batch
    assert batch is not None
    return feed, batch.batch_id


def instants_of(kind: str, feed: WholeFeed, action: Callable[[WholeFeed], object]) -> list[tuple[int, str]]:
    """Return the instants to crash at, of those that an action passes where nothing happens.

    All with another world than the one before; over a database those after steps, since the files are the same.
    """
    others = OtherWorlds(feed, lambda name: kind == "in_memory" or is_step(name))
    with watched(feed, others.look) as (seen, instants):
        action(seen)
    return [(number, instants.names[number]) for number in others.found]


def die_in(feed: WholeFeed, action: Callable[[WholeFeed], object], instant: int) -> None:
    """Let a process die at an instant of an action."""
    with watched(feed, dying_at(instant)) as (doomed, _), pytest.raises(Died):
        action(doomed)


# ── Abandoning ────────────────────────────────────────────────────────────────────────────────────────────────────────


def abandon_batch(feed: WholeFeed, batch_id: UUID) -> None:
    """Do what an operator does who wants to be rid of a batch."""
    abandon(batch_id, feed.control, feed.sinks, reason="wrong topic", actor="ops")


def abandon_again(feed: WholeFeed, batch_id: UUID) -> None:
    """The operator runs the command again, which is refused only where the first was through."""
    if feed.control.batch(batch_id).state is BatchState.ABANDONED:
        with pytest.raises(BatchStateError, match="was abandoned by ops"):
            abandon_batch(feed, batch_id)
    else:
        abandon_batch(feed, batch_id)
    assert feed.control.batch(batch_id).state is BatchState.ABANDONED


def run_first(feed: WholeFeed, batch_id: UUID) -> None:
    """The scheduler is faster than the operator.

    The batch is committed, or the run says how to finish what was begun.
    """
    refusal = refusal_of_next_run(feed)
    if refusal is not None:
        assert f"kafka-ingest abandon {batch_id}" in str(refusal)
        abandon_again(feed, batch_id)
    else:
        ended = {BatchState.COMMITTED: "was committed by run 1", BatchState.ABANDONED: "was abandoned by ops"}
        with pytest.raises(BatchStateError, match=ended[feed.control.batch(batch_id).state]):
            abandon_batch(feed, batch_id)


def refusal_of_next_run(feed: WholeFeed) -> BatchRevokedError | None:
    """Run the DAG once, and return why it stops for an operator, None where it does not."""
    try:
        Scheduler().resume(feed)
    except BatchRevokedError as error:
        return error
    return None


PLACES = [
    (produce, "control.open_attempt"),
    (produce, "control.begin_commit"),
    (second_batch, "sink.publish"),
    (second_batch, "os.rename kafka_batch=<id>"),
    (empty_batch, "sink.publish"),
    (empty_batch, "os.rename data.published"),
]
"""Where a batch may stand when it is abandoned: not written, not committing, and committing in all its stages."""


@pytest.mark.parametrize(
    ("kind", "afterwards"), [("in_memory", abandon_again), ("in_memory", run_first), ("sqlite", run_first)]
)
@pytest.mark.parametrize(("life", "before"), PLACES)
def test_a_batch_whose_abandoning_died_anywhere_is_abandoned_or_published_and_never_both(
    feeds: Feeds, kind: str, life: Life, before: str, afterwards: Callable[[WholeFeed, UUID], None]
) -> None:
    feed, batch_id = stopped(feeds, life, before)
    to_try = instants_of(kind, feed, lambda seen, batch_id=batch_id: abandon_batch(seen, batch_id))
    beginning = Beginning(partial(stopped, feeds, life, before))
    for instant, name in to_try:
        feed, batch_id = beginning.again()
        try:
            die_in(feed, lambda doomed, batch_id=batch_id: abandon_batch(doomed, batch_id), instant)
            afterwards(feed, batch_id)
            at_rest(feed)
            assert_every_record_is_there_once(feed)
            assert_group_follows(feed)
        except BaseException as error:
            error.add_note(f"after a crash {name}")
            raise


def test_a_batch_that_is_published_is_not_abandoned_wherever_its_commit_died(feeds: Feeds) -> None:
    for life, before in [
        (second_batch, "letters.publish"),
        (second_batch, "control.complete_commit"),
        (empty_batch, "control.complete_commit"),
        (produce, "kafka.set_group_offsets"),
    ]:
        feed = feeds.new(life)
        stop_before(feed, before)
        batch_id = max(feed.states())
        with pytest.raises(BatchStateError, match=r"published already|was committed by run 1"):
            abandon_batch(feed, batch_id)
        feed.log.produce(0, 1)
        at_rest(feed)
        assert feed.control.batch(batch_id).state is BatchState.COMMITTED
        assert_every_record_is_there_once(feed)
        assert_group_follows(feed)


# ── Cleaning up ───────────────────────────────────────────────────────────────────────────────────────────────────────


def committed_batch(feeds: Feeds) -> tuple[WholeFeed, UUID]:
    """Return a feed with a committed batch whose attempts, one of which died, are still there."""
    feed = feeds.new(produce)
    stop_before(feed, "spark.write_receipt")
    at_rest(feed)
    return feed, max(feed.states())


def abandoned_batch(feeds: Feeds) -> tuple[WholeFeed, UUID]:
    """Return a feed with a batch that was revoked, and its staged files."""
    feed, batch_id = stopped(feeds, produce, "sink.publish")
    abandon_batch(feed, batch_id)
    return feed, batch_id


def clean_up_batch(feed: WholeFeed, batch_id: UUID) -> None:
    """Do what an operator does who needs the space of one batch."""
    found = staged_outputs_of_batch(batch_id, feed.control, feed.sinks)
    assert not any(staged.kept for staged in clean_up(found, feed.control, feed.sinks))


@pytest.mark.parametrize("over", [committed_batch, abandoned_batch])
def test_a_clean_up_that_died_anywhere_takes_nothing_that_is_needed_and_is_finished_by_the_next(
    feeds: Feeds, kind: str, over: Callable[[Feeds], tuple[WholeFeed, UUID]]
) -> None:
    feed, batch_id = over(feeds)
    to_try = instants_of(kind, feed, lambda seen, batch_id=batch_id: clean_up_batch(seen, batch_id))
    beginning = Beginning(partial(over, feeds))
    for instant, name in to_try:
        feed, batch_id = beginning.again()
        try:
            die_in(feed, lambda doomed, batch_id=batch_id: clean_up_batch(doomed, batch_id), instant)
            feed.log.produce(1, 1)
            at_rest(feed)
            assert_every_record_is_there_once(feed)
            clean_up_all(feed)
            assert list((feed.output.with_name("orders.kafka-ingest") / "staging").iterdir()) == []
            assert list(attempts_to_clean(feed)) == []
            assert_every_record_is_there_once(feed)
        except BaseException as error:
            error.add_note(f"after a crash {name}")
            raise


def clean_up_all(feed: WholeFeed) -> None:
    """Do what retention does with attempts that ended long ago."""
    assert not any(staged.kept for staged in clean_up(attempts_to_clean(feed), feed.control, feed.sinks))


def attempts_to_clean(feed: WholeFeed) -> Iterator[StagedOutput]:
    """Yield what the attempts that have ended left behind."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    yield from staged_outputs(
        feed.snapshot(), feed.settings.output, feed.control, feed.kafka, feed.sinks, ended_before=tomorrow
    )
