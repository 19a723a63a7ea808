"""Text of any origin can be stored, encoded and shown, and ordinary text stays as it is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.foundation.foreign_json import storable, storable_document
from kafka_ingest.model.batch import canonical_json
from kafka_ingest.verbs.request import reason_given

ANY_TEXT = st.text(st.characters())  # surrogates included
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
)


@given(ANY_TEXT)
def test_whatever_a_text_was_made_of_it_can_be_encoded_and_stays_as_it_is_the_second_time(text: str) -> None:
    found = storable(text)
    assert "\0" not in found
    assert found.encode().decode() == found == storable(found)


@pytest.mark.parametrize("text", ["", "a late producer", "Zoë: 注文 🎉", "two\nlines\tand a tab"])
def test_ordinary_text_is_not_changed(text: str) -> None:
    assert storable(text) == text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        (b"caf\xe9".decode(errors="surrogateescape"), r"caf\xe9"),
        ("half a pair \ud83d", r"half a pair \ud83d"),
        ("nul \0", r"nul \x00"),
        ("clear \x1b[2J the screen", r"clear \x1b[2J the screen"),
        ("over\rwrite", r"over\x0dwrite"),
    ],
)
def test_what_cannot_be_stored_or_shown_becomes_its_escape(text: str, stored: str) -> None:
    assert storable(text) == stored


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029"])
def test_a_reason_draws_no_line_of_its_own_into_a_log(line_break: str) -> None:
    reason = reason_given(f"asked for{line_break}INFO - batch 7 is committed")
    assert reason == "asked for INFO - batch 7 is committed"


@given(ANY_JSON)
def test_a_document_keeps_its_shape(document: object) -> None:
    found = storable_document(document)
    json.dumps(found, ensure_ascii=False).encode()
    assert storable_document(found) == found


@given(st.dictionaries(st.text(st.characters(), max_size=5), ANY_JSON, max_size=3))
def test_canonical_json_has_a_text_for_every_document_and_gives_it_back(document: dict[str, object]) -> None:
    assert json.loads(canonical_json(document)) == document
