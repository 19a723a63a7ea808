"""Batches expire: what readers still see by another batch does not, and what came back is not called expired."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.fakes import FeedInMemory, InMemoryControlTables, log, partition, sinks, span, topic

from kafka_ingest.batches.backfill_request import BackfillRequest, OpenGaps
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.gap import RemovalCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.published_output import FilesState
from kafka_ingest.verbs.adopt import adopt as adopt_output
from kafka_ingest.verbs.adopt import decide_adoption
from kafka_ingest.verbs.expire import ExpireDecision, decide_expiry, expire, time_before
from kafka_ingest.verbs.lost import decide_lost, record_lost
from kafka_ingest.verbs.reset import decide_reset, reset
from kafka_ingest.verbs.reset_target import ToOffsets

FAR_AWAY = datetime(2100, 1, 1, tzinfo=UTC)


class Killed(BaseException):
    """The process dies."""


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed of two batches: orders-0[0, 100) with orders-1[0, 50), then orders-0[100, 130)."""
    return FeedInMemory.of_two_batches()


def oldest(feed: FeedInMemory) -> UUID:
    return min(feed.sink.published)


def adopt(feed: FeedInMemory) -> None:
    decision = decide_adoption(feed.settings, feed.control, feed.sink)
    assert not decision.is_nothing
    adopt_output(decision, feed.control, feed.sink, reason="the disk died", actor="operator")


def decided(feed: FeedInMemory) -> ExpireDecision:
    return decide_expiry(feed.settings, FAR_AWAY, feed.control, sinks(feed.sink))


def let_expire(feed: FeedInMemory) -> list[UUID]:
    """Let all batches expire that may."""
    return list(expire(decided(feed), feed.control, feed.sink, reason="a year", actor="operator"))


def expired(feed: FeedInMemory) -> list[OffsetRange]:
    """Return what coverage shows as expired."""
    rows = feed.control.coverage("orders")
    assert rows is not None
    return [each for found in coverage_of(rows).values() for each in found.expired]


def lose_first_file(feed: FeedInMemory) -> None:
    """Lose the file of orders-0[0, 100), write that down."""
    batch_id = oldest(feed)
    file = feed.sink.published[batch_id].receipt.files[0]
    feed.sink.salvage.set_aside(batch_id, [file.name])
    record_lost(
        decide_lost("orders", batch_id, feed.control, sinks(feed.sink)),
        feed.control,
        sinks(feed.sink),
        reason="a disk died",
        actor="operator",
    )


def fill_gaps(feed: FeedInMemory) -> None:
    parts = (feed.settings, feed)
    for plan in plan_backfill(BackfillRequest(OpenGaps(), {}), *parts, actor="operator").chunks:
        feed.write(plan.batch_id)
        feed.commit(plan.batch_id)


def test_files_that_came_back_are_not_called_expired_and_can_expire(feed: FeedInMemory) -> None:
    feed.sink.gone.add(oldest(feed))
    feed.control = InMemoryControlTables()
    adopt(feed)
    assert expired(feed) == [span(0, 0, 100), span(1, 0, 50)]
    assert feed.sink.removals[oldest(feed)].cause is RemovalCause.GONE

    feed.sink.gone.clear()
    adopt(feed)
    assert expired(feed) == []
    assert decide_adoption(feed.settings, feed.control, feed.sink).is_nothing

    assert let_expire(feed) == [oldest(feed)]
    assert feed.sink.removals[oldest(feed)].cause is RemovalCause.EXPIRED
    assert expired(feed) == [span(0, 0, 100), span(1, 0, 50)]
    assert decided(feed).begun == []


def test_records_that_a_backfill_brought_back_do_not_expire_with_the_batch_that_lost_them(feed: FeedInMemory) -> None:
    lose_first_file(feed)
    fill_gaps(feed)
    decision = decided(feed)
    old = [published for published in decision.batches if published.plan.batch_id == oldest(feed)]
    list(expire(replace(decision, batches=old), feed.control, feed.sink, reason="a year", actor="operator"))
    assert expired(feed) == [span(1, 0, 50)]
    assert decided(feed).begun == []

    let_expire(feed)
    assert expired(feed) == [span(0, 0, 100), span(1, 0, 50)]


def test_lost_control_tables_know_again_that_a_batch_expired_whose_file_had_been_lost(feed: FeedInMemory) -> None:
    lose_first_file(feed)
    feed.kafka.topics["orders"] = topic(log(0, 140), log(0, 50))
    feed.committed()
    let_expire(feed)
    known = expired(feed)
    assert known == [span(0, 100, 130), span(1, 0, 50)]

    feed.control = InMemoryControlTables()
    adopt(feed)
    assert expired(feed) == known
    assert [gap.offset_range for gap in feed.control.coverage("orders").gaps] == [span(0, 0, 100)]


def test_what_a_newer_batch_read_again_does_not_expire_with_the_older_one(feed: FeedInMemory) -> None:
    target = ToOffsets({partition(0): 60})
    decision = decide_reset(target, {}, feed.settings, feed.control, feed.kafka, reason="a bad deploy")
    reset(decision, feed.control, reason="a bad deploy", actor="operator")
    newest = feed.committed()
    assert newest.ranges == (span(0, 60, 130),)
    let_expire(feed)
    assert expired(feed) == [span(0, 0, 60), span(1, 0, 50)]
    assert decided(feed).begun == []

    feed.control = InMemoryControlTables()
    adopt(feed)
    assert expired(feed) == [span(0, 0, 60), span(1, 0, 50)]


def test_a_batch_without_files_whose_mark_was_the_last_step_before_a_crash_is_finished_by_the_next_call(
    feed: FeedInMemory,
) -> None:
    feed.sink.gone.add(oldest(feed))
    [published] = decided(feed).batches
    assert published.files.state is FilesState.GONE

    def die(*_: object, **__: object) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feed.control, "record_removed", die)
        with pytest.raises(Killed):
            let_expire(feed)
    assert expired(feed) == []

    assert [each.plan.batch_id for each in decided(feed).begun] == [oldest(feed)]
    let_expire(feed)
    assert expired(feed) == [span(0, 0, 100), span(1, 0, 50)]
    assert decided(feed).begun == []


def test_a_time_that_is_in_no_year_of_utc_is_refused_as_one_that_cannot_be_read() -> None:
    assert time_before("2026-01-31T12:00:00+02:00") == datetime(2026, 1, 31, 10, tzinfo=UTC)
    for text in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        with pytest.raises(WrongUseError, match="expected a date, a time with a zone, or a duration"):
            time_before(text)
