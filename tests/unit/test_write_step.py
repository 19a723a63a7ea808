"""The write step's one loop: attempts until one is pinned, or a named error; each caller only runs Spark."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import FeedInMemory, log, topic

from kafka_ingest.assembly import FeedParts
from kafka_ingest.errors import InstallationError, RangeNotInLogError, SchemaIdsUnknownError, SparkFailedError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.decoding import RAW
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.spark_submission import SparkMaster
from kafka_ingest.write_step import Opened, write_batch

FEED = Feed.model_validate(
    {
        "name": "orders",
        "kafka": {"topics": ["orders"]},
        "sink": {"format": "parquet", "path": "/data/orders"},
        "value": {"format": "json", "registry": "schemas"},
    }
)


class Spark:
    """Runs attempts that fail with these reasons, and then one that writes; ``loses``: the topic after a failure."""

    def __init__(
        self, feed: FeedInMemory, *failures: str, error: type[Exception] = SparkFailedError, loses: Any = None
    ) -> None:
        self.feed, self.failures, self.error, self.loses = feed, list(failures), error, loses
        self.run: list[int] = []
        self.failed = 0
        self.asked_for: list[dict[str, set[int]]] = []

    def submit(self, opened: Sequence[Opened]) -> None:
        [attempt] = [each.attempt for each in opened]
        self.run.append(attempt.attempt)
        if self.failures:
            self.feed.sink.failures[attempt.directory] = self.failures.pop(0)
            if self.loses is not None:
                self.feed.kafka.topics["orders"] = self.loses
            raise self.error("Spark ended with exit code 1")
        self.feed.spark_writes(attempt)

    def note_failure(self) -> None:
        self.failed += 1

    def frozen(self, _decoding: Any, _topics: Any, found: dict[str, set[int]]) -> Any:
        self.asked_for.append(found)
        return RAW

    def write(self) -> BatchState:
        parts = FeedParts(FEED, self.feed.control, lambda _: None, {})
        schemas = SimpleNamespace(frozen=self.frozen, columns=lambda _: None)
        master = SparkMaster("spark_default", "local[2]")
        vars(parts).update(kafka=self.feed.kafka, sinks=self.feed.sinks, master=master, schemas=schemas)
        batch_id = self.feed.planned().batch_id
        write_batch(parts, batch_id, self.submit, actor="run 1", on_failure=self.note_failure)
        return self.feed.control.batch(batch_id).state


IDS = 'UNKNOWN_SCHEMA_IDS: {"value": [%d]}'


def test_an_attempt_that_spark_writes_is_pinned_and_a_second_run_needs_no_spark(feed: FeedInMemory) -> None:
    spark = Spark(feed)
    assert spark.write() is BatchState.WRITTEN
    assert spark.write() is BatchState.WRITTEN
    assert (spark.run, spark.failed) == ([1], 0)


def test_where_spark_finds_schema_ids_the_next_attempt_has_asked_for_them_and_none_counts_as_failed(
    feed: FeedInMemory,
) -> None:
    spark = Spark(feed, IDS % 7, IDS % 8)
    assert spark.write() is BatchState.WRITTEN
    assert (spark.run, spark.failed) == ([1, 2, 3], 0)
    assert spark.asked_for == [{}, {"value": {7}}, {"value": {7, 8}}]


def test_where_it_finds_others_again_and_again_the_third_attempt_is_the_last(feed: FeedInMemory) -> None:
    spark = Spark(feed, *(IDS % number for number in range(9)))
    with pytest.raises(SchemaIdsUnknownError, match="attempt 3 of batch"):
        spark.write()
    assert (spark.run, spark.failed) == ([1, 2, 3], 1)


def test_a_failure_is_named_by_its_cause_and_else_by_sparks_own_words(feed: FeedInMemory) -> None:
    with pytest.raises(SparkFailedError, match="Spark ended with exit code 1"):
        Spark(feed, "java.io.IOException: no space").write()
    spark = Spark(feed, "no such offset", loses=topic(log(40, 100), log(10, 50)))
    with pytest.raises(RangeNotInLogError, match="begins below the log start 40"):
        spark.write()
    assert spark.failed == 1


def test_a_lack_of_memory_is_read_from_all_that_spark_said_and_not_only_from_its_end(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured: list[object] = []
    monkeypatch.setattr("kafka_ingest.write_step.hold_too_large", lambda batch, *_: measured.append(batch))
    spark = Spark(feed, "")

    def submit(_opened: object) -> None:
        raise SparkFailedError("Spark failed; its end: …") from RuntimeError("Lost executor 0: exited with code 137")

    monkeypatch.setattr(spark, "submit", submit)
    with pytest.raises(SparkFailedError):
        spark.write()
    assert len(measured) == 1


def test_what_no_other_try_can_mend_counts_as_failed_too(feed: FeedInMemory) -> None:
    spark = Spark(feed, "", error=InstallationError)
    with pytest.raises(InstallationError):
        spark.write()
    assert (spark.run, spark.failed) == ([1], 1)


def test_ids_that_a_crash_cut_off_are_left_to_the_next_try(feed: FeedInMemory) -> None:
    spark = Spark(feed, 'UNKNOWN_SCHEMA_IDS: {"value": [7, ')
    with pytest.raises(SchemaIdsUnknownError):
        spark.write()
    assert spark.run == [1]
