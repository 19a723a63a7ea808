"""Which fields of JSON objects no record of a batch has: names that are mistyped, or that are inside of an envelope.

Whether a field has a value in some row is counted in the pass that writes the rows. Only of fields that have none,
which is rare, a few records are read again, to see whether they have the name, and which others in its place.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from kafka_ingest.model.decoding import Columns, Decoding, FieldDecoding, Format
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.omissions import LEAST_RECORDS, LONGEST_NAME, MOST_FIELDS, MOST_NAMES, NeverFound
from kafka_ingest.model.record_schema import ArrayOf, MapOf, Struct, kinds_in, quoted, read_schema
from kafka_ingest.model.schema_source import field_path
from kafka_ingest.writing.schema_ids import HEAD_BYTES

BITS = 62
"""How many fields are counted in one number, which has a sign."""

LOOKED_AT = 500
"""How many records are read again."""

FROM_RANGES = 50
"""From how many ranges, at most: topics and partitions may have different records."""

LARGEST_BYTES = 16 * 1024
"""Of a key or value that is examined; of larger ones, as Kafka Connect's with their schemas are, a few are."""

LARGE_ONES = 40
"""How many larger ones, all of which the driver holds at once."""

LARGEST_OF_ALL = 1024 * 1024
"""Of those; brokers take no larger record unless they are told to."""

FOUND = "kafka_found"

ELEMENTS, VALUES = "\0[]", "\0{}"
"""Steps of a path into each element of an array and each value of a map; no field of a schema is called so."""

Path = tuple[str, ...]
Read = Callable[[Sequence[OffsetRange]], DataFrame]


@dataclass(frozen=True, slots=True)
class SoughtField:
    """A field, and how SQL says whether a decoded record has a value of it, in some element where it is in arrays."""

    part: str
    path: Path
    sql: str


def sought_fields(
    part: str, schema: Struct, found: str, above: Path = (), *, many: bool = False
) -> Iterator[SoughtField]:
    """Yield the fields of objects and of those within them, each before what is in it; of arrays within arrays none.

    ``found``: how SQL names the objects, the columns themselves where it is empty; ``many``: as an array of them.
    """
    for field in schema.fields:
        path, value = (*above, field.name), ".".join(filter(None, (found, quoted(field.name))))
        if not many:
            yield SoughtField(part, path, f"{value} is not null")
        elif not any(isinstance(each, MapOf) for each in kinds_in(field.type)):  # Spark does not compare maps
            # Spark compiles no function over an array's elements, but this one.
            yield SoughtField(part, path, f"array_max({value}) is not null")
        match field.type:
            case Struct():
                yield from sought_fields(part, field.type, value, path, many=many)
            case ArrayOf(Struct() as inner) if not many:
                yield from sought_fields(part, inner, value, (*path, ELEMENTS), many=True)
            case MapOf(Struct() as inner) if not many:
                yield from sought_fields(part, inner, f"map_values({value})", (*path, VALUES), many=True)


class FoundFields:
    """Which fields of a decoding's JSON objects have a value in some row: as bits, the value's fields first."""

    def __init__(self, decoding: Decoding) -> None:
        self._decoding = decoding
        self.fields: list[SoughtField] = []
        for part, field in (("value", decoding.value), ("key", decoding.key)):
            if field.format is Format.JSON and field.schema is not None:
                is_flat = part == "value" and decoding.columns is Columns.FLATTEN
                self.fields += sought_fields(part, read_schema(field.schema), "" if is_flat else quoted(part))

    def expressions(self) -> dict[str, str]:
        """Return numbers of a decoded record, by name, in whose bits there are the fields that have a value."""
        return {
            f"{FOUND}_{first // BITS}": " | ".join(
                f"shiftleft(cast({field.sql} as bigint), {bit})"
                for bit, field in enumerate(self.fields[first : first + BITS])
            )
            for first in range(0, len(self.fields), BITS)
        }

    def all_bits(self, numbers: Mapping[str, int | None]) -> int:
        """Return what was found in the numbers of many records, as one number."""
        return sum((numbers[name] or 0) << (BITS * number) for number, name in enumerate(self.expressions()))

    def without_value(self, found: int) -> list[SoughtField]:
        return [each for bit, each in enumerate(self.fields) if not found >> bit & 1]

    def parts_without_value(self, found: int) -> set[str]:
        """Return the keys and values, as ``key`` and ``value``, of which no field has a value in any row."""
        has_value = {each.part for bit, each in enumerate(self.fields) if found >> bit & 1}
        return {each.part for each in self.fields} - has_value

    def never_found(self, found: int, read: Read, ranges: Sequence[OffsetRange]) -> tuple[NeverFound, ...]:
        """Look at some records of ranges, and return the fields that none of them has."""
        if not (sought := self.without_value(found)):
            return ()
        never: list[NeverFound] = []
        without_any = self.parts_without_value(found)
        for part in sorted({each.part for each in sought}):
            objects = list(objects_in(some_bodies(read, ranges, part), self._decoding.parts[part]))
            of_part = [each for each in self.fields if each.part == part]
            paths = [each.path for each in sought if each.part == part]
            never += names_never_found(
                part, paths, {each.path for each in of_part}, objects, is_part_found=part not in without_any
            )
        return tuple(never[:MOST_FIELDS])


def some_bodies(read: Read, ranges: Sequence[OffsetRange], part: str) -> list[bytes]:
    """Return keys or values of some records, from the ends of ranges; where these hold few, from anywhere."""
    several = ranges[:: -(-len(ranges) // FROM_RANGES)]
    each = -(-LOOKED_AT // len(several))
    ends = [
        OffsetRange(one.topic_partition, max(one.start_offset, one.end_offset - each), one.end_offset)
        for one in several
    ]
    columns = f"if(length({part}) <= {LARGEST_BYTES}, {part}, null) as body", f"length({part}) as size"
    for some in (ends, ranges):
        rows = read(some).selectExpr(*columns).limit(LOOKED_AT).collect()
        if len(rows) >= LEAST_RECORDS:
            break
    bodies = [bytes(row["body"]) for row in rows if row["body"] is not None]
    if len(bodies) < LEAST_RECORDS and any((row["size"] or 0) > LARGEST_BYTES for row in rows):
        larger = read(some).where(f"length({part}) between {LARGEST_BYTES + 1} and {LARGEST_OF_ALL}")
        bodies += [bytes(row["body"]) for row in larger.selectExpr(f"{part} as body").limit(LARGE_ONES).collect()]
    return bodies


def objects_in(bodies: Iterable[bytes], decoding: FieldDecoding) -> Iterator[dict[str, object]]:
    """Yield the JSON objects among keys or values; the others are dead letters."""
    for body in bodies:
        # An id may also be in a header; then the value is the object alone.
        is_after_id = decoding.has_ids and body[:1] == b"\0"
        try:
            found = json.loads(body[HEAD_BYTES:] if is_after_id else body)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found


def names_never_found(
    part: str, sought: Sequence[Path], known: set[Path], objects: Sequence[dict[str, object]], *, is_part_found: bool
) -> Iterator[NeverFound]:
    """Yield which of the fields sought no object has, nor has it with null."""
    for path in sought:
        within: list[object] = list(objects)
        for name in path[:-1]:
            within = list(inside(within, name))
        names = Counter(name for each in within if isinstance(each, dict) for name in each)
        records = sum(isinstance(each, dict) for each in within)
        if records and path[-1] not in names:
            others = [shown(name) for name, _ in names.most_common() if (*path[:-1], name) not in known]
            yield NeverFound(part, reduce(shown_path, path, ""), records, tuple(others[:MOST_NAMES]), is_part_found)


def inside(values: Iterable[object], name: str) -> Iterator[object]:
    """Yield what values have by a name, or in their elements."""
    for each in values:
        if name == ELEMENTS:
            yield from each if isinstance(each, list) else ()
        elif isinstance(each, dict):
            yield from each.values() if name == VALUES else [each[name]] if name in each else ()


def shown_path(above: str, name: str) -> str:
    """Return a path that continues by a name, or into elements: ``items[].price``."""
    return f"{above}{name[1:]}" if name in {ELEMENTS, VALUES} else field_path(above, name)


def shown(name: str) -> str:
    printable = "".join(sign if sign.isprintable() else "?" for sign in name)
    return printable if len(printable) <= LONGEST_NAME else f"{printable[:LONGEST_NAME]}…"
