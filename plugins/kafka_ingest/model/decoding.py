"""How the bytes of records' keys and values become columns; frozen with each attempt at writing a batch.

An attempt has the settings that the feed had when it was opened, not those of the plan: so a mended schema unblocks a
batch whose records could not be decoded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kafka_ingest.model.documents import Documented, document_of
from kafka_ingest.model.omissions import RefusedRows
from kafka_ingest.model.schema_source import ReadAs, SchemaSource, WriterSchema
from kafka_ingest.model.spark_settings import OUR_SETTINGS, SparkSettings
from kafka_ingest.model.written_columns import AS_DECODED, Shape


class Format(StrEnum):
    """What the bytes are."""

    RAW = "raw"
    """Bytes, stored as they are."""

    STRING = "string"
    """Text in UTF-8."""

    JSON = "json"
    """One JSON value in UTF-8: an object that a schema describes, or any value, stored as text."""

    AVRO = "avro"
    """One value in Avro's binary encoding."""

    PROTOBUF = "protobuf"
    """One message in Protobuf's wire format."""


class UnknownFields(StrEnum):
    """What to do with fields of an object that its schema does not name."""

    IGNORE = "ignore"
    REFUSE = "refuse"
    KEEP = "keep"
    """They become a field :data:`KEPT_UNKNOWN` beside the schema's own."""


class OtherRecords(StrEnum):
    """What records of another type than the one that a feed reads are."""

    DEAD_LETTER = "dead_letter"
    SKIP = "skip"
    """They are meant for other feeds: they count as filtered."""


KEPT_UNKNOWN = "unknown_fields"
"""``map<string,string>``: what an object's text has beside its schema; null where that is nothing."""


def why_not_kept(names: Iterable[str], unknown_fields: UnknownFields) -> str | None:
    """Return what was expected where a schema has the name of the field that keeps unknown ones; None elsewhere."""
    if unknown_fields is UnknownFields.KEEP and KEPT_UNKNOWN in {name.lower() for name in names}:
        return (
            f"expected with unknown_fields: keep a schema without a field {KEPT_UNKNOWN}, in which they are kept, "
            "found one: rename it, or use ignore or refuse"
        )
    return None


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

    MISSING_FIELD = "MISSING_FIELD"
    """A field that the feed requires is missing or null."""

    NOT_WIRE_FORMAT = "NOT_WIRE_FORMAT"
    """The bytes do not begin with the byte 0 and a schema id, as a registry's serializers write them."""

    UNKNOWN_SCHEMA_ID = "UNKNOWN_SCHEMA_ID"
    """The registry knows no schema of the id before the value."""

    INCOMPATIBLE_SCHEMA = "INCOMPATIBLE_SCHEMA"
    """The schema that the value was written with does not resolve to the one that it is read as."""

    NOT_AVRO = "NOT_AVRO"
    """The bytes are not exactly one value of the schema."""

    NOT_PROTOBUF = "NOT_PROTOBUF"
    """The bytes are not exactly one message, or hold a field of the schema in another wire type."""

    OTHER_MESSAGE = "OTHER_MESSAGE"
    """The message indexes before the value are those of another message of the schema."""

    TOO_LARGE = "TOO_LARGE"
    """More bytes than the feed's ``limits.max_record_bytes``, or JSON of more elements than are read."""

    EXPRESSION = "EXPRESSION"
    """An expression of the feed's ``where`` or ``select`` fails for the record."""

    REFUSED_BY_OUTPUT = "REFUSED_BY_OUTPUT"
    """The output refuses the record's row, by a constraint say."""


@dataclass(frozen=True, slots=True)
class FieldDecoding(Documented):
    """What a record's key or value is.

    ``schema``: Spark's DDL of a JSON object's fields, None for any JSON value; Avro's own JSON for Avro; for Protobuf
    the message type with the files that describe it. None as long as it is not asked for. ``source``: where to ask; an
    attempt has what was found there.
    """

    format: Format = Format.RAW
    schema: str | None = None
    unknown_fields: UnknownFields = UnknownFields.IGNORE
    source: SchemaSource | None = None
    writers: tuple[WriterSchema, ...] | None = None
    """The schemas by whose ids values begin; None where values have no such beginning."""
    unknown_ids: tuple[int | str, ...] = ()
    """Ids that the registry was asked for, and does not know."""
    read_as: Mapping[str, ReadAs] = field(default_factory=dict, hash=False)
    """What is said of values in the schema, by their paths."""
    required: tuple[str, ...] = ()
    """The paths of fields that have to be there and not null, or the record is dead."""
    skips_others: bool = False
    """Whether records of other types than the schema's are filtered; else they are dead letters."""

    @property
    def has_ids(self) -> bool:
        """Whether each value begins with the id of its schema."""
        return self.writers is not None

    def as_document(self) -> dict[str, Any]:
        """Return it without the source: an attempt has what was found there."""
        return document_of(replace(self, source=None))


@dataclass(frozen=True, slots=True)
class Decoding(Documented):
    """What keys and values are, and which columns and rows they become, with which settings of Spark."""

    value: FieldDecoding = FieldDecoding()
    key: FieldDecoding = FieldDecoding()
    columns: Columns = Columns.NESTED
    shape: Shape = AS_DECODED
    settings: SparkSettings = OUR_SETTINGS
    max_record_bytes: int | None = None
    """Of key, value and headers together; larger records are dead."""
    refused: tuple[RefusedRows, ...] = ()
    """Records that are dead since the output refused the rows that an earlier attempt made of them."""

    @property
    def is_raw(self) -> bool:
        """Whether all records that are stored are stored as they are."""
        return self.value.format is Format.RAW and self.key.format is Format.RAW and not self.shape

    @property
    def takes_all(self) -> bool:
        """Whether no record can fail and none is left out."""
        return self.is_raw and self.max_record_bytes is None and not self.refused

    @property
    def parts(self) -> Mapping[str, FieldDecoding]:
        """Keys and values, by the columns in which they are read."""
        return {"key": self.key, "value": self.value}

    @property
    def has_sources(self) -> bool:
        """Whether schemas have to be asked for before records are read."""
        return any(part.source is not None for part in self.parts.values())

    @property
    def has_json(self) -> bool:
        """Whether records are decoded in two ways, of which the fast one may leave some to the strict one."""
        return any(part.format is Format.JSON for part in self.parts.values())

    @property
    def has_avro(self) -> bool:
        """Whether Spark needs its module for Avro."""
        return any(part.format is Format.AVRO for part in self.parts.values())

    @property
    def has_protobuf(self) -> bool:
        """Whether Spark needs Python's libraries for Protobuf."""
        return any(part.format is Format.PROTOBUF for part in self.parts.values())

    @property
    def has_ids(self) -> bool:
        return any(part.has_ids for part in self.parts.values())

    @property
    def skips_others(self) -> bool:
        return any(part.skips_others for part in self.parts.values())


RAW = Decoding()
"""Records are stored as they are."""
