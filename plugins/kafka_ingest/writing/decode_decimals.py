"""Decimals with huge exponents are kept away from Spark: for 1e1000000000 it computes as many digits, without end."""

from kafka_ingest.model.record_schema import ArrayOf, Field, MapOf, RecordType, Scalar, Struct
from kafka_ingest.writing.decode_limits import walked

NUMBER = r"[:,\[]\s*+-?+[0-9]++(?:[.][0-9]++)?+[eE][-+]?+[0-9]{4,}+\s*+[,\]}]"
"""A number with such an exponent, where JSON has one; a text that looks like that is taken for one."""

# In a text Spark leaves out commas, and Java knows the digits of all scripts; each character may be an escape.
DIGITS = r"-+.,0-9\x{80}-\x{10ffff}"
MAYBE_TEXT = rf'"[{DIGITS}]*+(?:[eE]|\\u)[{DIGITS}a-fA-Fu\\]{{4,}}+"'
"""A text that may be such a number: whether it is, is decided by what is in it, if it stands for a decimal."""

HUGE = r"[eE][-+]?\p{Nd}{4}"


def is_decimal(kind: RecordType) -> bool:
    """Whether a type is a decimal."""
    return isinstance(kind, Scalar) and kind.name.startswith("decimal")


def has_decimals(kind: RecordType) -> bool:
    """Whether there is a decimal in a type."""
    match kind:
        case Struct(fields):
            return any(has_decimals(field.type) for field in fields)
        case ArrayOf(inner) | MapOf(inner):
            return has_decimals(inner)
        case Scalar():
            return is_decimal(kind)


def undecided(kind: Struct) -> Struct:
    """Return a schema with texts instead of single values, which parses what the schema does, and all else."""
    return Struct(tuple(Field(field.name, texts_of(field.type)) for field in kind.fields))


def texts_of(kind: RecordType) -> RecordType:
    """Return a type with texts instead of single values."""
    match kind:
        case Struct():
            return undecided(kind)
        case ArrayOf(inner):
            return ArrayOf(texts_of(inner))
        case MapOf(inner):
            return MapOf(texts_of(inner))
        case Scalar():
            return Scalar("string")


def has_huge_decimal(value: str, as_texts: str, schema: Struct) -> str:
    """Return whether a decimal of an object may have a huge exponent; ``as_texts`` parses it as :func:`undecided`."""
    # Where the text is no JSON, its decimals are unknown.
    is_huge = walked("o", schema, None, leaf_is_huge)
    has_huge = f"exists(array({as_texts}), o -> o is null or coalesce({is_huge}, false))"
    looked_at = f"if({value} rlike r'{MAYBE_TEXT}', {has_huge}, false)"
    return f"({value} rlike r'{NUMBER}' or {looked_at})"


def leaf_is_huge(found: str, kind: Scalar, _: str | None) -> str:
    """Return whether a text is a decimal with a huge exponent."""
    return f"replace({found}, ',', '') rlike r'{HUGE}'" if is_decimal(kind) else ""
