"""What the events of the audit journal say in words, and which stored offsets they are known to have moved."""

import ast
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from tests.fakes import partition, span

import kafka_ingest
from kafka_ingest.model.gap import Event, Gap, GapCause
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.observing.journal import FORMATTERS, Change, EventText, format_event

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
BATCH = UUID("01890000-0000-7000-8000-000000000001")


def text_of(kind: str, **detail: Any) -> EventText:
    return format_event(Event(1, kind, NOON, "ops", None, detail))


def a_gap(
    held: OffsetRange, cause: GapCause = GapCause.SKIPPED, *, applied: bool = True, **changes: Any
) -> dict[str, Any]:
    gap = Gap(BATCH, held, "id-1", cause, "poisoned", "ops", NOON, NOON if applied else None, **changes)
    return gap.as_document()


def row(number: int, next_offset: int | None, topic_id: str = "id-1", topic: str = "orders") -> dict[str, Any]:
    """Return a stored offset as the journal keeps it."""
    known = {"topic": topic, "partition": number, "topic_id": topic_id}
    return known | {"first_offset": 0, "next_offset": next_offset, "rule": "earliest"}


def seed(number: int, offset: int | None, rule: str = "earliest") -> dict[str, Any]:
    return {"topic": "orders", "partition": number, "topic_id": "id-1", "offset": offset, "rule": rule}


def reset(**changes: Any) -> EventText:
    detail = {"reason": "why", "cluster_id": {"was": "a", "is": "a"}, "same_records": [], "untouched": []}
    return text_of("reset", **(detail | {"removed": [], "partitions": []} | changes))


# ── Seeds and resets ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_seeds_are_reported_by_the_rule_that_decided() -> None:
    found = text_of("seeded", partitions=[seed(0, 1200), seed(1, 7, "latest"), seed(2, None, "latest"), seed(3, 0)])
    assert found.summary == (
        "by start rule earliest: orders-0 → 1,200, orders-3 → 0; by start rule latest: orders-1 → 7, orders-2 → pending"
    )
    assert Change(partition(1), None, 7) in found.changes


def test_of_many_partitions_the_words_name_a_few_and_the_changes_all() -> None:
    found = text_of("seeded", partitions=[seed(number, 0) for number in range(1000)])
    assert found.summary.endswith("orders-4 → 0 and 995 more")
    assert len(found.changes) == 1000


def test_a_reset_is_reported_as_old_and_new_offsets() -> None:
    found = reset(removed=[row(0, 120), row(1, 7), row(2, 9)], partitions=[row(0, 40), row(1, 7), row(3, 5)])
    assert found.summary == "orders-0: 120 → 40, orders-3 begins at 5; orders-2 ends at 9; 1 partition keeps its offset"
    assert found.changes == (
        Change(partition(0), 120, 40),
        Change(partition(3), None, 5),
        Change(partition(2), 9, None),
    )
    assert found.reason == "why"


def test_a_start_that_is_still_to_be_resolved_is_no_end() -> None:
    found = reset(removed=[row(0, 120), row(1, None)], partitions=[row(0, None), row(1, 7)])
    assert found.summary == "orders-0: 120 → pending, orders-1 begins at 7"


def test_a_reset_shows_another_topic_id_and_another_cluster() -> None:
    found = reset(
        removed=[row(0, 7), row(1, 7)],
        partitions=[row(0, 7, "id-2"), row(1, 7, "id-2")],
        cluster_id={"was": "a", "is": "b"},
    )
    assert found.summary == "2 partitions keep their offsets; orders: topic id id-1 → id-2; cluster a → b"
    assert found.changes == ()


# ── Gaps ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_gap_that_was_passed_over_moved_the_stored_offset_and_one_ahead_did_not() -> None:
    found = text_of("gap", gaps=[a_gap(span(0, 4, 6)), a_gap(span(1, 1000, 2000), applied=False)])
    assert found.summary == (
        "passed over: orders-0: 4 → 6 (skipped); ahead of the stored offset: orders-1[1000, 2000) (skipped)"
    )
    assert found.changes == (Change(partition(0), 4, 6),)
    assert found.reason == "poisoned"


def test_a_gap_of_retention_is_not_said_to_have_moved_anything() -> None:
    found = text_of("gap", gaps=[a_gap(span(0, 4, 6), GapCause.RETENTION)])
    assert found.summary == "not ingested: orders-0[4, 6) (retention)"
    assert found.changes == ()


def test_gaps_that_a_backfill_read_after_all_are_reported_as_closed() -> None:
    found = text_of("gap_closed", gaps=[a_gap(span(0, 4, 6), closed_by_batch=BATCH)])
    assert found.summary == "read after all: orders-0[4, 6)"
    assert found.reason == "poisoned"


def test_thousands_of_gaps_of_one_plan_are_reported_in_a_few_words_and_all_changes() -> None:
    found = text_of("gap", gaps=[a_gap(span(number, 0, 9), GapCause.BEHIND) for number in range(10_000)])
    assert found.summary.endswith("orders-4: 0 → 9 (behind) and 9,995 more")
    assert len(found.changes) == 10_000


# ── All the others ────────────────────────────────────────────────────────────────────────────────────────────────────

WORDS: Mapping[str, tuple[dict[str, Any], str, str | None]] = {
    "abandoned": ({"reason": "why", "was": "PLANNED"}, "PLANNED → ABANDONED", "why"),
    "attempts_discarded": (
        {"attempt": 2, "reason": "damaged"},
        "WRITTEN → PLANNED; attempt 2 and all before it DISCARDED",
        "damaged",
    ),
    "receipt_refused": ({"attempt": 1, "reason": "damaged"}, "attempt 1: its receipt is not used", "damaged"),
    "receipt_accepted": ({"attempt": 1, "reason": "why"}, "PLANNED → WRITTEN by attempt 1", "why"),
    "mirror_failed": ({"group": "g", "reason": "members"}, "consumer group g was not moved", "members"),
    "renamed": ({"reason": "why", "was": "orders", "is": "sales"}, "orders → sales", "why"),
    "output_changed": (
        {"was": {"format": "parquet", "path": "/a"}, "is": {"format": "parquet", "path": "/b"}, "partitions": []},
        "/a → /b",
        None,
    ),
    "cleaned": (
        {"reason": "why", "attempts": [{"attempt": 1, "size_bytes": 1_500_000}, {"attempt": 2, "size_bytes": 0}]},
        "staged output of attempt 1, attempt 2 removed, 1.5 MB",
        "why",
    ),
    "adopted": (
        {
            "reason": "lost",
            "batches": ["a", "b"],
            "abandoned": "c",
            "partitions": [row(0, 10)],
            "removed": ["orders-7"],
        },
        "2 of the output's batches taken over; stored offsets orders-0 → 10; ended orders-7; open batch c → ABANDONED",
        "lost",
    ),
    "statistics_mended": (
        {"reason": "filters", "named": ["kafka_offset", "id"], "lacking": {"amount": 3}},
        "readers look for the bounds of kafka_offset, id; files lacked those of amount",
        "filters",
    ),
    "restored": ({"reason": "the last copy", "into": ["a"]}, "its staged records were restored by a", "the last copy"),
    "expired": ({"reason": "a year", "batches": ["a", "b"]}, "2 batches removed from the output: a, b", "a year"),
    "backfill_planned": (
        {
            "request": {
                "feed": "orders",
                "offset_ranges": ["orders:0=5-7"],
                "mode": "copy",
                "to": None,
                "reason": "why",
            },
            "chunks": ["a", "b", "c"],
        },
        "3 chunks planned: offset_ranges orders:0=5-7, mode copy",
        "why",
    ),
}


@pytest.mark.parametrize(("kind", "expected"), WORDS.items(), ids=WORDS.keys())
def test_an_event_is_formatted_in_words(kind: str, expected: tuple[dict[str, Any], str, str | None]) -> None:
    detail, summary, reason = expected
    found = text_of(kind, **detail)
    assert (found.summary, found.reason, found.changes) == (summary, reason, ())


def test_dead_letters_that_were_given_up_are_counted_with_the_reason() -> None:
    text = text_of("dead_letters_given_up", records=1200, reason="disk lost")
    assert (text.summary, text.reason) == ("1,200 dead letters were given up", "disk lost")


def test_timestamps_that_are_no_dates_are_reported_with_their_number() -> None:
    assert text_of("no_dates", attempt=1, rows=1200).summary == (
        "timestamps that are no dates: 1,200 records with kafka_timestamp null and the number in kafka_timestamp_ms"
    )


# ── What this version does not know ───────────────────────────────────────────────────────────────────────────────────


def test_an_event_of_an_unknown_kind_is_shown_as_its_json() -> None:
    found = text_of("moved_house", street="Gänsemarkt", reason="why")
    assert found == EventText('{"street": "Gänsemarkt", "reason": "why"}', (), "why")


@pytest.mark.parametrize("kind", FORMATTERS)
def test_an_event_of_another_form_is_shown_as_its_json_too(kind: str) -> None:
    assert text_of(kind, street=1).summary == '{"street": 1}'


def written_kinds() -> Iterator[str]:
    """Yield the kinds of events that the code writes, wherever it names them."""
    writers = {"append_event", "record_event"}
    for text in (path.read_text() for path in Path(kafka_ingest.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(text)) if any(writer in text for writer in writers) else ():
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
                if name in writers:
                    values = [each.value for each in node.args if isinstance(each, ast.Constant)]
                    yield from (value for value in values if isinstance(value, str))


def test_every_kind_of_event_that_is_written_can_be_formatted() -> None:
    assert set(written_kinds()) == FORMATTERS.keys()
