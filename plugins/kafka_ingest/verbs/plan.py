"""``plan``: the feed's next batch, planned or only shown."""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final

from pydantic import Field

from kafka_ingest.batches.plan_batch import PlanResult, why_nothing
from kafka_ingest.errors import WrongUseError
from kafka_ingest.model.documents import document_of
from kafka_ingest.planning.decide import PlanDecision
from kafka_ingest.settings.run_request import NOT_APPLIED, RunRequest, record_named
from kafka_ingest.verbs.answer import Answer, FittingTable, Line, moment, number
from kafka_ingest.verbs.request import Call, Deciding, Option, Request

WOULD_BE: Final = {PlanResult.PLANNED: "would_plan", PlanResult.RESUMED: "open_batch"}
"""What a dry run calls the result of a plan."""


class Plan(Request):
    """Plan the feed's next batch, as the DAG's plan task does; with --dry-run only show it."""

    verb = command = "plan"
    like = "--dry-run"
    does = "only shows the next batch"
    only_shows = True
    deciding = Deciding.DRY_RUN

    max_records: Annotated[int | None, Field(ge=1), Option("A smaller limit for this run.")] = None
    end_timestamp: Annotated[
        str | None, Option("End before the first record of this time, e.g. 2026-01-31T00:00:00Z.", metavar="TIME")
    ] = None
    end_offset: Annotated[
        list[str],
        Option("Read only this partition, up to this offset; may be repeated.", metavar="TOPIC:PARTITION=OFFSET"),
    ] = Field(default_factory=list)

    def answer(self, call: Call) -> Answer:
        request = run_request(self.max_records, self.end_timestamp, self.end_offset)
        parts, actor = call.parts, call.decided.actor if call.decided is not None else None
        outcome = parts.plan(actor=actor, end=request.end(), max_records=request.max_records)
        result = outcome.result.value if actor is not None else WOULD_BE.get(outcome.result, outcome.result.value)
        batch_id = str(outcome.batch.batch_id) if outcome.batch is not None else None
        name = parts.feed.name
        return Answer(
            {"feed": name, "result": result, "batch_id": batch_id} | decision_document(outcome.decision),
            lines_of(name, outcome.decision, batch_id, request),
        )


def lines_of(
    feed_name: str, decision: PlanDecision | None, batch_id: str | None, request: RunRequest
) -> Iterator[Line | FittingTable]:
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


def run_request(max_records: int | None, end_timestamp: str | None, end_offsets: Iterable[str]) -> RunRequest:
    by_topic: dict[str, dict[str, int]] = {}
    for text in end_offsets:
        tp, offset = record_named(text, "--end-offset ")
        if str(tp.partition) in by_topic.setdefault(tp.topic, {}):
            raise WrongUseError(f"expected one --end-offset for each partition, found {tp.topic}:{tp.partition} twice")
        by_topic[tp.topic][str(tp.partition)] = offset
    return RunRequest.of({"max_records": max_records, "end_timestamp": end_timestamp, "end_offsets": by_topic})


def decision_table(feed: str, decision: PlanDecision) -> FittingTable:
    numbers = ("start offset", "end offset", "records at most")
    made = FittingTable(
        f"next batch of feed {feed}", "topic", "partition", *numbers, "start", numbers=("partition", *numbers)
    )
    seeds = {seed.topic_partition: seed for seed in decision.seeds}
    for offset_range in decision.ranges:
        seed = seeds.get(offset_range.topic_partition)
        offsets = (offset_range.start_offset, offset_range.end_offset, offset_range.span)
        start = f"start rule: {seed.seeded_by}" if seed else "stored offset"
        made.add_line(offset_range.topic, str(offset_range.partition), *offsets, start)
    read = {offset_range.topic_partition for offset_range in decision.ranges}
    for tp, seed in seeds.items():
        if tp not in read:
            offset = number(seed.next_offset)
            made.add_line(tp.topic, str(tp.partition), offset, offset, "0", f"start rule: {seed.seeded_by}")
    made.add_section()
    made.add_line("total", str(len(decision.ranges)), "", "", sum(r.span for r in decision.ranges), "")
    return made


def decision_document(decision: PlanDecision | None) -> dict[str, Any]:
    if decision is None:
        return dict.fromkeys(("ranges", "seeds", "gaps", "holds", "left_out", "capped", "max_records", "waiting_since"))
    return {
        "ranges": [found.as_document() for found in decision.ranges],
        "seeds": [
            document_of(seed, "topic_partition") | {"offset": seed.next_offset, "rule": seed.seeded_by}
            for seed in decision.seeds
        ],
        "left_out": [document_of(tp) | {"reason": reason} for tp, reason in sorted(decision.left_out.items())],
        "gaps": [document_of(gap) for gap in decision.gaps],
        "holds": [hold.as_document() for hold in decision.holds],
        **document_of(decision, "capped", "max_records", "waiting_since"),
    }
