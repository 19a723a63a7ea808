"""The ``key``, ``value`` and ``columns`` settings of a feed file: what the bytes of records are."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from kafka_ingest.model.decoding import FieldDecoding, Format, OtherRecords, UnknownFields, why_not_kept
from kafka_ingest.model.record_schema import collisions, read_schema
from kafka_ingest.model.schema_source import (
    MOST_PATHS,
    TOPIC,
    DescriptorSetFile,
    ReadAs,
    RegistrySource,
    SchemaFile,
    SchemaSource,
    checked_path,
    not_in,
    required_path,
)
from kafka_ingest.settings.setting_types import RECORD_TAG, Settings

LONGEST_SUBJECT = 1_000
NEWEST_POSSIBLE = 2**31 - 1
FULL_NAME = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
"""Of a message type, with its package."""


class RawRecords(Settings):
    """``{format: raw}``: bytes, stored as they are."""

    format: Literal["raw"] = "raw"

    def decoding(self) -> FieldDecoding:
        return FieldDecoding()


class StringRecords(Settings):
    """``{format: string}``: text in UTF-8."""

    format: Literal["string"]

    def decoding(self) -> FieldDecoding:
        return FieldDecoding(Format.STRING)


def a_version(value: object) -> int | None:
    if value == "latest":
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= NEWEST_POSSIBLE:
        raise ValueError(f"expected the number of a version, or latest, found {value!r}")
    return value


def a_schema_file(path: str | None) -> str | None:
    if path is not None and (not path.strip() or not path.isprintable() or ".." in Path(path).parts):
        raise ValueError(f"expected the path of a schema file, absolute or beside the feed files, found {path!r}")
    return path


def is_json_schema_file(schema: str) -> bool:
    """Whether a schema of JSON is the path of a file: a list of fields never ends like that."""
    return schema.lower().endswith(".json")


class FromSchema(Settings):
    """Keys or values that a schema describes, which is a registry's or another's."""

    registry: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    subject: str | None = None
    version: Annotated[
        int | None, BeforeValidator(a_version, json_schema_input_type=int | Literal["latest"] | None)
    ] = None
    read_as: Annotated[
        dict[Annotated[str, AfterValidator(checked_path)], ReadAs],
        Field(alias="as", max_length=MOST_PATHS, default_factory=dict),
    ]
    required: Annotated[tuple[Annotated[str, AfterValidator(required_path)], ...], Field(max_length=MOST_PATHS)] = ()
    other_records: OtherRecords = OtherRecords.DEAD_LETTER

    @field_validator("subject")
    @classmethod
    def _is_a_subject(cls, subject: str | None) -> str | None:
        if subject is None:
            return None
        if re.search(r"[{}]", subject.replace(TOPIC, "")):
            raise ValueError(f"expected {TOPIC} as the only name in braces, found {subject!r}")
        if not subject.strip() or not subject.isprintable() or len(subject) > LONGEST_SUBJECT:
            raise ValueError(f"expected the name of a subject, found {subject[:100]!r}")
        return subject

    @model_validator(mode="after")
    def _of_a_registry(self) -> Self:
        if self.registry is None and (self.subject is not None or self.version is not None):
            found = "subject" if self.subject is not None else "version"
            raise ValueError(f"expected subject and version with a registry only, found {found} without one")
        if self.registry is None and self.other_records is not OtherRecords.DEAD_LETTER:
            raise ValueError(
                "expected other_records with a registry only, as the type of a record is known by its schema id, found "
                "it without one"
            )
        return self

    def described(self, kind: Format, source: SchemaSource | None, message: str | None = None) -> FieldDecoding:
        """Return what the Spark job does with them; ``source``: of the schema, where no registry is named."""
        if self.registry is not None:
            source = RegistrySource(self.registry, self.subject, self.version, message)
        skips = self.other_records is OtherRecords.SKIP
        return FieldDecoding(kind, source=source, read_as=self.read_as, required=self.required, skips_others=skips)


class JsonRecords(FromSchema):
    """``{format: json, schema: "id bigint, name string"}``, or the path of a file with a JSON Schema.

    Without a schema any JSON value, stored as text. With a registry values begin with the id of their schema, and the
    schema to read as is the registry's, unless the feed file has one.
    """

    format: Literal["json"]
    fields_or_file: Annotated[str | None, Field(alias="schema")] = None
    unknown_fields: UnknownFields = UnknownFields.IGNORE

    @field_validator("fields_or_file")
    @classmethod
    def _can_be_used(cls, schema: str | None) -> str | None:
        if schema is None or is_json_schema_file(schema):
            return a_schema_file(schema)
        read_schema(schema)
        return schema

    @model_validator(mode="after")
    def _not_a_file_with_a_registry(self) -> "JsonRecords":
        if self.registry is not None and is_json_schema_file(self.fields_or_file or ""):
            raise ValueError(
                "expected with a registry its schema, or a list of fields as schema, found the path of a file: leave "
                "schema out, or write the fields"
            )
        return self

    @model_validator(mode="after")
    def _as_with_a_schema_of_others(self) -> "JsonRecords":
        if self.read_as and self.fields_or_file is not None and not is_json_schema_file(self.fields_or_file):
            raise ValueError(
                "expected as with the schema of a file or of a registry, found it with a list of fields: write the "
                "types there"
            )
        if ReadAs.BINARY in self.read_as.values():
            raise ValueError("expected string or skip under as, as JSON holds no bytes, found binary")
        if ReadAs.SKIP in self.read_as.values() and self.unknown_fields is not UnknownFields.IGNORE:
            raise ValueError(
                f"expected unknown_fields: ignore where fields are left out, found {self.unknown_fields}: read them as "
                "string instead"
            )
        return self

    @model_validator(mode="after")
    def _has_room_for_unknown_fields(self) -> "JsonRecords":
        if self.fields_or_file is not None and not is_json_schema_file(self.fields_or_file):
            schema = read_schema(self.fields_or_file)
            names = schema.names
            if unknown := not_in(schema, self.required):
                raise ValueError(f"expected required to name fields of the schema, found {', '.join(unknown)}")
            if reason := why_not_kept(names, self.unknown_fields):
                raise ValueError(reason)
        return self

    @model_validator(mode="after")
    def _unknown_to_a_schema(self) -> "JsonRecords":
        if self.fields_or_file is None and self.registry is None and self.unknown_fields is not UnknownFields.IGNORE:
            raise ValueError(
                "expected unknown_fields with a schema only: without one, every field is unknown, found none"
            )
        if self.fields_or_file is None and self.registry is None and self.required:
            raise ValueError("expected required with a schema only, which has the fields, found none")
        return self

    def decoding(self) -> FieldDecoding:
        is_file = is_json_schema_file(self.fields_or_file or "")
        source = SchemaFile(self.fields_or_file or "") if is_file else None
        schema = None if is_file else self.fields_or_file
        return replace(self.described(Format.JSON, source), schema=schema, unknown_fields=self.unknown_fields)


class AvroRecords(FromSchema):
    """``{format: avro, schema: orders.avsc}``, or ``{format: avro, registry: schemas}``.

    With a file, a value is nothing but Avro; with a registry it begins with the id of its schema.
    """

    format: Literal["avro"]
    file: Annotated[str | None, AfterValidator(a_schema_file), Field(alias="schema")] = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "AvroRecords":
        if (self.file is None) == (self.registry is None):
            found = "neither" if self.file is None else "both"
            raise ValueError(f"expected either schema, a file, or registry, a connection, found {found}")
        return self

    def decoding(self) -> FieldDecoding:
        return self.described(Format.AVRO, SchemaFile(self.file or ""))


class ProtobufRecords(FromSchema):
    """``{format: protobuf, descriptors: orders.desc, message: shop.Order}``, or with ``registry``.

    With a file of descriptors, a value is nothing but the message; with a registry it begins with the id of its schema
    and the indexes of its message there.
    """

    format: Literal["protobuf"]
    descriptors: Annotated[str | None, AfterValidator(a_schema_file)] = None
    message: str | None = None

    @field_validator("message")
    @classmethod
    def _is_a_message(cls, message: str | None) -> str | None:
        if message is not None and (len(message) > LONGEST_SUBJECT or not re.fullmatch(FULL_NAME, message, re.ASCII)):
            raise ValueError(f"expected the full name of a message, such as shop.Order, found {message[:100]!r}")
        return message

    @model_validator(mode="after")
    def _one_of_both(self) -> "ProtobufRecords":
        if (self.descriptors is None) == (self.registry is None):
            found = "neither" if self.descriptors is None else "both"
            raise ValueError(f"expected either descriptors, a file, or registry, a connection, found {found}")
        if self.descriptors is not None and self.message is None:
            raise ValueError(f"expected message, the full name of a message of {self.descriptors}, found none")
        return self

    def decoding(self) -> FieldDecoding:
        source = DescriptorSetFile(self.descriptors or "", self.message or "")
        return self.described(Format.PROTOBUF, source, self.message)


class UnknownRecords(Settings):
    """An unknown format, so that the error names all known ones; no value of it ever exists."""

    format: Literal["raw", "string", "json", "avro", "protobuf"]

    def decoding(self) -> FieldDecoding:
        return FieldDecoding()


FORMATS = get_args(UnknownRecords.model_fields["format"].annotation)


def in_full(value: object) -> object:
    return {"format": value} if isinstance(value, str) else value


def kind_of_records(value: object) -> str | None:
    """Return the tag of what a feed file says about keys or values; None where it says nothing of the kind."""
    found = value.get("format") if isinstance(value, dict) else getattr(value, "format", None)
    if found in FORMATS:
        return f"{RECORD_TAG}{found}"
    return f"{RECORD_TAG}format" if isinstance(value, dict) else None


InFull = Annotated[
    Annotated[RawRecords, Tag(f"{RECORD_TAG}raw")]
    | Annotated[StringRecords, Tag(f"{RECORD_TAG}string")]
    | Annotated[JsonRecords, Tag(f"{RECORD_TAG}json")]
    | Annotated[AvroRecords, Tag(f"{RECORD_TAG}avro")]
    | Annotated[ProtobufRecords, Tag(f"{RECORD_TAG}protobuf")]
    | Annotated[SkipJsonSchema[UnknownRecords], Tag(f"{RECORD_TAG}format")],
    Discriminator(
        kind_of_records,
        custom_error_type="records",
        custom_error_message="Expected raw, string, json, avro, protobuf or a mapping with format",
    ),
]
RecordSettings = Annotated[
    InFull, BeforeValidator(in_full, json_schema_input_type=InFull | Literal["raw", "string", "json"])
]


def why_not_flat(value: FieldDecoding) -> str | None:
    """Return what was expected where a value's fields cannot be columns of their own; None where they can."""
    if value.source is not None:
        return None  # what the source has is checked when it is asked
    if value.schema is None:
        found = f"{value.format}{' without a schema' if value.format is Format.JSON else ''}"
        return (
            f"expected columns: flatten with a value of json with a schema, of avro or of protobuf only, found {found}"
        )
    return why_no_columns(read_schema(value.schema).names)


def why_no_columns(names: tuple[str, ...]) -> str | None:
    """Return what was expected where fields cannot be columns of their own."""
    if taken := collisions(names, ("key",)):
        return (
            "expected fields that can be columns beside key and kafka_… (in any case of letters), found "
            f"{', '.join(name[:100] for name in taken[:10])}: rename them, or use columns: nested"
        )
    return None
