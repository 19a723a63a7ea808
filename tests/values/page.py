"""docs/values.md, made from the rows of all formats: ``python -m tests.values.page`` writes it."""

from pathlib import Path

from tests.values import avro_rows, json_rows, protobuf_rows, text_rows

FORMATS = (json_rows, avro_rows, text_rows)
"""The modules of the formats that Spark's test decodes, in the page's order; each has TITLE, DECODING and ROWS."""

ALL = (*FORMATS, protobuf_rows)
"""Protobuf's rows are decoded without Spark, by the function that its workers run."""

PAGE = Path(__file__).parents[2] / "docs" / "values.md"

BEGINNING = """# Odd values, and how they are stored

This page is made from the tests that decode each of these values, by `PYTHONPATH=plugins python -m tests.values.page`.
A type is that of a field in a feed's schema ([feed-files.md](feed-files.md#key-value-and-columns)). "Stored as" shows
the value as text. A [dead letter](dead-letters.md) is kept as it came, with its class ([output.md](output.md)), and
stops nothing; "in" is the path that its reason names. `format: raw` is in no table: any bytes are stored as they are.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([BEGINNING, *(section(each.TITLE, [row.line for row in each.ROWS]) for each in ALL)])


def section(title: str, lines: list[str]) -> str:
    """Return the table of a format."""
    return "\n".join([f"## {title}", "", "| type | in the record | becomes |", "|---|---|---|", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
