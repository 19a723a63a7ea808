"""``plan``: the feed's next batch, planned or only shown."""

from collections.abc import Iterator
from typing import Final

from kafka_ingest.answers.answer import Answer, Line
from kafka_ingest.answers.documents import decision_document
from kafka_ingest.answers.fitting_table import FittingTable
from kafka_ingest.answers.tables import decision_table, moment
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.plan_batch import PlanResult, why_nothing
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.settings.run_request import NOT_APPLIED, RunRequest

WOULD_BE: Final = {PlanResult.PLANNED: "would_plan", PlanResult.RESUMED: "open_batch"}
"""What a dry run calls the result of a plan."""


def plan(parts: FeedParts, request: RunRequest, *, actor: str | None) -> Answer:
    """Plan the next batch as the DAG's plan task does; without an actor only show it."""
    name = parts.feed.name
    outcome = parts.plan(actor=actor, end=request.end(), max_records=request.max_records)
    result = outcome.result.value if actor is not None else WOULD_BE.get(outcome.result, outcome.result.value)
    batch_id = str(outcome.batch.batch_id) if outcome.batch is not None else None
    return Answer(
        {"feed": name, "result": result, "batch_id": batch_id} | decision_document(outcome.decision),
        lines_of(name, outcome.decision, batch_id, request),
    )


def lines_of(
    feed_name: str, decision: PlanDecision | None, batch_id: str | None, request: RunRequest
) -> Iterator[Line | FittingTable]:
    """Yield the ranges, and what was found besides them."""
    if decision is None:
        yield Line(f"batch {batch_id} is open: the next run continues it, and plans nothing new before it is committed")
        if request != RunRequest():
            yield Line(NOT_APPLIED, "yellow", aside=True)
        return
    yield decision_table(feed_name, decision)
    yield from lines_of_gaps_and_holds(decision)
    if not decision.ranges:
        yield Line(why_nothing(decision))
    if decision.capped:
        yield Line("there are records left for the batch after it")
    if batch_id is not None:
        yield Line(f"planned batch {batch_id}")


def lines_of_gaps_and_holds(decision: PlanDecision) -> Iterator[Line]:
    """Yield what a plan found besides its ranges: gaps that were passed over, and partitions that take no part now."""
    for gap in decision.gaps:
        yield Line(f"  gap {gap.offset_range}: {gap.reason}", "yellow", aside=True)
    for hold in decision.holds:
        yield Line(f"  held since {moment(hold.since)} UTC, {hold}", "yellow", aside=True)
