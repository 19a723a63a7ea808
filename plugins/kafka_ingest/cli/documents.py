"""What ``--json`` prints, where it is not the object itself that says it."""

import dataclasses
from datetime import datetime
from typing import Any

from kafka_ingest.control.reader import BatchSummary
from kafka_ingest.planning.decide import PlanDecision


def decision_document(decision: PlanDecision | None) -> dict[str, Any]:
    """Return a decision as ``--json`` shows it."""
    if decision is None:
        return {"ranges": None, "seeds": None, "left_out": None, "capped": None}
    return {
        "ranges": [
            {"topic": r.topic, "partition": r.partition, "start_offset": r.start_offset, "end_offset": r.end_offset}
            for r in decision.ranges
        ],
        "seeds": [
            {
                "topic": seed.topic_partition.topic,
                "partition": seed.topic_partition.partition,
                "offset": seed.next_offset,
                "rule": seed.seeded_by,
            }
            for seed in decision.seeds
        ],
        "left_out": [
            {"topic": tp.topic, "partition": tp.partition, "reason": reason}
            for tp, reason in sorted(decision.left_out.items())
        ],
        "capped": decision.capped,
    }


def batch_document(batch: BatchSummary) -> dict[str, Any]:
    """Return a batch as ``--json`` shows it."""
    document = dataclasses.asdict(batch)
    times = {key: value.isoformat() for key, value in document.items() if isinstance(value, datetime)}
    return document | times | {"batch_id": str(batch.batch_id), "state": batch.state.value}
