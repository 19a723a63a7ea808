"""Rows that an output refuses become dead letters by another attempt, whatever happens in between."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes import FakeKafkaCluster, FeedInMemory, log, topic

from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches import refused_rows
from kafka_ingest.batches.commit_batch import commit_batch
from kafka_ingest.errors import (
    BatchStateError,
    KafkaUnavailableError,
    OutputConflictError,
    OutputNotUsableError,
    OutputUnavailableError,
    StagedOutputUnusableError,
    TooManyDeadLettersError,
)
from kafka_ingest.model.batch import AttemptDocument, AttemptState, BatchState, sha256
from kafka_ingest.model.batch_limits import BatchLimits
from kafka_ingest.model.decoding import Decoding
from kafka_ingest.model.offsets import Retention, TopicPartition, Unavailable
from kafka_ingest.model.omissions import RefusedRows
from kafka_ingest.model.place import FailureCode
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.settings.feed import Feed
from kafka_ingest.spark_launch.spark_submission import SparkMaster
from kafka_ingest.write_step import Opened, write_batch

SINK = {"format": "postgresql", "path": "/data/orders", "conn_id": "warehouse", "table": "shop.orders"}
ORDERS = TopicPartition("orders", 0)
COMPACTED = Retention(None, by_size=False, compacts=True)


class Crash(BaseException):
    """The process is gone."""


class Table:
    """A feed in memory whose output refuses some offsets of orders-0 by a constraint; others ``later``, one a try."""

    def __init__(self, *refuses: int, later: Sequence[int] = (), on_refused: str = "dead_letter") -> None:
        self.feed = FeedInMemory()
        self.refuses, self.later, self.tried = set(refuses), list(later), 0
        self.feed.sink.refused = self.refused
        named = {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {**SINK, "on_refused": on_refused}}
        self.parts = FeedParts(Feed.model_validate(named), self.feed.control, lambda _: None, {})
        master = SparkMaster("spark_default", "local[2]")
        schemas = SimpleNamespace(frozen=lambda decoding, *_: decoding, columns=lambda _: None)
        vars(self.parts).update(kafka=self.feed.kafka, sinks=self.feed.sinks, master=master, schemas=schemas)
        self.runs = 0

    def refused(self, directory: Path, _receipt: Receipt) -> list[RefusedRows]:
        self.tried += 1
        self.refuses.update(self.later[:1])
        del self.later[:1]
        offsets = tuple(sorted(self.refuses - self.dead_in(directory)))
        return [RefusedRows(ORDERS, "UniqueViolation, constraint once", offsets)] if offsets else []

    def dead_in(self, directory: Path) -> set[int]:
        """Return which offsets an attempt makes dead letters of."""
        content = self.feed.sink.documents.get(directory)
        if content is None:
            return set()  # it was not opened any more
        refused = AttemptDocument.from_bytes(content, sha256(content)).decode.refused
        return {offset for each in refused for offset in each.offsets}

    def submit(self, opened: Sequence[Opened]) -> None:
        self.runs += 1
        for each in opened:
            self.feed.spark_writes(each.attempt)

    def write(self) -> BatchState:
        """Run the plan and the write task."""
        self.batch_id = self.feed.planned().batch_id
        write_batch(self.parts, self.batch_id, self.submit, actor="run 1")
        return self.state

    @property
    def state(self) -> BatchState:
        return self.feed.control.batch(self.batch_id).state

    @property
    def attempts(self) -> list[tuple[AttemptState, set[int]]]:
        """Return the state of each attempt, and which offsets it makes dead letters of."""
        return [(each.state, self.dead_in(each.directory)) for each in self.feed.control.attempts(self.batch_id)]


def test_rows_that_the_output_refuses_are_dead_letters_of_the_next_attempt_which_alone_is_pinned() -> None:
    table = Table(3, 7)
    assert table.write() is BatchState.WRITTEN
    assert table.attempts == [(AttemptState.DISCARDED, set()), (AttemptState.PINNED, {3, 7})]
    said = table.feed.control.attempts(table.batch_id)[0].reason
    assert said == (
        "the output refuses 2 rows, which become dead letters: orders-0@3 and 1 more (UniqueViolation, constraint once)"
    )
    assert (table.write(), table.runs) == (BatchState.WRITTEN, 2)


def test_where_the_feed_says_stop_no_row_is_tried_and_what_was_refused_before_is_a_row_again() -> None:
    table = Table(3, on_refused="stop")
    assert table.write() is BatchState.WRITTEN
    assert (table.tried, table.runs) == (0, 1)
    table = Table(3, later=[4, 5, 6, 7])
    with pytest.raises(StagedOutputUnusableError):
        table.write()
    vars(table.parts)["feed"] = Table(on_refused="stop").parts.feed
    assert table.write() is BatchState.WRITTEN
    assert table.attempts[-1] == (AttemptState.PINNED, set())


def test_what_is_refused_in_the_meantime_is_added_to_what_was_refused_before() -> None:
    table = Table(3, later=[4])
    assert table.write() is BatchState.WRITTEN
    assert [dead for _, dead in table.attempts] == [set(), {3, 4}]


def test_an_output_that_refuses_others_each_time_stops_the_third_attempt_and_the_next_run_has_them_all() -> None:
    table = Table(later=[1, 2, 3])
    with pytest.raises(StagedOutputUnusableError, match=r"refuses other rows each time.*Run it again"):
        table.write()
    assert table.state is BatchState.PLANNED
    assert table.write() is BatchState.WRITTEN
    assert table.attempts[-1] == (AttemptState.PINNED, {1, 2, 3})


def test_where_refused_rows_are_too_many_dead_letters_the_error_says_so_and_the_next_run_tries_them_again() -> None:
    table = Table(*range(10))
    limits = BatchLimits(max_dead_letters=5)

    def submit(opened: Sequence[Opened]) -> None:
        Table.submit(table, opened)
        for each in opened:
            if dead := len(table.dead_in(each.attempt.directory)):
                receipts = table.feed.sink.receipts
                receipt = Receipt.from_bytes(receipts[each.attempt.directory])
                letters = WrittenFile.of_one("d.parquet", 1, dead, ORDERS, 0, dead - 1)
                rows = WrittenFile.of_one("r.parquet", 1, 100 - dead, ORDERS, dead, 99)
                written = replace(receipt, files=(rows, receipt.files[1]), dead_letters=(letters,))
                receipts[each.attempt.directory] = written.as_bytes()

    table.submit = submit  # type: ignore[method-assign]
    assert table.write() is BatchState.WRITTEN
    with pytest.raises(TooManyDeadLettersError, match=r"or their rows are refused \(REFUSED_BY_OUTPUT\).*or the table"):
        commit_batch(table.batch_id, table.feed, group=None, actor="run 1", limits=limits)
    table.refuses.clear()
    assert table.write() is BatchState.WRITTEN
    assert table.attempts[-1] == (AttemptState.PINNED, set())
    commit_batch(table.batch_id, table.feed, group=None, actor="run 2", limits=limits)
    assert table.state is BatchState.COMMITTED


def test_an_attempt_that_died_does_not_hide_what_was_refused_before() -> None:
    table = Table(3)
    mend = crash_at(table.feed, "spark_writes", 2, after=False)
    with pytest.raises(Crash):
        table.write()
    mend()
    table.feed.sink.refused = lambda *_: ()
    assert table.write() is BatchState.WRITTEN
    assert table.attempts[-1] == (AttemptState.PINNED, {3})


def crash_at(owner: object, name: str, number: int, *, after: bool) -> Callable[[], None]:
    """Let the process die at a call of a method, before or after it is done; return what mends that."""
    real, calls = getattr(owner, name), [0]

    def dying(*args: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] == number and not after:
            raise Crash
        result = real(*args, **named)
        if calls[0] == number:
            raise Crash
        return result

    setattr(owner, name, dying)
    return lambda: setattr(owner, name, real)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("part", "call", "number"),
    [
        ("control", "pin", 1),
        ("sink", "refused", 1),
        ("sink", "note_failure", 1),
        ("control", "discard_written", 1),
        ("control", "open_attempt", 2),
        ("sink", "open_attempt", 2),
        ("control", "pin", 2),
        ("sink", "refused", 2),
    ],
)
def test_a_crash_at_any_step_ends_with_the_refused_rows_as_dead_letters_of_the_one_attempt_that_counts(
    part: str, call: str, number: int, *, after: bool
) -> None:
    table = Table(3, 7)
    mend = crash_at(getattr(table.feed, part), call, number, after=after)
    with pytest.raises(Crash):
        table.write()
    mend()
    assert table.write() is BatchState.WRITTEN
    assert [dead for state, dead in table.attempts if state is AttemptState.PINNED] == [{3, 7}]
    table.feed.commit(table.batch_id)
    assert table.state is BatchState.COMMITTED


def test_an_attempt_that_was_discarded_is_not_pinned_when_its_spark_ends_a_second_time() -> None:
    table = Table(3)
    table.write()
    first = table.feed.control.attempts(table.batch_id)[0]
    table.feed.spark_writes(first)
    assert table.feed.pin(first).pinned_attempt == 2
    table = Table(3)
    mend = crash_at(table.feed.control, "discard_written", 1, after=True)
    with pytest.raises(Crash):
        table.write()
    mend()
    first = table.feed.control.attempts(table.batch_id)[0]
    table.feed.spark_writes(first)
    with pytest.raises(BatchStateError, match=r"is PLANNED \(the output refuses 1 row"):
        table.feed.pin(first)


def test_a_batch_that_another_process_commits_meanwhile_is_left_to_it() -> None:
    table = Table(3)
    asked = table.refused

    def committed_meanwhile(directory: Path, receipt: Receipt) -> list[RefusedRows]:
        table.feed.commit(table.batch_id)
        return asked(directory, receipt)

    table.feed.sink.refused = committed_meanwhile
    assert (table.write(), table.runs) == (BatchState.COMMITTED, 1)


def test_more_rows_than_may_become_dead_letters_stop_the_feed_until_the_table_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refused_rows, "MOST_REFUSED", 2)
    table = Table(3, 4, 5)
    with pytest.raises(TooManyDeadLettersError, match=r"at most 2 of its 150 rows, found more: orders-0@3 and 2 more"):
        table.write()
    assert table.state is BatchState.WRITTEN
    table.refuses.clear()
    assert (table.write(), table.runs) == (BatchState.WRITTEN, 1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda kafka: kafka.topics.update(orders=topic(log(100, 100), log(50, 50))), r"orders-0\[0, 100\) begins"),
        (lambda kafka: kafka.topics.update(orders=topic(log(0, 100), log(20, 50))), r"orders-1\[0, 50\) begins"),
        (lambda kafka: kafka.topics.clear(), "topic 'orders' .* does not exist any more"),
        (lambda kafka: kafka.topics.update(orders=topic(log(0, 100), log(0, 50), topic_id="other")), "created again"),
        (lambda kafka: kafka.kept.update(orders=COMPACTED), "topic 'orders' is compacted"),
        (lambda kafka: kafka.kept.update(orders=Unavailable("no right")), r"not known \(no right\).*DESCRIBE_CONFIGS"),
    ],
    ids=["all deleted", "one range deleted", "topic deleted", "topic made again", "compacted", "perhaps compacted"],
)
def test_a_batch_that_kafka_may_not_have_whole_any_more_stays_written_until_the_table_takes_its_rows(
    change: Callable[[FakeKafkaCluster], object], why: str
) -> None:
    table = Table(3)
    asked = table.refused

    def lost_meanwhile(directory: Path, receipt: Receipt) -> list[RefusedRows]:
        change(table.feed.kafka)
        return asked(directory, receipt)

    table.feed.sink.refused = lost_meanwhile
    with pytest.raises(OutputConflictError, match=rf"{why}.*stays WRITTEN.*Change the table's constraint"):
        table.write()
    assert table.attempts == [(AttemptState.PINNED, set())]
    table.refuses.clear()
    write_batch(table.parts, table.batch_id, table.submit, actor="run 2")
    table.feed.commit(table.batch_id)
    assert (table.state, table.runs) == (BatchState.COMMITTED, 1)
    assert table.feed.stored_offsets() == {ORDERS: 100, TopicPartition("orders", 1): 50}


def test_a_partition_that_kafka_cannot_answer_for_is_asked_for_again_before_a_batch_is_taken_back() -> None:
    table = Table(3)
    table.submit = down_after(table, table.submit)  # type: ignore[method-assign]
    with pytest.raises(KafkaUnavailableError, match="its output refuses rows, and Kafka cannot answer for orders-1"):
        table.write()
    table.feed.kafka.topics["orders"] = topic(log(0, 100), log(0, 50))
    assert table.write() is BatchState.WRITTEN
    assert table.attempts[-1] == (AttemptState.PINNED, {3})


def down_after(table: Table, submit: Callable[[Sequence[Opened]], None]) -> Callable[[Sequence[Opened]], None]:
    def then_down(opened: Sequence[Opened]) -> None:
        submit(opened)
        if table.runs == 1:
            table.feed.kafka.topics["orders"] = topic(log(0, 100), Unavailable("no leader"))

    return then_down


def test_an_output_that_does_not_answer_is_asked_again_and_what_else_is_wrong_is_left_to_the_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table = Table(3)

    def failing(error: Exception) -> Callable[..., list[RefusedRows]]:
        def fail(*_: object) -> list[RefusedRows]:
            raise error

        return fail

    table.feed.sink.refused = failing(OutputUnavailableError("it is down"))
    with pytest.raises(OutputUnavailableError):
        table.write()
    with caplog.at_level(logging.WARNING):
        table.feed.sink.refused = failing(OutputNotUsableError("no rights"))
        assert table.write() is BatchState.WRITTEN
    assert "its rows were not tried, the commit says why: no rights" in caplog.text
    table.feed.sink.refused = table.refused
    table.write()
    assert table.attempts[-1] == (AttemptState.PINNED, {3})


def test_a_note_that_a_crash_cut_off_says_nothing_and_refused_rows_are_frozen_with_the_attempt() -> None:
    assert refused_rows.read_note(FailureCode.ROWS_REFUSED.says('[{"topic": "ord')) == []
    decoding = Decoding(refused=(RefusedRows(ORDERS, "CheckViolation, constraint few", (3, 7)),))
    assert Decoding.from_document(decoding.as_document()) == decoding
    assert decoding.is_raw
    assert not decoding.takes_all
