"""What the control tables remember of how an output is reached: the options of its plan, wherever they name it."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.contract.builders import (
    FIRST_PLAN,
    ORDERS_FEED,
    OUTPUT,
    commit,
    orders,
    plan_first,
    plan_next,
    plan_of,
    publish,
    snapshot_of,
)
from tests.contract.conftest import SqlStore, Store

from kafka_ingest.model.batch import BatchKind, BatchPlan
from kafka_ingest.model.control_rows import BackfillRecord
from kafka_ingest.model.folded import FoldCut
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.ports.control import OperatorTables

LAKE = {"catalog": "lake", "table": "shop.orders"}
COPIES = Path("/data/orders-again")


def reached_by(plan: BatchPlan, options: dict[str, str] = LAKE) -> BatchPlan:
    """Return a plan whose output is reached by options."""
    return replace(plan, output=OutputLocation.local("iceberg", plan.output.path, options))


def committed_twice(control: OperatorTables) -> None:
    first = reached_by(FIRST_PLAN)
    plan_first(control, first)
    commit(control, first)
    second = reached_by(plan_of((orders(0), 100, 110), number=2))
    plan_next(control, second)
    commit(control, second)


def test_an_output_keeps_the_options_of_its_plan(store: Store) -> None:
    control = store.connect()
    committed_twice(control)
    copy = reached_by(plan_of((orders(0), 0, 50), number=3, kind=BatchKind.COPY, output=COPIES))
    control.record_backfill(snapshot_of(control), BackfillRecord([copy], [], {}), actor="operator")

    newest = control.newest_published(ORDERS_FEED)
    published_to = snapshot_of(control).published_to
    assert newest is not None
    assert published_to is not None
    [(_, copied_to)] = control.copy_outputs()
    committed = [each.output for each in control.committed_batches(ORDERS_FEED)]
    found = [newest.output, published_to, copied_to, *committed, control.batch(copy.batch_id).plan.output]
    assert [dict(each.options) for each in found] == [LAKE] * len(found)
    assert {str(each) for each in found} == {str(OUTPUT), str(COPIES)}
    assert control.copied_ranges(ORDERS_FEED, OutputLocation.local("iceberg", COPIES))


def test_an_output_without_options_has_none_when_it_is_read_back(store: Store) -> None:
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    published_to = snapshot_of(control).published_to
    assert published_to is not None
    assert published_to.options == ()
    assert control.batch(FIRST_PLAN.batch_id).plan.as_document()["sink"] == {"format": "parquet", "path": str(OUTPUT)}


def test_questions_about_an_offset_name_the_options_too(database: SqlStore) -> None:
    control = database.connect()
    committed_twice(control)
    rows = control.offset_rows("orders", orders(0), 5)
    assert rows is not None
    assert [dict(each.output.options) for each in rows.batches] == [LAKE]

    later = datetime(2100, 1, 1, tzinfo=UTC)
    for attempt in control.ended_attempts(ORDERS_FEED, ended_before=later):
        control.note_cleaned(attempt)
    assert control.fold(ORDERS_FEED, FoldCut(later, newest_stay=0)).batches == 2
    folded = control.folded_batches(ORDERS_FEED, datetime(2000, 1, 1, tzinfo=UTC), later)
    assert [dict(each.output.options) for each in folded] == [LAKE, LAKE]


@pytest.mark.sqlite_is_enough
def test_other_options_are_no_other_output(store: Store) -> None:
    # The ledger of the second batch begins where the first one's ends: its receipt is kept beside the same output.
    control = store.connect()
    plan_first(control)
    commit(control, FIRST_PLAN)
    second = plan_of((orders(0), 100, 110), number=2)
    plan_next(control, replace(second, output=replace(second.output, options=(("catalog", "other"),))))
    publish(control, second)
    assert store.events("output_changed") == []
    assert control.ledger(second.batch_id) == []
