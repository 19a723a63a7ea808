"""A written batch is judged by its receipt: what is not as its feed allows goes back to PLANNED, and nothing moves."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import FeedInMemory, a_receipt, partition, sinks

from kafka_ingest.backfilling.restore import RESTORED_BY
from kafka_ingest.committing.check_limits import check_limits
from kafka_ingest.committing.commit_batch import Committed, commit_batch
from kafka_ingest.errors import FieldsNeverFoundError, TooManyFilteredError
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.model.batch_limits import NO_LIMITS, BatchLimits, OnNeverFound
from kafka_ingest.model.never_found import NeverFound
from kafka_ingest.model.receipt import Filtered, Receipt

P0, P1 = partition(0), partition(1)
ALL = {"files": (), "rows_read": 150, "filtered": (Filtered(P0, 100), Filtered(P1, 50))}
USR = NeverFound("value", "usr", 20, ("user", "page"))
WARN, STOP = BatchLimits(on_never_found=OnNeverFound.WARN), BatchLimits(on_never_found=OnNeverFound.STOP)


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed whose topic holds orders-0[0, 100) and orders-1[0, 50)."""
    return FeedInMemory()


def written(feed: FeedInMemory, **found: Any) -> BatchPlan:
    """Write the next batch, of whose records the job found this."""
    plan = feed.planned()
    attempt = feed.open_attempt(plan.batch_id)
    receipt = replace(feed.spark_writes(attempt), **found)
    feed.sink.receipts[attempt.directory] = receipt.as_bytes()
    feed.pin(attempt)
    return plan


def commit(feed: FeedInMemory, plan: BatchPlan, limits: BatchLimits = NO_LIMITS) -> Committed:
    return commit_batch(
        plan.batch_id, feed.control, feed.kafka, sinks(feed.sink), group=None, actor="run 1", limits=limits
    )


def more_arrives(feed: FeedInMemory) -> None:
    """Let each partition have 100 records more."""
    for one in feed.kafka.topics["orders"].logs.values():
        object.__setattr__(one, "high_watermark", one.high_watermark + 100)
        object.__setattr__(one, "last_stable_offset", one.last_stable_offset + 100)


def test_a_first_batch_of_which_all_records_are_filtered_is_refused_with_the_way_out(feed: FeedInMemory) -> None:
    plan = written(feed, **ALL)

    with pytest.raises(TooManyFilteredError, match=r"150 of its 150 records were filtered") as error:
        commit(feed, plan)

    assert (error.value.exit_code, error.value.code) == (3, "TOO_MANY_FILTERED")
    assert "limits.max_filtered_percent: 100" in str(error.value)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED
    assert (feed.sink.published, feed.stored_offsets()) == ({}, {P0: 0, P1: 0})
    commit(feed, written(feed, **ALL), BatchLimits(max_filtered_percent=100))
    assert feed.stored_offsets() == {P0: 100, P1: 50}


def test_a_later_batch_may_be_filtered_whole_unless_the_feed_has_a_limit(feed: FeedInMemory) -> None:
    feed.committed()
    more_arrives(feed)
    found = {"files": (), "rows_read": 200, "filtered": (Filtered(P0, 100), Filtered(P1, 100))}

    with pytest.raises(TooManyFilteredError, match="max_filtered_percent: 99"):
        commit(feed, written(feed, **found), BatchLimits(max_filtered_percent=99))

    commit(feed, written(feed, **found))
    assert feed.stored_offsets() == {P0: 200, P1: 150}


def test_a_batch_of_few_records_is_not_the_first_that_counts(feed: FeedInMemory) -> None:
    some = {"files": (), "rows_read": 19, "filtered": (Filtered(P0, 19),)}
    commit(feed, written(feed, **some))
    more_arrives(feed)
    found = {"files": (), "rows_read": 200, "filtered": (Filtered(P0, 100), Filtered(P1, 100))}

    with pytest.raises(TooManyFilteredError):
        commit(feed, written(feed, **found))


def test_fields_that_no_record_of_the_first_batch_has_stop_it_and_are_named_with_those_that_are_there(
    feed: FeedInMemory,
) -> None:
    plan = written(feed, never_found=(USR,))

    with pytest.raises(FieldsNeverFoundError, match=r"value\.usr: in 0 of 20 records; there are: user, page") as error:
        commit(feed, plan)

    assert (error.value.exit_code, error.value.code) == (3, "FIELDS_NEVER_FOUND")
    assert "on_never_found: warn" in str(error.value)
    assert feed.control.batch(plan.batch_id).state is BatchState.PLANNED
    assert commit(feed, written(feed, never_found=(USR,)), WARN).never_found == 1


def test_fields_that_no_record_of_a_later_batch_has_are_logged_and_stop_it_where_the_feed_says_so(
    feed: FeedInMemory, caplog: pytest.LogCaptureFixture
) -> None:
    feed.committed()
    more_arrives(feed)

    with pytest.raises(FieldsNeverFoundError):
        commit(feed, written(feed, never_found=(USR,)), STOP)

    assert commit(feed, written(feed, never_found=(USR,))).by_us
    assert "value.usr: in 0 of 20 records" in caplog.text


def test_in_fewer_than_twenty_records_no_field_is_missed(feed: FeedInMemory) -> None:
    assert commit(feed, written(feed, never_found=(replace(USR, records=19),)), STOP).by_us


def test_of_a_schema_that_was_fetched_fields_may_be_in_no_record_but_not_all_of_them(feed: FeedInMemory) -> None:
    fetched = BatchLimits(fetched={"value"})
    with pytest.raises(FieldsNeverFoundError):
        commit(feed, written(feed, never_found=(replace(USR, is_alone=False),)), fetched)

    assert commit(feed, written(feed, never_found=(USR,)), fetched).by_us


def test_a_restored_batch_is_never_refused(feed: FeedInMemory) -> None:
    plan = written(feed, **ALL, never_found=(USR,))
    batch = replace(feed.control.batch(plan.batch_id), planned_by=f"{RESTORED_BY}an operator")

    check_limits(batch, a_receipt(plan, **ALL, never_found=(USR,)), BatchLimits(max_filtered_percent=0), feed.control)


def test_a_receipt_keeps_what_was_never_found_and_one_without_it_is_read_and_written_as_before() -> None:
    receipt = a_receipt(FeedInMemory().planned(), never_found=(USR, replace(USR, field="a.b", is_alone=False)))

    assert Receipt.from_bytes(receipt.as_bytes()) == receipt
    assert "never_found" not in replace(receipt, never_found=()).as_document()
    assert receipt.of_dead_letters().never_found == ()
