"""JSON objects that fit their schema plainly, read and checked in less time than ``from_json`` takes to read them.

Spark's ``from_json`` opens a stream around each text, and finds out neither what is after the object nor which names
are there twice. Jackson, which it reads with, also makes a tree of a text, and checks both by itself. From the tree the
fields are taken by calls to its nodes, in the code that Spark compiles of them.

Only what is certain is read so. All else is left to :mod:`kafka_ingest.writing.decode_json`, be it dead or only
unusual, such as a number where the schema has a text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn

from kafka_ingest.model.record_schema import RecordType, Scalar, Struct, quoted
from kafka_ingest.writing.catalyst import BOOLEAN, INT, Catalyst
from kafka_ingest.writing.decode_dates import is_date, scalars_in
from kafka_ingest.writing.decoded_part import PlainSchema, text_of
from kafka_ingest.writing.expressions import ALWAYS
from kafka_ingest.writing.java_classes import Java
from kafka_ingest.writing.json_values import MANY_BYTES, MOST_LEVELS
from kafka_ingest.writing.kafka_records import jvm_of, parser_of

FEW_OBJECTS = 1_000_000
"""Up to here it does not pay: it takes 2 processor seconds more before the first record, and 2.5 less a million."""

MOST_FIELDS = 20
"""With more of them Spark's own reading is as fast (bench/README.md)."""

TEXT = "java.lang.String"
NODE, READER = "com.fasterxml.jackson.databind.JsonNode", "com.fasterxml.jackson.databind.ObjectReader"
REPLACED = "\ufffd"
"""What Java reads in the place of bytes that are no text."""

HALF_CHARACTERS = ("\\ud", "\\uD")
"""How an escape for half a character begins."""

LONGEST_METHOD = "spark.sql.codegen.hugeMethodLimit"

FITS, SURE, VALUE = "fits", "sure", "value"

SINGLE = {
    "string": (("isTextual",), "textValue"),
    "boolean": (("isBoolean",), "booleanValue"),
    # A whole number beyond 64 bits is rare, and a fraction is no whole number.
    "int": (("isInt",), "intValue"),
    "bigint": (("isInt", "isLong"), "longValue"),
    "double": (("isDouble", "isInt", "isLong"), "doubleValue"),
}
"""Of which kinds a node is that fits a type, and what gives its value."""


def is_plain(kind: RecordType) -> bool:
    """Whether values of a type are read so.

    A float would be rounded twice, and a decimal has more digits. Of the elements of an array Spark would look up each
    field several times: that took 23 processor seconds where ``from_json`` took 9.
    """
    match kind:
        case Struct(fields):
            return all(is_plain(field.type) for field in fields)
        case Scalar(name):
            return name in SINGLE or is_date(kind)
        case _:
            return False


def can_be_plain(schema: Struct) -> bool:
    """Whether objects of a schema are read so."""
    return is_plain(schema) and len(list(scalars_in(schema))) <= MOST_FIELDS


def with_plain_objects(records: DataFrame, columns: Mapping[str, PlainSchema]) -> DataFrame:
    """Return records with columns of what is read plainly, by their names."""
    # Java compiles no method of more bytes to machine code (DontCompileHugeMethods). Spark splits the code of a wide
    # object into small ones, but not where it makes one loop of many steps.
    records.sparkSession.conf.set(LONGEST_METHOD, "8000")
    objects = PlainObjects(records)
    return records.select("*", *(objects.column(plain).alias(name) for name, plain in columns.items()))


@dataclass(frozen=True, slots=True)
class Read:
    """A node that is read: whether it is what its type wants, and its value then."""

    fits: Java
    value: Java


class PlainObjects:
    """Makes the expression that reads the objects of a schema from the column of their bytes."""

    def __init__(self, records: DataFrame) -> None:
        self._jvm = jvm_of(records.sparkSession)
        self._catalyst = Catalyst(self._jvm)
        self._parser = parser_of(records.sparkSession)
        self._expressions = self._jvm.org.apache.spark.sql.catalyst.expressions

    def column(self, plain: PlainSchema) -> Column:
        """Return ``struct<fits, sure, value>``, never null.

        ``fits``: the object is exactly what ``value`` says. ``sure``: no name of it is that of a missing or
        null field in another case. Dates and times are texts yet.

        Spark computes once what an expression holds many times, the tree above all, and does not look into the
        branches of conditions for that (EquivalentExpressions.childrenToRecurse): so no part stands in one that is
        needed elsewhere, too.
        """
        catalyst, every = self._catalyst, self._expressions
        small = f"if(length({quoted(plain.body)}) < {MANY_BYTES}, {text_of(plain.body)}, null)"
        text = catalyst.call(self._parser.parseExpression(small), "toString", TEXT)
        tree = every.TryEval(catalyst.call(catalyst.constant(self._reader(), READER), "readTree", NODE, text))
        found = self._object(tree, plain.schema)
        there = [every.IsNotNull(self._field(tree, name)) for name in plain.schema.names]
        known = reduce(every.Add, (every.If(each, self._int(1), self._int(0)) for each in there))
        has_only_known = every.EqualTo(known, catalyst.call(tree, "size", INT))
        absent = (self._is_absent(self._field(tree, name)) for name in plain.schema.names)
        has_all = every.Not(reduce(every.Or, absent))
        conditions = [
            self._parser.parseExpression(ALWAYS),
            every.IsNotNull(tree),
            found.fits,
            *(self._lacks(text, part) for part in (REPLACED, *HALF_CHARACTERS)),
            *([] if plain.may_have_unknown else [has_only_known]),
        ]
        fits = every.Coalesce(catalyst.seq([self._all(conditions), self._parser.parseExpression("false")]))
        parts = {FITS: fits, SURE: every.Or(has_only_known, has_all), VALUE: found.value}
        return ClassicColumn(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(catalyst.struct(parts)))

    def _read(self, node: Java, kind: RecordType) -> Read:
        match kind:
            case Struct():
                return self._object(node, kind)
            case _:
                return self._single(node, "string" if is_date(kind) else kind.ddl)

    def _object(self, node: Java, schema: Struct) -> Read:
        fields = {field.name: self._field(node, field.name) for field in schema.fields}
        read = {field.name: self._read(fields[field.name], field.type) for field in schema.fields}
        absent = {name: self._is_absent(fields[name]) for name in fields}
        fits = [self._expressions.Or(absent[name], read[name].fits) for name in fields]
        values = {
            field.name: self._unless(absent[field.name], read[field.name].value)
            if isinstance(field.type, Struct)
            else read[field.name].value
            for field in schema.fields
        }
        is_object = self._catalyst.call(node, "isObject", BOOLEAN)
        return Read(self._all([is_object, *fits]), self._catalyst.struct(values))

    def _single(self, node: Java, name: str) -> Read:
        kinds, value = SINGLE[name]
        fits = reduce(self._expressions.Or, (self._catalyst.call(node, kind, BOOLEAN) for kind in kinds))
        if name == "string":
            return Read(fits, self._catalyst.utf8(self._catalyst.call(node, value, TEXT)))
        return Read(fits, self._catalyst.if_true(fits, self._catalyst.call(node, value, name.upper())))

    def _field(self, node: Java, name: str) -> Java:
        return self._catalyst.call(node, "get", NODE, self._catalyst.constant(name, TEXT))

    def _is_absent(self, node: Java) -> Java:
        return self._expressions.Or(self._expressions.IsNull(node), self._catalyst.call(node, "isNull", BOOLEAN))

    def _unless(self, condition: Java, value: Java) -> Java:
        return self._catalyst.if_true(self._expressions.Not(condition), value)

    def _lacks(self, text: Java, part: str) -> Java:
        at = self._catalyst.call(text, "indexOf", INT, self._catalyst.constant(part, TEXT))
        return self._expressions.EqualTo(at, self._int(-1))

    def _all(self, conditions: Sequence[Java]) -> Java:
        return reduce(self._expressions.And, conditions)

    def _int(self, number: int) -> Java:
        return self._expressions.Literal.create(number, self._catalyst.type_of(INT))

    def _reader(self) -> Java:
        jackson = self._jvm.com.fasterxml.jackson
        limits = jackson.core.StreamReadConstraints.builder().maxNestingDepth(MOST_LEVELS).build()
        factory = jackson.core.JsonFactory.builder().streamReadConstraints(limits).build()
        features, reader = jackson.databind.DeserializationFeature, jackson.databind.ObjectMapper(factory).reader()
        for feature in (features.FAIL_ON_TRAILING_TOKENS, features.FAIL_ON_READING_DUP_TREE_KEY):
            reader = getattr(reader, "with")(feature)
        return reader
