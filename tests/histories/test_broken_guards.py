"""The histories see what they are there to see: with a guard broken, a short one of them fails."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, true
from tests.histories.interruptions import Interruption
from tests.histories.test_random_histories import Histories
from tests.histories.world import TOPICS

from kafka_ingest.batches import mirror_group
from kafka_ingest.batches.backfill_request import OnMissing
from kafka_ingest.control import (
    adoption_store,
    backfill_statements,
    batch_life,
    offset_statements,
    offset_store,
    plan_store,
)
from kafka_ingest.control.batch_statements import set_range_counts
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import RangeCount, Receipt
from kafka_ingest.verbs import adopt, clean, from_receipts, reset
from kafka_ingest.verbs.reset_target import ShiftBy

BEFORE_THE_OFFSETS_MOVE = Interruption("before", 10, "crash")
"""In a commit: batch, attempts, newest_of_kinds, read_receipt, can_take, verify, begin_commit, ledger, publish."""

RECORD_BACKFILL = 11
"""The call by which a backfill of gaps is planned, where nobody planned it before."""


@pytest.fixture
def history(migrated_sqlite_file: Path) -> Iterator[Histories]:
    """A feed that committed four records of one partition of each topic and passes over losses."""
    with closing(Histories(migrated_sqlite_file)) as history:
        history.begin(partitions=1, max_records=None, gaps=True)
        history.a_quiet_hour(records=[4], markers=0)
        history.all_holds()
        yield history


def offsets_moved_by_hand_during_a_commit(history: Histories) -> None:
    history.an_operator_moves_a_stored_offset_by_hand_and_puts_it_back(
        number=0, records=[2], interruption=BEFORE_THE_OFFSETS_MOVE
    )


def records_that_retention_took(history: Histories) -> None:
    history.records_arrive(records=[3], markers=0)
    history.retention_takes(number=0, taken=6)
    history.the_dag_runs(spark="finishes", last_task="commit", interruption=None)
    history.all_holds()


def a_batch_that_loses_one_range_before_it_is_read(history: Histories) -> None:
    history.records_arrive(records=[3, 3], markers=0)
    history.the_dag_runs(spark="finishes", last_task="plan", interruption=None)
    history.retention_takes(number=0, taken=6)
    history.the_dag_runs(spark="finishes", last_task="commit", interruption=None)
    history.all_holds()
    newest = history.world.tables.batch_summaries(limit=1)
    assert [(len(batch.left_out), len(batch.ranges)) for batch in newest] == [(1, 1)]


def a_batch_that_lost_one_range_and_tables_that_were_lost(history: Histories) -> None:
    a_batch_that_loses_one_range_before_it_is_read(history)
    history.the_output_is_adopted_by_empty_tables(is_lost=True)


def a_skip_that_was_recorded_and_tables_that_were_lost(history: Histories) -> None:
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


def a_hole_and_two_backfills_of_it_at_once(history: Histories) -> None:
    a_hole(history)
    in_between = Interruption("before", RECORD_BACKFILL, "an operator fills the gaps")
    history.gaps_are_backfilled(chunk=100, on_missing=OnMissing.REFUSE, is_planned_only=False, interruption=in_between)
    history.all_holds()


def a_hole_that_is_filled(history: Histories) -> None:
    a_hole(history)
    fill(history)
    history.all_holds()


def a_written_backfill_and_a_log_that_is_cut_off(history: Histories) -> None:
    a_hole(history)
    fill(history, is_planned_only=True)
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="write", interruption=None)
    history.a_log_is_cut_off_and_a_plan_sees_it(number=0, lost=5, grown=0)
    history.an_operator_decides_on_a_topic(name=TOPICS[0], interruption=None)
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="commit", interruption=None)
    if history.chunks:
        history.a_chunk_is_abandoned(number=0, interruption=None)
    history.a_quiet_hour(records=[9], markers=0)
    history.all_holds()


def a_backfill_that_a_cut_log_and_a_live_run_overtook(history: Histories) -> None:
    a_hole(history)
    fill(history, is_planned_only=True)
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="write", interruption=None)
    history.a_log_is_cut_off_and_a_plan_sees_it(number=0, lost=5, grown=0)
    history.an_operator_decides_on_a_topic(name=TOPICS[0], interruption=None)
    history.a_quiet_hour(records=[9], markers=0)
    history.all_holds()
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="commit", interruption=None)
    history.all_holds()


def a_backup_with_a_backfill_that_another_overtook(history: Histories) -> None:
    a_hole(history)
    fill(history, is_planned_only=True)
    history.a_backup_is_made()
    history.a_chunk_is_abandoned(number=0, interruption=None)
    fill(history)
    restored_and_worked_on(history)


def a_backup_with_a_backfill_that_a_reset_overtook(history: Histories) -> None:
    a_hole(history)
    fill(history, is_planned_only=True)
    history.a_backup_is_made()
    history.a_chunk_is_abandoned(number=0, interruption=None)
    history.an_operator_resets(number=0, to=ShiftBy(-3), is_all=False, interruption=None)
    restored_and_worked_on(history)


def restored_and_worked_on(history: Histories) -> None:
    """Go on with the backup, and with the backfill that was open in it."""
    history.a_quiet_hour(records=[1], markers=0)
    history.the_backup_is_restored_and_adopts()
    history.all_holds()
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="commit", interruption=None)
    history.all_holds()


def a_hole_that_is_read_after_a_reset(history: Histories) -> None:
    a_hole(history)
    history.an_operator_resets(number=0, to=ShiftBy(-3), is_all=False, interruption=None)
    history.a_quiet_hour(records=[1], markers=0)
    fill(history)
    history.all_holds()
    history.the_output_is_adopted_by_empty_tables(is_lost=False)


def a_reset_under_an_open_backfill(history: Histories) -> None:
    a_hole(history)
    fill(history, is_planned_only=True)
    history.an_operator_resets(number=0, to=ShiftBy(-3), is_all=False, interruption=None)
    history.a_quiet_hour(records=[1], markers=0)
    history.a_chunk_is_worked_on(number=0, spark="finishes", last_task="commit", interruption=None)
    history.all_holds()


def a_filled_hole_and_tables_that_were_lost(history: Histories) -> None:
    a_hole(history)
    fill(history)
    history.the_output_is_adopted_by_empty_tables(is_lost=True)
    history.all_holds()


def a_hole_that_was_passed_and_filled_since_the_newest_live_batch(history: Histories) -> None:
    """Only the backfill's receipt records it."""
    history.an_operator_skips(number=0, ahead=0, span=2, interruption=None)
    fill(history)
    history.the_output_is_adopted_by_empty_tables(is_lost=True)
    history.all_holds()


def a_hole_that_was_filled_before_any_live_batch(history: Histories) -> None:
    """The live batch's receipt records the hole after that of the backfill, which sorts before it."""
    with closing(Histories(history._template)) as other:
        other.begin(partitions=1, max_records=None, gaps=True)
        other.records_arrive(records=[4], markers=0)
        other.the_dag_runs(spark="finishes", last_task="plan", interruption=None)
        other.an_operator_abandons(interruption=None)
        other.an_operator_skips(number=0, ahead=0, span=2, interruption=None)
        fill(other)
        other.a_quiet_hour(records=[1], markers=0)
        other.the_output_is_adopted_by_empty_tables(is_lost=True)
        other.all_holds()
        other.run_to_the_end()


def a_hole(history: Histories) -> None:
    """Skip two records, and let the next receipt record it."""
    history.an_operator_skips(number=0, ahead=0, span=2, interruption=None)
    history.a_quiet_hour(records=[1], markers=0)


def fill(history: Histories, *, is_planned_only: bool = False) -> None:
    """Backfill all gaps, or plan to."""
    history.gaps_are_backfilled(
        chunk=100, on_missing=OnMissing.REFUSE, is_planned_only=is_planned_only, interruption=None
    )


def without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    for module in (offset_statements, batch_life):
        patch.setattr(module, "check_offsets_in_place", lambda *_: None)
    patch.setattr(offset_statements, "ADVANCE", offset_statements.advance_where(true()))


def without_writing_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_statements, "insert_gaps", lambda *_: None)


def without_leaving_ranges_out_of_the_tables(patch: pytest.MonkeyPatch) -> None:
    def with_all_ranges(connection: Connection, plan: BatchPlan, receipt: Receipt, _: Sequence[RangeCount]) -> None:
        full = replace(receipt, left_out=())
        set_range_counts(connection, plan, full, full.range_counts(plan))

    patch.setattr(batch_life, "set_range_counts", with_all_ranges)


def without_leaving_ranges_out_of_what_is_adopted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PublishedReceipt, "ranges_read", property(lambda published: published.plan.ranges))


def without_adopting_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adoption_store, "insert_gaps", lambda *_: None)


def without_dropping_gaps_ahead(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_store, "keep_gaps", lambda *_: None)


def without_care_for_last_copies(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(clean, "last_copy", lambda *_: None)


def without_abandoning_what_was_overtaken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(adopt, "overtaken", lambda *_: None)


def with_a_mirror_that_leads(patch: pytest.MonkeyPatch) -> None:
    first = TopicPartition(TOPICS[0], 0)
    patch.setattr(
        mirror_group, "offsets_to_mirror", lambda feed, _: ({first: feed.stored[first].next_offset + 1}, None)
    )


def without_the_revision_of_a_backfill(patch: pytest.MonkeyPatch) -> None:
    """Then only the ranges keep two backfills apart, and the second is refused instead of planned again."""
    patch.setattr(plan_store, "require_revision", lambda *_: None)


def without_keeping_backfills_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan_store, "require_revision", lambda *_: None)
    patch.setattr(backfill_statements, "check_apart", lambda *_: None)
    patch.setattr(batch_life, "check_not_overtaken", lambda *_: None)


def without_looking_below_the_stored_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_life, "check_below_stored", lambda *_: None)
    patch.setattr(batch_life, "check_not_overtaken", lambda *_: None)


def without_looking_what_overtook_a_backfill(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_life, "check_not_overtaken", lambda *_: None)


def without_closing_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_life, "close_gaps", lambda *_: None)


def without_ending_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_store, "end_gaps", lambda *_: None)


def without_waiting_for_backfills(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reset, "check_none_open", lambda *_: None)
    patch.setattr(offset_store, "require_none_open", lambda *_: None)
    patch.setattr(batch_life, "check_not_overtaken", lambda *_: None)


def without_recording_what_a_backfill_was_planned_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backfill_statements, "note_ledger", lambda *_: None)


def without_closing_adopted_gaps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(from_receipts.GapLedger, "read", lambda *_: None)


GUARDS = [
    (without_compare_and_set, offsets_moved_by_hand_during_a_commit),
    (without_writing_gaps, records_that_retention_took),
    (without_leaving_ranges_out_of_the_tables, a_batch_that_loses_one_range_before_it_is_read),
    (without_leaving_ranges_out_of_what_is_adopted, a_batch_that_lost_one_range_and_tables_that_were_lost),
    (without_adopting_gaps, a_skip_that_was_recorded_and_tables_that_were_lost),
    (without_dropping_gaps_ahead, a_skip_ahead_and_a_topic_that_is_made_again),
    (without_care_for_last_copies, a_last_copy_and_a_clean_up),
    (without_abandoning_what_was_overtaken, a_backup_with_a_batch_that_was_overtaken),
    (with_a_mirror_that_leads, a_commit_and_a_look_at_the_group),
    (without_the_revision_of_a_backfill, a_hole_and_two_backfills_of_it_at_once),
    (without_keeping_backfills_apart, a_hole_and_two_backfills_of_it_at_once),
    (without_looking_below_the_stored_offset, a_written_backfill_and_a_log_that_is_cut_off),
    (without_looking_what_overtook_a_backfill, a_backfill_that_a_cut_log_and_a_live_run_overtook),
    (without_looking_what_overtook_a_backfill, a_backup_with_a_backfill_that_another_overtook),
    (without_looking_what_overtook_a_backfill, a_backup_with_a_backfill_that_a_reset_overtook),
    (without_closing_gaps, a_hole_that_is_filled),
    (without_ending_gaps, a_hole_that_is_read_after_a_reset),
    (without_waiting_for_backfills, a_reset_under_an_open_backfill),
    (without_closing_adopted_gaps, a_filled_hole_and_tables_that_were_lost),
    (
        without_recording_what_a_backfill_was_planned_on,
        a_hole_that_was_passed_and_filled_since_the_newest_live_batch,
    ),
    (without_recording_what_a_backfill_was_planned_on, a_hole_that_was_filled_before_any_live_batch),
]

NAMES = [f"{breaking.__name__}-{happens.__name__}" for breaking, happens in GUARDS]


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


@pytest.mark.parametrize("happens", dict.fromkeys(happens for _, happens in GUARDS))
def test_the_same_history_holds_with_its_guard(history: Histories, happens: Callable[[Histories], None]) -> None:
    happens(history)
    history.all_holds()
    history.run_to_the_end()
