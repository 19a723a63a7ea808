"""What a table may be partitioned by, and which partition a value is in."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kafka_ingest.model.partition_term import PartitionTerm, terms_of
from kafka_ingest.model.table_options import TableOptions

DAY, HOUR = PartitionTerm.parse("day(kafka_timestamp)"), PartitionTerm.parse("hour(kafka_timestamp)")


@pytest.mark.parametrize(
    "text", ["kafka_topic", "kafka_partition", "kafka_topic_id", "kafka_batch", str(DAY), str(HOUR)]
)
def test_a_term_is_read_back_as_it_is_written(text: str) -> None:
    assert str(PartitionTerm.parse(f" {text} ")) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "value",
        "key",
        "kafka_offset",
        "kafka_timestamp",
        "day(kafka_topic)",
        "month(kafka_timestamp)",
        "day()",
        "a, b",
    ],
)
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected kafka_topic, .* or hour\(kafka_timestamp\), found") as refused:
        PartitionTerm.parse(text)
    assert repr(text) in str(refused.value)


def test_a_column_comes_once() -> None:
    with pytest.raises(ValueError, match="expected each column once"):
        terms_of([str(DAY), str(HOUR)])


def test_days_and_hours_are_those_of_utc() -> None:
    in_zone = datetime(2026, 1, 1, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    assert (DAY.text_of(in_zone), HOUR.text_of(in_zone)) == ("2025-12-31", "2025-12-31T23")
    first = datetime(1, 1, 2, tzinfo=UTC)
    assert (DAY.text_of(first), HOUR.text_of(first)) == ("0001-01-02", "0001-01-02T00")
    assert DAY.text_of(None) is None


def test_values_of_columns_are_their_text() -> None:
    topic, partition = terms_of(["kafka_topic", "kafka_partition"])
    assert (topic.text_of("orders"), partition.text_of(7), topic.text_of(None)) == ("orders", "7", None)


def test_a_plan_keeps_the_terms_in_their_order() -> None:
    options = TableOptions(partition_by=terms_of(["hour(kafka_timestamp)", "kafka_topic"]))
    assert options.as_options() == {"partition_by": "hour(kafka_timestamp), kafka_topic"}
    assert TableOptions.of(options.as_options()) == options
