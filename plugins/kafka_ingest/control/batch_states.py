"""The one place that writes a batch's state. Each statement runs inside a transaction that holds the feed's lock."""

from datetime import UTC, datetime

from sqlalchemy import Connection, RowMapping, insert, update

from kafka_ingest.control.rows import NEWEST_LEDGER_EVENT
from kafka_ingest.control.schema import batch
from kafka_ingest.errors import BatchStateError
from kafka_ingest.model.batch import BatchPlan, BatchState, Transition
from kafka_ingest.model.documents import row_of


def begin_batch(connection: Connection, plan: BatchPlan, actor: str, *, lag: int | None = None) -> None:
    """Write a batch as PLANNED, after the newest ledger event; the unique index refuses a second open live one."""
    planned = {"state": BatchState.PLANNED.value, "ledger_upto": NEWEST_LEDGER_EVENT, "lag": lag}
    connection.execute(insert(batch).values(**first_values(plan, actor), **planned), {"of_feed": plan.feed_id})


def begin_adopted_batch(connection: Connection, plan: BatchPlan, actor: str) -> BatchState:
    """Write a batch that only its output knows, and return its state: it holds nothing until it is adopted.

    As PLANNED it could conflict with an open batch, and a COMMITTED one names an attempt, which names the batch.
    """
    state = BatchState.ABANDONED
    connection.execute(insert(batch).values(**first_values(plan, actor), state=state.value, reason="being adopted"))
    return state


def move_batch(connection: Connection, transition: Transition, **values: object) -> datetime:
    """Write a batch's next state, and the values that come with it; return when it was updated."""
    at = datetime.now(UTC)
    moved = connection.execute(
        update(batch)
        .where(batch.c.batch_id == transition.batch_id, batch.c.state == transition.found.value)
        .values(state=transition.to.value, updated_at=at, **values)
    ).rowcount
    if moved != 1:
        raise BatchStateError(
            f"batch {transition.batch_id} cannot become {transition.to}: expected it to be {transition.found} still, "
            "found it changed or deleted under the feed's lock. Nothing was changed; find out who writes to the "
            "control tables by hand."
        )
    return at


def transition_of(row: RowMapping, to: BatchState) -> Transition:
    """Return the change of a locked row's batch to a state; raises BatchStateError where its table has none."""
    return Transition(row["batch_id"], BatchState(row["state"]), to)


def first_values(plan: BatchPlan, actor: str) -> dict[str, object]:
    """Return a batch's row as it begins, without its state."""
    return row_of(plan, "batch_id", "feed_id", "kind", "planned_at") | {
        "plan": plan.as_document(),
        "plan_fingerprint": plan.fingerprint,
        "planned_by": actor,
        "updated_at": plan.planned_at,
    }
