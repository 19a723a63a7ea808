"""The schema of a table as its log has it: checked once, so that all that walks it can rely on its form."""

from collections.abc import Mapping
from typing import Any

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json, said

NULLS = {"struct": (), "array": ("containsNull",), "map": ("valueContainsNull",)}
PARTS = {"struct": (), "array": ("elementType",), "map": ("keyType", "valueType")}


def schema_in(text: str) -> Mapping[str, Any]:
    """Return the schema in a metadata action; raises ForeignJsonError, KeyError, TypeError or AttributeError."""
    schema: Mapping[str, Any] = read_foreign_json(text)
    check_type({**schema, "type": "struct"})
    return schema


def check_type(kind: object) -> None:
    """Raise an error unless something is a type: a name, or a structure, list or map of types."""
    if isinstance(kind, str):
        return
    if not isinstance(kind, Mapping):
        raise ForeignJsonError(f"expected the type of a column, found {str(kind)[:100]}")
    name = said(kind, "type")
    for flag in NULLS[name]:
        check_is(bool, kind[flag], flag)
    for part in PARTS[name]:
        check_type(kind[part])
    for field in kind["fields"] if name == "struct" else ():
        said(field, "name")
        check_is(bool, field["nullable"], "nullable")
        check_is(dict, field["metadata"], "metadata")
        check_type(field["type"])


def check_is(kind: type, value: object, name: str) -> None:
    """Raise ForeignJsonError on a value of another type."""
    if not isinstance(value, kind):
        raise ForeignJsonError(f"expected {name} of a column to be of type {kind.__name__}, found {str(value)[:100]!r}")
