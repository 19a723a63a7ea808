"""Which columns of a record are its key, its state and what it does; the rest is shown on a real table."""

import pyarrow as pa
import pytest

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.table_options import CurrentState, EventLayout, TableOptions
from kafka_ingest.sinks.change_events import unavailable_in

ENVELOPE = {
    "key": "struct",
    "key.id": "bigint",
    "value": "struct",
    "value.before": "struct",
    "value.before.id": "bigint",
    "value.after": "struct",
    "value.after.id": "bigint",
    "value.after.tags": "array",
    "value.after.tags[]": "struct",
    "value.after.tags[].name": "string",
    "value.op": "string",
}


def test_of_an_envelope_the_fields_of_after_are_the_state_and_the_key_has_its_own() -> None:
    layout = EventLayout.of(ENVELOPE)
    assert layout.columns(ENVELOPE) == {"id": "bigint", "tags": "array"}
    assert (list(layout.key), layout.operation, layout.row) == (["id"], ("value", "op"), ("value", "after"))


def test_envelopes_of_connect_around_key_and_value_are_looked_into() -> None:
    within = {path.replace("key", "key.payload").replace("value", "value.payload"): of for path, of in ENVELOPE.items()}
    layout = EventLayout.of({"key": "struct", "value": "struct", **within})
    assert (list(layout.key), list(layout.state), layout.row) == (["id"], ["tags"], ("value", "payload", "after"))


def test_columns_that_a_select_adds_are_of_the_state() -> None:
    layout = EventLayout.of({"kafka_offset": "bigint", "key": "string", "value": "string", "size": "int"})
    assert (dict(layout.key), dict(layout.state)) == ({"key": ("key",)}, {"value": ("value",), "size": ("size",)})


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"key": "string", "city": "string"}, "found no column value"),
        ({"key": "struct", "key.kafka_x": "int", "value": "binary"}, "do not begin with kafka_ and .*, found kafka_x"),
        ({"key": "string", "value": "struct", "value.`a\nb`": "string"}, "have no line break, found a\nb: rename"),
        ({"key": "string", "value": "struct", "value.key": "string"}, "other names than key and value"),
    ],
)
def test_records_that_cannot_be_rows_of_keys_are_refused(columns: dict[str, str], found: str) -> None:
    with pytest.raises(ColumnsChangedError, match=found):
        EventLayout.of(columns)


def test_values_that_stand_for_unavailable_ones_are_found_in_texts_bytes_and_lists() -> None:
    text, in_base64 = "__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    assert unavailable_in(pa.array([text, in_base64, "x", None])).to_pylist() == [True, True, False, False]
    assert unavailable_in(pa.array([text.encode(), b"x", None])).to_pylist() == [True, False, False]
    lists = pa.array([[text], [text, "x"], [], None])
    assert unavailable_in(lists).to_pylist() == [True, False, False, False]
    assert unavailable_in(pa.array([1, None])).to_pylist() == [False, False]


def test_what_a_plan_keeps_of_the_mode_is_read_back() -> None:
    for state in (None, CurrentState(), CurrentState(removes=True, truncates=True)):
        options = TableOptions(current=state)
        assert TableOptions.of(options.as_options()) == options
