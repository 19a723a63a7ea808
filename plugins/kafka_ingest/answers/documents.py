"""What ``--json`` prints, where the object has no document of its own class."""

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_ingest.model.control_rows import StartOver
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import OffsetRange, StoredOffset
from kafka_ingest.model.summaries import NONE_LEFT_OUT, BatchSummary, FeedSummary
from kafka_ingest.operating.adopt import AdoptDecision
from kafka_ingest.operating.topic_changed import Changes, Choice
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


def range_document(found: OffsetRange) -> dict[str, Any]:
    """Return a range as ``--json`` shows it."""
    return found.as_document()


def row_document(row: StoredOffset) -> dict[str, Any]:
    """Return a stored offset as ``--json`` shows it."""
    return document_of(row, "topic_partition", "topic_id", "seeded_by") | {"stored_offset": row.next_offset}


def change_document(
    changes: Changes, choices: Mapping[str, Sequence[Choice]], after: list[StartOver] | None, *, executed: bool
) -> dict[str, Any]:
    """Return what changed under a feed, each topic's choices, and the stored offsets after a choice, for ``--json``."""
    return {
        "feed": changes.feed.name,
        "cluster_id": {"was": changes.feed.cluster_id, "is": changes.cluster_id},
        "open_batch": str(changes.affected.batch_id) if changes.affected else None,
        "topics": [
            {
                "topic": change.topic,
                "topic_id": {"was": change.known_id, "is": change.found_id},
                "exists": change.found is not None,
                "log_ended_at": [
                    {"partition": tp.partition, "offset": end} for tp, end in sorted(change.log_ends.items())
                ],
                "choices": [choice.value for choice in choices[change.topic]],
                "stored": [row_document(row) for row in change.stored],
            }
            for change in changes.topics
        ],
        "after": None if after is None else [row_document(row) for topic in after for row in topic.rows],
        "executed": executed,
    }


def adoption_document(feed_name: str, decision: AdoptDecision, *, executed: bool) -> dict[str, Any]:
    """Return the result of adopting as ``--json`` shows it."""
    adoption = decision.adoption
    return {
        "feed": feed_name,
        "feed_id": str(decision.target.feed_id),
        "cluster_id": adoption.cluster_id,
        "batches": [str(batch.plan.batch_id) for batch in adoption.batches],
        "gaps": [gap.as_document() for gap in adoption.gaps],
        "abandoned": str(adoption.abandoned) if adoption.abandoned else None,
        "partitions": [
            row_document(row) | {"stored_offset_now": now.next_offset if now is not None else None}
            for row in adoption.stored
            for now in [decision.stored_now.get(row.topic_partition)]
        ],
        "files": [
            {"batch_id": str(batch_id), "state": found.state.value, "difference": found.difference}
            for batch_id, found in adoption.files.items()
        ],
        "nothing_new": decision.is_nothing,
        "executed": executed,
    }


def batch_document(batch: BatchSummary) -> dict[str, Any]:
    """Return a batch as ``--json`` shows it."""
    return document_of(batch)


def summary_document(summary: FeedSummary) -> dict[str, Any]:
    """Return one line of ``status`` as ``--json`` shows it."""
    names = ("cluster_id", "partitions", "open_batch", "open_batch_state", "last_committed_at", "rows_committed")
    return {"feed": summary.name, **document_of(summary, *names), **summary.not_rows.as_document()}


def never_planned_document(feed_name: str) -> dict[str, Any]:
    """Return the line of a feed that was never planned, with the same keys."""
    nothing = dict.fromkeys(("cluster_id", "open_batch", "open_batch_state", "last_committed_at"))
    return {"feed": feed_name, "partitions": 0, "rows_committed": 0, **nothing, **NONE_LEFT_OUT.as_document()}
