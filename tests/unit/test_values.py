"""Odd values: the page that shows them, and JSON's one definition, read without Spark."""

import re
from typing import Any

import pytest
from tests.values import json_rows
from tests.values.odd_value import OddValue
from tests.values.page import PAGE, page

from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.writing.json_values import JsonReader, RefusedError

READER = JsonReader(json_rows.DECODING.schema, "ignore")


def test_the_page_shows_what_the_tests_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.values.page"


@pytest.mark.parametrize("row", json_rows.ROWS, ids=lambda row: f"{row.type} {row.written}")
def test_an_odd_value_of_json_becomes_what_the_page_says(row: OddValue) -> None:
    fields = list(json_rows.FIELDS.values())
    try:
        found = as_spark_shows(READER.read(row.raw)[fields.index(row.field)], row.becomes)
    except RefusedError as error:
        found = DeadClass(error.dead_class)

    assert found == row.becomes


def as_spark_shows(value: Any, becomes: str | DeadClass = "") -> str:
    """Return a value as Spark casts it to text; a fraction, which it writes in another way than Python, as expected."""
    if isinstance(value, float):
        return becomes if repr(float(becomes)) == repr(value) else repr(value)
    if isinstance(value, tuple):
        return f"{{{', '.join(map(as_spark_shows, value))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_spark_shows, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name} -> {as_spark_shows(each)}' for name, each in value.items())}}}"
    if isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*", value):
        return value.replace("T", " ").rstrip("Z").rstrip("0").rstrip(".")
    return "null" if value is None else "true" if value is True else str(value)
