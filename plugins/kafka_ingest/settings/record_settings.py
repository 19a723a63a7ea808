"""The ``key``, ``value`` and ``columns`` settings of a feed file: what the bytes of records are."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator

from kafka_ingest.model.decoding import FieldDecoding, Format, UnknownFields
from kafka_ingest.model.record_schema import collisions, read_schema
from kafka_ingest.settings.setting_types import RECORD_TAG, Settings


class RawRecords(Settings):
    """``{format: raw}``: bytes, stored as they are."""

    format: Literal["raw"] = "raw"

    def decoding(self) -> FieldDecoding:
        """Return what the Spark job does with them."""
        return FieldDecoding()


class StringRecords(Settings):
    """``{format: string}``: text in UTF-8."""

    format: Literal["string"]

    def decoding(self) -> FieldDecoding:
        """Return what the Spark job does with them."""
        return FieldDecoding(Format.STRING)


class JsonRecords(Settings):
    """``{format: json, schema: "id bigint, name string"}``; without a schema any JSON value, stored as text."""

    format: Literal["json"]
    ddl: Annotated[str | None, Field(alias="schema")] = None
    unknown_fields: UnknownFields = UnknownFields.IGNORE

    @field_validator("ddl")
    @classmethod
    def _can_be_used(cls, ddl: str | None) -> str | None:
        if ddl is not None:
            read_schema(ddl)
        return ddl

    @model_validator(mode="after")
    def _unknown_to_a_schema(self) -> "JsonRecords":
        if self.ddl is None and self.unknown_fields is not UnknownFields.IGNORE:
            raise ValueError(
                "expected unknown_fields with a schema only: without one, every field is unknown, found none"
            )
        return self

    def decoding(self) -> FieldDecoding:
        """Return what the Spark job does with them."""
        return FieldDecoding(Format.JSON, self.ddl, self.unknown_fields)


class UnknownRecords(Settings):
    """An unknown format, so that the error names all known ones; no value of it ever exists."""

    format: Literal["raw", "string", "json"]

    def decoding(self) -> FieldDecoding:
        """Return nothing that is ever used."""
        return FieldDecoding()


def in_full(value: object) -> object:
    """Return the long form of ``value: string``."""
    return {"format": value} if isinstance(value, str) else value


def kind_of_records(value: object) -> str | None:
    """Return the tag of what a feed file says about keys or values; None where it says nothing of the kind."""
    found = value.get("format") if isinstance(value, dict) else getattr(value, "format", None)
    if found in ("raw", "string", "json"):
        return f"{RECORD_TAG}{found}"
    return f"{RECORD_TAG}format" if isinstance(value, dict) else None


RecordSettings = Annotated[
    Annotated[RawRecords, Tag(f"{RECORD_TAG}raw")]
    | Annotated[StringRecords, Tag(f"{RECORD_TAG}string")]
    | Annotated[JsonRecords, Tag(f"{RECORD_TAG}json")]
    | Annotated[UnknownRecords, Tag(f"{RECORD_TAG}format")],
    Discriminator(
        kind_of_records,
        custom_error_type="records",
        custom_error_message="Expected raw, string, json or a mapping with format",
    ),
    BeforeValidator(in_full),
]


def why_not_flat(value: FieldDecoding) -> str | None:
    """Return what was expected where a value's fields cannot be columns of their own; None where they can."""
    if value.schema is None:
        found = f"{value.format}{' without a schema' if value.format is Format.JSON else ''}"
        return f"expected columns: flatten with value: {{format: json, schema: …}} only, found {found}"
    if taken := collisions(read_schema(value.schema).names, ("key",)):
        return (
            "expected fields that can be columns beside key and kafka_… (in any case of letters), found "
            f"{', '.join(name[:100] for name in taken[:10])}: rename them, or use columns: nested"
        )
    return None
