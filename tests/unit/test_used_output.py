"""An output whose storage is away is not the folder in its place.

Nothing is written there, or taken for damage or loss.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest
from tests.fakes import SOME_DAY, FeedInMemory, InMemorySink, a_plan, feed_settings, log, sinks, span, topic
from tests.outputs import parquet_at

from kafka_ingest.batches.known_output import check_output_there
from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.model.batch import Batch, BatchKind, BatchPlan, BatchState
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.clean import staged_outputs

AWAY = "Is the storage mounted"


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed with a published batch, and more to read."""
    made = FeedInMemory()
    made.committed()
    made.kafka.topics = {"orders": topic(log(0, 200), log(0, 50))}
    return made


def storage_goes_away(feed: FeedInMemory) -> InMemorySink:
    """Let a folder be in the output's place, as it was before the storage was mounted; return the output."""
    there, feed.sink = feed.sink, InMemorySink()
    feed.sink.publisher.prepare()
    return there


def committing(feed: FeedInMemory) -> BatchPlan:
    return feed.open_in(BatchState.COMMITTING)


def abandon_batch(feed: FeedInMemory, plan: BatchPlan, *, lost: bool = False) -> BatchState:
    return abandon(
        plan.batch_id, feed.control, sinks(feed.sink), reason="the disk died", actor="ops", output_is_lost=lost
    )


def test_a_written_batch_waits_for_its_storage_and_its_files_are_not_called_damaged(feed: FeedInMemory) -> None:
    plan = feed.written()
    there = storage_goes_away(feed)

    with pytest.raises(OutputUnavailableError, match=AWAY):
        feed.commit(plan.batch_id)

    assert feed.control.batch(plan.batch_id).state is BatchState.WRITTEN
    feed.sink = there
    assert feed.commit(plan.batch_id).batch.state is BatchState.COMMITTED


def test_a_batch_that_may_be_published_is_not_abandoned_while_nobody_can_look(feed: FeedInMemory) -> None:
    plan = committing(feed)
    there = storage_goes_away(feed)

    with pytest.raises(OutputUnavailableError, match=f"{AWAY}.*abandon BATCH --lost-output"):
        abandon_batch(feed, plan)
    with pytest.raises(OutputUnavailableError, match=AWAY):
        feed.commit(plan.batch_id)

    assert feed.control.batch(plan.batch_id).state is BatchState.COMMITTING
    feed.sink = there
    assert feed.commit(plan.batch_id).batch.state is BatchState.COMMITTED


def test_where_the_output_is_gone_for_good_a_batch_is_abandoned_and_the_feed_continues_elsewhere(
    feed: FeedInMemory,
) -> None:
    plan = committing(feed)
    storage_goes_away(feed)

    assert abandon_batch(feed, plan, lost=True) is BatchState.COMMITTING

    new = feed_settings(output=parquet_at(feed.settings.output.path.with_name("elsewhere")))
    feed.settings, feed.sink = new, InMemorySink(new.output.path)
    feed.committed()
    assert feed.sink.published_ranges() == sorted(plan.ranges)


def test_nothing_is_called_cleaned_up_while_the_storage_is_away(feed: FeedInMemory) -> None:
    there = storage_goes_away(feed)
    later = datetime.now(UTC) + timedelta(days=1)

    def over() -> list[object]:
        known = feed.control.feed("orders")
        return list(
            staged_outputs(known, feed.settings.output, feed.control, feed.kafka, sinks(feed.sink), ended_before=later)
        )

    with pytest.raises(OutputUnavailableError, match=AWAY):
        over()
    feed.sink = there
    assert len(over()) == 1


def test_before_anything_was_published_any_place_will_do() -> None:
    fresh = FeedInMemory()
    fresh.planned()
    storage_goes_away(fresh)
    assert fresh.plan().batch is not None


# A batch that replaces rows or replays dead letters does so in an output that has a live batch or a backfill, too.
@pytest.mark.parametrize("kind", [each for each in BatchKind if each not in {BatchKind.REPLACE, BatchKind.REPLAY}])
def test_an_output_is_known_by_the_newest_batch_of_any_kind_that_was_published_in_it(
    feed: FeedInMemory, kind: BatchKind
) -> None:
    elsewhere = Path("/data/elsewhere")
    feed_id = feed.control.feed("orders").feed_id
    target = feed_settings(output=parquet_at(elsewhere))
    plan = a_plan(
        span(0, 0, 5),
        kind=kind,
        feed_id=feed_id,
        batch_id=UUID(int=2**127),
        output=parquet_at(elsewhere),
    )
    with feed.control.transaction() as state:
        state.batches[plan.batch_id] = Batch("orders", plan, BatchState.COMMITTED, "run 1", SOME_DAY)
    there, away = InMemorySink(elsewhere), InMemorySink(elsewhere)
    there.published[plan.batch_id] = plan

    check_output_there(feed_id, target.output, feed.control, sinks(there))
    with pytest.raises(OutputUnavailableError, match=f"batch {plan.batch_id} was published in.*{AWAY}"):
        check_output_there(feed_id, target.output, feed.control, sinks(away))
    # The feed's own output is that of its live batch, whatever was published elsewhere.
    check_output_there(feed_id, parquet_at(Path("/data/third")), feed.control, sinks(away))
