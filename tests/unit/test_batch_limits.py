"""A written batch is judged by its receipt: what is not as its feed allows goes back to PLANNED, and nothing moves."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes import FeedInMemory, a_receipt, partition

from kafka_ingest.batches.check_written import check_limits
from kafka_ingest.batches.commit_batch import Committed, commit_batch
from kafka_ingest.batches.restore import RESTORED_BY
from kafka_ingest.errors import FieldsNeverFoundError, TooManyDeadLettersError, TooManyFilteredError
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.model.batch_limits import NO_LIMITS, BatchLimits, OnNeverFound
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.omissions import NeverFound
from kafka_ingest.model.receipt import Filtered, Receipt, WrittenFile
from kafka_ingest.model.summaries import ReadCounts

P0, P1 = partition(0), partition(1)
ALL = {"files": (), "rows_read": 150, "filtered": (Filtered(P0, 100), Filtered(P1, 50))}
USR = NeverFound("value", "usr", 20, ("user", "page"))
WARN, STOP = BatchLimits(on_never_found=OnNeverFound.WARN), BatchLimits(on_never_found=OnNeverFound.STOP)


def written(feed: FeedInMemory, **found: Any) -> BatchPlan:
    """Write the next batch, of whose records the job found this."""
    plan = feed.planned()
    attempt = feed.open_attempt(plan.batch_id)
    receipt = replace(feed.spark_writes(attempt), **found)
    feed.sink.receipts[attempt.directory] = receipt.as_bytes()
    feed.pin(attempt)
    return plan


def commit(feed: FeedInMemory, plan: BatchPlan, limits: BatchLimits = NO_LIMITS) -> Committed:
    return commit_batch(plan.batch_id, feed, group=None, actor="run 1", limits=limits)


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


def dead(at: TopicPartition, rows: int) -> WrittenFile:
    """Return a file of dead letters."""
    return WrittenFile.of_one("d.parquet", 1, rows, at, 0, rows - 1)


def test_one_stray_row_does_not_save_a_first_batch_of_which_nearly_all_records_are_filtered() -> None:
    first = ReadCounts(rows=1, filtered=4_999_999)
    assert NO_LIMITS.too_many_filtered(first, first)
    assert NO_LIMITS.too_many_filtered(ReadCounts(rows=1, filtered=99), ReadCounts(rows=1, filtered=99)) is None
    # What cannot be decoded is not there to be filtered.
    assert NO_LIMITS.too_many_filtered(half := ReadCounts(filtered=20, dead_letters=20), half)


def test_a_first_batch_of_which_all_records_are_dead_letters_is_refused_with_the_way_out(feed: FeedInMemory) -> None:
    """As where a name under `required` is mistyped."""
    found = {"files": (), "rows_read": 150, "dead_letters": (dead(P0, 100), dead(P1, 50))}
    plan = written(feed, **found)

    with pytest.raises(TooManyDeadLettersError, match=r"150 of its 150 records cannot be decoded") as error:
        commit(feed, plan)

    assert "limits.max_dead_letter_percent: 99 for an output's first batch" in str(error.value)
    assert (feed.sink.published, feed.stored_offsets()) == ({}, {P0: 0, P1: 0})


def test_all_records_of_a_first_batch_may_be_dead_letters_where_the_feed_says_so() -> None:
    all_dead = ReadCounts(dead_letters=20)
    assert NO_LIMITS.too_many_dead_letters(all_dead, all_dead)
    assert BatchLimits(max_dead_letters=20).too_many_dead_letters(all_dead, all_dead)
    assert BatchLimits(max_dead_letter_percent=100).too_many_dead_letters(all_dead, all_dead) is None
    some_dead = ReadCounts(rows=1, dead_letters=99)
    assert NO_LIMITS.too_many_dead_letters(some_dead, some_dead) is None


def test_batches_of_few_records_are_judged_together_until_there_are_twenty(feed: FeedInMemory) -> None:
    def next_batch() -> BatchPlan:
        return written(feed, files=(), rows_read=5, filtered=(Filtered(P0, 5),))

    for _ in range(3):
        commit(feed, next_batch())
        more_arrives(feed)
    with pytest.raises(TooManyFilteredError, match="5 of its 5 records were filtered"):
        commit(feed, next_batch())


def test_batches_of_few_records_that_others_stand_beside_go_on(feed: FeedInMemory) -> None:
    commit(feed, written(feed, files=(), rows_read=15, filtered=(Filtered(P0, 15),)))
    more_arrives(feed)
    feed.committed()
    more_arrives(feed)

    assert commit(feed, written(feed, files=(), rows_read=5, filtered=(Filtered(P0, 5),))).by_us


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


def test_a_first_batch_of_one_record_that_has_none_of_the_fields_is_stopped(feed: FeedInMemory) -> None:
    with pytest.raises(FieldsNeverFoundError, match=r"value\.usr: in 0 of 1 records?; there are: user, page"):
        commit(feed, written(feed, never_found=(replace(USR, records=1, is_part_found=False),)))


def test_of_a_schema_that_was_fetched_fields_may_be_in_no_record_but_not_all_of_them(feed: FeedInMemory) -> None:
    fetched = BatchLimits(fetched={"value"})
    with pytest.raises(FieldsNeverFoundError):
        commit(feed, written(feed, never_found=(replace(USR, is_part_found=False),)), fetched)

    committed = commit(feed, written(feed, never_found=(USR,)), fetched)
    assert (committed.by_us, committed.never_found) == (True, 0)
    assert fetched.to_name([USR, key := replace(USR, part="key", records=3)]) == [key]


def test_a_restored_batch_is_never_refused(feed: FeedInMemory) -> None:
    plan = written(feed, **ALL, never_found=(USR,))
    batch = replace(feed.control.batch(plan.batch_id), planned_by=f"{RESTORED_BY}an operator")

    check_limits(batch, a_receipt(plan, **ALL, never_found=(USR,)), BatchLimits(max_filtered_percent=0), feed.control)


def test_a_receipt_keeps_what_was_never_found_and_one_without_it_is_read_and_written_as_before() -> None:
    receipt = a_receipt(FeedInMemory().planned(), never_found=(USR, replace(USR, field="a.b", is_part_found=False)))

    assert Receipt.from_bytes(receipt.as_bytes()) == receipt
    assert "never_found" not in replace(receipt, never_found=()).as_document()
    assert receipt.of_dead_letters().never_found == ()
