"""Odd values of each of Protobuf's types, as bytes: stored as what, or a dead letter of which class."""

from typing import Any

import pytest
from tests.protobuf_types import reader, values
from tests.values.protobuf_rows import ODD, TYPES


@pytest.mark.parametrize(("content", "field", "stored"), [each[1:] for each in ODD], ids=[each[0] for each in ODD])
def test_an_odd_value_is_stored_as_what_it_is_or_is_a_dead_letter(content: bytes, field: str, stored: Any) -> None:
    [found] = values(reader(TYPES), [content])
    assert repr(found if isinstance(found, str) else found[field]) == repr(stored)
