"""Whether what was written with one Avro schema is read right with another: what would not be read, and what wrongly.

The records themselves are resolved by Java's Avro: with a union it depends on the value. Some pairs of schemas it reads
as something else, without an error. It ignores the names of records: it looks at their fields only, and what has a
default need not be written. Spark ignores the writer's logical types: a number is a decimal of the reader's scale, or a
time in the reader's unit. Such a schema is refused as a whole, also where some of its values could be read.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_ingest.model import avro_types as avro
from kafka_ingest.model.record_schema import DECIMAL

PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""What a written type may be read as."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why not every value that is written can be read. ``is_mistaken``: some could be read as something else."""

    text: str
    is_mistaken: bool = False


def worst_misfit(writer: avro.AvroType, reader: avro.AvroType) -> Misfit | None:
    """Return the first misfit by which values could be mistaken, else the first one; None where all are read right."""
    return min(misfits(writer, reader, "the value"), key=lambda each: not each.is_mistaken, default=None)


def misfits(writer: avro.AvroType, reader: avro.AvroType, where: str) -> Iterator[Misfit]:
    """Yield what does not fit in two types. ``where``: the place of the reader's, in words."""
    match writer, reader:
        case avro.Union(branches), _:
            for branch in branches:
                yield from misfits(branch, reader, where)
        case _, avro.Union(branches):
            yield from misfits_with_one(writer, branches, where)
        case avro.Items(written), avro.Items(read):
            yield from misfits(written, read, f"the items of {where}")
        case avro.Values(written), avro.Values(read):
            yield from misfits(written, read, f"the values of {where}")
        case avro.Primitive(found), avro.Primitive() | avro.Fixed():
            if avro.name_of(reader) != found and avro.name_of(reader) not in PROMOTED.get(found, ()):
                yield Misfit(f"expected {where} as {avro.name_of(reader)}, found {found}")
            yield from other_meaning(writer, reader, where)
        case avro.Fixed() | avro.Enumeration() | avro.Record() | avro.Inside(), _:
            yield from misfits_of_named(writer, reader, where)
        case _:
            yield Misfit(f"expected {where} as {avro.name_of(reader)}, found {avro.name_of(writer)}")


def misfits_of_named(writer: avro.Named, reader: avro.AvroType, where: str) -> Iterator[Misfit]:
    """Yield what does not fit in a type with a name, and in another type."""
    other = f"expected {where} as {avro.name_of(reader)}, found {avro.name_of(writer)}"
    if not isinstance(reader, avro.Named) or type(reader) is not type(writer) or not has_name_of(writer, reader):
        yield Misfit(other, is_mistaken=True)
        return
    match writer, reader:
        case avro.Record(), avro.Record():
            for field, found in fields_of(writer, reader):
                yield from misfits_of_field(writer, reader, field, found)
        case avro.Fixed(), avro.Fixed():
            if not is_named_as(writer, reader) or writer.size != reader.size:
                yield Misfit(other)
            yield from other_meaning(writer, reader, where)
        case avro.Enumeration(), avro.Enumeration():
            unknown = [symbol for symbol in writer.symbols if symbol not in {*reader.symbols}]
            if not is_named_as(writer, reader):
                yield Misfit(other)
            elif unknown and not reader.has_default:
                symbols = ", ".join(unknown[:5])
                yield Misfit(f"expected {where} to have the symbols of {reader.name} only, found {symbols}")


def misfits_with_one(writer: avro.AvroType, branches: Sequence[avro.AvroType], where: str) -> Iterator[Misfit]:
    """Yield what does not fit where the reader has a union."""
    none = f"expected {where} as one of {', '.join(map(avro.name_of, branches))}, found {avro.name_of(writer)}"
    if isinstance(writer, avro.Named):
        branch = counterpart(writer, branches)
        yield from misfits(writer, branch, where) if branch else (Misfit(none, is_mistaken=True),)
        return
    wider = PROMOTED.get(avro.name_of(writer), ())
    same = [branch for branch in branches if avro.name_of(branch) == avro.name_of(writer)]
    found = [
        [*misfits(writer, each, where)] for each in same or branches if each in same or avro.name_of(each) in wider
    ]
    yield from (misfit for each in found for misfit in each if misfit.is_mistaken)
    if all(any(not misfit.is_mistaken for misfit in each) for each in found):
        yield Misfit(none)


def misfits_of_field(
    writer: avro.Record, reader: avro.Record, field: avro.RecordField, found: avro.RecordField | None
) -> Iterator[Misfit]:
    """Yield what does not fit in a field of a record, and in the one that was written for it."""
    if found is None:
        if not field.has_default:
            yield Misfit(f"expected field {field.name}, which has no default, found none of that name")
        return
    if found.name != field.name and not is_named_as(writer, reader):
        # Java's Avro knows aliases of fields by the full name of their record only, and takes the default.
        expected = f"{reader.name}, whose field {field.name} was {found.name} before"
        yield Misfit(f"expected {expected}, found {writer.name}", is_mistaken=True)
    yield from misfits(found.type, field.type, f"field {field.name}")


def other_meaning(
    writer: avro.Primitive | avro.Fixed, reader: avro.Primitive | avro.Fixed, where: str
) -> Iterator[Misfit]:
    """Yield why a number would mean something else."""
    written, read = DECIMAL.fullmatch(writer.spark), DECIMAL.fullmatch(reader.spark)
    times = [each.time for each in (reader, writer) if isinstance(each, avro.Primitive) and each.time is not None]
    if written or read:
        if not (written and read and written[2] == read[2] and int(written[1]) <= int(read[1])):
            yield Misfit(f"expected {where} as {shown(reader)}, found {shown(writer)}", is_mistaken=True)
    elif len({*times}) > 1:
        yield Misfit(f"expected {where} as {times[0]}, found {times[1]}", is_mistaken=True)


def shown(kind: avro.Primitive | avro.Fixed) -> str:
    """Return a type with its logical type."""
    return kind.spark if DECIMAL.fullmatch(kind.spark) else avro.name_of(kind)


def counterpart(writer: avro.Named, branches: Sequence[avro.AvroType]) -> avro.Named | None:
    """Return the branch that Java's Avro surely takes for a type with a name; None where its fields would decide."""
    alike = [branch for branch in branches if isinstance(branch, avro.Named) and type(branch) is type(writer)]
    exact = [branch for branch in alike if is_named_as(writer, branch)]
    found = exact or [branch for branch in alike if len(alike) == 1 and has_name_of(writer, branch)]
    return found[0] if len(found) == 1 else None


def fields_of(writer: avro.Record, reader: avro.Record) -> list[tuple[avro.RecordField, avro.RecordField | None]]:
    """Return the reader's fields, each with the one that was written for it, by its name or an alias."""
    written = {field.name: field for field in writer.fields}
    return [
        (field, next((written[name] for name in (field.name, *field.aliases) if name in written), None))
        for field in reader.fields
    ]


def is_named_as(writer: avro.Named, reader: avro.Named) -> bool:
    """Whether two types have one name in full; the reader may have had others before."""
    return writer.name in (reader.name, *reader.aliases)


def has_name_of(writer: avro.Named, reader: avro.Named) -> bool:
    """Whether two types have one name; the namespace does not matter."""
    return avro.short(writer.name) in map(avro.short, (reader.name, *reader.aliases))
