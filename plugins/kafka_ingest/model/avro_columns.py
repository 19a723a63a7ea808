"""What Spark is given to read Avro as, what it makes of a value then, and which column that becomes.

Spark's ``from_avro`` refuses a whole schema for one type that it has no column for. So it is given another schema to
read as: without what a feed leaves out, with bytes where text of any length is wanted, with a few levels of a type that
holds itself. What it makes of a value is converted afterwards (writing/decode_avro.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_ingest.model import avro_types as avro
from kafka_ingest.model.record_schema import (
    DECIMAL,
    MAX_PRECISION,
    ArrayOf,
    Field,
    MapOf,
    RecordType,
    Scalar,
    Struct,
    WrongSchemaError,
)
from kafka_ingest.model.schema_source import ELEMENTS, MAP_VALUES, Paths, ReadAs, field_path

PRESENT: Final = "p"
"""The field of a record that has none, true by default: so its column says where such a record is."""

DEEPEST: Final = (10, 8, 6, 4, 3, 2)
"""So many levels of a type in itself are read, as many as there is room for; a value with more is a dead letter."""
MOST_UNROLLED: Final = 400
"""So many fields all those levels may have."""

WIDER: Final = ((frozenset({"int", "long"}), "bigint"), (frozenset({"float", "double"}), "double"))
"""Unions that Spark reads as one type."""

PLAIN_NUMBERS: Final = {"int": "int", "long": "bigint"}


@dataclass(frozen=True, slots=True)
class Unscaled(Scalar):
    """A decimal as its bytes, which any number of digits can have. ``column``: decimal, or string."""

    scale: int = 0
    column: str = "string"


@dataclass(frozen=True, slots=True)
class Millis(Scalar):
    """A time as its number of milliseconds, some of which are no times to Spark, which counts microseconds."""


@dataclass(frozen=True, slots=True)
class SparkValue:
    """A type. ``node``: the schema to read as; ``found``: what Spark makes of a value; ``column``: what is stored.

    ``in_themselves``: the paths of types in themselves, of which some levels are read.
    """

    node: avro.Node
    found: RecordType
    column: RecordType
    in_themselves: Sequence[str] = ()


class NoRoomError(Exception):
    """The levels of a type in itself are too many fields."""


class NotLoosely(Exception):  # noqa: N818 - no error: it leaves a field out
    """A value that is not read where only its form is checked."""


class Columns:
    """The columns of a schema. ``named``: its types that have names.

    ``is_loose``: what Spark can make no value of is read as what it is without its logical type, or not at all: so
    whatever is one value of the schema is read, and what columns cannot hold of it is found.
    """

    def __init__(self, named: Mapping[str, avro.Named], paths: Paths, *, is_loose: bool = False) -> None:
        self._records = {name: kind for name, kind in named.items() if isinstance(kind, avro.Record)}
        self._paths = paths
        self._is_loose = is_loose
        self._as_bytes = bool(paths)  # any of them may be one of a fixed's, which has one definition
        self._defined: dict[str, SparkValue] = {}
        self.in_themselves: list[str] = []
        self._copies = 0
        self._space = ""
        """The namespace around what is being defined."""
        self._level = 0
        self._deepest = 0
        self._unrolled = 0

    def value(self, kind: avro.AvroType, path: str = "", above: str = "the schema") -> SparkValue:
        """Return a type; raises WrongSchemaError where no column can be made of it."""
        said = self._paths.at(path) if path and not self._level else None
        if said is ReadAs.SKIP:
            raise WrongSchemaError(f"expected under as a field to be left out, found {path}, which is none")
        if said is not None:
            return self._said(kind, said, path)
        match kind:
            case avro.Primitive():
                return self._primitive(kind, path, above)
            case avro.Fixed():
                return self._fixed(kind, path)
            case avro.Enumeration():
                return self._once(kind, avro.enumeration_node(kind, self._space), Scalar("string"))
            case _:
                return self._holding(kind, path, above)

    def _holding(self, kind: avro.AvroType, path: str, above: str) -> SparkValue:
        match kind:
            case avro.Items(element):
                inner = self.value(element, path + ELEMENTS, f"the items of {above}")
                return SparkValue({"type": "array", "items": inner.node}, ArrayOf(inner.found), ArrayOf(inner.column))
            case avro.Values(value):
                inner = self.value(value, path + MAP_VALUES, f"the values of {above}")
                return SparkValue({"type": "map", "values": inner.node}, MapOf(inner.found), MapOf(inner.column))
            case avro.Union(branches):
                return self._union(branches, path, above)
            case avro.Inside(name):
                return self._inside(name, path)
            case avro.Record():
                return self._record(kind, path)
        raise NotImplementedError(kind)

    def _said(self, kind: avro.AvroType, said: ReadAs, path: str) -> SparkValue:
        """Return a value that is read as text or bytes."""
        if isinstance(kind, avro.Union):
            values = not_null(kind.branches)
            if len(values) == 1:
                inner = self._said(values[0], said, path)
                nodes = ["null" if is_null(each) else inner.node for each in kind.branches]
                return SparkValue(nodes, inner.found, inner.column)
        return self._as_bytes_of(kind, path) if said is ReadAs.BINARY else self._as_text_of(kind, path)

    def _as_bytes_of(self, kind: avro.AvroType, path: str) -> SparkValue:
        match kind:
            case avro.Primitive(name="bytes" | "string"):
                return SparkValue("bytes", Scalar("binary"), Scalar("binary"))
            case avro.Fixed():
                return SparkValue(self._fixed(kind, path).node, Scalar("binary"), Scalar("binary"))
        expected = "a text, bytes or a decimal where as says binary"
        raise WrongSchemaError(f"expected {expected}, found {avro.name_of(kind)} at {path}: read it as string")

    def _as_text_of(self, kind: avro.AvroType, path: str) -> SparkValue:
        match kind:
            case avro.Primitive(name="bytes", spark="binary") | avro.Primitive(name="string"):
                return SparkValue("string", Scalar("string"), Scalar("string"))
            case avro.Primitive() | avro.Fixed() if decimal := DECIMAL.fullmatch(kind.spark):
                node = "bytes" if isinstance(kind, avro.Primitive) else self._fixed(kind, path).node
                return SparkValue(node, Unscaled("binary", int(decimal[2])), Scalar("string"))
            case avro.Primitive(name="int" | "long" as name):
                return SparkValue(name, Scalar(PLAIN_NUMBERS[name]), Scalar("string"))
            case avro.Fixed():
                raise WrongSchemaError(f"expected binary under as for the fixed at {path}, found string")
        plain = self._by_itself(kind, path)
        return SparkValue(plain.node, plain.found, Scalar("string"))

    def _by_itself(self, kind: avro.AvroType, path: str) -> SparkValue:
        """Return a value of which nothing is said but what is said of values in it, which are part of its text."""
        paths, self._paths = self._paths, Paths({})
        try:
            return self.value(kind, path, path)
        finally:
            self._paths = paths

    def _primitive(self, kind: avro.Primitive, path: str, above: str) -> SparkValue:
        if is_null(kind):
            if self._level:
                return SparkValue("null", Scalar("void"), Scalar("void"))
            raise WrongSchemaError(f"expected {above} to hold values, found only null{remedy(path, ReadAs.SKIP)}")
        if decimal := DECIMAL.fullmatch(kind.spark):
            return self._decimal("bytes", int(decimal[1]), int(decimal[2]), MAX_PRECISION, path)
        if self._is_loose and kind.spark in {"timestamp", "timestamp_ntz"} and str(kind.time).endswith("millis"):
            return SparkValue(kind.name, Millis("bigint"), Scalar("bigint"))
        if kind.spark in {"date", "timestamp", "timestamp_ntz"}:
            return SparkValue({"type": kind.name, "logicalType": kind.time}, Scalar(kind.spark), Scalar(kind.spark))
        spark = PLAIN_NUMBERS.get(kind.name, kind.spark)
        return SparkValue(kind.name, Scalar(spark), Scalar(spark))

    def _decimal(self, node: avro.Node, precision: int, scale: int, most: int, path: str) -> SparkValue:
        """Return a decimal, read with all digits that Spark has: of up to 18 it would take the last 64 bits for all."""
        if scale > MAX_PRECISION:
            raise WrongSchemaError(
                f"expected decimals of at most {MAX_PRECISION} digits after the point, found {scale} in {path or 'it'}"
                f"{remedy(path, ReadAs.STRING)}"
            )
        wide, column = min(most, MAX_PRECISION), Scalar(f"decimal({min(precision, MAX_PRECISION)},{scale})")
        if self._is_loose:
            return SparkValue(node, Unscaled("binary", scale, column.ddl), column)
        definition = node if isinstance(node, dict) else {"type": node}
        logical = {**definition, "logicalType": "decimal", "precision": wide, "scale": scale}
        return SparkValue(logical, Scalar(f"decimal({wide},{scale})"), column)

    def _fixed(self, kind: avro.Fixed, path: str) -> SparkValue:
        node = avro.fixed_node(kind, self._space)
        decimal = DECIMAL.fullmatch(kind.spark)
        if decimal is None:
            return self._once(kind, node, Scalar("binary"))
        if not self._as_bytes and int(decimal[2]) <= MAX_PRECISION:
            found = self._decimal(node, int(decimal[1]), int(decimal[2]), avro.most_digits(kind.size), path)
            return self._once(kind, found.node, found.found, found.column)
        digits, scale = min(int(decimal[1]), MAX_PRECISION), int(decimal[2])
        column = self._decimal("bytes", digits, scale, MAX_PRECISION, path).column
        return self._once(kind, node, Unscaled("binary", scale, column.ddl), column)

    def _once(
        self, kind: avro.Enumeration | avro.Fixed, node: avro.Node, found: RecordType, column: RecordType | None = None
    ) -> SparkValue:
        """Return a type that is defined where it is met first, and named after that."""
        is_known = kind.name in self._defined
        made = self._defined.setdefault(kind.name, SparkValue(node, found, column or found))
        return SparkValue(kind.name if is_known else node, made.found, made.column)

    def _union(self, branches: Sequence[avro.AvroType], path: str, above: str) -> SparkValue:
        """Return a union: null makes nothing but null, several others make a struct of members."""
        values = not_null(branches)
        if not values:
            return self._primitive(avro.Primitive("null", "void"), path, above)
        names = frozenset(each.name if isinstance(each, avro.Primitive) else "" for each in values)
        wider = next((Scalar(spark) for narrower, spark in WIDER if names == narrower), None)
        copies = self._copies
        found = [
            self.value(each, path if wider or len(values) == 1 else field_path(path, f"member{number}"), above)
            for number, each in enumerate(values)
        ]
        records = [avro.short(each.name) for each in values if isinstance(each, avro.Record | avro.Inside)]
        if copies < self._copies and len({*records}) < len(records):
            # Of copies the names in full are others, and Java's Avro would take any of those of one short name.
            raise WrongSchemaError(
                f"expected at most one {records[0]} in a union at {path}, found two that differ in their namespaces"
                f"{remedy(path, ReadAs.SKIP)}"
            )
        rest = iter(found)
        nodes = ["null" if is_null(each) else next(rest).node for each in branches]
        if self._level and "null" in nodes:
            nodes = ["null", *(node for node in nodes if node != "null")]
        if len(found) == 1:
            return SparkValue(nodes if len(nodes) > 1 else nodes[0], found[0].found, found[0].column)
        if wider is not None:
            return SparkValue(nodes, wider, wider)
        return SparkValue(nodes, members(each.found for each in found), members(each.column for each in found))

    def _record(self, kind: avro.Record, path: str) -> SparkValue:
        name = kind.name
        if name in self._defined and not self._as_bytes and not self._level:
            known = self._defined[name]
            return SparkValue(name, known.found, known.column)
        if name in self._defined or self._level:
            if any(each.aliases for each in kind.fields):
                # Java's Avro knows aliases of fields by the full name of their record only.
                raise WrongSchemaError(
                    f"expected {name} without aliases of fields where it stands more than once, found some"
                    f"{remedy(path, ReadAs.SKIP)}"
                )
            self._copies += 1
            name = f"copy{self._copies}.{avro.short(name)}"
        is_copy = name != kind.name
        aliases = {} if is_copy else avro.aliases_of(kind.aliases)
        space, self._space = self._space, avro.namespace_of(name)
        fields = [(each, self._field(each, path)) for each in kind.fields]
        made = [(each, found) for each, found in fields if found is not None]
        self._space = space
        head = avro.named_node("record", name, space)
        self._check_names([each.name for each, _ in made], path)
        nodes = [avro.field_node(each, found.node) for each, found in made]
        if not nodes:
            nodes = [{"name": PRESENT, "type": "boolean", "default": True}]
            found_type, column = Struct((Field(PRESENT, Scalar("boolean")),)), Scalar("boolean")
            result = SparkValue({**head, "fields": nodes, **aliases}, found_type, column)
        else:
            result = SparkValue(
                {**head, "fields": nodes, **aliases},
                Struct(tuple(Field(each.name, found.found) for each, found in made)),
                Struct(tuple(Field(each.name, found.column) for each, found in made)),
            )
        if not is_copy:
            self._defined[kind.name] = result
        return result

    def _field(self, field: avro.RecordField, path: str) -> SparkValue | None:
        """Return a field; None where it is left out."""
        inner = field_path(path, field.name)
        if not self._level and self._paths.at(inner) is ReadAs.SKIP:
            return None
        if is_only_null(field.type) and not self._level:
            return None  # there is nothing to lose
        if self._level:
            self._unrolled += 1
            if self._unrolled > MOST_UNROLLED:
                raise NoRoomError
        try:
            return self.value(field.type, inner, f"field {field.name}")
        except NotLoosely:
            return None

    def _inside(self, name: str, path: str) -> SparkValue:
        """Return a type in itself: its text, of so many levels as there is room for."""
        if self._is_loose:
            raise NotLoosely
        kind = self._records[name]
        if self._level:
            if self._level == self._deepest:
                return SparkValue("null", Scalar("void"), Scalar("void"))
            self._level += 1
            try:
                return self._record(kind, path)
            finally:
                self._level -= 1
        for self._deepest in DEEPEST:
            self._level, self._unrolled, before, space = 1, 0, {**self._defined}, self._space
            try:
                found = self._record(kind, path)
            except NoRoomError:
                self._defined, self._space = before, space
                continue
            finally:
                self._level = 0
            self.in_themselves.append(path)
            return SparkValue(found.node, found.found, Scalar("string"))
        raise WrongSchemaError(
            f"expected types that hold themselves in at most {MOST_UNROLLED} fields for two levels, found {name} at "
            f"{path}{remedy(path, ReadAs.SKIP)}"
        )

    def _check_names(self, names: Sequence[str], path: str) -> None:
        """Raise WrongSchemaError where Spark cannot tell two fields apart."""
        lower = [name.lower() for name in names]
        if twice := [name for name in names if lower.count(name.lower()) > 1]:
            raise WrongSchemaError(
                "expected names that differ in more than the case of their letters, found "
                f"{' and '.join(map(repr, twice[:2]))}{remedy(field_path(path, twice[1]), ReadAs.SKIP)}"
            )


def members(kinds: Iterable[RecordType]) -> Struct:
    """Return what a union of several types is read as: a struct with a field of each."""
    return Struct(tuple(Field(f"member{number}", kind) for number, kind in enumerate(kinds)))


def remedy(path: str, kind: ReadAs) -> str:
    """Return what to write in a feed file for a value that has no column; nothing for the whole value."""
    if not path:
        return ""
    inside = path.endswith((ELEMENTS, MAP_VALUES))
    field = path.rstrip("[]{}") if kind is ReadAs.SKIP and inside else path
    return f'. To have all else, write beside format: as: {{"{field}": {kind.value}}}' if field else ""


def is_null(kind: avro.AvroType) -> bool:
    return isinstance(kind, avro.Primitive) and kind.name == "null"


def is_only_null(kind: avro.AvroType) -> bool:
    """Whether a field holds nothing, ever."""
    return is_null(kind) or (isinstance(kind, avro.Union) and not not_null(kind.branches))


def not_null(branches: Sequence[avro.AvroType]) -> list[avro.AvroType]:
    """Return the branches of a union that have values."""
    return [each for each in branches if not is_null(each)]
