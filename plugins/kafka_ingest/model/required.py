"""Fields that a record must have, by their paths: ``id``, ``before.amount``."""

from collections.abc import Iterable

from kafka_ingest.model.read_as import STEP, checked_path
from kafka_ingest.model.record_schema import RecordType, Struct


def required_path(path: str) -> str:
    """Return a path of fields of objects as :func:`~kafka_ingest.model.read_as.field_path` writes it.

    Raises ValueError where it is none, or leads into arrays or maps.
    """
    if "[]" in (found := checked_path(path)) or "{}" in found:
        raise ValueError(f"expected the path of a field that is in no array and no map, found {path[:100]!r}")
    return found


def names_of(path: str) -> tuple[str, ...]:
    """Return the names in such a path."""
    return tuple(step["name"] or step["quoted"][1:-1].replace("``", "`") for step in STEP.finditer(path))


def not_in(schema: RecordType, paths: Iterable[str]) -> list[str]:
    """Return the paths at which a schema has no field."""

    def has(kind: RecordType, names: tuple[str, ...]) -> bool:
        if not names:
            return True
        fields = kind.fields if isinstance(kind, Struct) else ()
        return any(field.name == names[0] and has(field.type, names[1:]) for field in fields)

    return [path for path in paths if not has(schema, names_of(path))]
