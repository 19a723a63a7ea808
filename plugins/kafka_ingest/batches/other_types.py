"""Whether a registered schema is one of another type than the one that a feed reads, by the names in both."""

from typing import Any

from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_foreign_json
from kafka_ingest.model.avro_types import short
from kafka_ingest.model.schema_source import RegisteredSchema


def is_other_type(found: RegisteredSchema, reader: RegisteredSchema) -> bool:
    """Whether a schema is surely one of another type; not where one of the two has no name, or is not known."""
    if not found.text:
        return False
    if found.kind != reader.kind:
        return True
    names, wanted = names_in(found), names_in(reader)
    return bool(names and wanted) and names[0] not in wanted


def names_in(schema: RegisteredSchema) -> list[str]:
    """Return the name of a schema's type, and those that it had before: of Avro without the namespace."""
    try:
        node: Any = read_foreign_json(schema.text)
    except ForeignJsonError:
        return []
    match schema.kind, node:
        case "AVRO", {"type": "record" | "enum" | "fixed", "name": str(name)}:
            aliases = node.get("aliases")
            earlier = [each for each in aliases if isinstance(each, str)] if isinstance(aliases, list) else []
            return list(map(short, [name, *earlier]))
        case "AVRO", str(name) | {"type": str(name)}:
            return [name]
        case "JSON", {"title": str(title)}:
            return [title]
        case _:
            return []
