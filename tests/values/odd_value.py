"""Odd values and what becomes of them: the rows of docs/values.md, whatever the format.

A format is a module with ``TITLE``, ``DECODING`` and ``ROWS``, named in :mod:`.page`. ``tests/unit/test_values.py``
compares the page with them, ``tests/spark/test_values.py`` decodes each in a real Spark, but for Protobuf's.
"""

from dataclasses import dataclass

from kafka_ingest.model.decoding import DeadClass


@dataclass(frozen=True, slots=True)
class OddValue:
    """A value in a record, and what is stored of it.

    ``type``, ``written``: of the value, as the page shows them. ``raw``: the record's bytes. ``field``: the stored
    value's name, below ``value``; empty where that is the value itself. ``becomes``: the stored value as Spark casts it
    to text, ``null``, or a DeadClass. ``path``: of the value, where the reason of a dead letter names it.
    """

    type: str
    written: str
    raw: bytes
    field: str
    becomes: str | DeadClass
    path: str = ""

    @property
    def line(self) -> str:
        """The row of the page."""
        becomes = self.becomes
        told = f"dead letter: `{becomes}`" if isinstance(becomes, DeadClass) else f"stored as {code(becomes)}"
        place = f" in {code(self.path)}" if self.path else ""
        return f"| {code(self.type)} | {code(self.written)} | {told}{place} |"


def code(text: str) -> str:
    """Return a text as code in a cell of a table."""
    if not text:
        return "an empty text"
    shown = text.replace("|", "\\|").replace("\n", "\\n")
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"
