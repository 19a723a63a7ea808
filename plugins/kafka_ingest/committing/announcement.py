"""What an Airflow Asset event carries of a commit: of bounded size, however many partitions the batch has read.

Airflow keeps every event in its database and passes it to each run that it triggers.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.receipt import RangeCount

MAX_RANGES = 100
MAX_TOPICS = 100


def announcement(plan: BatchPlan, counts: Sequence[RangeCount]) -> dict[str, Any]:
    """Return what the Asset event carries.

    ``ranges`` are all of them, or the first :data:`MAX_RANGES`, and ``ranges_left_out`` says how many more there are.
    ``topics`` has sums for up to :data:`MAX_TOPICS` topics; ``kafka-ingest batches FEED --json`` has everything, by
    batch id.
    """
    topics = topics_of(counts)
    return {
        "batch_id": str(plan.batch_id),
        "feed": plan.feed_name,
        "kind": plan.kind.value,
        "rows": sum(count.rows for count in counts),
        "dead_letters": sum(count.dead_letters for count in counts),
        "filtered": sum(count.filtered for count in counts),
        "ranges": [range_document(count) for count in counts[:MAX_RANGES]],
        "ranges_left_out": max(0, len(counts) - MAX_RANGES),
        "topics": topics[:MAX_TOPICS],
        "topics_left_out": max(0, len(topics) - MAX_TOPICS),
    }


def range_document(count: RangeCount) -> dict[str, Any]:
    return {
        "topic": count.offset_range.topic,
        "partition": count.offset_range.partition,
        "start_offset": count.offset_range.start_offset,
        "end_offset": count.offset_range.end_offset,
        "rows": count.rows,
    }


def topics_of(counts: Iterable[RangeCount]) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for count in counts:
        topic = count.offset_range.topic
        of_topic = found.setdefault(topic, {"topic": topic, "partitions": 0, "offsets": 0, "rows": 0})
        of_topic["partitions"] += 1
        of_topic["offsets"] += count.offset_range.span
        of_topic["rows"] += count.rows
    return [found[topic] for topic in sorted(found)]
