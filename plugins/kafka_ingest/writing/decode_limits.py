"""Values of a schema's types that cannot be stored: what Spark reads as infinite, as no date, or twice in a map.

In JSON Spark reads dates, times and decimals otherwise than they are. Dates and times are read as texts, and converted
only where they are written in full: Spark's own reading takes ``2026`` for a day, ``12:30`` for a time of today, and a
number for seconds, silently beyond what it can count. For the decimal 1e1000000000 it computes as many digits, without
end; and of ``"5,5"`` it makes 55.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct, kinds_in, quoted
from kafka_ingest.model.written_columns import FIRST_TIME, LAST_TIME
from kafka_ingest.writing.decoded_part import converted_value, mapped_type, text

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


Leaf = Callable[[str, Scalar, str | None], str]
"""From an expression, its type and, where there is one, the expression of its converted form: whether it is wrong."""

NO_PATHS = "cast(array() as array<string>)"
MOST_PATHS = 20
"""So many are looked for in an array or a map, and named in a reason, which has room for fewer."""


def has_key_twice(found: str) -> str:
    keys = f"map_keys({found})"
    return f"size(array_distinct({keys})) < size({keys})"


def no_leaf(_found: str, _kind: Scalar, _converted: str | None) -> str:
    """Return that a single value can be stored."""
    return ""


def leaf_is_wrong(found: str, kind: Scalar, converted: str | None) -> str:
    if is_date(kind):
        return is_no_date(found, kind.name, converted)
    if kind.name in {"float", "double"}:
        return f"abs({found}) = {kind.name}('Infinity')"
    return ""


def walked(
    found: str,
    kind: RecordType,
    converted: str | None,
    leaf: Leaf,
    *,
    of_map: Callable[[str], str] = lambda _: "",
    names: "count[int] | None" = None,
) -> str:
    """Return whether something is wrong with a value, or with one inside of it; empty where nothing can be."""
    names = names or count()

    def some(elements: str, inner: RecordType) -> str:
        each = f"x{next(names)}"
        wrong = walked(each, inner, None, leaf, of_map=of_map, names=names)
        return f"exists({elements}, {each} -> {wrong})" if wrong else ""

    match kind:
        case Struct(fields):
            wrong = []
            for field in fields:
                at = quoted(field.name)
                done = f"{converted}.{at}" if converted else None
                wrong.append(walked(f"{found}.{at}", field.type, done, leaf, of_map=of_map, names=names))
            return disjunction(*wrong)
        case ArrayOf(inner):
            return some(found, inner)
        case MapOf(inner):
            return disjunction(of_map(found), some(f"map_values({found})", inner))
        case _:
            return leaf(found, kind, converted)


def disjunction(*conditions: str) -> str:
    """Return whether one of some conditions holds; an empty text where there is none."""
    real = [condition for condition in conditions if condition]
    return f"({' or '.join(real)})" if real else ""


def paths_that(
    found: str,
    kind: RecordType,
    leaf: Leaf,
    *,
    of_map: Callable[[str], str] = lambda _: "",
    path: Sequence[str] = (),
    names: "count[int] | None" = None,
) -> str:
    """Return an array of the paths at which something is wrong in a value, as ``items[3].price`` and ``by_id.*.since``.

    ``path``: that of the value itself, in pieces, which are expressions.
    """
    names = names or count()
    below = partial(paths_that, leaf=leaf, of_map=of_map, names=names)
    if not isinstance(kind, Struct):
        path = path or ("'the value'",)
    if not walked(found, kind, None, leaf, of_map=of_map):
        return NO_PATHS
    match kind:
        case Struct(fields):
            inside = [
                below(f"{found}.{quoted(each.name)}", each.type, path=(*path, text("." * bool(path) + each.name)))
                for each in fields
            ]
            return f"concat({', '.join(each for each in inside if each != NO_PATHS)})"
        case ArrayOf(inner) | MapOf(inner):
            number, is_map = next(names), isinstance(kind, MapOf)
            values, at = f"map_values({found})" if is_map else found, f"i{number}"
            wrong = walked(f"x{number}", inner, None, leaf, of_map=of_map) or "false"
            # Of millions that are wrong, the paths would take all memory.
            places = (
                f"filter(transform({values}, (x{number}, {at}) -> if({wrong}, {at}, null)), {at} -> {at} is not null)"
            )
            step = ("'.*'",) if is_map else ("'['", at, "']'")
            each = below(f"get({values}, {at})", inner, path=(*path, *step))
            values = f"flatten(transform(slice({places}, 1, {MOST_PATHS}), {at} -> {each}))"
            return f"concat({where(of_map(found) if is_map else '', path)}, coalesce({values}, {NO_PATHS}))"
        case _:
            return where(leaf(found, kind, None), path)


def where(condition: str, path: Sequence[str]) -> str:
    """Return an array of a path where a condition holds, else an empty one."""
    return f"if({condition}, array(concat({', '.join(path)})), {NO_PATHS})" if condition else NO_PATHS
