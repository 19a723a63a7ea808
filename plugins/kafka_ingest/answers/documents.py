"""What ``--json`` prints, where the object has no document of its own class."""

from typing import Any

from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import StoredOffset
from kafka_ingest.model.summaries import NONE_LEFT_OUT, FeedSummary
from kafka_ingest.planning.decide import PlanDecision


def decision_document(decision: PlanDecision | None) -> dict[str, Any]:
    """Return a decision as ``--json`` shows it."""
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


def row_document(row: StoredOffset) -> dict[str, Any]:
    """Return a stored offset as ``--json`` shows it."""
    return document_of(row, "topic_partition", "topic_id", "seeded_by") | {"stored_offset": row.next_offset}


def summary_document(summary: FeedSummary) -> dict[str, Any]:
    """Return one line of ``status`` as ``--json`` shows it."""
    names = ("cluster_id", "partitions", "open_batch", "open_batch_state", "last_committed_at", "rows_committed")
    return {"feed": summary.name, **document_of(summary, *names), **summary.not_rows.as_document()}


def never_planned_document(feed_name: str) -> dict[str, Any]:
    """Return the line of a feed that was never planned, with the same keys."""
    nothing = dict.fromkeys(("cluster_id", "open_batch", "open_batch_state", "last_committed_at"))
    return {"feed": feed_name, "partitions": 0, "rows_committed": 0, **nothing, **NONE_LEFT_OUT.as_document()}
