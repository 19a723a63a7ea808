"""An event of the audit journal of which only the first entries were kept."""

from datetime import UTC, datetime

import pytest

from kafka_ingest.model.gap import Event
from kafka_ingest.observing.journal import format_event

PARTITION = {
    "topic": "orders",
    "partition": 0,
    "topic_id": "id-1",
    "first_offset": 0,
    "next_offset": 10,
    "rule": "earliest",
}


@pytest.mark.parametrize(
    ("left_out", "summary"),
    [
        ({}, "2 of the output's batches taken over; stored offsets orders-0 → 10"),
        (
            {"batches": 998, "partitions": 4_000},
            (
                "1,000 of the output's batches taken over; stored offsets orders-0 → 10, and 4,000 that the journal "
                "does not name"
            ),
        ),
    ],
)
def test_what_a_line_has_left_out_is_counted_and_said_to_be_left_out(left_out: dict[str, int], summary: str) -> None:
    detail = {"batches": ["a", "b"], "abandoned": None, "partitions": [PARTITION], "removed": [], "left_out": left_out}
    event = Event(1, "adopted", datetime(2026, 3, 1, tzinfo=UTC), "ops", None, detail)
    assert format_event(event).summary.startswith(summary)
