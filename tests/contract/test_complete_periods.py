"""Complete hours in the control tables: each completed once, announced until that is noted, late rows counted once."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from tests.contract.builders import (
    CLUSTER,
    FIRST_PLAN,
    ORDERS_FEED,
    TOPIC_ID,
    at_once,
    batch_id_of,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    receipt_of,
    snapshot_of,
)
from tests.contract.conftest import SqlStore
from tests.fakes import FakeKafkaCluster, log, topic

from kafka_ingest.batches.complete_periods import MOST_AT_ONCE, Waiting, complete_periods, count_late_rows
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import KafkaUnavailableError, NotADataFileError, OutputUnavailableError, WrongClusterError
from kafka_ingest.model.batch import BatchKind
from kafka_ingest.model.completion import CompletionRules, LateCount, OnLate, Unit
from kafka_ingest.model.control_rows import BackfillRecord
from kafka_ingest.model.offsets import FirstRecord
from kafka_ingest.model.receipt import Receipt

HOUR = timedelta(hours=1)
FIVE = datetime(2023, 7, 1, 5, tzinfo=UTC)
"""Three days after the ids of the feed's batches say that they were planned."""
RULES = CompletionRules(Unit.HOUR, delay=timedelta(minutes=10), idle_after=HOUR)
NOW = FIVE + 3 * HOUR + timedelta(minutes=20)
PAST_SIX = FIVE + HOUR + timedelta(minutes=10)


def cluster(newest: datetime = NOW, *, oldest: datetime = FIVE, end: int = 100) -> FakeKafkaCluster:
    """Return a cluster whose partitions are read up to their ends, with records of the first and the newest time."""
    kafka = FakeKafkaCluster({"orders": topic(log(0, end), log(40, 50), topic_id=TOPIC_ID)}, cluster_id=CLUSTER)
    kafka.times = {orders(0): {0: oldest, 99: newest}, orders(1): {40: oldest, 49: newest}}
    return kafka


def looked(
    control: SqlControlTables, kafka: FakeKafkaCluster, now: datetime = NOW, actor: str | None = "run-1", **rules: Any
) -> Waiting:
    rules_of_feed = CompletionRules(**vars_of(RULES) | rules)
    return complete_periods(snapshot_of(control), rules_of_feed, control, kafka, actor=actor, now=now)


def vars_of(rules: CompletionRules) -> dict[str, Any]:
    return {name: getattr(rules, name) for name in CompletionRules.__slots__}


def commit_second(control: SqlControlTables) -> None:
    commit_next(control, 2)


def commit_next(control: SqlControlTables, number: int) -> None:
    plan = plan_of((orders(0), 80 + 10 * number, 90 + 10 * number), number=number)
    plan_next(control, plan)
    commit(control, plan)


def complete(control: SqlControlTables, unit: Unit = Unit.HOUR) -> list[str]:
    found = control.periods(ORDERS_FEED, unit, limit=1_000)
    return [each.key for each in reversed(found) if each.completed_at is not None]


@pytest.fixture
def control(database: SqlStore) -> SqlControlTables:
    """Control tables of a feed whose first batch is committed."""
    made = database.connect()
    plan_first(made)
    commit(made, FIRST_PLAN)
    return made


def test_all_hours_that_each_partition_has_passed_are_complete_and_the_next_one_is_waited_for(
    control: SqlControlTables,
):
    found = looked(control, cluster())

    assert complete(control) == ["2023-07-01T05:00:00", "2023-07-01T06:00:00", "2023-07-01T07:00:00"]
    assert found.began_at == FIVE + 3 * HOUR
    assert [str(each) for each in found.waits_for] == ["it is over at 2023-07-01 09:10:00 UTC, the delay included"]
    assert [each.completed_by for each in control.periods(ORDERS_FEED, Unit.HOUR, limit=2)] == [None, "run-1"]


def test_a_look_without_an_actor_records_nothing(control: SqlControlTables):
    assert looked(control, cluster(), actor=None).began_at == FIVE + 3 * HOUR
    assert control.periods(ORDERS_FEED, Unit.HOUR, limit=9) == []


def test_the_first_look_remembers_where_it_began_though_nothing_is_complete_yet(control: SqlControlTables):
    looked(control, cluster(), now=FIVE + timedelta(minutes=30))
    commit_second(control)
    looked(control, cluster(end=110))

    assert complete(control) == ["2023-07-01T05:00:00", "2023-07-01T06:00:00", "2023-07-01T07:00:00"]


def test_nothing_is_waited_for_in_earnest_before_a_batch_is_committed(database: SqlStore):
    control = database.connect()
    plan_first(control)

    found = looked(control, cluster())

    assert [str(each) for each in found.waits_for] == ["no batch is committed yet"]
    assert control.periods(ORDERS_FEED, Unit.HOUR, limit=9) == []


def test_a_first_look_that_failed_or_never_came_leaves_no_hour_of_a_young_feed_out(control: SqlControlTables):
    kafka = cluster(end=110)
    kafka.is_down = True
    with pytest.raises(KafkaUnavailableError):
        looked(control, kafka)
    commit_second(control)
    kafka.is_down = False

    looked(control, kafka)

    assert complete(control) == ["2023-07-01T05:00:00", "2023-07-01T06:00:00", "2023-07-01T07:00:00"]


def test_a_feed_that_has_committed_for_longer_than_a_month_begins_with_the_hour_of_the_first_look(
    control: SqlControlTables,
):
    now = NOW + timedelta(days=31)

    assert looked(control, cluster(now), now=now).began_at == FIVE + 3 * HOUR + timedelta(days=31)
    assert complete(control) == []


def test_a_record_of_1970_makes_no_hours_before_the_last_month(control: SqlControlTables):
    looked(control, cluster(oldest=datetime(1970, 1, 2, tzinfo=UTC)))

    assert complete(control)[0] == "2023-05-31T08:00:00"
    assert len(complete(control)) == MOST_AT_ONCE


def test_a_long_time_is_worked_off_look_by_look(control: SqlControlTables):
    kafka = cluster(oldest=FIVE - 150 * HOUR)

    first, second = looked(control, kafka), looked(control, kafka)

    assert (first.began_at, first.waits_for) == (FIVE - 50 * HOUR, [])
    assert second.began_at == FIVE + 3 * HOUR
    assert len(set(complete(control))) == 153


def test_steady_looks_ask_kafka_nothing_until_the_hour_is_over(control: SqlControlTables):
    looked(control, kafka := cluster())
    kafka.questions.clear()

    looked(control, kafka, now=NOW + timedelta(minutes=40))

    assert set(kafka.questions) == {"cluster_id"}


def test_hours_and_days_are_counted_apart(control: SqlControlTables):
    kafka = cluster(FIVE + 48 * HOUR)
    looked(control, kafka, now=FIVE + 48 * HOUR)
    looked(control, kafka, now=FIVE + 48 * HOUR, by=Unit.DAY)

    assert len(complete(control)) == 47
    assert complete(control, Unit.DAY) == ["2023-07-01T00:00:00", "2023-07-02T00:00:00"]


def test_of_looks_at_the_same_time_one_completes_each_hour(database: SqlStore, control: SqlControlTables):
    rivals = [database.connect() for _ in range(4)]
    calls = [partial(looked, each, cluster(), actor=f"run-{number}") for number, each in enumerate(rivals)]

    found = at_once(*calls)

    assert [each.began_at for each in found] == [FIVE + 3 * HOUR] * 4
    assert complete(control) == ["2023-07-01T05:00:00", "2023-07-01T06:00:00", "2023-07-01T07:00:00"]
    assert len({each.completed_by for each in control.periods(ORDERS_FEED, Unit.HOUR, limit=9)} - {None}) == 1


def test_what_another_look_has_completed_is_not_completed_again(control: SqlControlTables):
    looked(control, cluster())
    before = control.periods(ORDERS_FEED, Unit.HOUR, limit=9)

    again = control.complete_periods(ORDERS_FEED, Unit.HOUR, [FIVE, FIVE + HOUR], NOW, actor="late")

    assert again is False
    assert control.periods(ORDERS_FEED, Unit.HOUR, limit=9) == before


def test_what_cannot_be_asked_completes_nothing(control: SqlControlTables):
    down, other, silent = cluster(), cluster(), cluster()
    down.is_down, other.id = True, "cluster-b"
    silent.firsts[orders(1)] = FirstRecord(None, by_broker=False)

    with pytest.raises(KafkaUnavailableError):
        looked(control, down)
    with pytest.raises(WrongClusterError):
        looked(control, other)

    assert control.periods(ORDERS_FEED, Unit.HOUR, limit=9) == []


def due(control: SqlControlTables, on_late: OnLate = OnLate.ANNOUNCE) -> list[tuple[int, int]]:
    """Return the hours that are to be announced, each with its late rows."""
    found = control.periods_to_announce(ORDERS_FEED, Unit.HOUR, on_late, limit=MOST_AT_ONCE)
    return [(each.began_at.hour, each.late_rows) for each in found]


def announce(control: SqlControlTables) -> None:
    found = control.periods_to_announce(ORDERS_FEED, Unit.HOUR, OnLate.ANNOUNCE, limit=MOST_AT_ONCE)
    control.note_periods_announced(ORDERS_FEED, Unit.HOUR, found, NOW)


def test_what_is_complete_is_to_be_announced_until_that_is_noted(control: SqlControlTables):
    looked(control, cluster())
    assert due(control) == due(control) == [(5, 0), (6, 0), (7, 0)]

    announce(control)

    assert due(control) == []


def test_late_rows_are_counted_once_and_announced_again_only_where_the_feed_says_so(control: SqlControlTables):
    looked(control, cluster())
    announce(control)
    late = {FIVE: LateCount(3), FIVE - HOUR: LateCount(5), FIVE + 3 * HOUR: LateCount(100)}

    added = control.add_late_rows(ORDERS_FEED, Unit.HOUR, late, before=FIVE + 3 * HOUR, counted=batch_id_of(2))
    again = control.add_late_rows(ORDERS_FEED, Unit.HOUR, late, before=FIVE + 3 * HOUR, counted=batch_id_of(2))

    assert (added, again) == (3, 0), "of an hour before the first one and of one that is not complete nothing is late"
    assert due(control) == [(5, 3)]
    assert due(control, OnLate.COUNT) == []
    announce(control)
    assert due(control) == []


def test_rows_of_the_late_dataset_are_counted_and_announce_nothing_while_other_late_rows_do(control: SqlControlTables):
    looked(control, cluster())
    announce(control)
    late = {FIVE: LateCount(3, aside=3), FIVE + HOUR: LateCount(3, aside=2)}

    assert control.add_late_rows(ORDERS_FEED, Unit.HOUR, late, before=FIVE + 3 * HOUR, counted=batch_id_of(2)) == 6

    assert due(control, OnLate.DATASET) == [(6, 3)]
    late_rows = {each.began_at: each.late_rows for each in control.periods(ORDERS_FEED, Unit.HOUR, limit=9)}
    assert (late_rows[FIVE], late_rows[FIVE + HOUR]) == (3, 3)


def test_the_hours_that_are_complete_are_those_from_the_first_one_to_the_one_that_is_waited_for(
    control: SqlControlTables,
):
    assert control.complete_span(ORDERS_FEED, Unit.HOUR) is None
    looked(control, cluster(), now=FIVE)
    assert control.complete_span(ORDERS_FEED, Unit.HOUR) is None, "one is waited for, and none complete"

    looked(control, cluster())

    assert control.complete_span(ORDERS_FEED, Unit.HOUR) == (FIVE, FIVE + 3 * HOUR)
    assert control.complete_span(ORDERS_FEED, Unit.DAY) is None


def test_rows_that_come_between_an_announcement_and_its_note_are_announced_again(control: SqlControlTables):
    looked(control, cluster())
    told = control.periods_to_announce(ORDERS_FEED, Unit.HOUR, OnLate.ANNOUNCE, limit=MOST_AT_ONCE)
    control.add_late_rows(ORDERS_FEED, Unit.HOUR, {FIVE: LateCount(2)}, before=FIVE + 3 * HOUR, counted=batch_id_of(2))

    control.note_periods_announced(ORDERS_FEED, Unit.HOUR, told, NOW)

    assert due(control) == [(5, 2)]


def test_rows_that_are_set_aside_between_an_announcement_and_its_note_are_not_announced(control: SqlControlTables):
    def add(rows: int, aside: int, batch: int) -> None:
        late = {FIVE: LateCount(rows, aside)}
        counted = batch_id_of(batch)
        assert control.add_late_rows(ORDERS_FEED, Unit.HOUR, late, before=FIVE + 3 * HOUR, counted=counted)

    looked(control, cluster())
    add(2, 0, batch=2)
    told = control.periods_to_announce(ORDERS_FEED, Unit.HOUR, OnLate.DATASET, limit=MOST_AT_ONCE)
    add(5, 5, batch=3)

    for _ in range(2):
        control.note_periods_announced(ORDERS_FEED, Unit.HOUR, told, NOW)

    assert due(control, OnLate.DATASET) == []
    add(1, 0, batch=4)
    assert due(control, OnLate.DATASET) == [(5, 8)]


def test_the_batch_up_to_which_late_rows_are_counted_goes_from_hour_to_hour(control: SqlControlTables):
    looked(control, cluster(), now=FIVE)
    assert control.counted_batch(ORDERS_FEED, Unit.HOUR) == FIRST_PLAN.batch_id

    looked(control, cluster())

    assert control.counted_batch(ORDERS_FEED, Unit.HOUR) == FIRST_PLAN.batch_id
    waiting, counted = FIVE + 3 * HOUR, FIRST_PLAN.batch_id
    assert control.add_late_rows(ORDERS_FEED, Unit.HOUR, {FIVE: LateCount(3)}, before=waiting, counted=counted) == 0


def test_a_batch_is_not_noted_where_another_look_has_completed_more_hours_than_its_rows_were_counted_of(
    control: SqlControlTables,
):
    looked(control, cluster())

    added = control.add_late_rows(
        ORDERS_FEED, Unit.HOUR, {FIVE: LateCount(3)}, before=FIVE + 2 * HOUR, counted=batch_id_of(2)
    )

    assert added == 0
    assert control.counted_batch(ORDERS_FEED, Unit.HOUR) == FIRST_PLAN.batch_id
    assert due(control) == [(5, 0), (6, 0), (7, 0)]


def test_success_files_are_noted(control: SqlControlTables):
    looked(control, cluster())
    found = control.periods_to_mark(ORDERS_FEED, Unit.HOUR, limit=2)

    control.note_success_files(ORDERS_FEED, Unit.HOUR, found, NOW)

    assert [each.began_at.hour for each in control.periods_to_mark(ORDERS_FEED, Unit.HOUR, limit=9)] == [7]


class Output:
    """The sink of batches of which each file holds three rows of the hour from 5 on, or fails."""

    def __init__(
        self,
        control: SqlControlTables,
        failure: Exception | None = None,
        *,
        interleaved: Callable[[], object] = lambda: None,
    ) -> None:
        self.control, self.failure, self.interleaved = control, failure, interleaved
        self.archive = self.inspector = self
        self.asked: list[datetime] = []

    def __call__(self, _output: object) -> Any:
        return self

    def receipt(self, batch_id: UUID) -> Receipt:
        return receipt_of(self.control.batch(batch_id).plan, 1)

    def rows_by_hour(self, _receipt: Receipt, _file: object, before: datetime) -> dict[datetime, int]:
        self.asked.append(before)
        self.interleaved()
        if self.failure is not None:
            raise self.failure
        return {FIVE: 3}


def test_the_rows_of_each_batch_since_the_last_look_are_counted_once(control: SqlControlTables):
    looked(control, cluster())
    commit_second(control)
    output = Output(control)

    assert count_late_rows(ORDERS_FEED, RULES, control, output) == 3
    assert count_late_rows(ORDERS_FEED, RULES, control, output) == 0
    assert output.asked == [FIVE + 3 * HOUR], "what is waited for is not late"
    [of_five] = control.periods(ORDERS_FEED, Unit.HOUR, before=FIVE + HOUR, limit=9)
    assert of_five.as_document()["late_after_batch"] == str(FIRST_PLAN.batch_id)
    assert due(control) == [(5, 3), (6, 0), (7, 0)]


def test_a_batch_is_not_late_for_what_is_complete_because_of_it(control: SqlControlTables):
    looked(control, cluster(), now=FIVE)
    commit_second(control)

    assert count_late_rows(ORDERS_FEED, RULES, control, Output(control, AssertionError("read"))) == 0
    looked(control, cluster(end=110))

    assert len(complete(control)) == 3
    assert count_late_rows(ORDERS_FEED, RULES, control, Output(control, AssertionError("read"))) == 0


@pytest.mark.parametrize("failure", [FileNotFoundError("removed"), NotADataFileError("damaged")])
def test_a_file_that_is_gone_or_damaged_holds_no_later_hour_up(control: SqlControlTables, failure: Exception):
    looked(control, cluster())
    commit_second(control)

    assert count_late_rows(ORDERS_FEED, RULES, control, Output(control, failure)) == 0
    assert control.counted_batch(ORDERS_FEED, Unit.HOUR) == batch_id_of(2)


def test_a_batch_whose_output_cannot_be_read_now_is_counted_by_the_next_look(control: SqlControlTables):
    looked(control, cluster())
    commit_second(control)

    with pytest.raises(OutputUnavailableError, match=r"its late rows are counted by the next run"):
        count_late_rows(ORDERS_FEED, RULES, control, Output(control, PermissionError("no")))

    assert count_late_rows(ORDERS_FEED, RULES, control, Output(control)) == 3


def test_late_rows_are_found_among_more_newer_batches_of_other_kinds_than_a_page_has(
    control: SqlControlTables, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kafka_ingest.batches.complete_periods.MOST_AT_ONCE", 2)
    looked(control, cluster(PAST_SIX), now=PAST_SIX)
    for number in (2, 3, 4):
        commit_next(control, number)
    for number in (5, 6, 7):
        backfill = plan_of((orders(0), 10 * number - 50, 10 * number - 40), number=number, kind=BatchKind.BACKFILL)
        control.record_backfill(snapshot_of(control), BackfillRecord([backfill], [], {}), actor="operator")
        commit(control, backfill)

    assert count_late_rows(ORDERS_FEED, RULES, control, Output(control)) == 9
    assert control.counted_batch(ORDERS_FEED, Unit.HOUR) == batch_id_of(4)


def test_what_another_look_completes_while_rows_are_counted_has_its_late_rows_too(control: SqlControlTables):
    looked(control, cluster(PAST_SIX), now=PAST_SIX)
    commit_second(control)
    rival = Output(control, interleaved=lambda: looked(control, cluster(end=110)))

    assert count_late_rows(ORDERS_FEED, RULES, control, rival) == 3
    assert rival.asked == [FIVE + HOUR, FIVE + 3 * HOUR]
