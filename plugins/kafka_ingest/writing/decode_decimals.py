"""Decimals that Spark does not read as they are.

For 1e1000000000 it computes as many digits, without end; and of ``"5,5"`` it makes 55.
"""

from kafka_ingest.model.record_schema import RecordType
from kafka_ingest.writing.decode_dates import scalars_in

NUMBER = r"[:,\[]\s*+-?+[0-9]++(?:[.][0-9]++)?+[eE][-+]?+[0-9]{4,}+\s*+[,\]}]"
"""A number with such an exponent, where JSON has one; a text that looks like that is taken for one."""

ODD_TEXT = (
    r'"[-+.0-9]*+(?=[,eE\p{Nd}\\])(?=[^"]*\p{Nd})'
    r'(?:[-+.,eE\p{Nd}]|\\u[0-9a-fA-F]{4})*+"'
)
"""A text that Spark may take for a number, and is none or has an exponent: Spark leaves out commas, Java knows the
digits of all scripts, and each character may be an escape."""


def has_decimals(kind: RecordType) -> bool:
    return any(each.name.startswith("decimal") for each in scalars_in(kind))


def has_odd_decimal(value: str) -> str:
    """Return whether a JSON text may have a decimal with a huge exponent, or one in a text that is no plain number."""
    return f"({value} rlike r'{NUMBER}' or {value} rlike r'{ODD_TEXT}')"
