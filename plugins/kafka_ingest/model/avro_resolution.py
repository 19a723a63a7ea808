"""Whether what was written with one Avro schema can be read with another, by Avro's rules for schema resolution.

The records themselves are resolved by Java's Avro: with a union it depends on the value. This says before which pairs
of schemas do not fit, and why. Of which pairs Java's Avro would make wrong values, avro_mistaken.py says.
"""

from collections.abc import Mapping
from typing import Final

from kafka_ingest.model.avro_types import (
    AvroType,
    Enumeration,
    Fixed,
    Inside,
    Items,
    Named,
    Primitive,
    Record,
    RecordField,
    Union,
    Values,
    name_of,
    short,
)

PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""What a written type may be read as."""


def why_not_read(writer: AvroType, reader: AvroType, where: str = "the value") -> str | None:
    """Return why not every value that is written can be read; None where it can."""
    if isinstance(writer, Union):
        reasons = (why_not_read(branch, reader, where) for branch in writer.branches)
        return next(filter(None, reasons), None)
    if isinstance(reader, Union):
        if any(why_not_read(writer, branch, where) is None for branch in reader.branches):
            return None
        expected = ", ".join(name_of(each) for each in reader.branches)
        return f"expected {where} as one of {expected}, found {name_of(writer)}"
    if isinstance(writer, Items) and isinstance(reader, Items):
        return why_not_read(writer.element, reader.element, f"the items of {where}")
    if isinstance(writer, Values) and isinstance(reader, Values):
        return why_not_read(writer.value, reader.value, f"the values of {where}")
    return why_not_the_same(writer, reader, where)


def why_not_the_same(writer: AvroType, reader: AvroType, where: str) -> str | None:
    """Return why a value of a type with a name cannot be read."""
    match writer, reader:
        case Primitive(found), Primitive(expected) if found == expected or expected in PROMOTED.get(found, ()):
            return None
        case Fixed(size=written_size), Fixed(size=size) if is_named_as(writer, reader) and written_size == size:
            return None
        case Enumeration(), Enumeration() if is_named_as(writer, reader):
            return why_no_symbol(writer, reader, where)
        case Record(), Record() if has_name_of(writer, reader):
            return why_no_record(writer, reader)
        case Inside(), Inside() if has_name_of(writer, reader):
            return None  # the question is being answered, one or more levels above
        case _:
            return f"expected {where} as {name_of(reader)}, found {name_of(writer)}"


def why_no_symbol(writer: Enumeration, reader: Enumeration, where: str) -> str | None:
    """Return why a symbol cannot be read."""
    known = frozenset(reader.symbols)
    unknown = [symbol for symbol in writer.symbols if symbol not in known]
    if not unknown or reader.has_default:
        return None
    return f"expected {where} to have the symbols of {reader.name} only, found {', '.join(unknown[:5])}"


def why_no_record(writer: Record, reader: Record) -> str | None:
    """Return why a record cannot be read."""
    for field, found in fields_of(writer, reader):
        if found is None and not field.has_default:
            return f"expected field {field.name}, which has no default, found none of that name"
        if found is not None and (reason := why_not_read(found.type, field.type, f"field {field.name}")):
            return reason
    return None


def fields_of(writer: Record, reader: Record) -> list[tuple[RecordField, RecordField | None]]:
    """Return the reader's fields, each with the one that was written for it, by its name or an alias."""
    written = {field.name: field for field in writer.fields}
    return [
        (field, next((written[name] for name in (field.name, *field.aliases) if name in written), None))
        for field in reader.fields
    ]


def is_named_as(writer: Named, reader: Named) -> bool:
    """Whether two types have one name in full; the reader may have had others before."""
    return writer.name in (reader.name, *reader.aliases)


def has_name_of(writer: Named, reader: Named) -> bool:
    """Whether two types have one name; the namespace does not matter."""
    return short(writer.name) in map(short, (reader.name, *reader.aliases))
