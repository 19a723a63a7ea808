"""Values of a schema's types that cannot be stored: what Spark reads as infinite, as no date, or twice in a map."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count

from kafka_ingest.model.record_schema import ArrayOf, MapOf, RecordType, Scalar, Struct, quoted
from kafka_ingest.writing.decode_dates import is_date, is_no_date
from kafka_ingest.writing.decoded_part import text

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
