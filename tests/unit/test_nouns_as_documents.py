"""Nouns become documents and rows field by field, and are read back."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from kafka_ingest.model.batch import Attempt, AttemptState
from kafka_ingest.model.documents import document_of, read_document, read_row, row_of
from kafka_ingest.model.gap import Gap, GapCause, LostRange
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.omissions import NeverFound

BATCH = UUID("01990000-0000-7000-8000-000000000001")
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RANGE = OffsetRange(TopicPartition("orders", 3), 10, 20)
GAP = Gap(BATCH, RANGE, None, GapCause.RESET, "went ahead", "jo", AT, None)
IN_DOCUMENT = {
    "gap_id": "01990000-0000-7000-8000-000000000001",
    "topic": "orders",
    "partition": 3,
    "start_offset": 10,
    "end_offset": 20,
    "topic_id": None,
    "cause": "reset",
    "reason": "went ahead",
    "decided_by": "jo",
    "decided_at": "2026-01-02T03:04:05+00:00",
    "applied_at": None,
    "closed_by_batch": None,
}
ATTEMPT = Attempt(BATCH, 1, AttemptState.OPEN, Path("/staging/1"), "abc", AT, "jo")


def test_a_document_has_each_field_as_json_has_it_with_positions_spread_out() -> None:
    assert document_of(GAP) == IN_DOCUMENT


def test_a_document_of_some_fields_has_these_and_properties() -> None:
    assert document_of(GAP, "cause", "state") == {"cause": "reset", "state": "ahead"}


def test_a_noun_is_read_back_whatever_else_is_in_its_document() -> None:
    assert read_document(Gap, IN_DOCUMENT | {"of_a_later_version": [1]}) == GAP


def test_a_field_with_a_default_may_be_missing_in_a_document_and_no_other() -> None:
    without_default = {name: value for name, value in IN_DOCUMENT.items() if name != "closed_by_batch"}
    assert read_document(Gap, without_default) == GAP
    with pytest.raises(KeyError, match="cause"):
        read_document(Gap, {name: value for name, value in IN_DOCUMENT.items() if name != "cause"})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("gap_id", "no id", "badly formed"),
        ("partition", True, "expected partition to be a whole number"),
        ("start_offset", "10", "expected start_offset to be a whole number"),
        ("cause", "weather", "not a valid GapCause"),
        ("reason", 3, "expected reason to be a text, found '3'"),
        ("reason", "a\0b", "expected reason to be a text"),
        ("decided_at", "2026-01-02T03:04:05", "expected decided_at with its offset"),
        ("applied_at", "soon", "Invalid isoformat"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: object, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read_document(Gap, IN_DOCUMENT | {name: value})


def test_lists_are_read_as_the_tuples_that_were_written() -> None:
    found = NeverFound("value", "usr", 20, ("user", "id"), is_part_found=False)
    assert document_of(found)["others"] == ["user", "id"]
    assert read_document(NeverFound, document_of(found)) == found


def test_a_row_has_what_a_database_takes() -> None:
    assert row_of(ATTEMPT, "batch_id", "state", "directory", "opened_at", "reason") == {
        "batch_id": BATCH,
        "state": "OPEN",
        "directory": "/staging/1",
        "opened_at": AT,
        "reason": None,
    }


def test_a_noun_is_read_from_its_row() -> None:
    assert read_row(Attempt, row_of(ATTEMPT)) == ATTEMPT
    lost = LostRange(BATCH, "part-0.parquet", RANGE, "id", 4)
    assert read_row(LostRange, row_of(lost) | {"feed_id": BATCH}) == lost


def test_what_a_row_calls_otherwise_is_given() -> None:
    row = row_of(GAP)
    who = row.pop("decided_by")
    assert read_row(Gap, row, decided_by=who) == GAP


def test_a_number_is_whole_and_no_text() -> None:
    with pytest.raises(ValueError, match="expected records to be a whole number, found"):
        read_document(NeverFound, {"part": "value", "field": "usr", "records": 2.5})
