"""Dates, times and decimals in JSON that Spark does not read as they are.

Dates and times are read as texts, and converted only where they are written in full: Spark's own reading takes ``2026``
for a day, ``12:30`` for a time of today, and a number for seconds, silently beyond what it can count. For the decimal
1e1000000000 it computes as many digits, without end; and of ``"5,5"`` it makes 55.
"""

from kafka_ingest.model.record_schema import RecordType, Scalar, kinds_in
from kafka_ingest.model.written_columns import FIRST_TIME, LAST_TIME
from kafka_ingest.writing.decoded_part import converted_value, mapped_type

DAY = "(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = "[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]{1,9})?)?"
ZONE = "(Z|[+-][0-9]{2}(:?[0-9]{2})?)"

FORMS = {"date": DAY, "timestamp": f"{DAY}{TIME}{ZONE}?", "timestamp_ntz": f"{DAY}{TIME}"}
"""The common forms of each type; others are read record by record (:mod:`.json_values`)."""


def is_date(kind: RecordType) -> bool:
    return isinstance(kind, Scalar) and kind.name in FORMS


def textual(kind: RecordType) -> RecordType:
    """Return the type to parse as, with texts for dates and times."""
    return mapped_type(kind, kind, lambda each, _: Scalar("string") if is_date(each) else each)


def convert_dates(found: str, kind: RecordType) -> str:
    """Return a parsed value with its dates and times; null for those that are none."""
    return converted_value(found, textual(kind), kind, lambda each, _, column: converted_date(each, column.ddl))


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


NUMBER = r"[:,\[]\s*+-?+[0-9]++(?:[.][0-9]++)?+[eE][-+]?+[0-9]{4,}+\s*+[,\]}]"
"""A number with such an exponent, where JSON has one; a text that looks like that is taken for one."""

ODD_TEXT = (
    r'"[-+.0-9]*+(?=[,eE\p{Nd}\\])(?=[^"]*\p{Nd})'
    r'(?:[-+.,eE\p{Nd}]|\\u[0-9a-fA-F]{4})*+"'
)
"""A text that Spark may take for a number, and is none or has an exponent: Spark leaves out commas, Java knows the
digits of all scripts, and each character may be an escape."""


def has_decimals(kind: RecordType) -> bool:
    return any(each.ddl.startswith("decimal") for each in kinds_in(kind))


def has_odd_decimal(value: str) -> str:
    """Return whether a JSON text may have a decimal with a huge exponent, or one in a text that is no plain number."""
    return f"({value} rlike r'{NUMBER}' or {value} rlike r'{ODD_TEXT}')"
