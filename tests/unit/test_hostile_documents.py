"""Documents beside an output, each changed at one place: they are refused by a name, or are as good as ours."""

import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import a_file, a_plan, a_receipt, partition, span

from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.errors import InvalidReceiptError, OutputConflictError
from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import Attempt, AttemptState, BatchPlan
from kafka_ingest.model.gap import Event, Removal, RemovalCause
from kafka_ingest.model.omissions import LeftOut
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Filtered, Receipt
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS
from kafka_ingest.sinks.delta.columns import listed, without_nulls
from kafka_ingest.sinks.delta.log_entry import entry_name
from kafka_ingest.sinks.delta.log_reading import LogReading
from kafka_ingest.sinks.delta.table_fit import RETENTION, retention_s, why_not_written
from kafka_ingest.sinks.kept_receipts import published_document, published_of
from kafka_ingest.verbs.adopt import rebuilt_from

PLAN = a_plan(span(0, 0, 10), span(1, 5, 9))
RECEIPT = replace(
    a_receipt(PLAN, a_file(span(0, 0, 10), 8, without_date=1), rows_read=10),
    left_out=(LeftOut(span(1, 5, 9), 7),),
    filtered=(Filtered(partition(0), 2),),
    columns={"id": "long"},
)
ATTEMPT = Attempt(
    PLAN.batch_id, 1, AttemptState.OPEN, Path("/staging/1"), RECEIPT.document_sha256, PLAN.planned_at, "ada"
)
LEDGER = [Event(7, "gap_recorded", datetime(2026, 11, 26, tzinfo=UTC), "ada", None, {"why": "lost"})]
REMOVAL = Removal(PLAN.batch_id, RemovalCause.GONE, datetime(2026, 11, 26, tzinfo=UTC), "ada", "lost")

HOSTILE: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 7, 2**62, 1.5, "", "x", "\0", "../x", "2026-01-01T00:00:00", [], [[]], {}, {"": {}}]
)


def places_in(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value of a document."""
    yield path
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in inner:
        yield from places_in(value, (*path, key))


@st.composite
def changed(draw: st.DrawFn, document: Any) -> Any:
    """Return a document of which one value is another one, or gone."""
    place = draw(st.sampled_from(list(places_in(document))))
    if not place:
        return draw(HOSTILE)
    found = deepcopy(document)
    within = found
    for key in place[:-1]:
        within = within[key]
    if draw(st.booleans()):
        within[place[-1]] = draw(HOSTILE)
    else:
        del within[place[-1]]
    return found


@given(changed(RECEIPT.as_document()))
def test_a_receipt_is_refused_by_its_name_or_says_what_the_plan_allows(document: Any) -> None:
    with suppress(InvalidReceiptError):
        receipt = valid_receipt(PLAN, ATTEMPT, json.dumps(document).encode())
        assert receipt.range_counts(PLAN)
        assert Receipt.from_bytes(receipt.as_bytes()) == receipt


@given(changed(json.loads(published_document(PublishedReceipt(PLAN, RECEIPT, LEDGER)))))
def test_what_is_kept_of_a_batch_is_refused_by_one_name_or_can_be_kept_again(document: Any) -> None:
    with suppress(ForeignJsonError):
        published = published_of(document)
        assert published_of(json.loads(published_document(published))) == published


@given(changed(PLAN.as_document()))
def test_a_plan_is_refused_by_one_name_or_is_one_that_can_be_stored(document: Any) -> None:
    with suppress(ForeignJsonError):
        plan = BatchPlan.from_document(document)
        assert BatchPlan.from_document(json.loads(json.dumps(plan.as_document()))) == plan


@given(changed(REMOVAL.as_document()))
def test_a_mark_of_removal_is_refused_by_one_name_or_says_who_and_why(document: Any) -> None:
    with suppress(ForeignJsonError):
        assert str(Removal.from_document(document))


FIELD = {"nullable": True, "metadata": {}}
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": "kafka_topic", "type": "string", **FIELD},
        {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}, **FIELD},
        {
            "name": "amounts",
            "type": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
            **FIELD,
        },
        {"name": "at", "type": {"type": "struct", "fields": [{"name": "x", "type": "double", **FIELD}]}, **FIELD},
    ],
}
ENTRY = [
    {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["timestampNtz"],
            "writerFeatures": [],
        }
    },
    {
        "metaData": {
            "partitionColumns": ["day"],
            "configuration": {RETENTION: "interval 1 week"},
        }
    },
    {"txn": {"appId": str(PLAN.batch_id), "version": 1}},
]


def looked_at(folder: Path) -> None:
    """Ask of a log all that a commit asks."""
    reading = LogReading.of(folder)
    assert reading is not None
    form = reading.form
    list(why_not_written(form, NO_TABLE_OPTIONS))
    assert reading.transaction_version("another") is None
    list(without_nulls(form.schema["fields"], form.columns))
    listed(form.schema["fields"])
    assert retention_s(form.configuration) > 0


@given(changed(ENTRY), changed(SCHEMA))
def test_the_log_of_a_delta_table_is_refused_by_one_name_or_says_what_it_is(entry: Any, schema: Any) -> None:
    with TemporaryDirectory() as name, suppress(ForeignJsonError):
        log = Path(name)
        with suppress(LookupError, TypeError, IndexError):
            entry[1]["metaData"]["schemaString"] = json.dumps(schema)
        lines = entry if isinstance(entry, list) else [entry]
        (log / entry_name(0)).write_text("\n".join(map(json.dumps, lines)))
        (log / "_last_checkpoint").write_text(json.dumps(schema))
        looked_at(log)


@pytest.mark.parametrize(
    ("kind", "detail"),
    [
        ("gap", {}),
        ("gap", {"gaps": [{"gap_id": 7}]}),
        ("gap", {"gaps": [], "lost": [{}]}),
        ("seeded", {"partitions": 7}),
        ("reset", {"removed": [], "partitions": [{"topic": "orders", "partition": "0"}]}),
        ("reset", {"removed": [{}]}),
        ("output_changed", {"partitions": [[]]}),
    ],
)
def test_what_a_receipt_says_was_decided_stops_an_adoption_by_its_name_where_it_has_another_form(
    kind: str, detail: dict[str, Any]
) -> None:
    published = PublishedReceipt(PLAN, RECEIPT, [replace(LEDGER[0], kind=kind, detail=detail)])
    with pytest.raises(OutputConflictError, match="expected in its receipt what was decided before it, found that it"):
        rebuilt_from([published])
