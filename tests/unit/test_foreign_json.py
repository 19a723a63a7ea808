"""What another program wrote is read as JSON has it, or refused by one name."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json

FINITE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)  # fmt: skip


@given(FINITE_JSON)
def test_what_json_can_say_is_read_as_it_was_written(document: object) -> None:
    assert read_foreign_json(json.dumps(document).encode()) == document
    assert read_foreign_json(json.dumps(document, ensure_ascii=False)) == document


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "expected JSON, found Expecting value"),
        (b'{"rows": 1', "expected JSON"),
        (b"\xff\xfe\xff", "expected JSON"),
        (b'{"rows": NaN}', "expected finite numbers, found NaN"),
        (b"[-Infinity]", "expected finite numbers, found -Infinity"),
        (b"[1e999]", "expected finite numbers, found a larger one"),
        (b"[9223372036854775808]", "expected whole numbers of at most 63 bits, found 9223372036854775808"),
        (b"[" + b"9" * 4000 + b"]", "expected whole numbers of at most 63 bits, found 9999"),
        (b"[" + b"9" * 5000 + b"]", "expected JSON, found Exceeds the limit"),
        (b'{"rows": 1, "rows": 2}', "expected each name of an object once, found 'rows' twice"),
        (b'[{"a": {"b": 1, "b": 1}}]', "found 'b' twice"),
        (rb'["\ud800"]', "expected JSON with whole characters, found half of one"),
        (b"[" * 101 + b"]" * 101, "expected at most 100 levels of JSON, found more"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "expected at most 100 levels of JSON, found more"),
        (b"[" * 1_000_000, "expected at most 100 levels of JSON, found more"),
    ],
)
def test_what_no_document_of_ours_has_is_refused_by_its_name(content: bytes, found: str) -> None:
    with pytest.raises(ForeignJsonError, match=found):
        read_foreign_json(content)


def test_what_is_just_allowed_is_read() -> None:
    assert read_foreign_json(b"[9223372036854775807, -9223372036854775807]") == [2**63 - 1, -(2**63) + 1]
    assert read_foreign_json("[18446744073709551615]", most_bits=64) == [2**64 - 1]
    assert json.dumps(read_foreign_json(b"[" * 100 + b"]" * 100)) == "[" * 100 + "]" * 100
    assert read_foreign_json(rb'["\ud83d\ude00"]') == ["😀"]


def test_more_bytes_than_allowed_are_refused_before_they_are_read() -> None:
    assert read_foreign_json(b"[1, 2]", most_bytes=6) == [1, 2]
    with pytest.raises(ForeignJsonError, match="expected at most 5 bytes of JSON, found 6"):
        read_foreign_json(b"[1, 2]", most_bytes=5)


@given(st.binary(max_size=40) | st.text(max_size=40))
def test_any_other_text_raises_that_error_alone(content: bytes | str) -> None:
    with suppress(ForeignJsonError):
        read_foreign_json(content)
