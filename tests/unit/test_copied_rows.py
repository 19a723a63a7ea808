"""What has parts as JSON for PostgreSQL: each value as the record holds it, whatever slice of an array it is in."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.sinks.postgresql.copied_rows import NulCharacterError, as_copied, first_bad, json_texts

LINE = pa.struct([("sku", pa.string()), ("count", pa.int32()), ("gift", pa.bool_())])
ORDER = pa.struct(
    [
        ("lines", pa.list_(LINE)),
        ("totals", pa.map_(pa.string(), pa.decimal128(12, 2))),
        ("at", pa.timestamp("us", "UTC")),
        ("due", pa.date32()),
        ("raw", pa.binary()),
        ("ratio", pa.float64()),
        ('"odd\\', pa.string()),
    ]
)
FULL = {
    "lines": [{"sku": "é\n", "count": -1, "gift": True}, None, {"sku": None, "count": None, "gift": False}],
    "totals": [("a", Decimal("1.50")), ("b", None)],
    "at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
    "due": date(9999, 12, 31),
    "raw": b"\xff",
    "ratio": float("-inf"),
    '"odd\\': "\\u0000",
}
EMPTY = {"lines": [], "totals": [], "at": None, "due": None, "raw": b"", "ratio": 0.1, '"odd\\': ""}
NOTHING: dict[str, Any] = dict.fromkeys(FULL)
AS_JSON = [
    FULL
    | {"totals": {"a": "1.50", "b": None}, "at": "2026-01-02T03:04:05.000006+00:00", "due": "9999-12-31"}
    | {"raw": "/w==", "ratio": "-inf"},
    None,
    EMPTY | {"totals": {}, "raw": ""},
    NOTHING,
]


@pytest.mark.parametrize(("first", "count"), [(0, 4), (1, 3), (2, 1), (0, 2)])
def test_structs_lists_and_maps_become_objects_and_arrays_and_nulls_stay_nulls(first: int, count: int) -> None:
    column = pa.array([FULL, None, EMPTY, NOTHING], ORDER).slice(first, count)
    texts = as_copied(pa.record_batch([column], ["value"]), "value").to_pylist()
    assert [None if text is None else json.loads(text) for text in texts] == AS_JSON[first : first + count]


@pytest.mark.parametrize(
    ("kind", "key", "name"),
    [
        (pa.int64(), -1, "-1"),
        (pa.bool_(), True, "true"),
        (pa.float64(), 1.5, "1.5"),
        (pa.float64(), float("nan"), "nan"),
        (pa.struct([("a", pa.string())]), {"a": "b"}, '{"a": "b"}'),
    ],
)
def test_keys_of_maps_that_are_no_texts_are_texts_in_json(kind: pa.DataType, key: object, name: str) -> None:
    [text] = json_texts(pa.array([[(key, 1)]], pa.map_(kind, pa.int64())))
    assert json.loads(text) == {name: 1}


def test_a_nul_character_is_found_in_a_value_and_in_a_maps_key_but_not_where_a_text_only_writes_it() -> None:
    written_out = pa.array([["a\\u0000"], ["b"]], pa.list_(pa.string()))
    assert json_texts(written_out) == ['["a\\\\u0000"]', '["b"]']
    for column in (
        pa.array([["a"], ["b\0"]], pa.list_(pa.string())),
        pa.array([[("a", 1)], [("b\0", 2)]], pa.map_(pa.string(), pa.int64())),
    ):
        with pytest.raises(NulCharacterError):
            json_texts(column)
        assert first_bad(column)[0] == 1


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([[0], [2**60]], pa.list_(pa.timestamp("us", "UTC"))), "date value out of range"),
        (pa.array([[b"a"], [b"\xff"]], pa.list_(pa.binary())).view(pa.list_(pa.string())), "can't decode byte 0xff"),
        (pa.array([["a"], ["b\0"]], pa.list_(pa.string())), "a NUL character"),
    ],
)
def test_a_value_within_others_that_cannot_be_json_is_named_by_its_record(column: Any, found: str) -> None:
    position = {"kafka_topic": ["orders"] * 2, "kafka_partition": [0, 0], "kafka_offset": [3, 4]}
    batch = pa.record_batch(position | {"note": column})
    with pytest.raises(
        ColumnsChangedError, match=rf"^orders-0@4: .*found .*{found}.* in column note\. Let where leave"
    ):
        as_copied(batch, "note")
