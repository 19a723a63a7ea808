"""What counts as lost of a batch, what of that becomes a gap, and which batches can have lost files at all."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pytest
from tests.fakes import FeedInMemory, InMemoryControlTables, log, partition, sinks, span, topic

from kafka_ingest.batches.backfill_request import BackfillRequest, OpenGaps
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.errors import BatchStateError, OutputConflictError, OutputUnavailableError
from kafka_ingest.model.batch import BatchKind, BatchState
from kafka_ingest.model.gap import Removal, RemovalCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.published_output import FileProblem, PublishedLook
from kafka_ingest.verbs.adopt import adopt, decide_adoption
from kafka_ingest.verbs.lost import LostDecision, check_can_be_lost, decide_lost, record_lost
from kafka_ingest.verbs.reset import decide_reset, reset
from kafka_ingest.verbs.reset_target import ToOffsets
from kafka_ingest.verbs.skip import decide_skip, skip


@pytest.fixture
def feed() -> FeedInMemory:
    """A feed of two batches: orders-0[0, 100) with orders-1[0, 50), then orders-0[100, 130)."""
    return FeedInMemory.of_two_batches()


def oldest(feed: FeedInMemory) -> UUID:
    return min(feed.sink.published)


def lose(feed: FeedInMemory, batch_id: UUID, *, of: int = 0) -> None:
    """Let a file be gone."""
    feed.sink.set_aside(batch_id, [feed.sink.published[batch_id].receipt.files[of].name])


def decided(feed: FeedInMemory, batch_id: UUID | None = None) -> LostDecision:
    return decide_lost("orders", batch_id or oldest(feed), feed.control, sinks(feed.sink))


def recorded(feed: FeedInMemory, batch_id: UUID) -> list[OffsetRange]:
    """Record what a batch has lost, and return what becomes a gap."""
    decision = decided(feed, batch_id)
    record_lost(decision, feed.control, sinks(feed.sink), reason="a disk died", actor="operator")
    return list(decision.gaps)


def back_to(feed: FeedInMemory, offset: int) -> None:
    target = ToOffsets({partition(0): offset})
    reset(
        decide_reset(target, {}, feed.settings, feed.control, feed.kafka, reason="again"),
        feed.control,
        reason="again",
        actor="operator",
    )


def seeing(feed: FeedInMemory, patch: pytest.MonkeyPatch, *, damaged: bool, strangers: tuple[str, ...] = ()) -> None:
    """Let each batch's first file be damaged, or none, and other files lie beside it."""

    def look_at(batch_id: UUID, *, closely: bool = False) -> PublishedLook:
        assert closely
        file = feed.sink.published[batch_id].receipt.files[0]
        problems = [FileProblem(file.name, file, "it is damaged", is_there=True)]
        return PublishedLook(problems=problems if damaged else [], strangers=strangers)

    patch.setattr(feed.sink, "look_at", look_at)


# ── Which batches ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(set(BatchState) - {BatchState.COMMITTED}))
def test_a_batch_that_readers_do_not_see_has_lost_nothing(feed: FeedInMemory, state: BatchState) -> None:
    batch = replace(feed.control.batch(oldest(feed)), state=state)
    with pytest.raises(BatchStateError, match=f"is {state}: expected a COMMITTED one"):
        check_can_be_lost(batch)


def test_the_feeds_gaps_say_nothing_of_a_copy(feed: FeedInMemory) -> None:
    batch = feed.control.batch(oldest(feed))
    with pytest.raises(BatchStateError, match="Copy its ranges again into another output"):
        check_can_be_lost(replace(batch, plan=replace(batch.plan, kind=BatchKind.COPY)))


def test_a_batch_whose_receipt_is_missing_may_be_in_storage_that_is_away(feed: FeedInMemory) -> None:
    batch_id = oldest(feed)
    del feed.sink.published[batch_id]
    with pytest.raises(OutputUnavailableError, match="Is that storage mounted"):
        decided(feed, batch_id)


def test_files_that_are_missing_in_storage_that_lacks_the_newest_batch_prove_nothing(feed: FeedInMemory) -> None:
    lose(feed, oldest(feed))
    del feed.sink.published[max(feed.sink.published)]
    with pytest.raises(OutputUnavailableError, match="its receipt is not beside it"):
        decided(feed)


@pytest.mark.parametrize("cause", RemovalCause)
def test_files_that_were_removed_on_purpose_are_not_lost(feed: FeedInMemory, cause: RemovalCause) -> None:
    batch_id = oldest(feed)
    feed.sink.gone.add(batch_id)
    lose(feed, batch_id)
    feed.sink.note_removal(Removal(batch_id, cause, datetime(2026, 3, 1, tzinfo=UTC), "operator", "a year"))
    if cause is RemovalCause.EXPIRED:
        with pytest.raises(BatchStateError, match="removed on purpose"):
            decided(feed)
    else:
        assert decided(feed).gaps == [span(0, 0, 100)]


def test_other_files_beside_those_of_an_intact_batch_are_nobodys_loss(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeing(feed, monkeypatch, damaged=False, strangers=("compacted.parquet",))
    assert decided(feed).files == []
    seeing(feed, monkeypatch, damaged=True, strangers=("compacted.parquet",))
    with pytest.raises(OutputConflictError, match=r"compacted\.parquet"):
        decided(feed)


# ── What is lost ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_that_is_recorded_as_lost_is_not_lost_again_but_set_aside_where_it_came_back_damaged(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch_id = oldest(feed)
    lose(feed, batch_id)
    assert recorded(feed, batch_id) == [span(0, 0, 100)]
    assert (decided(feed).files, decided(feed).lost) == ([], [])
    seeing(feed, monkeypatch, damaged=True)
    decision = decided(feed)
    assert ([file.is_there for file in decision.files], decision.lost, decision.gaps) == ([True], [], [])


def test_a_damaged_file_is_out_of_readers_sight_before_its_gap_can_be_filled(
    feed: FeedInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    seeing(feed, monkeypatch, damaged=True)
    monkeypatch.setattr(feed.sink, "set_aside", lambda *_: steps.append("set aside"))
    monkeypatch.setattr(feed.control, "record_lost", lambda *_, **__: steps.append("recorded"))
    recorded(feed, oldest(feed))
    assert steps == ["set aside", "recorded"]
    steps.clear()
    seeing(feed, monkeypatch, damaged=False)
    recorded(feed, oldest(feed))
    assert steps == []


# ── What becomes a gap ────────────────────────────────────────────────────────────────────────────────────────────────


def test_lost_records_of_an_earlier_topic_of_the_name_are_no_gap(feed: FeedInMemory) -> None:
    lose(feed, oldest(feed))
    with feed.control.transaction() as state:
        key = (feed.control.feed("orders").feed_id, partition(0))
        state.stored[key] = replace(state.stored[key], topic_id="another")
    decision = decided(feed)
    assert ([each.offset_range for each in decision.lost], decision.gaps) == ([span(0, 0, 100)], [])


def test_lost_records_that_live_batches_are_to_read_again_are_no_gap(feed: FeedInMemory) -> None:
    lose(feed, oldest(feed))
    back_to(feed, 40)
    assert decided(feed).gaps == [span(0, 0, 40)]


def test_lost_records_that_another_batch_has_read_again_are_no_gap_until_that_has_lost_them_too(
    feed: FeedInMemory,
) -> None:
    back_to(feed, 60)
    again = feed.committed().batch_id
    lose(feed, oldest(feed))
    assert recorded(feed, oldest(feed)) == [span(0, 0, 60)]
    lose(feed, again)
    assert recorded(feed, again)[0].start_offset == 60


def test_lost_records_that_are_in_an_open_gap_are_in_no_second_one(feed: FeedInMemory) -> None:
    back_to(feed, 0)
    passed = decide_skip("orders", span(0, 0, 70), "poisoned", feed.control, feed.kafka)
    skip(passed, feed.control, actor="operator")
    feed.committed()
    lose(feed, oldest(feed))
    assert recorded(feed, oldest(feed)) == []


def test_what_a_backfill_has_filled_and_lost_is_a_gap_again(feed: FeedInMemory) -> None:
    lose(feed, oldest(feed))
    recorded(feed, oldest(feed))
    [chunk] = plan_backfill(BackfillRequest(OpenGaps(), {}), feed.settings, feed, actor="operator").chunks
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    lose(feed, chunk.batch_id)
    assert recorded(feed, chunk.batch_id) == [span(0, 0, 100)]


def test_what_a_backfill_has_filled_and_lost_is_still_a_gap_after_the_tables_were_lost(
    feed: FeedInMemory,
) -> None:
    lose(feed, oldest(feed))
    recorded(feed, oldest(feed))
    feed.kafka.topics["orders"] = topic(log(0, 200), log(0, 50))
    live = feed.planned()  # its receipt says what was decided before its commit, and comes before the backfill's
    [chunk] = plan_backfill(BackfillRequest(OpenGaps(), {}), feed.settings, feed, actor="operator").chunks
    feed.write(chunk.batch_id)
    feed.commit(chunk.batch_id)
    lose(feed, chunk.batch_id)
    recorded(feed, chunk.batch_id)
    feed.write(live.batch_id)
    feed.commit(live.batch_id)
    before = gaps_of(feed)
    feed.control = InMemoryControlTables()
    adopt(
        decide_adoption(feed.settings, feed.control, feed.sink), feed.control, feed.sink, reason="-", actor="operator"
    )
    assert gaps_of(feed) == before
    assert [state for _, state in before] == ["closed", "open"]


def gaps_of(feed: FeedInMemory) -> list[tuple[OffsetRange, str]]:
    found = feed.control.gaps(feed.control.feed("orders").feed_id)
    return sorted((gap.offset_range, gap.state) for gap in found)
