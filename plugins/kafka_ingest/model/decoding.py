"""How the bytes of records' keys and values become columns; frozen with each attempt at writing a batch.

An attempt has the settings that the feed had when it was opened, not those of the plan: so a mended schema unblocks a
batch whose records could not be decoded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Format(StrEnum):
    """What the bytes are."""

    RAW = "raw"
    """Bytes, stored as they are."""

    STRING = "string"
    """Text in UTF-8."""

    JSON = "json"
    """One JSON value in UTF-8: an object that a schema describes, or any value, stored as text."""


class UnknownFields(StrEnum):
    """What to do with fields of an object that its schema does not name."""

    IGNORE = "ignore"
    REFUSE = "refuse"


class Columns(StrEnum):
    """Which columns an object becomes."""

    NESTED = "nested"
    """One, a struct."""

    FLATTEN = "flatten"
    """One for each field of the value's schema."""


class DeadClass(StrEnum):
    """Why a key or value could not be decoded; stable names, which dead letters keep."""

    INVALID_UTF8 = "INVALID_UTF8"
    """The bytes are no text."""

    NOT_JSON = "NOT_JSON"
    """The text is not exactly one JSON value, or more deeply nested or longer than what is read."""

    NOT_AN_OBJECT = "NOT_AN_OBJECT"
    """A JSON value, where an object was expected."""

    DOES_NOT_FIT = "DOES_NOT_FIT"
    """An object with a field whose value is not of the schema's type."""

    OUT_OF_RANGE = "OUT_OF_RANGE"
    """A number, date or time of the schema's type that the type cannot hold."""

    DUPLICATE_FIELD = "DUPLICATE_FIELD"
    """An object that has a name twice."""

    OTHER_CASE = "OTHER_CASE"
    """A field of the schema is missing, and one of that name in other upper and lower case is there."""

    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    """A field that the schema does not name, where such are refused."""


@dataclass(frozen=True, slots=True)
class FieldDecoding:
    """What a record's key or value is. ``schema``: Spark's DDL of the object's fields, None for any JSON value."""

    format: Format = Format.RAW
    schema: str | None = None
    unknown_fields: UnknownFields = UnknownFields.IGNORE

    def as_document(self) -> dict[str, Any]:
        """Return the settings as JSON-able data."""
        return {"format": self.format.value, "schema": self.schema, "unknown_fields": self.unknown_fields.value}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "FieldDecoding":
        """Read the settings back."""
        return cls(Format(document["format"]), document["schema"], UnknownFields(document["unknown_fields"]))


@dataclass(frozen=True, slots=True)
class Decoding:
    """What keys and values are, and which columns they become."""

    value: FieldDecoding = FieldDecoding()
    key: FieldDecoding = FieldDecoding()
    columns: Columns = Columns.NESTED

    @property
    def is_raw(self) -> bool:
        """Whether records are stored as they are, so that none can fail."""
        return self.value.format is Format.RAW and self.key.format is Format.RAW

    def as_document(self) -> dict[str, Any]:
        """Return the settings as JSON-able data; raw ones in the form that every version has written."""
        if self.is_raw:
            return {"format": Format.RAW.value}
        return {
            "value": self.value.as_document(),
            "key": self.key.as_document(),
            "columns": self.columns.value,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Decoding":
        """Read the settings back."""
        if document == {"format": Format.RAW.value}:
            return RAW
        return cls(
            FieldDecoding.from_document(document["value"]),
            FieldDecoding.from_document(document["key"]),
            Columns(document["columns"]),
        )


RAW = Decoding()
"""Records are stored as they are."""
