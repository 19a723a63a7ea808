"""What the control tables answer of a feed: the same before and after its old batches are folded."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from tests.histories.world import FEED, World

from kafka_ingest.batches.backfill_request import BackfillRequest, OfBatch, OnMissing, OpenGaps
from kafka_ingest.batches.plan_backfill import plan_backfill
from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.model.batch import BatchState
from kafka_ingest.model.coverage import coverage_of
from kafka_ingest.model.offsets import OffsetRange, intersect, union
from kafka_ingest.model.summaries import ReadCounts
from kafka_ingest.observing.locate import locate
from kafka_ingest.sinks.choose import sink_of
from kafka_ingest.verbs.coverage import partition_document, verify_output

DIFFERS = {"folded", "folded_batches"}
"""What is there to say how the answer is known."""


def answers(world: World) -> dict[str, Any]:
    """Return what is asked of control tables whose batches may be folded."""
    tables = world.tables
    rows = tables.coverage(FEED)
    if rows is None:
        return {}
    coverage = coverage_of(rows)
    feed_id = rows.feed.feed_id
    passed = [OffsetRange(tp, 0, row.next_offset) for tp, row in rows.feed.stored.items() if row.next_offset]
    states, summaries = tables.batch_states(feed_id), tables.feed_summaries()
    abandoned = [batch_id for batch_id, state in states.items() if state is BatchState.ABANDONED]
    return {
        "coverage": [said(partition_document(partition)) for partition in coverage.values()],
        "verified": said(verify_output(rows, coverage, tables, sink_of)),
        "stored": rows.feed.stored,
        "revision": rows.feed.revision,
        # Of the newest batch the counts are those of its ranges: where it is folded there are none.
        "status": [replace(each, not_rows=replace(each.not_rows, newest=ReadCounts())) for each in summaries],
        "rows": tables.rows_by_partition(feed_id),
        "states": states,
        "published": tables.newest_of_kinds(feed_id),
        "ahead": union(tables.committed_ahead(feed_id)),
        "within": tables.committed_within(feed_id, passed),
        "of abandoned": {
            batch_id: intersect(tables.batch(batch_id).plan.ranges, tables.committed_ranges(batch_id))
            for batch_id in abandoned
        },
        "ledger": tables.ledger_of_feed(feed_id),
        "gaps to fill": chosen(world, BackfillRequest(OpenGaps(), {}, on_missing=OnMissing.RECORD_GAP)),
        "the oldest again": chosen(world, BackfillRequest(OfBatch(min(states)), {}, on_missing=OnMissing.RECORD_GAP))
        if states
        else None,
        "located": [located(world, each, offset) for each in passed for offset in {0, each.span // 2, each.span - 1}],
    }


def said(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document without what says how it is known."""
    return {key: value for key, value in document.items() if key not in DIFFERS}


def located(world: World, passed: OffsetRange, offset: int) -> dict[str, Any]:
    """Return where an offset is."""
    return said(locate(world.tables, sink_of, FEED, passed.topic_partition, offset).as_document())


def again(batch_id: UUID) -> BackfillRequest:
    """Return the request to read a batch again, as far as that is possible."""
    return BackfillRequest(OfBatch(batch_id), {}, on_missing=OnMissing.RECORD_GAP)


def parts_now(world: World) -> SimpleNamespace:
    """Return the world's parts, as they are behind those that fail and are watched."""
    return SimpleNamespace(control=world.tables, kafka=world.topics.cluster, sinks=world.sinks)


def chosen(world: World, request: BackfillRequest) -> object:
    """Return what a backfill would read, or why it would not."""
    try:
        return plan_backfill(request, world.settings, parts_now(world), actor=None).decision
    except KafkaIngestError as error:
        return type(error)
