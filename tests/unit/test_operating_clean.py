"""What staged output goes, and what stays: nothing open, nothing published, no last copy."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from tests.fakes import FakeTopic, FeedInMemory, feed_settings, log, sinks, span, topic

from kafka_ingest.errors import BatchStateError, OutputUnavailableError, StagedOutputUnusableError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offsets import Unavailable
from kafka_ingest.verbs.abandon import abandon
from kafka_ingest.verbs.clean import StagedOutput, clean_up, staged_outputs, staged_outputs_of_batch


def over(feed: FeedInMemory, *, ended_before: datetime | None = None) -> list[StagedOutput]:
    """Return what is staged and has ended, with the retention long gone by default."""
    ended_before = ended_before or datetime.now(UTC) + timedelta(days=1)
    known = feed.control.feed("orders")
    output = feed_settings().output
    return list(staged_outputs(known, output, feed.control, feed.kafka, sinks(feed.sink), ended_before=ended_before))


def clean(feed: FeedInMemory) -> list[StagedOutput]:
    return list(clean_up(over(feed), feed.control, sinks(feed.sink)))


def abandon_batch(feed: FeedInMemory, plan: BatchPlan) -> None:
    abandon(plan.batch_id, feed.control, sinks(feed.sink), reason="wrong topic", actor="ops")


def attempts(found: list[StagedOutput]) -> list[tuple[UUID, int]]:
    return [(staged.batch.batch_id, staged.attempt.attempt) for staged in found]


def test_what_a_committed_batch_left_behind_goes_and_what_it_published_stays(feed: FeedInMemory) -> None:
    plan = feed.committed()
    published = dict(feed.sink.published)

    assert attempts(clean(feed)) == [(plan.batch_id, 1)]

    assert feed.sink.documents == {}
    assert feed.sink.published == published
    assert over(feed) == []


def test_what_a_forgotten_spark_writes_after_the_clean_up_is_found_for_as_long_again(feed: FeedInMemory) -> None:
    plan = feed.planned()
    zombie = feed.open_attempt(plan.batch_id)
    document = feed.sink.documents[zombie.directory]
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    ended_before = datetime.now(UTC)
    clean(feed)
    assert over(feed, ended_before=ended_before) == []

    feed.sink.documents[zombie.directory] = document
    feed.spark_writes(zombie)

    assert attempts(over(feed, ended_before=ended_before)) == [(plan.batch_id, 1)]
    assert over(feed, ended_before=datetime.now(UTC)) == [], (
        "not forever: every clean-up would ask for all there ever were"
    )


def test_nothing_of_an_open_batch_goes(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.spark_writes(feed.open_attempt(plan.batch_id))
    assert clean(feed) == []
    feed.write(plan.batch_id)
    assert clean(feed) == []


def test_nothing_goes_before_its_time(feed: FeedInMemory) -> None:
    feed.committed()
    assert over(feed, ended_before=datetime.now(UTC) - timedelta(hours=1)) == []


def test_a_forgotten_attempt_that_nobody_pinned_goes_with_its_batch(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.open_attempt(plan.batch_id)
    zombie = feed.open_attempt(plan.batch_id)
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    feed.spark_writes(zombie)
    assert attempts(clean(feed)) == [(plan.batch_id, 1), (plan.batch_id, 2), (plan.batch_id, 3)]


def test_discarded_attempts_of_an_open_batch_go_and_the_new_one_stays(feed: FeedInMemory) -> None:
    plan = feed.written()
    feed.sink.damaged.add(feed.control.attempts(plan.batch_id)[0].directory)
    with pytest.raises(StagedOutputUnusableError):
        feed.commit(plan.batch_id)
    feed.spark_writes(feed.open_attempt(plan.batch_id))

    assert attempts(clean(feed)) == [(plan.batch_id, 1)]

    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    assert feed.sink.published_ranges() == sorted(plan.ranges)


def test_an_abandoned_batch_whose_records_kafka_holds_still_goes(feed: FeedInMemory) -> None:
    plan = feed.written()
    abandon_batch(feed, plan)
    assert [staged.kept for staged in clean(feed)] == [None]
    assert feed.sink.receipts == {}


@pytest.mark.parametrize(
    ("now", "lost"),
    [
        (topic(log(30, 100), log(0, 50)), str(span(0, 0, 30))),
        (topic(log(0, 100), log(0, 50), topic_id="made again"), str(span(0, 0, 100))),
        (topic(log(0, 100)), str(span(1, 0, 50))),
        (None, str(span(0, 0, 100))),
    ],
    ids=["retention", "topic made again", "partition gone", "topic gone"],
)
def test_the_last_copy_of_offsets_that_were_never_committed_stays_and_says_of_which(
    feed: FeedInMemory, now: FakeTopic | None, lost: str
) -> None:
    abandon_batch(feed, feed.written())
    feed.kafka.topics = {"orders": now} if now is not None else {}

    [staged] = clean(feed)

    assert staged.kept is not None
    assert f"the last copy of {lost}" in staged.kept
    assert feed.sink.staged == {staged.attempt.directory}
    assert attempts(over(feed)) == attempts([staged]), "asked again the next time"


def test_the_same_offsets_of_another_cluster_are_no_copy(feed: FeedInMemory) -> None:
    abandon_batch(feed, feed.written())
    feed.kafka.id = "cluster-B"
    assert "the last copy" in str(clean(feed)[0].kept)


def test_files_whose_offsets_a_later_batch_committed_go_whatever_kafka_holds(feed: FeedInMemory) -> None:
    abandoned = feed.written()
    abandon_batch(feed, abandoned)
    feed.committed()
    feed.kafka.topics = {}
    assert [staged.kept for staged in clean(feed)] == [None, None]


def test_an_attempt_without_a_valid_receipt_is_nobodys_last_copy(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.open_attempt(plan.batch_id)
    abandon_batch(feed, plan)
    feed.kafka.topics = {}
    assert [staged.kept for staged in clean(feed)] == [None]


@pytest.mark.parametrize("down", ["all of it", "a partition"])
def test_while_kafka_does_not_answer_nothing_that_it_may_have_lost_goes(feed: FeedInMemory, down: str) -> None:
    abandon_batch(feed, feed.written())
    if down == "all of it":
        feed.kafka.is_down = True
    else:
        feed.kafka.topics = {"orders": topic(log(0, 100), Unavailable("LEADER_NOT_AVAILABLE"))}
    assert "is not known" in str(clean(feed)[0].kept)
    assert feed.sink.staged


def test_an_output_that_does_not_answer_keeps_its_attempts_for_the_next_time(feed: FeedInMemory) -> None:
    feed.committed()
    feed.sink.is_down = True
    with pytest.raises(OutputUnavailableError):
        clean(feed)
    feed.sink.is_down = False
    assert [staged.kept for staged in clean(feed)] == [None]


def test_an_output_that_stops_answering_while_it_is_cleaned_up_is_a_reported_failure(feed: FeedInMemory) -> None:
    feed.committed()
    found = over(feed)
    feed.sink.is_down = True
    [staged] = clean_up(found, feed.control, sinks(feed.sink))
    assert staged.failed
    assert "could not be read" in str(staged.kept)


def test_a_crash_between_removing_and_saying_so_is_made_up_for_the_next_time(feed: FeedInMemory) -> None:
    feed.committed()
    [staged] = over(feed)
    feed.sink.staging.remove(staged.attempt.directory)
    assert [again.size_bytes for again in clean(feed)] == [0]
    assert over(feed) == []


# ── One batch, because an operator says so ────────────────────────────────────────────────────────────────────────────


def test_one_batchs_last_copy_goes_when_it_is_named(feed: FeedInMemory) -> None:
    plan = feed.written()
    abandon_batch(feed, plan)
    feed.kafka.topics = {}
    found = staged_outputs_of_batch(plan.batch_id, feed.control, sinks(feed.sink))
    assert [staged.kept for staged in clean_up(found, feed.control, sinks(feed.sink))] == [None]
    assert feed.sink.staged == set()


def test_an_open_batch_is_not_cleaned_up_by_name_either(feed: FeedInMemory) -> None:
    plan = feed.written()
    with pytest.raises(BatchStateError, match=r"is WRITTEN: its staged output is still needed.*kafka-ingest abandon"):
        staged_outputs_of_batch(plan.batch_id, feed.control, sinks(feed.sink))
    feed.commit(plan.batch_id)


def test_of_an_open_batch_its_discarded_attempts_can_be_named(feed: FeedInMemory) -> None:
    plan = feed.written()
    feed.control.discard_written(plan.batch_id, 1, reason="damaged", actor="committer")
    feed.open_attempt(plan.batch_id)
    found = staged_outputs_of_batch(plan.batch_id, feed.control, sinks(feed.sink))
    assert attempts(found) == [(plan.batch_id, 1)]
