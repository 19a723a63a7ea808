"""What a table may be partitioned by, and which partition a value is in."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kafka_ingest.model.partition_term import PartitionTerm, misfits, terms_of
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


def test_terms_of_folders_have_names_and_any_column() -> None:
    texts = ["dt: day(kafka_timestamp)", "land: value.country", "sent: hour(value.sent_at)"]
    terms = terms_of(texts)
    assert [(str(term), term.own_column, term.is_kafkas) for term in terms] == [
        ("dt: day(kafka_timestamp)", "dt", True),
        ("land: value.country", "land", False),
        ("sent: hour(value.sent_at)", "sent", False),
    ]
    options = TableOptions(partition_by=terms)
    assert TableOptions.of(options.as_options()) == options


def test_rows_are_not_divided_by_what_they_do_not_have_or_what_has_no_name_of_its_own() -> None:
    written = {"value": "struct", "value.country": "string", "value.price": "double", "value.at": "date", "Land": "int"}
    terms = terms_of(["land: value.country", "p: value.price", "h: hour(value.at)", "d: day(value.at)", "x: value.x"])
    name, price, hour, missing = misfits(terms, written)
    assert name == "land: a folder's name in sink.partition_by; readers would take the one for the other"
    assert price.startswith(
        "value.price: found of type double, sink.partition_by (p: value.price) needs one of type st"
    )
    assert hour.endswith(
        "found of type date, sink.partition_by (h: hour(value.at)) needs one of type timestamp, timestamp_ntz"
    )
    assert missing.startswith("value.x: found none, sink.partition_by (x: value.x) needs")
