"""What the page shows of a batch's output and staging."""

import pytest
from tests.fakes import FeedInMemory, sinks

from kafka_ingest.errors import InvalidReceiptError, OutputUnavailableError
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.page.sources import END_OF_FAILURE, BatchFiles, LastWords, batch_files


def found(feed: FeedInMemory, plan: BatchPlan) -> BatchFiles:
    batch_id = plan.batch_id
    return batch_files(feed.control.batch(batch_id), feed.control.attempts(batch_id), sinks(feed.sink))


def test_the_files_of_a_committed_batch_are_those_of_its_published_receipt_and_of_a_written_one_the_staged_ones(
    feed: FeedInMemory,
) -> None:
    plan = feed.planned()
    assert found(feed, plan) == BatchFiles((), 0, {})
    feed.write(plan.batch_id)
    written = found(feed, plan)
    assert (written.total, sum(file.rows for file in written.files)) == (2, 150)
    feed.commit(plan.batch_id)
    assert found(feed, plan) == written


def test_what_spark_said_is_shown_of_attempts_that_failed_and_only_its_end(feed: FeedInMemory) -> None:
    plan = feed.planned()
    failed = feed.open_attempt(plan.batch_id)
    feed.sink.failures[failed.directory] = "OutOfMemoryError\x1b[0m"
    assert found(feed, plan).failures == {failed.attempt: LastWords("OutOfMemoryError\\x1b[0m")}
    feed.sink.failures[failed.directory] = "x" * END_OF_FAILURE + "OutOfMemoryError"
    shown = found(feed, plan).failures[failed.attempt]
    assert (len(shown.text), shown.text[-17:], shown.is_cut) == (END_OF_FAILURE, "xOutOfMemoryError", True)


def test_output_that_cannot_be_looked_at_and_a_receipt_that_is_damaged_are_named_errors(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.write(plan.batch_id)
    [attempt] = feed.control.attempts(plan.batch_id)
    feed.sink.receipts[attempt.directory] = b"[]"
    with pytest.raises(InvalidReceiptError, match="expected a JSON object, found list"):
        found(feed, plan)
    feed.sink.is_down = True
    with pytest.raises(OutputUnavailableError):
        found(feed, plan)


def test_a_committed_batch_without_a_receipt_is_not_one_without_files(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = feed.planned()
    feed.write(plan.batch_id)
    feed.commit(plan.batch_id)
    monkeypatch.setattr(type(feed.sink.archive), "receipt", lambda *_: None)
    assert found(feed, plan).is_lost
