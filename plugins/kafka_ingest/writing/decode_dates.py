"""Dates and times: read as texts, and converted only where they are written in full.

Spark's own reading takes ``2026`` for a day, ``12:30`` for a time of today, and a number for seconds, silently beyond
what it can count.
"""

from collections.abc import Iterator
from itertools import count

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct, quoted
from kafka_ingest.model.written_columns import FIRST_TIME, LAST_TIME
from kafka_ingest.writing.decoded_part import text

DAY = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = "[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"
ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"

FORMS = {"date": DAY, "timestamp": f"{DAY}{TIME}{ZONE}?", "timestamp_ntz": f"{DAY}{TIME}"}
"""The common forms of each type; others are read record by record (:mod:`.json_values`)."""


def is_date(kind: RecordType) -> bool:
    return isinstance(kind, Scalar) and kind.name in FORMS


def scalars_in(kind: RecordType) -> Iterator[Scalar]:
    match kind:
        case Struct(fields):
            for field in fields:
                yield from scalars_in(field.type)
        case ArrayOf(inner) | MapOf(inner):
            yield from scalars_in(inner)
        case Scalar():
            yield kind


def has_dates(kind: RecordType) -> bool:
    return any(map(is_date, scalars_in(kind)))


def parsed_type(kind: RecordType) -> str:
    """Return the type to parse as, with texts for dates and times."""
    match kind:
        case Struct(fields):
            return "struct<" + ",".join(f"{quoted(field.name)}:{parsed_type(field.type)}" for field in fields) + ">"
        case ArrayOf(inner):
            return f"array<{parsed_type(inner)}>"
        case MapOf(inner):
            return f"map<string,{parsed_type(inner)}>"
        case _:
            return "string" if is_date(kind) else kind.ddl


def convert_dates(found: str, kind: RecordType, names: "count[int] | None" = None) -> str:
    """Return a parsed value with its dates and times; null for those that are none."""
    names = names or count()
    if not has_dates(kind):
        return found
    match kind:
        case Struct(fields):
            converted = ", ".join(
                f"{text(field.name)}, {convert_dates(f'{found}.{quoted(field.name)}', field.type, names)}"
                for field in fields
            )
            return f"if({found} is null, null, named_struct({converted}))"
        case ArrayOf(inner):
            each = f"x{next(names)}"
            return f"transform({found}, {each} -> {convert_dates(each, inner, names)})"
        case MapOf(inner):
            each = f"x{next(names)}"
            return f"transform_values({found}, (k{each}, {each}) -> {convert_dates(each, inner, names)})"
        case _:
            return converted_date(found, kind.name)


def converted_date(found: str, name: str) -> str:
    """Return the date or time that a text is; null where it is none."""
    # Java's own forms leave out seconds that are 0, and Spark knows no zone after minutes.
    timed = f"if(substr({found}, 17, 1) = ':', {found}, concat(left({found}, 16), ':00', substr({found}, 17)))"
    zoned = f"if({found} rlike r'{ZONE}\\z', {timed}, concat({timed}, 'Z'))"
    exact = {"date": found, "timestamp": zoned, "timestamp_ntz": timed}[name]
    return f"if({found} rlike r'\\A{FORMS[name]}\\z', try_cast({exact} as {name}), null)"


def is_no_date(found: str, name: str, converted: str | None) -> str:
    """Return whether a text is no date or time of a type, or one that readers cannot hold."""
    converted = converted or converted_date(found, name)
    if name == "date":
        return f"({found} is not null and {converted} is null)"
    zone = "Z" if name == "timestamp" else ""
    bounds = f"{converted} between {name}'{FIRST_TIME}{zone}' and {name}'{LAST_TIME}{zone}'"
    return f"({found} is not null and not coalesce({bounds}, false))"
