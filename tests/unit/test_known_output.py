"""Whether the control tables are those that an output was written with: if not, nothing is planned."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
import uuid6
from tests import fakes
from tests.fakes import (
    FeedInMemory,
    InMemoryControlTables,
    InMemorySink,
    a_plan,
    a_receipt,
    feed_settings,
    log,
    partition,
    sinks,
    span,
    topic,
    watched,
)
from tests.outputs import parquet_at

from kafka_ingest.batches.known_output import LEAST_ID, check_newest_known, check_output_known, new_feed
from kafka_ingest.batches.plan_batch import PlanResult, plan_batch
from kafka_ingest.errors import OutputUnavailableError, OutputUnknownError
from kafka_ingest.model.batch import BatchPlan, BatchState
from kafka_ingest.model.published_output import PublishedReceipt

ELSEWHERE = Path("/data/elsewhere")


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed that committed orders-0[0, 100) and orders-1[0, 50); orders-0 has 30 more records by now."""
    feed = FeedInMemory()
    feed.committed()
    feed.kafka.topics["orders"] = topic(log(0, 130), log(0, 50))
    return feed


def check(feed: FeedInMemory, *outputs: InMemorySink) -> None:
    """Check the feed's output, which is one of these or its own."""
    known = feed.control.feed("orders")
    check_output_known(known, feed.settings, feed.control, sinks(feed.sink, *outputs))


def refusal(feed: FeedInMemory, plan: Callable[[], object] | None = None) -> str:
    """Return why nothing is planned; nothing is written, and Kafka is not asked."""
    before, questions = feed.control.state, list(feed.kafka.questions)
    with pytest.raises(OutputUnknownError) as found:
        (plan or feed.plan)()
    assert found.value.exit_code == 3
    assert (feed.control.state, feed.kafka.questions) == (before, questions)
    return str(found.value)


def another_published(feed: FeedInMemory) -> str:
    """Let the output hold a batch that the tables do not know; return its id."""
    plan = a_plan(span(0, 100, 110), batch_id=uuid6.uuid7())
    feed.sink.published[plan.batch_id] = PublishedReceipt(plan, a_receipt(plan), [])
    return str(plan.batch_id)


def bring_to(feed: FeedInMemory, state: BatchState) -> BatchPlan:
    """Plan a batch and bring it to a state; one that is COMMITTING is published, its commit died after that."""
    plan = feed.planned()
    if state is BatchState.ABANDONED:
        feed.control.abandon(plan.batch_id, reason="not wanted", actor="operator")
    if state in {BatchState.WRITTEN, BatchState.COMMITTING, BatchState.COMMITTED}:
        feed.write(plan.batch_id)
    if state in {BatchState.COMMITTING, BatchState.COMMITTED}:
        feed.control.begin_commit(plan.batch_id, 1)
        publish(feed, plan)
    if state is BatchState.COMMITTED:
        feed.control.complete_commit(plan.batch_id, actor="run 1")
    return plan


def publish(feed: FeedInMemory, plan: BatchPlan) -> None:
    """Let the output hold a batch."""
    attempts = feed.control.attempts(plan.batch_id)
    receipt = a_receipt(plan, document_sha256=attempts[0].document_sha256 if attempts else "0" * 64)
    feed.sink.published[plan.batch_id] = PublishedReceipt(plan, receipt, [])


# ── Years of batches ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def years(feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch) -> FeedInMemory:
    """A feed with more batches than a plan holds against its output, which are the two newest here."""
    monkeypatch.setattr(fakes, "RECENT_BATCHES", 2)
    for end in (110, 120, 130):
        feed.kafka.topics["orders"] = topic(log(0, end), log(0, 50))
        feed.committed()
    return feed


def asked_by_a_plan(feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch) -> list[UUID | None]:
    """Return from which batches on a plan asks the output; None: for all that the output itself shows, too."""
    asked: list[UUID | None] = []
    known = feed.sink.publisher.known_batches

    def known_batches(since: UUID | None = None) -> list[str]:
        asked.append(since)
        return known(since)

    monkeypatch.setattr(feed.sink, "known_batches", known_batches)
    feed.plan()
    return asked


def test_a_plan_asks_the_output_for_its_newest_batches_only(
    years: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked_by_a_plan(years, monkeypatch) == [sorted(years.sink.published)[-2]]


def test_the_plan_of_a_feed_with_few_batches_reads_its_receipts_and_no_table(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert asked_by_a_plan(feed, monkeypatch) == [LEAST_ID]


def test_batches_that_older_tables_do_not_know_are_newer_than_all_they_know_and_stop_a_plan(
    years: FeedInMemory,
) -> None:
    older = years.control.state
    years.kafka.topics["orders"] = topic(log(0, 150), log(0, 50))
    plan = years.committed()
    years.control.state = older
    assert str(plan.batch_id) in refusal(years)


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN, BatchState.ABANDONED])
def test_a_batch_that_was_published_after_the_backup_stops_a_plan_however_old_it_is(
    years: FeedInMemory, state: BatchState
) -> None:
    years.kafka.topics["orders"] = topic(log(0, 150), log(0, 50))
    plan = bring_to(years, state)
    publish(years, plan)
    # As if years of batches had followed: it is far below the newest ones.
    feed = replace(years.control.feed("orders"), recent_batch=uuid6.uuid7())
    later = a_plan(span(0, 150, 151), batch_id=feed.recent_batch, planned_at=plan.planned_at)
    batches = years.control.state.batches
    years.control.state = replace(
        years.control.state,
        batches={**batches, later.batch_id: replace(batches[plan.batch_id], plan=later, state=BatchState.COMMITTED)},
    )
    with pytest.raises(OutputUnknownError, match=str(plan.batch_id)):
        check_newest_known(feed, years.settings, years.control, sinks(years.sink))


def test_an_unknown_batch_among_old_ones_is_found_by_the_daily_look_at_all(years: FeedInMemory) -> None:
    years.sink.foreign_batches.append("01890000-0000-7000-8000-000000000001")
    assert years.plan().result is PlanResult.NOTHING_NEW
    with pytest.raises(OutputUnknownError, match="holds 1 published batch that the control tables do not know"):
        check(years)


# ── One database for the tables and the output ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("are_in", "has_letters", "of", "stops"),
    [
        (True, False, "this", False),
        (False, False, "this", True),
        (True, True, "this", False),
        (True, False, "another feed", True),
        (True, False, "another output", True),
    ],
    ids=[
        "one database",
        "two databases",
        "with dead letters",
        "of another feed",
        "of another output",
    ],
)
def test_a_batch_that_one_database_has_lost_with_its_offsets_stops_no_plan(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch, *, are_in: bool, has_letters: bool, of: str, stops: bool
) -> None:
    batch_id = another_published(feed)
    kept = feed.sink.published[UUID(batch_id)]
    letters = kept.receipt.files if has_letters else ()
    plan = kept.plan if of == "another feed" else replace(kept.plan, feed_id=feed.control.feed("orders").feed_id)
    plan = replace(plan, output=parquet_at(ELSEWHERE)) if of == "another output" else plan
    feed.sink.published[UUID(batch_id)] = replace(kept, plan=plan, receipt=replace(kept.receipt, dead_letters=letters))
    asked: list[tuple[set[str], str | None]] = []

    def lost(batch_ids: set[str], actor: str | None) -> set[str]:
        asked.append((batch_ids, actor))
        return batch_ids

    monkeypatch.setattr(feed.control, "are_in", lambda _: are_in)
    monkeypatch.setattr(feed.sink, "in_transaction", lambda look: look(object()))
    monkeypatch.setattr(feed.sink, "lost", lost)
    if stops:
        assert batch_id in refusal(feed)
        return
    check(feed)
    assert feed.plan(None).result is PlanResult.PLANNED
    assert asked == [({batch_id}, None)] * 2
    assert feed.plan().result is PlanResult.PLANNED
    assert asked[2:] == [({batch_id}, None), ({batch_id}, "run 1")]


# ── Tables that are the right ones ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", BatchState)
def test_an_output_that_the_tables_wrote_is_theirs_in_each_state_of_the_newest_batch(
    feed: FeedInMemory, state: BatchState
) -> None:
    bring_to(feed, state)
    check(feed)
    assert feed.plan().result in {PlanResult.PLANNED, PlanResult.RESUMED, PlanResult.NOTHING_NEW}


def test_a_batch_whose_commit_died_after_publishing_is_the_tables_own_and_continues(feed: FeedInMemory) -> None:
    plan = feed.planned()
    feed.write(plan.batch_id)
    with pytest.raises(ProcessEndedError):
        watched(feed, end_before_complete_commit).commit(plan.batch_id)
    assert str(plan.batch_id) in feed.sink.publisher.known_batches()
    assert feed.plan().batch == plan
    feed.commit(plan.batch_id)
    assert feed.stored_offsets() == {partition(0): 130, partition(1): 50}


class ProcessEndedError(Exception):
    """The process ends here."""


def end_before_complete_commit(call: str) -> None:
    """End the process after publishing, before the stored offsets move."""
    if call == "complete_commit":
        raise ProcessEndedError


def test_an_output_that_was_emptied_says_nothing_against_the_tables(feed: FeedInMemory) -> None:
    feed.sink.published.clear()
    check(feed)


def test_a_feed_whose_output_is_elsewhere_from_now_on_continues_there(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(output=parquet_at(ELSEWHERE))
    feed.sink = InMemorySink(ELSEWHERE)
    assert feed.committed().ranges == (span(0, 100, 130),)


# ── Tables that are older, or others ──────────────────────────────────────────────────────────────────────────────────


def test_a_batch_that_the_tables_do_not_know_stops_the_plan_before_anything_is_asked_or_written(
    feed: FeedInMemory,
) -> None:
    stranger = another_published(feed)
    message = refusal(feed)
    assert "its output /data/orders holds 1 published batch that the control tables do not know as published" in message
    assert f"(the newest is {stranger})" in message
    assert "Nothing was done: reading further would write records twice." in message
    assert "`kafka-ingest adopt orders` shows how they would change" in message


def test_of_several_batches_the_newest_is_named_with_their_number(feed: FeedInMemory) -> None:
    strangers = [another_published(feed) for _ in range(3)]
    assert (
        f"holds 3 published batches that the control tables do not know as published (the newest is {strangers[-1]})"
        in (refusal(feed))
    )


@pytest.mark.parametrize("state", [BatchState.PLANNED, BatchState.WRITTEN])
def test_a_batch_that_the_tables_know_as_unpublished_was_published_after_the_copy_was_made(
    feed: FeedInMemory, state: BatchState
) -> None:
    plan = bring_to(feed, state)
    publish(feed, plan)
    assert f"(the newest is {plan.batch_id})" in refusal(feed)


def test_an_older_copy_of_the_tables_stops_the_feed(feed: FeedInMemory) -> None:
    older = feed.control.state
    newest = feed.committed()
    feed.control.state = older
    assert f"(the newest is {newest.batch_id})" in refusal(feed)


def test_an_open_batch_is_held_against_its_own_output_whatever_the_feed_file_says_now(feed: FeedInMemory) -> None:
    feed.planned()
    other = InMemorySink(ELSEWHERE)
    other.foreign_batches = ["01990000-0000-7000-8000-00000000beef"]
    feed.settings = feed_settings(output=parquet_at(ELSEWHERE))
    check(feed, other)
    another_published(feed)
    assert "its output /data/orders holds 1" in refusal(feed, lambda: check(feed, other))


def test_an_output_that_another_feed_writes_to_is_unknown(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(output=parquet_at(ELSEWHERE))
    feed.sink = InMemorySink(ELSEWHERE)
    another_published(feed)
    assert "its output /data/elsewhere holds 1 published batch " in refusal(feed)


def test_what_is_not_a_batch_id_is_unknown_too(feed: FeedInMemory) -> None:
    feed.sink.foreign_batches = ["restored-by-hand"]
    assert "(the newest is restored-by-hand)" in refusal(feed)


def test_an_output_that_cannot_be_listed_is_neither_known_nor_unknown(feed: FeedInMemory) -> None:
    feed.sink.is_down = True
    with pytest.raises(OutputUnavailableError):
        feed.plan()
    assert feed.control.feed("orders").open_batch is None


# ── A feed that the tables do not know ────────────────────────────────────────────────────────────────────────────────


def test_a_new_feed_has_the_name_of_its_file_and_an_id_of_its_own() -> None:
    one, other = (new_feed(feed_settings(name="sales"), InMemoryControlTables(), InMemorySink()) for _ in range(2))
    assert (one.name, other.name) == ("sales", "sales")
    assert one.feed_id != other.feed_id


def test_a_new_feed_whose_output_holds_batches_stops_with_all_ways_out(feed: FeedInMemory) -> None:
    newest = feed.committed()
    feed.control = InMemoryControlTables()
    with pytest.raises(OutputUnknownError) as found:
        feed.plan()
    message = str(found.value)
    assert f"/data/orders already holds 2 published batches (the newest is {newest.batch_id})" in message
    for way_out in ("the right control database?", "rename-feed OLD NEW", "adopt orders", "another sink.path"):
        assert way_out in message
    assert feed.control.feed("orders") is None


def test_a_feed_that_was_renamed_in_its_file_only_is_a_new_one_over_an_old_output(feed: FeedInMemory) -> None:
    feed.settings = feed_settings(name="sales")
    with pytest.raises(OutputUnknownError, match="feed sales is new to the control tables, but its output"):
        feed.plan()
    feed.control.rename_feed(feed.control.feed("orders"), "sales", reason="a better name", actor="operator")
    assert feed.planned().ranges == (span(0, 100, 130),)


def test_a_batch_that_was_published_and_then_abandoned_on_older_tables_stops_the_plan(feed: FeedInMemory) -> None:
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    plan = feed.written()
    older = feed.control.state
    feed.commit(plan.batch_id)
    feed.control.state = older
    feed.control.abandon(plan.batch_id, reason="in the way", actor="operator")
    assert str(plan.batch_id) in refusal(feed)


def test_older_tables_are_found_out_also_where_the_feed_file_names_another_output_by_now(feed: FeedInMemory) -> None:
    older = feed.control.state
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    plan = feed.committed()
    feed.control.state = older
    settings = feed_settings(output=parquet_at(ELSEWHERE))
    with pytest.raises(OutputUnknownError, match=f"{plan.batch_id}.*set sink.path to /data/orders, as it was, and"):
        plan_batch(settings, feed, actor="run 2")
