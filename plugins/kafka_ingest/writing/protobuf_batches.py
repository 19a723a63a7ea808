"""Protobuf in Arrow batches: what Spark's Python workers do with the bytes of records, a column at a time.

This module is sent to the workers by value, together with the tree of values that it walks
(:mod:`kafka_ingest.schemas.message_columns`): they need the libraries, but not this package. A worker makes
Arrow columns of a batch with ptars, in Rust. It reads the plain message type, in which nothing means anything yet, and
encodes what it has read again: where that has another length than the record, something in the record is not as it was
read (a field that the schema does not have, or in another wire type; a member of a oneof that another one replaces; an
encoding that no serializer makes). Such batches are read by Google's own library, record by record, and what it makes
of them is what ptars gets.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from ptars import HandlerPool, PtarsConfig

from kafka_ingest.model.written_columns import END_OF_SECONDS, FIRST_SECOND
from kafka_ingest.schemas.message_columns import (
    KEY,
    NANOS,
    OF_MAPS,
    SECONDS,
    VALUE,
    WRAPPED,
    Enumerated,
    Instant,
    JsonText,
    Marker,
    Message,
    MessageField,
    Repetition,
    Single,
    Value,
    Wrapped,
    plain_name,
)

NOT_PROTOBUF = "NOT_PROTOBUF"
INVALID_UTF8 = "INVALID_UTF8"
DOES_NOT_FIT = "DOES_NOT_FIT"
OUT_OF_RANGE = "OUT_OF_RANGE"

ONE_MESSAGE = "expected exactly one message of the schema, found bytes that are not one, or more bytes after it"
OTHER_WIRE_TYPE = "expected fields in the wire types of the schema, found another in field "
NO_TEXT = "expected text in UTF-8, found other bytes in the message"
NO_JSON = "expected a message that has a form in JSON, found another in "
BEYOND = "expected values that their types can hold, found others in "
LACKING = "expected the required fields, found none of "

SECOND_NANOS = 1_000_000_000
MICROSECONDS = 1_000_000
NANOS_OF_MICROSECOND = 1_000

ARROW_TYPES: Mapping[str, Any] = {
    "double": pa.float64(),
    "float": pa.float32(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "decimal(20,0)": pa.decimal128(20, 0),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
}
TIMESTAMP = pa.timestamp("us", tz="UTC")

Column = Any
"""An array of Arrow's; the stubs know fewer methods than it has."""

Indices = Column
ToRows = Callable[[Indices], Indices]
"""From places in a column of what is inside of records, the places of the records."""


class NotCanonicalError(Exception):
    """What is there has to be read by Protobuf's own rules first, which columns do not follow.

    Of two members of a oneof, the last counts; an entry of a map without key or value has the default one.
    """


@dataclass
class Dead:
    """Why records of a batch cannot be decoded: of each the first reason that was found."""

    reasons: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add(self, rows: Iterable[int], dead_class: str, said: str) -> None:
        for row in rows:
            self.reasons.setdefault(row, (dead_class, said))

    def where(self, is_wrong: Column, to_rows: ToRows, dead_class: str, said: str) -> None:
        if pc.any(is_wrong).as_py():
            self.add(to_rows(pc.indices_nonzero(is_wrong)).to_pylist(), dead_class, said)

    def columns(self, rows: int) -> tuple[Column, Column]:
        """Return the classes and texts of all records of a batch."""
        if not self.reasons:
            return pa.nulls(rows, pa.string()), pa.nulls(rows, pa.string())
        every = [self.reasons.get(row, (None, None)) for row in range(rows)]
        return pa.array([each for each, _ in every], pa.string()), pa.array([each for _, each in every], pa.string())


@dataclass(frozen=True)
class SentType:
    """A message type as workers are sent it. ``json_descriptors``: a FileDescriptorSet with what is stored as JSON."""

    value: Message
    plain_file: bytes
    plain_message: str
    json_descriptors: bytes = b""


class MessageReader:
    """Reads the messages of one type, in a worker."""

    def __init__(self, sent: SentType) -> None:
        self.value = sent.value
        file = FileDescriptorProto.FromString(sent.plain_file)
        self.plain_class = class_of(file, sent.plain_message)
        descriptor = self.plain_class.DESCRIPTOR
        self.handler = HandlerPool([descriptor.file], PtarsConfig()).get_for_message(descriptor)
        for each in (each for message in file.message_type for each in message.field):
            if each.type == each.TYPE_STRING:
                each.type = each.TYPE_BYTES
        self.textless_class = class_of(file, sent.plain_message)
        self.json_pool = DescriptorPool()
        for file in FileDescriptorSet.FromString(sent.json_descriptors).file:
            self.json_pool.Add(file)
        self.inner: dict[str, list[tuple[str, bool, Descriptor]]] = {}

    def read(self, bodies: Column) -> Column:
        """Return a struct for each of the bodies: ``v``, and null or the ``class`` and ``text`` of what is wrong.

        Where something is wrong, ``v`` means nothing.
        """
        missing, content, dead = bodies.is_null(), bodies.fill_null(b""), Dead()
        try:
            values = self.converted(self.columns(content), dead)
        except (ValueError, NotCanonicalError):
            dead = Dead()
            content = self.canonical(content, dead)
            values = self.converted(self.columns(content, dead), dead)
        classes, texts = dead.columns(len(bodies))
        names = ["v", "class", "text"]
        return pa.StructArray.from_arrays(
            [masked(values, missing), masked(classes, missing), masked(texts, missing)], names
        )

    def columns(self, content: Column, dead: Dead | None = None) -> Column:
        """Return messages as ptars reads them; raises ValueError where it does not read all of some.

        With ``dead`` such messages are noted, and read as empty ones.
        """
        try:
            found = self.handler.array_to_record_batch(content)
            again = content if dead is not None else self.handler.record_batch_to_array(found)
        except ValueError:
            if dead is None:
                raise
            return self.columns(pa.array([self.only_if_read(*each, dead) for each in enumerate(content.to_pylist())]))
        if not pc.binary_length(again).equals(pc.binary_length(content)):
            raise ValueError(ONE_MESSAGE)
        return found

    def only_if_read(self, row: int, content: bytes, dead: Dead) -> bytes:
        """Return a message that ptars reads."""
        try:
            self.handler.list_to_record_batch([content])
        except ValueError:
            dead.add([row], NOT_PROTOBUF, ONE_MESSAGE)
            return b""
        return content

    def canonical(self, content: Column, dead: Dead) -> Column:
        """Return messages as Google's library encodes what it reads of them; those that it does not read are empty."""
        return pa.array([self.one(*each, dead) for each in enumerate(content.to_pylist())], pa.binary())

    def one(self, row: int, content: bytes, dead: Dead) -> bytes:
        """Return one message as Google's library encodes it, or an empty one where it does not read it."""
        try:
            message = self.plain_class.FromString(content)
        except DecodeError:
            is_text = self.is_readable_without_text(content)
            dead.add([row], INVALID_UTF8 if is_text else NOT_PROTOBUF, NO_TEXT if is_text else ONE_MESSAGE)
            return b""
        if number := self.known_number(message, message.DESCRIPTOR):
            dead.add([row], NOT_PROTOBUF, f"{OTHER_WIRE_TYPE}{number}")
            return b""
        kept: bytes = message.SerializeToString()
        return kept

    def known_number(self, message: Any, descriptor: Descriptor) -> int | None:  # noqa: ANN401 - made at run time
        """Return the number of a field that is there in another wire type than its own; complete entries of maps."""
        if descriptor.name.startswith(OF_MAPS):
            complete(message)
        unknown_fields: Any = UnknownFieldSet(message)
        for unknown in unknown_fields:
            if unknown.field_number in descriptor.fields_by_number:
                return int(unknown.field_number)
        for name, is_repeated, inner in self.inner_messages(descriptor):
            if is_repeated:
                found = getattr(message, name)
            elif message.HasField(name):
                found = (getattr(message, name),)
            else:
                continue
            for each in found:
                if number := self.known_number(each, inner):
                    return number
        return None

    def inner_messages(self, descriptor: Descriptor) -> "list[tuple[str, bool, Descriptor]]":
        """Return the fields of a message that are messages: their names, and whether each may occur many times."""
        if descriptor.full_name not in self.inner:
            self.inner[descriptor.full_name] = [
                (each.name, each.is_repeated, each.message_type)
                for each in descriptor.fields
                if each.message_type is not None
            ]
        return self.inner[descriptor.full_name]

    def converted(self, batch: Column, dead: Dead) -> Column:
        """Return the messages as Spark's columns have them."""
        found = pa.StructArray.from_arrays(batch.columns, batch.schema.names) if batch.num_columns else None
        if found is None:
            raise TypeError("expected a message with fields, found none")
        return self.message(self.value, found, lambda indices: indices, "", dead)

    def message(self, value: Message, found: Column, to_rows: ToRows, path: str, dead: Dead) -> Column:
        for members in value.oneofs:
            is_there = [found.field(plain_name(number)).is_valid().cast(pa.int8()) for number in members]
            total = is_there[0]
            for each in is_there[1:]:
                total = pc.add(total, each)
            if len(total) and pc.max(total).as_py() > 1:
                raise NotCanonicalError
        columns = []
        for each in value.fields:
            name, column = f"{path}{each.name}", found.field(plain_name(each.number))
            if each.is_required:
                dead.where(pc.and_(found.is_valid(), column.is_null()), to_rows, DOES_NOT_FIT, f"{LACKING}{name}")
            columns.append(self.field(each, column, to_rows, name, dead))
        names = [pa.field(each.name, column.type) for each, column in zip(value.fields, columns, strict=True)]
        mask = found.is_null() if found.null_count else None
        return pa.StructArray.from_arrays(columns, fields=names, mask=mask)

    def field(self, of: MessageField, found: Column, to_rows: ToRows, path: str, dead: Dead) -> Column:
        if of.repetition is Repetition.ONE:
            return self.one_value(of.value, found, to_rows, path, dead)
        inside = partial(rows_of_lists, found, to_rows)
        if of.repetition is Repetition.MANY:
            items = self.one_value(of.value, found.flatten(), inside, path, dead)
            return pa.ListArray.from_arrays(offsets_of(found), items, type=pa.list_(pa.field("element", items.type)))
        entries = found.flatten()
        keys = entries.field(plain_name(KEY))
        if keys.null_count or entries.field(plain_name(VALUE)).null_count:
            raise NotCanonicalError
        parents: Indices = pc.list_parent_indices(found)
        last = last_of_each(parents, keys)
        offsets = offsets_of(found)
        if last is not None:
            entries, parents, keys = entries.take(last), parents.take(last), keys.take(last)
            offsets = offsets_by_parent(parents, len(found))
            inside = partial(rows_of_parents, parents, to_rows)
        items = self.one_value(of.value, entries.field(plain_name(VALUE)), inside, path, dead)
        key_type = ARROW_TYPES[of.key or "string"]
        map_type: Any = pa.map_(key_type, items.type)
        return pa.MapArray.from_arrays(offsets, keys.cast(key_type), items, type=map_type)

    def one_value(self, value: Value, found: Column, to_rows: ToRows, path: str, dead: Dead) -> Column:
        match value:
            case Single("string"):
                column = self.texts(found, to_rows, dead)
            case Single(spark):
                column = found.cast(ARROW_TYPES[spark])
            case Enumerated(names):
                column = named(found, names)
            case Instant():
                column = instants(found, to_rows, path, dead)
            case Wrapped(spark):
                column = masked(found.field(plain_name(WRAPPED)).cast(ARROW_TYPES[spark]), found.is_null())
            case Marker():
                column = masked(pa.repeat(pa.scalar(value=True), len(found)), found.is_null())
            case JsonText():
                column = self.json_texts(value, found, to_rows, path, dead)
            case Message():
                column = self.message(value, found, to_rows, f"{path}.", dead)
        return column

    def texts(self, found: Column, to_rows: ToRows, dead: Dead) -> Column:
        """Return a column of texts, also of numbers, and of bytes that are text."""
        if not pa.types.is_binary(found.type):
            return found.cast(pa.string())
        is_text = pa.array([content is None or is_utf8(content) for content in found.to_pylist()], pa.bool_())
        dead.where(pc.invert(is_text), to_rows, INVALID_UTF8, NO_TEXT)
        return pc.if_else(is_text, found, pa.scalar(None, pa.binary())).cast(pa.string())

    def json_texts(self, value: JsonText, found: Column, to_rows: ToRows, path: str, dead: Dead) -> Column:
        texts: list[str | None] = []
        wrong: dict[tuple[str, str], list[int]] = {}
        for place, content in enumerate(found.to_pylist()):
            try:
                texts.append(None if content is None else self.json_of(value, content))
            except DecodeError:
                wrong.setdefault((NOT_PROTOBUF, ONE_MESSAGE), []).append(place)
                texts.append(None)
            except (
                json_format.Error,
                ValueError,
                TypeError,
                LookupError,
                AttributeError,
                OverflowError,
                RecursionError,
            ):
                wrong.setdefault((DOES_NOT_FIT, f"{NO_JSON}{path}"), []).append(place)
                texts.append(None)
        for reason, places in wrong.items():
            dead.add(to_rows(pa.array(places, pa.int64())).to_pylist(), *reason)
        return pa.array(texts, pa.string())

    def json_of(self, value: JsonText, content: bytes) -> str:
        found = GetMessageClass(self.json_pool.FindMessageTypeByName(value.message)).FromString(content)
        text = json_format.MessageToJson(
            found, preserving_proto_field_name=True, indent=None, ensure_ascii=False, descriptor_pool=self.json_pool
        )
        return str(json.loads(text)) if value.is_text and text.startswith('"') else text

    def is_readable_without_text(self, content: bytes) -> bool:
        """Whether a message can be read where its texts are taken as bytes: so what is wrong is in a text."""
        try:
            self.textless_class.FromString(content)
        except DecodeError:
            return False
        return True


def class_of(file: FileDescriptorProto, message: str) -> Any:  # noqa: ANN401 - made at run time
    """Return the class of a message of a file that imports none."""
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(message))


def complete(entry: Any) -> None:  # noqa: ANN401 - made at run time
    """Give an entry of a map the default key or value where it has none."""
    for each in entry.DESCRIPTOR.fields:
        if not entry.HasField(each.name):
            if each.message_type is not None:
                getattr(entry, each.name).SetInParent()
            else:
                setattr(entry, each.name, each.default_value)


def is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def masked(column: Column, is_void: Column) -> Column:
    """Return a column that is null also where ``is_void`` is true."""
    if not pc.any(is_void).as_py():
        return column
    if pa.types.is_struct(column.type):
        fields = [column.type.field(place) for place in range(column.type.num_fields)]
        inner = [column.field(place) for place in range(len(fields))]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=pc.or_(column.is_null(), is_void))
    return pc.if_else(is_void, pa.scalar(None, column.type), column)


def named(found: Column, names: Mapping[int, str]) -> Column:
    """Return the names of numbers; digits where a number has none."""
    numbers, known = pa.array(list(names), pa.int32()), pa.array(list(names.values()), pa.string())
    places: Indices = pc.index_in(found, value_set=numbers, skip_nulls=True)
    texts = known.take(places)
    if texts.null_count == found.null_count:
        return texts
    return pc.coalesce(texts, found.cast(pa.string()))


def instants(found: Column, to_rows: ToRows, path: str, dead: Dead) -> Column:
    """Return timestamps, cut off to microseconds; those that no reader has are dead."""
    seconds, nanos = found.field(plain_name(SECONDS)), found.field(plain_name(NANOS))
    is_fine = pc.and_(
        pc.and_(pc.greater_equal(seconds, pa.scalar(FIRST_SECOND)), pc.less(seconds, pa.scalar(END_OF_SECONDS))),
        pc.and_(pc.greater_equal(nanos, pa.scalar(0)), pc.less(nanos, pa.scalar(SECOND_NANOS))),
    )
    dead.where(pc.and_(found.is_valid(), pc.invert(is_fine)), to_rows, OUT_OF_RANGE, f"{BEYOND}{path}")
    micros = pc.add(pc.multiply(seconds, MICROSECONDS), pc.divide(nanos, NANOS_OF_MICROSECOND).cast(pa.int64()))
    is_there = pc.and_(found.is_valid(), is_fine)
    return pc.if_else(is_there, micros, pa.scalar(None, pa.int64())).cast(TIMESTAMP)


def offsets_of(lists: Column) -> Column:
    """Return where each list begins among the items of all, and where the last one ends."""
    lengths = lists.value_lengths().fill_null(0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


def offsets_by_parent(parents: Indices, lists: int) -> Column:
    """Return the same from the number of the list that each item is in."""
    counts = [0] * (lists + 1)
    for parent in parents.to_pylist():
        counts[parent + 1] += 1
    return pc.cumulative_sum(pa.array(counts, pa.int32()))


def rows_of_lists(lists: Column, to_rows: ToRows, items: Indices) -> Indices:
    """Return the records of items, which are numbered over all lists."""
    return rows_of_parents(pc.list_parent_indices(lists), to_rows, items)


def rows_of_parents(parents: Indices, to_rows: ToRows, items: Indices) -> Indices:
    """Return the records of items, of each of which the number of its list is known."""
    return to_rows(parents.take(items))


def last_of_each(parents: Indices, keys: Column) -> Indices:
    """Return the last entry of each key of each map, in their order; None where no map has a key twice."""
    entries = pa.table({"parent": parents, "key": keys, "place": pa.array(range(len(keys)), pa.int64())})
    last = entries.group_by(["parent", "key"]).aggregate([("place", "max")])["place_max"].combine_chunks()
    return None if len(last) == len(keys) else last.take(pc.sort_indices(last))


def message_batches(
    batches: Iterable[pa.RecordBatch], types: Sequence[tuple[str, str, SentType]]
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the messages of some columns after them: from which column, under which name, which type."""
    readers = [(body, parsed, MessageReader(sent)) for body, parsed, sent in types]
    for batch in batches:
        columns, names = list(batch.columns), list(batch.schema.names)
        for body, parsed, reader in readers:
            place = names.index(body)
            columns.append(reader.read(found := columns[place]))
            # Of a body only whether there is one is needed then: that is less to give back.
            columns[place] = pc.if_else(found.is_valid(), pa.scalar(b"", found.type), pa.scalar(None, found.type))
            names.append(parsed)
        yield pa.RecordBatch.from_arrays(columns, names=names)
