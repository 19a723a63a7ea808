"""Two batches of a feed that are open at once, written by feed files with other types: one of them is published."""

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.contract.conftest import SqlStore
from tests.contract.lives import Feeds, produce
from tests.contract.test_replay import letters_in, plan, with_dead_letters
from tests.contract.whole_feed import WholeFeed

from kafka_ingest.batches.fitting_columns import ColumnRules
from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.batch import AttemptState, BatchState
from kafka_ingest.model.record_schema import Field, Scalar, Struct
from kafka_ingest.verbs.abandon import abandon


@pytest.fixture
def feed(sqlite: SqlStore, lake: Path) -> WholeFeed:
    """A feed with records that were not read yet, and dead letters that can be replayed."""
    feed = Feeds(lake, sqlite.connect).new(with_dead_letters)
    produce(feed)
    return feed


def with_type(feed: WholeFeed, *kinds: str) -> WholeFeed:
    """Return the feed as another version of its file has it: each type is a column's."""
    columns = Struct(tuple(Field(f"column_{number}", Scalar(kind)) for number, kind in enumerate(kinds)))
    return replace(feed, rules=ColumnRules(lambda _decoding: columns))


def both_written(feed: WholeFeed, *kinds_of_replay: str) -> tuple[UUID, UUID]:
    """Return a live batch and a replay, both WRITTEN; the live one has a column ``int``."""
    live = feed.plan("run 1")
    [chunk] = plan(feed).chunks
    assert live is not None
    with_type(feed, "int").write(live, "run 1")
    with_type(feed, *kinds_of_replay).write(chunk.batch_id, "run 2")
    return live, chunk.batch_id


def test_of_two_that_are_written_at_once_the_other_type_is_named_and_nothing_is_moved(feed: WholeFeed) -> None:
    live, replay = both_written(feed, "string")
    before = feed.snapshot().stored

    with pytest.raises(ColumnsChangedError) as refused:
        feed.commit(replay, "run 2")

    for said in (str(replay), f"{live} (WRITTEN", "column_0  int                   string", "abandon"):
        assert said in str(refused.value)
    assert refused.value.exit_code == 3
    assert feed.control.batch(replay).state is BatchState.PLANNED
    [attempt] = feed.control.attempts(replay)
    assert (attempt.state, attempt.reason) == (AttemptState.DISCARDED, str(refused.value))
    assert not list(feed.output.glob(f"*{replay}*"))
    assert letters_in(feed, replay) == []
    assert feed.snapshot().stored == before

    feed.commit(live, "run 1")
    with pytest.raises(ColumnsChangedError, match=f"expected the fields that batch {live}"):
        with_type(feed, "string").write(replay, "run 2")
    with_type(feed, "int").write(replay, "run 2")
    feed.commit(replay, "run 2")
    assert feed.control.batch(replay).state is BatchState.COMMITTED


def test_where_the_other_one_is_abandoned_the_batch_is_committed_as_it_was_written_again(feed: WholeFeed) -> None:
    live, replay = both_written(feed, "string")
    with pytest.raises(ColumnsChangedError):
        feed.commit(live, "run 1")
    abandon(replay, feed.control, feed.sinks, reason="its feed file was wrong", actor="ops")

    with_type(feed, "bigint").write(live, "run 1")
    feed.commit(live, "run 1")

    assert feed.control.batch(live).state is BatchState.COMMITTED


def test_a_type_that_was_committed_while_the_batch_was_open_is_seen_and_a_field_that_was_added_is_no_reason(
    feed: WholeFeed,
) -> None:
    live, replay = both_written(feed, "int", "string")
    feed.commit(replay, "run 2")
    feed.commit(live, "run 1")
    produce(feed)
    later = feed.plan("run 3")
    assert later is not None

    with pytest.raises(ColumnsChangedError, match=f"expected the fields that batch {replay}"):
        with_type(feed, "int").write(later, "run 3")
    with pytest.raises(ColumnsChangedError, match=r"column_1  string +date"):
        with_type(feed, "int", "date").write(later, "run 3")
