"""Which schemas an attempt decodes with: asked for before Spark starts, and frozen with the attempt.

Executors never talk to a registry. The attempt gets the schema to read as, and all versions of the topics' subjects by
their ids. Where records begin with other ids, the Spark job ends and names them; the next attempt has asked for those,
and only what the registry does not know is a dead letter.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from kafka_ingest.errors import InvalidSchemaError, SubjectMissingError
from kafka_ingest.model.avro_resolution import worst_misfit
from kafka_ingest.model.avro_schema import AvroSchema, read_avro
from kafka_ingest.model.avro_types import is_other_type
from kafka_ingest.model.decoding import (
    KEPT_UNKNOWN,
    Columns,
    Decoding,
    FieldDecoding,
    Format,
    UnknownFields,
    why_not_kept,
)
from kafka_ingest.model.json_schema import ddl_of_json_schema
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import FailureCode, read_code
from kafka_ingest.model.record_schema import (
    Field,
    MapOf,
    RecordType,
    Scalar,
    Struct,
    WrongSchemaError,
    collisions,
    read_schema,
    read_type,
)
from kafka_ingest.model.schema_source import (
    DescriptorSetFile,
    RegisteredSchema,
    RegistrySource,
    SchemaFile,
    WriterSchema,
    not_in,
)
from kafka_ingest.ports.schemas import MessageTypes, OpenMessageTypes, OpenRegistry, ReadSchemaFile, SchemaRegistry

NEWEST_VERSIONS = 5
"""Of each subject so many are asked for beforehand: each is a branch of what Spark compiles, with the whole schemas.

Records of older ones are found by the ids that Spark names."""

MOST_TEXT = 16 * 1024 * 1024
"""Of an attempt's schemas, in characters: they are parts of the expressions that each of Spark's tasks gets."""

ROUNDS = 3
"""So many attempts follow one another where each finds schema ids that have to be asked for."""

KINDS = {Format.AVRO: "AVRO", Format.JSON: "JSON", Format.PROTOBUF: "PROTOBUF"}

FoundIds = Mapping[str, Collection[int | str]]
"""Schema ids that earlier attempts at a batch found, of keys and of values; those in GUIDs as texts."""

Freeze = Callable[[Decoding, Collection[str], FoundIds], Decoding]
"""From a feed's decoding, the topics of a batch and the ids that were found in it: what an attempt decodes with."""


def as_it_is(decoding: Decoding, _topics: Collection[str], _found: FoundIds) -> Decoding:
    return decoding


@dataclass
class Schemas:
    """Where schemas are asked for; each question of a registry is asked once."""

    open_registry: OpenRegistry
    read_file: ReadSchemaFile
    open_message_types: OpenMessageTypes
    registries: dict[str, SchemaRegistry] = field(default_factory=dict)

    @cached_property
    def message_types(self) -> MessageTypes:
        """What reads Protobuf's message types; raises InstallationError."""
        return self.open_message_types()

    def frozen(self, decoding: Decoding, topics: Collection[str], found: FoundIds) -> Decoding:
        """Return a decoding with all schemas in it.

        Raises InvalidSchemaError, SubjectMissingError, SchemaRegistryRefusedError or SchemaRegistryUnavailableError,
        and InstallationError where a library for them is missing.
        """
        parts = {name: self.part(name, part, topics, found.get(name, ())) for name, part in decoding.parts.items()}
        if decoding.columns is Columns.FLATTEN and decoding.value.source is not None:
            self.check_flat(parts["value"])
        for name, part in parts.items():
            if unknown := not_in(self.type_of(part), part.required) if part.required else []:
                raise InvalidSchemaError(
                    f"{name}: expected required to name fields of the schema, found {listing(unknown)}. Correct the "
                    "feed file. Nothing was moved."
                )
        return replace(decoding, key=parts["key"], value=parts["value"])

    def part(
        self, name: str, part: FieldDecoding, topics: Collection[str], found: Collection[int | str]
    ) -> FieldDecoding:
        match part.source:
            case None:
                return part
            case SchemaFile(path) if part.format is Format.JSON:
                ddl = usable(f"schema file {path}", lambda: json_fields(text_of(self.read_file(path)), part))
                return replace(part, schema=ddl, source=None)
            case SchemaFile(path):
                schema = usable(
                    f"schema file {path}", lambda: with_column(read_avro(text_of(self.read_file(path))), part)
                )
                return replace(part, schema=schema.text, source=None)
            case DescriptorSetFile(path, message):
                types = self.message_types
                text = usable(
                    f"descriptor set {path}", lambda: types.of_set(self.read_file(path), message, part.read_as)
                )
                return replace(part, schema=text, source=None)
            case RegistrySource() as source:
                return self.registered(name, part, source, topics, found)

    def registered(
        self,
        name: str,
        part: FieldDecoding,
        source: RegistrySource,
        topics: Collection[str],
        found: Collection[int | str],
    ) -> FieldDecoding:
        registry = self.registries.setdefault(source.conn_id, self.open_registry(source.conn_id))
        subjects = sorted({source.subject_of(topic, name) for topic in topics})
        reader = one_reader({subject: registry.version(subject, source.version) for subject in subjects}, part.format)
        known: dict[int | str, RegisteredSchema] = {reader.schema_id: reader}
        for subject in subjects:
            for version in registry.versions(subject)[-NEWEST_VERSIONS:]:
                with suppress(SubjectMissingError):  # deleted since the versions were listed
                    schema = registry.version(subject, version)
                    known[schema.schema_id] = schema
        unknown: list[int | str] = []
        for schema_id in in_order({*found} - known.keys() - {each.guid for each in known.values()}):
            asked = registry.by_id(schema_id)
            if asked is None:
                unknown.append(schema_id)
            else:
                known[schema_id] = asked
        what, schemas = described(reader, subjects), [known[schema_id] for schema_id in in_order(known)]
        if part.format is Format.JSON:
            text = part.schema or usable(what, lambda: json_fields(reader.text, part))
            writers = [json_writer(each) for each in schemas]
        elif part.format is Format.PROTOBUF:
            types = self.message_types
            text = usable(what, lambda: types.registered(reader, source.message, part.read_as))
            writers = [types.writer(each, text) for each in schemas]
        else:
            own = usable(what, lambda: with_column(avro_of(reader), part))
            text = own.text
            writers = bounded(avro_writer(each, own) for each in schemas)
        pairs = zip(writers, schemas, strict=True)
        skips = part.skips_others
        of_batch = tuple(
            replace(each, guid=schema.guid, is_other=skips and (each.is_other or is_other_type(schema, reader)))
            for each, schema in pairs
        )
        return replace(part, schema=text, source=None, writers=of_batch, unknown_ids=tuple(unknown))

    def columns(self, decoding: Decoding) -> Struct | None:
        """Return the columns of rows beside Kafka's own; None where a function of the feed's makes them.

        ``decoding`` has its schemas. Raises InstallationError where a library for them is missing.
        """
        if decoding.shape.transform is not None:
            return None
        types: dict[str, RecordType] = {}
        if decoding.shape.keeps_others or not decoding.shape.select:
            value = self.type_of(decoding.value)
            is_flat = decoding.columns is Columns.FLATTEN
            of_value = value.fields if is_flat and isinstance(value, Struct) else (Field("value", value),)
            types = {"key": self.type_of(decoding.key)} | {field.name: field.type for field in of_value}
        names = decoding.shape.columns(list(types))
        types |= {column.name: read_type(column.type) for column in decoding.shape.select}
        return Struct(tuple(Field(name, types[name]) for name in names))

    def type_of(self, part: FieldDecoding) -> RecordType:
        """Return what keys or values are decoded to."""
        match part.format:
            case Format.RAW:
                return Scalar("binary")
            case Format.AVRO:
                return read_avro(part.schema or "").read_as(part.read_as).column
            case Format.PROTOBUF:
                return self.message_types.columns(part.schema or "", part.read_as)
            case Format.JSON if part.schema is not None:
                own = read_schema(part.schema)
                keeps = part.unknown_fields is UnknownFields.KEEP
                return Struct((*own.fields, Field(KEPT_UNKNOWN, MapOf(Scalar("string"))))) if keeps else own
            case Format.JSON | Format.STRING:
                return Scalar("string")

    def check_flat(self, value: FieldDecoding) -> None:
        """Raise InvalidSchemaError where the fields of a value cannot be columns of their own."""
        columns = self.type_of(value)
        names = columns.names if isinstance(columns, Struct) else ()
        if not names or collisions(names, ("key",)):
            taken = ", ".join(collisions(names, ("key",))[:10]) or "a value without fields"
            raise InvalidSchemaError(
                "expected fields that can be columns beside key and kafka_… (in any case of letters), found "
                f"{taken}: use columns: nested. Nothing was moved."
            )


def bounded(writers: Iterable[WriterSchema]) -> list[WriterSchema]:
    """Return the schemas, without the text of those that would be too much for one attempt."""
    kept, room = [], MOST_TEXT
    for writer in writers:
        size = len(writer.text or "")
        if size > room:
            misfit = f"expected schemas of at most {MOST_TEXT:,} characters in all of a batch, found more"
            kept.append(replace(writer, text=None, misfit=misfit))
            continue
        kept.append(writer)
        room -= size
    return kept


def one_reader(found: Mapping[str, RegisteredSchema], wanted: Format) -> RegisteredSchema:
    """Return the schema to read as; raises InvalidSchemaError where topics differ in it, or it is of another kind."""
    (subject, reader), *others = found.items()
    for other_subject, other in others:
        if (other.text, other.references) != (reader.text, reader.references):
            raise InvalidSchemaError(
                f"expected one schema for all topics, found others for {subject} (id {reader.schema_id}) and "
                f"{other_subject} (id {other.schema_id}). Name one subject in the feed file, or make a feed of each "
                "topic. Nothing was moved."
            )
    if reader.kind != KINDS[wanted]:
        raise InvalidSchemaError(
            f"expected the schema of subject {subject} to be of type {KINDS[wanted]}, found {reader.kind}. Correct "
            "format or subject in the feed file. Nothing was moved."
        )
    return reader


def avro_writer(found: RegisteredSchema, reader: AvroSchema) -> WriterSchema:
    """Return a schema that records may be written with, and why some or all of them cannot be read."""
    if found.kind != "AVRO":
        return WriterSchema(found.schema_id, None, f"expected a schema of type AVRO, found {found.kind}")
    if found.lacks is not None:
        return WriterSchema(found.schema_id, None, found.lacks)
    try:
        writer = read_avro(found.text, dict(found.references), is_written_with=True)
    except WrongSchemaError as error:
        return WriterSchema(found.schema_id, None, str(error))
    misfit = worst_misfit(writer.type, reader.type)
    if misfit is None:
        return WriterSchema(found.schema_id, writer.text)
    return WriterSchema(found.schema_id, None if misfit.is_mistaken else writer.text, misfit.text)


def json_writer(found: RegisteredSchema) -> WriterSchema:
    """Return a schema that JSON may be written with: the values say themselves what is in them."""
    if found.kind != "JSON":
        return WriterSchema(found.schema_id, None, f"expected a schema of type JSON, found {found.kind}")
    return WriterSchema(found.schema_id, "")


def avro_of(found: RegisteredSchema) -> AvroSchema:
    """Return a registered schema with what it refers to; raises WrongSchemaError."""
    if found.lacks is not None:
        raise WrongSchemaError(found.lacks)
    return read_avro(found.text, dict(found.references))


def in_order(ids: Iterable[int | str]) -> list[int | str]:
    """Return ids in order, numbers first."""
    return sorted(ids, key=lambda schema_id: (isinstance(schema_id, str), schema_id))


def described(reader: RegisteredSchema, subjects: Collection[str]) -> str:
    version = f" version {reader.version}" if reader.version is not None else ""
    return f"subject {min(subjects)}{version} (schema id {reader.schema_id})"


def json_fields(text: str, part: FieldDecoding) -> str:
    """Return the fields of a JSON Schema as Spark's DDL; raises WrongSchemaError."""
    ddl = ddl_of_json_schema(text, part.read_as)
    if reason := why_not_kept(read_schema(ddl).names, part.unknown_fields):
        raise WrongSchemaError(reason)
    return ddl


def text_of(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise WrongSchemaError(f"expected text in UTF-8, found {error}") from None


def with_column(schema: AvroSchema, part: FieldDecoding) -> AvroSchema:
    """Return a schema of which a column can be made; raises WrongSchemaError."""
    schema.read_as(part.read_as)
    return schema


def found_ids(failures: Collection[str]) -> dict[str, set[int | str]]:
    """Return the schema ids that attempts found, out of what they left as the reason of their failure."""
    found: dict[str, set[int | str]] = {}
    for failure in failures:
        for part, ids in ids_in(failure).items():
            found.setdefault(part, set()).update(ids)
    return found


def ids_in(failure: str) -> dict[str, list[int | str]]:
    """Return the schema ids that a failure names; none where a crash cut its text off, and Spark finds them again."""
    code, named = read_code(failure)
    if code is not FailureCode.UNKNOWN_SCHEMA_IDS:
        return {}
    try:
        found: dict[str, list[int | str]] = json.loads(named)
    except ValueError:
        return {}
    return found


Schema = TypeVar("Schema")


def usable(what: str, read: Callable[[], Schema]) -> Schema:
    """Return a schema; raises InvalidSchemaError."""
    try:
        return read()
    except WrongSchemaError as error:
        raise InvalidSchemaError(
            f"{what}: {error}. Correct the schema, or name another one in the feed file; or read a part of it as text, "
            "or leave it out, by as (docs/feed-files.md). Nothing was moved."
        ) from None
