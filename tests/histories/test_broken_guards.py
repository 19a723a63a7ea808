"""The histories see what they are there to see: with a guard broken, a short one of them fails."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import true
from tests.histories.interruptions import Interruption
from tests.histories.test_random_histories import Histories
from tests.histories.world import TOPICS

from kafka_ingest.committing import mirror_group
from kafka_ingest.control import offset_statements, operator_writer
from kafka_ingest.offsets import TopicPartition
from kafka_ingest.operating import adopt, clean

BEFORE_THE_OFFSETS_MOVE = Interruption("before", 9, "crash")
"""In a commit: the batch, its attempts, the receipt, can_take, verify_staged, begin_commit, the ledger, publish."""


@pytest.fixture
def history(migrated_sqlite_file: Path) -> Iterator[Histories]:
    """A feed that committed four records of one partition of each topic and passes over losses."""
    with closing(Histories(migrated_sqlite_file)) as history:
        history.begin(partitions=1, max_records=None, gaps=True)
        history.a_quiet_hour(records=[4], markers=0)
        history.all_holds()
        yield history


def offsets_moved_by_hand_during_a_commit(history: Histories) -> None:
    history.somebody_moves_a_stored_offset_by_hand_and_puts_it_back(
        number=0, records=[2], interruption=BEFORE_THE_OFFSETS_MOVE
    )


def records_that_retention_took(history: Histories) -> None:
    history.records_arrive(records=[3], markers=0)
    history.retention_takes(number=0, taken=6)
    history.the_dag_runs(spark="finishes", last_task="commit", interruption=None)
    history.all_holds()


def a_skip_that_was_told_and_tables_that_were_lost(history: Histories) -> None:
    history.an_operator_skips(number=0, ahead=0, span=2, interruption=None)
    history.a_quiet_hour(records=[1], markers=0)
    history.the_output_is_adopted_by_empty_tables(is_lost=True)


def a_skip_ahead_and_a_topic_that_is_made_again(history: Histories) -> None:
    history.an_operator_skips(number=0, ahead=1, span=2, interruption=None)
    history.a_topic_is_made_again(name=TOPICS[0], partitions=1)
    history.an_operator_decides_on_a_topic(name=TOPICS[0], interruption=None)
    history.a_quiet_hour(records=[9], markers=0)
    history.a_quiet_hour(records=[1], markers=0)
    history.all_holds()


def a_commit_and_a_look_at_the_group(history: Histories) -> None:
    history.a_quiet_hour(records=[1], markers=0)
    history.all_holds()


def a_last_copy_and_a_clean_up(history: Histories) -> None:
    history.records_arrive(records=[3], markers=0)
    history.the_dag_runs(spark="finishes", last_task="write", interruption=None)
    history.an_operator_abandons(interruption=None)
    history.retention_takes(number=0, taken=7)
    history.an_operator_cleans(interruption=None)


def a_backup_with_a_batch_that_was_overtaken(history: Histories) -> None:
    history.records_arrive(records=[2], markers=0)
    history.the_dag_runs(spark="finishes", last_task="plan", interruption=None)
    history.a_backup_is_made()
    history.an_operator_abandons(interruption=None)
    history.a_quiet_hour(records=[1], markers=0)
    history.the_backup_is_restored_and_adopts()
    history.a_quiet_hour(records=[1], markers=0)


def without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_statements, "check_offsets_in_place", lambda *_: None)
    patch.setattr(offset_statements, "in_place", true)


def without_writing_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_statements, "insert_gaps", lambda *_: None)


def without_adopting_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operator_writer, "insert_gaps", lambda *_: None)


def without_dropping_gaps_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operator_writer, "keep_gaps", lambda *_: None)


def without_care_for_last_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clean, "last_copy", lambda *_: None)


def without_giving_up_what_was_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adopt, "overtaken", lambda *_: None)


def with_a_mirror_that_leads(patch: pytest.MonkeyPatch) -> None:
    first = TopicPartition(TOPICS[0], 0)
    patch.setattr(
        mirror_group, "offsets_to_mirror", lambda feed, _: ({first: feed.stored[first].next_offset + 1}, None)
    )


GUARDS = [
    (without_compare_and_set, offsets_moved_by_hand_during_a_commit),
    (without_writing_gaps, records_that_retention_took),
    (without_adopting_gaps, a_skip_that_was_told_and_tables_that_were_lost),
    (without_dropping_gaps_ahead, a_skip_ahead_and_a_topic_that_is_made_again),
    (without_care_for_last_copies, a_last_copy_and_a_clean_up),
    (without_giving_up_what_was_overtaken, a_backup_with_a_batch_that_was_overtaken),
    (with_a_mirror_that_leads, a_commit_and_a_look_at_the_group),
]

NAMES = [breaking.__name__ for breaking, _ in GUARDS]


@pytest.mark.parametrize(("breaking", "happens"), GUARDS, ids=NAMES)
def test_a_history_fails_where_its_guard_is_broken(
    history: Histories,
    breaking: Callable[[pytest.MonkeyPatch], None],
    happens: Callable[[Histories], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    breaking(monkeypatch)
    with pytest.raises(AssertionError):
        happens(history)


@pytest.mark.parametrize("happens", [happens for _, happens in GUARDS], ids=NAMES)
def test_the_same_history_holds_with_its_guard(history: Histories, happens: Callable[[Histories], None]) -> None:
    happens(history)
    history.all_holds()
    history.run_to_the_end()
