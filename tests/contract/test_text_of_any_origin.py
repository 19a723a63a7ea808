"""Text that no database or UTF-8 has a form for stops nothing: not a step, not a question, not a commit."""

from tests.contract.builders import FIRST_PLAN, NOON, ORDERS_FEED, plan_first, receipt_of, write
from tests.contract.conftest import SqlStore

from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.kept_receipts import published_document

HOSTILE = "caf\udce9 \0 \ud800 \x1b[2J"
KEPT = r"caf\xe9 \x00 \ud800 \x1b[2J"


def test_a_reason_of_any_bytes_is_kept_with_its_escapes(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control)
    control.record_event(
        ORDERS_FEED, "note", actor=HOSTILE, batch_id=None, detail={"reason": HOSTILE, "list": [{HOSTILE: HOSTILE}]}
    )
    control.abandon(FIRST_PLAN.batch_id, reason=HOSTILE, actor=HOSTILE)

    batch = control.batch(FIRST_PLAN.batch_id)
    assert (batch.reason, batch.abandoned_by) == (KEPT, KEPT)
    [event] = database.events("note")
    assert (event.actor, event.detail) == (KEPT, {"reason": KEPT, "list": [{KEPT: KEPT}]})


def test_a_name_that_nothing_can_have_is_not_found(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control)
    assert control.feed(HOSTILE) is None
    assert control.batches_of_run(ORDERS_FEED, HOSTILE) == []


def test_an_event_that_an_earlier_version_stored_as_it_came_does_not_stop_the_commit(database: SqlStore) -> None:
    control = database.connect()
    plan_first(control)
    feed_id = ORDERS_FEED.hex if database.settings.sqlite_file is not None else ORDERS_FEED
    detail = r'{"reason": "caf\udce9"}'  # as json.dumps writes a lone surrogate, which both databases take
    database.execute(
        "INSERT INTO event (feed_id, kind, at, who, detail) VALUES (:feed_id, 'gap', :at, 'ops', CAST(:detail AS JSON))"
        if database.settings.sqlite_file is None
        else "INSERT INTO event (feed_id, kind, at, who, detail) VALUES (:feed_id, 'gap', :at, 'ops', :detail)",
        feed_id=feed_id,
        at=NOON,
        detail=detail,
    )
    write(control, FIRST_PLAN)
    control.begin_commit(FIRST_PLAN.batch_id, 1)

    ledger = control.ledger(FIRST_PLAN.batch_id)
    published = PublishedReceipt(FIRST_PLAN, receipt_of(FIRST_PLAN, 1), ledger)
    assert rb'"reason":"caf\\xe9"' in published_document(published)
    control.complete_commit(FIRST_PLAN.batch_id, actor="committer")
    assert control.batch(FIRST_PLAN.batch_id).state is BatchState.COMMITTED
