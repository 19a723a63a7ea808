"""Whether Java's Avro would read what was written with one schema as something else, without an error.

It ignores the names of records: it looks at their fields only, and what has a default need not be written. Spark
ignores the writer's logical types: a number is a decimal of the reader's scale, or a time in the reader's unit. Such
schemas are refused as a whole, also where some of their values could be read.
"""

from collections.abc import Sequence

from kafka_ingest.model.avro_resolution import PROMOTED, fields_of, has_name_of, is_named_as
from kafka_ingest.model.avro_types import (
    AvroType,
    Enumeration,
    Fixed,
    Inside,
    Items,
    Named,
    Primitive,
    Record,
    Union,
    Values,
    name_of,
)
from kafka_ingest.model.record_schema import DECIMAL


def why_mistaken(writer: AvroType, reader: AvroType, where: str = "the value") -> str | None:
    """Return why values could be read as something else; None where each is read as what it is, or not at all."""
    match writer, reader:
        case Union(branches), _:
            reasons = (why_mistaken(branch, reader, where) for branch in branches)
            return next(filter(None, reasons), None)
        case _, Union(branches):
            return why_mistaken_for_one(writer, branches, where)
        case (Items(written), Items(read)) | (Values(written), Values(read)):
            return why_mistaken(written, read, f"what is in {where}")
        case Fixed() | Enumeration() | Record() | Inside(), _:
            return why_other_name(writer, reader, where)
        case Primitive(), Primitive() | Fixed():
            return why_other_meaning(writer, reader, where)
        case _:
            return None


def why_other_name(writer: Named, reader: AvroType, where: str) -> str | None:
    """Return why a type with a name could be read as something else."""
    if type(writer) is not type(reader) or not has_name_of(writer, reader):
        return f"expected {where} as {name_of(reader)}, found {name_of(writer)}"
    match writer, reader:
        case Record(), Record():
            return why_other_fields(writer, reader)
        case Fixed(), Fixed():
            return why_other_meaning(writer, reader, where)
        case _:
            return None


def why_mistaken_for_one(writer: AvroType, branches: Sequence[AvroType], where: str) -> str | None:
    """Return why values could be read as something else where the reader has a union."""
    if isinstance(writer, Named):
        branch = counterpart(writer, branches)
        if branch is None:
            expected = ", ".join(map(name_of, branches))
            return f"expected {where} as one of {expected}, found {name_of(writer)}"
        return why_mistaken(writer, branch, where)
    wider = PROMOTED.get(name_of(writer), frozenset())
    same = [branch for branch in branches if name_of(branch) == name_of(writer)]
    reasons = (
        why_mistaken(writer, branch, where) for branch in same or branches if branch in same or name_of(branch) in wider
    )
    return next(filter(None, reasons), None)


def counterpart(writer: Named, branches: Sequence[AvroType]) -> Named | None:
    """Return the branch that Java's Avro surely takes for a type with a name; None where its fields would decide."""
    alike = [branch for branch in branches if isinstance(branch, Named) and type(branch) is type(writer)]
    exact = [branch for branch in alike if is_named_as(writer, branch)]
    found = exact or [branch for branch in alike if len(alike) == 1 and has_name_of(writer, branch)]
    return found[0] if len(found) == 1 else None


def why_other_fields(writer: Record, reader: Record) -> str | None:
    """Return why a record could be read as something else, where its name is the reader's."""
    for field, found in fields_of(writer, reader):
        if found is None:
            continue
        if found.name != field.name and not is_named_as(writer, reader):
            # Java's Avro knows aliases of fields by the full name of their record only, and takes the default.
            return f"expected {reader.name}, whose field {field.name} was {found.name} before, found {writer.name}"
        if reason := why_mistaken(found.type, field.type, f"field {field.name}"):
            return reason
    return None


def why_other_meaning(writer: Primitive | Fixed, reader: Primitive | Fixed, where: str) -> str | None:
    """Return why a number would mean something else."""
    written, read = DECIMAL.fullmatch(writer.spark), DECIMAL.fullmatch(reader.spark)
    if written and read and written[2] == read[2] and int(written[1]) <= int(read[1]):
        return None
    if written or read:
        return f"expected {where} as {shown(reader)}, found {shown(writer)}"
    times = [each.time for each in (writer, reader) if isinstance(each, Primitive) and each.time is not None]
    return f"expected {where} as {times[1]}, found {times[0]}" if len({*times}) > 1 else None


def shown(kind: Primitive | Fixed) -> str:
    """Return a type with its logical type."""
    return kind.spark if DECIMAL.fullmatch(kind.spark) else name_of(kind)
