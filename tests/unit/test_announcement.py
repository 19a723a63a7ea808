"""What an Asset event carries of a commit."""

import json

import pytest
from tests.fakes import a_plan, a_receipt, span

from kafka_ingest.batches.commit_batch import MAX_RANGES, MAX_TOPICS, announcement
from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.receipt import RangeCount

LARGEST_EVENT = 64 * 1024


def announced(plan: BatchPlan, counts: list[RangeCount]) -> dict:
    return announcement(plan, counts)


def counts_of(topics: int, partitions: int, name: str = "orders") -> list[RangeCount]:
    return [
        RangeCount(OffsetRange(TopicPartition(f"{name}-{topic:05d}", number), 5, 15), 7, 5, 14)
        for topic in range(topics)
        for number in range(partitions)
    ]


def test_a_batch_of_a_few_partitions_is_announced_whole() -> None:
    plan = a_plan(span(0, 0, 100), span(1, 0, 50))
    event = announced(plan, a_receipt(plan).range_counts(plan))
    assert event == {
        "batch_id": str(plan.batch_id),
        "feed": plan.feed_name,
        "kind": "live",
        "rows": 150,
        "dead_letters": 0,
        "filtered": 0,
        "ranges": [
            {"topic": "orders", "partition": 0, "start_offset": 0, "end_offset": 100, "rows": 100},
            {"topic": "orders", "partition": 1, "start_offset": 0, "end_offset": 50, "rows": 50},
        ],
        "ranges_left_out": 0,
        "topics": [{"topic": "orders", "partitions": 2, "offsets": 150, "rows": 150}],
        "topics_left_out": 0,
    }


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (10_000, 1), (100, 100)])
def test_an_event_is_of_bounded_size_and_says_what_it_leaves_out(topics: int, partitions: int) -> None:
    plan, counts = a_plan(span(0, 0, 100)), counts_of(topics, partitions, "t" * 243)

    event = announced(plan, counts)

    assert len(json.dumps(event)) < LARGEST_EVENT
    assert event["rows"] == 70_000
    assert len(event["ranges"]) == MAX_RANGES
    assert event["ranges_left_out"] == 10_000 - MAX_RANGES
    assert len(event["topics"]) == min(topics, MAX_TOPICS)
    assert event["topics_left_out"] == max(0, topics - MAX_TOPICS)
    assert event["topics"][0] == {
        "topic": f"{'t' * 243}-00000",
        "partitions": partitions,
        "offsets": 10 * partitions,
        "rows": 7 * partitions,
    }
