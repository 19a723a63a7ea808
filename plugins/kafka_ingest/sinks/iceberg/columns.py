"""The columns of an Iceberg table: those of the raw format, and those of decoded records as they are listed.

Importing this imports pyiceberg, without pyarrow.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from pyiceberg import types
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import MappedField, NameMapping

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.model.written_columns import BATCH_COLUMN, WrittenColumns, path_of
from kafka_ingest.sinks.tables.decoded_columns import Part, listed_in, names_of_columns, parts_without_nulls

HEADERS = types.ListType(
    element_id=11,
    element=types.StructType(
        types.NestedField(12, "key", types.StringType(), required=False),
        types.NestedField(13, "value", types.BinaryType(), required=False),
    ),
    element_required=False,
)
RAW = Schema(
    types.NestedField(1, "kafka_topic", types.StringType(), required=False),
    types.NestedField(2, "kafka_partition", types.IntegerType(), required=False),
    types.NestedField(3, "kafka_offset", types.LongType(), required=False),
    types.NestedField(4, "kafka_timestamp", types.TimestamptzType(), required=False),
    types.NestedField(5, "key", types.BinaryType(), required=False),
    types.NestedField(6, "value", types.BinaryType(), required=False),
    types.NestedField(7, "kafka_headers", HEADERS, required=False),
    types.NestedField(8, "kafka_topic_id", types.StringType(), required=False),
    types.NestedField(9, "kafka_timestamp_ms", types.LongType(), required=False),
    types.NestedField(10, BATCH_COLUMN, types.StringType(), required=False),
)
"""The schema of a new table; the catalog gives the fields their ids. Files say of no column that it is never null, and
a required column would not take them."""


def differences_of_table(schema: Schema, options: TableOptions) -> Iterator[str]:
    """Yield why records of the raw format cannot be appended to a table of this schema; nothing where they can."""
    fields = {field.name: field for field in schema.fields}
    for expected in own_fields(options):
        field, kind = fields.get(expected.name), in_words(expected.field_type)
        if field is None:
            if not options.takes_without(expected.name):
                yield f"column {expected.name}: expected {kind}, found none"
        elif in_words(field.field_type) != kind:
            yield f"column {expected.name}: expected {kind}, found {in_words(field.field_type)}"
        elif field.required:
            yield f"column {expected.name}: expected one that allows nulls, found a required one"
    own = {field.name for field in own_fields(options)}
    for name, field in fields.items():
        if field.required and name not in own:
            yield f"column {name}: it is required, and nothing would be written into it"


def own_fields(options: TableOptions) -> list[types.NestedField]:
    """Return the columns of the raw format, without those that decoded records have others for."""
    return [field for field in RAW.fields if not options.is_of_records(field.name)]


def differences_of_mapping(schema: Schema, mapping: NameMapping | None, names: Collection[str]) -> Iterator[str]:
    """Yield which columns of added files readers would not find: a table's name mapping leads from names to ids."""
    if mapping is None:
        return
    known = {name: field for field in mapping.root for name in field.names}
    for field in schema.fields:
        if field.name in names and not leads_to(known.get(field.name), field):
            yield f"schema.name-mapping.default does not lead from the name {field.name} to field {field.field_id}"


def leads_to(mapped: MappedField | None, field: types.NestedField) -> bool:
    if mapped is None or mapped.field_id != field.field_id:
        return False
    inner = {name: each for each in mapped.fields for name in each.names}
    match field.field_type:
        case types.ListType() as found:
            return leads_to(inner.get("element"), found.element_field)
        case types.MapType() as found:
            return leads_to(inner.get("key"), found.key_field) and leads_to(inner.get("value"), found.value_field)
        case types.StructType() as found:
            return all(leads_to(inner.get(each.name), each) for each in found.fields)
        case _:
            return True


def taken_names(there: types.IcebergType, mapped: Sequence[MappedField], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the paths whose names lead to other fields of a table: to renamed or dropped ones, say. Each with why.

    If such a field was added, the name would lead to it, and in older files, too: their values would change columns.
    """
    known = {name: field for field in mapped for name in field.names}
    match there:
        case types.StructType():
            fields = {field.name: field for field in there.fields}
            for name, leads in known.items():
                inner = path_of(path, name)
                if name in fields:
                    yield from taken_names(fields[name].field_type, leads.fields, inner)
                    continue
                names = (each.name for each in there.fields if each.field_id == leads.field_id)
                now = next((f"is called {name} now" for name in names), "was dropped")
                why = f"a name that in schema.name-mapping.default leads to field {leads.field_id}, which {now}"
                yield inner, f"{inner}, {why}: values of older rows would move"
        case types.ListType() if "element" in known:
            yield from taken_names(there.element_type, known["element"].fields, f"{path}[]")
        case types.MapType() if "value" in known:
            yield from taken_names(there.value_type, known["value"].fields, f"{path}[]")


def in_words(kind: types.IcebergType) -> str:
    match kind:
        case types.StructType():
            fields = (f"{each.name}: {in_words(each.field_type)}{required(each.required)}" for each in kind.fields)
            return f"struct<{', '.join(fields)}>"
        case types.ListType():
            return f"list<{in_words(kind.element_type)}{required(kind.element_required)}>"
        case types.MapType():
            return f"map<{in_words(kind.key_type)}, {in_words(kind.value_type)}{required(kind.value_required)}>"
        case _:
            return str(kind)


def required(is_required: bool) -> str:  # noqa: FBT001 - one word of a sentence
    """Return a note on a part that allows no nulls."""
    return " required" if is_required else ""


IN_WORDS: Final = {"long": "bigint", "timestamptz": "timestamp", "timestamp": "timestamp_ntz"}
"""Iceberg's names of types that a feed file has other names for."""

SAME: Final = (("int", "smallint"),)
"""What Iceberg has no type of its own for, beside that as which it stores it."""


def parts_of(kind: types.IcebergType, path: str, *, allows_nulls: bool) -> Iterator[Part]:
    match kind:
        case types.StructType():
            yield Part(path, "struct", allows_nulls)
            yield from parts_in(kind, path)
        case types.ListType():
            yield Part(path, "array", allows_nulls)
            yield from parts_of(kind.element_type, f"{path}[]", allows_nulls=not kind.element_required)
        case types.MapType():
            yield Part(path, f"map of {named(kind.key_type)}", allows_nulls)
            yield from parts_of(kind.value_type, f"{path}[]", allows_nulls=not kind.value_required)
        case _:
            yield Part(path, named(kind), allows_nulls)


def parts_in(columns: Schema | types.StructType, path: str = "") -> Iterator[Part]:
    for field in columns.fields:
        yield from parts_of(field.field_type, path_of(path, field.name), allows_nulls=not field.required)


def listed(columns: Schema) -> dict[str, str]:
    """Return a table's or a file's columns beside Kafka's own, as receipts list them."""
    return listed_in(parts_in(columns))


def named(kind: types.IcebergType) -> str:
    return IN_WORDS.get(str(kind), str(kind).replace(" ", "")) if isinstance(kind, types.PrimitiveType) else "struct"


def misfits(table: Table, written: WrittenColumns) -> Iterator[str]:
    """Yield which columns that are to be written a table has otherwise than by their type, with why."""
    schema, names, mapping = table.schema(), names_of_columns(written), table.name_mapping()
    yield from parts_without_nulls(parts_in(schema), names, "required")
    yield from differences_of_mapping(schema, mapping, names)
    if mapping is not None:
        yield from (why for path, why in taken_names(schema.as_struct(), mapping.root) if path in written)
