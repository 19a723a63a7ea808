"""A feed's own Spark SQL expressions: parsed one by one, checked by Spark, and evaluated so that none fails a task.

Under ANSI rules an expression raises for a record that it does not fit: a cast, a division by zero, an index too large.
Spark's ``TryEval``, which its ``try_…`` functions are made of, gives null instead. SQL has no word for it around any
expression. It needs one precaution: what a projection holds twice, Spark computes beforehand, outside of it. It does
not look into the branches of a condition for that, so there it stands (EquivalentExpressions.childrenToRecurse).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import BooleanType

from kafka_ingest.model.place import FailureCode
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.model.sql_expression import TIME_OF_NOW
from kafka_ingest.writing.catalyst import STRING, Catalyst
from kafka_ingest.writing.java_classes import Java
from kafka_ingest.writing.kafka_records import analyzed, jvm_of, of_same_columns, optimized, parser_of

ALWAYS = "spark_partition_id() >= 0"
"""True, and not deterministic: Spark then neither repeats a column's expression nor moves a filter below it."""

CHANGING = frozenset(
    {
        *("CurrentDate", "CurrentTimestamp", "CurrentTime", "Now", "LocalTimestamp", "CurrentUser"),
        *("CurrentDatabase", "CurrentCatalog", "SparkVersion"),
    }
)
"""Expressions of Spark's that count as deterministic, though their values are others in the next attempt."""


REPLACEABLE = "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
INHERITS = "org.apache.spark.sql.catalyst.expressions.InheritAnalysisRules"
"""Functions that Spark makes of others; what those of the second kind are made of is their only child."""

INTERPRETED = "org.apache.spark.sql.catalyst.expressions.InterpretedSafeProjection"
SUCCESS, TRY = "scala.util.Success", "scala.util.Try"
SEQUENCE, FUNCTION = "scala.collection.immutable.Seq", "scala.Function1"
BOUND_TO_ALL = False
"""No column may be left without its place."""

TIMES = frozenset({"date", "timestamp", "timestamp_ntz"})
TOO_DEEP = "StackOverflowError"


class ExpressionRefusedError(Exception):
    """Spark takes an expression of the feed file not at all, or it gives another type; the message says which."""

    def __init__(self, problem: str) -> None:
        super().__init__(FailureCode.EXPRESSION_REFUSED.says(problem))


class Expressions:
    """Makes columns of expressions over the columns of records."""

    def __init__(self, records: DataFrame) -> None:
        self._records = records
        self._jvm = jvm_of(records.sparkSession)
        self._catalyst = Catalyst(self._jvm)
        self._parser = parser_of(records.sparkSession)
        self._replaceable, self._inherits = map(self._jvm.java.lang.Class.forName, (REPLACEABLE, INHERITS))

    def tried(self, fields: Mapping[str, str], where: str) -> Column:
        """Return a struct of what expressions give; null where one of them fails, and where ``where`` does not hold."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        literal = expressions.Literal.create
        pairs = [
            part
            for name, sql in fields.items()
            for part in (literal(name, self._catalyst.type_of(STRING)), self._parsed(sql))
        ]
        struct = expressions.CreateNamedStruct(self._catalyst.seq(pairs))
        condition, nothing = self._parsed(f"({where}) and {ALWAYS}"), self._parsed("null")
        return self._column(expressions.If(condition, expressions.TryEval(struct), nothing))

    def failure(self, sql: str, where: str) -> Column:
        """Return what is said of the failure of an expression, as Java says it; null where ``where`` does not hold.

        ``TryEval`` does not keep it, Scala's ``Try`` does. A record's columns go through a function that evaluates the
        expression without compiling it: for the few records of which it is known that it fails.
        """
        catalyst, expressions = self._catalyst, self._jvm.org.apache.spark.sql.catalyst.expressions
        columns = enumerate(self._parsed(quoted(name)) for name in self._records.columns)
        record = catalyst.struct({f"_{number}": column for number, column in columns})
        evaluated = catalyst.constant(catalyst.seq([self._of_a_row(sql)]), SEQUENCE)
        function = catalyst.call_static(INTERPRETED, "createProjection", FUNCTION, evaluated)
        tried = catalyst.call(catalyst.call_static(SUCCESS, "apply", SUCCESS, record), "map", TRY, function)
        said = catalyst.utf8(catalyst.call(tried, "toString", "java.lang.String"))
        return self._column(expressions.If(self._parsed(f"({where}) and {ALWAYS}"), said, self._parsed("null")))

    def _of_a_row(self, sql: str) -> Java:
        """Return an expression as Spark's optimizer leaves it, over the columns by their places in a row."""
        of_package = self._jvm.org.apache.spark.sql.catalyst.expressions
        # In a branch, where no constant is computed that would raise now.
        branch = of_package.If(self._parsed(ALWAYS), self._parsed(sql), self._parsed("null"))
        plan = optimized(of_same_columns(self._records).select("*", self._column(branch).alias("made")))
        *_, last = elements(plan.expressions())
        found = last.child()
        # The optimizer makes something else of a branch with a constant, which does not fail.
        evaluated = found.trueValue() if name_of(found) == "If" else found
        attributes = getattr(of_package, "package$AttributeSeq")(plan.child().output())
        return of_package.BindReferences.bindReference(evaluated, attributes, BOUND_TO_ALL)

    def plain(self, sql: str) -> Column:
        return self._column(self._parsed(sql))

    def check(self, expressions: Mapping[str, tuple[str, str]]) -> None:
        """Raise ExpressionRefusedError unless Spark takes each expression, and it gives the type that is expected.

        ``expressions``: by what an error calls them, each with the type in Spark's DDL.
        """
        for what, (sql, wanted) in expressions.items():
            try:
                parsed = self._parsed(sql)
                if any(is_of_all_columns(each) for each in nodes(parsed)):
                    # In the job there are more columns than records have, such as the raw bytes.
                    raise ExpressionRefusedError(f"{what}: expected columns by their names, found *")
                if is_named(parsed):
                    raise ExpressionRefusedError(f"{what}: expected an expression without a name of its own, found one")
                made = self._records.select("*", self._column(parsed).alias(what))
                expected = self._records.selectExpr(f"cast(null as {wanted}) as expected").schema["expected"].dataType
            except (AnalysisException, ParseException) as error:
                raise ExpressionRefusedError(f"{what}: {said_by(error)}") from None
            except Py4JJavaError as error:
                if TOO_DEEP not in str(error.java_exception):
                    raise
                raise ExpressionRefusedError(
                    f"{what}: expected an expression that Spark can parse, found one with too many levels"
                ) from None
            if problem := self._why_not_of_one_record(made):
                raise ExpressionRefusedError(
                    f"{what}: expected an expression over the columns of one record, found {problem}"
                )
            if field := moved_by_a_cast(analyzed(made)):
                raise ExpressionRefusedError(
                    f"{what}: expected casts of structs with the fields in their order, found one that gives {field} "
                    "the value of another, as Spark goes by places: use named_struct, such as "
                    f"named_struct('{field}', value.{field})"
                )
            found = made.schema[what].dataType
            if found.simpleString() != expected.simpleString():
                hint = "" if expected == BooleanType() else f": cast it, as in cast(… as {wanted})"
                raise ExpressionRefusedError(
                    f"{what}: expected an expression of type {expected.simpleString()}, found "
                    f"{found.simpleString()[:300]}{hint}"
                )

    def _why_not_of_one_record(self, made: DataFrame) -> str | None:
        plan, before = analyzed(made), analyzed(self._records)
        if plan.nodeName() != "Project" or not plan.child().fastEquals(before):
            return "an aggregate, a window or a function that makes several rows"
        if not plan.subqueriesAll().isEmpty():
            return "a sub-query"
        *_, last = elements(plan.expressions())
        every = [each for node in nodes(last) for each in (node, *self._made_of(node))]
        if (why := why_changing(every)) is not None:
            return f"{why}, whose value is another one when the record is read again"
        if not last.deterministic():
            return "a function whose value is another one when the record is read again"
        return None

    def _made_of(self, function: Java) -> Iterator[Java]:
        """Yield what the optimizer puts in the place of a function that Spark has made of others, but its arguments."""
        if self._replaceable.isInstance(function) and not self._inherits.isInstance(function):
            yield from self._parts(function.replacement(), list(elements(function.children())))

    def _parts(self, node: Java, arguments: Sequence[Java]) -> Iterator[Java]:
        if any(node.fastEquals(argument) for argument in arguments):
            return
        yield node
        yield from self._made_of(node)
        for child in elements(node.children()):
            yield from self._parts(child, arguments)

    def _parsed(self, sql: str) -> Java:
        return self._parser.parseExpression(sql)

    def _column(self, expression: Java) -> Column:
        return ClassicColumn(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))


def is_named(expression: Java) -> bool:
    """Whether an expression ends with ``as`` and a name."""
    return name_of(expression).endswith("Alias")


def is_of_all_columns(node: Java) -> bool:
    """Whether a node is ``*``; ``value.*`` are the fields of a column, which are the same everywhere."""
    return name_of(node) == "UnresolvedStar" and bool(node.target().isEmpty())


def why_changing(every: Sequence[Java]) -> str | None:
    """Return what counts as deterministic among nodes, though its value is another one in the next attempt."""
    if changing := sorted(CHANGING.intersection(map(name_of, every))):
        return ", ".join(changing)
    if any(is_time_of_now(each) for each in every):
        return "a time like 'now'"
    if any(is_encrypted_at_random(each) for each in every):
        return "aes_encrypt without an initialization vector (its fifth argument)"
    return None


def is_time_of_now(node: Java) -> bool:
    """Whether a node makes a date or time of a constant text such as ``now``, as comparing with one does, too."""
    if name_of(node) != "Cast" or node.dataType().simpleString() not in TIMES:
        return False
    text = node.child()
    return name_of(text) == "Literal" and bool(TIME_OF_NOW.match(str(text.value())))


def is_encrypted_at_random(node: Java) -> bool:
    """Whether a node encrypts with a vector that Spark draws: it does in all modes but ECB, where none is given."""
    if name_of(node) != "AesEncrypt":
        return False
    _, _, mode, _, vector, _ = elements(node.children())
    is_given = not vector.foldable() or bool(vector.eval(None))
    return not is_given and not (mode.foldable() and str(mode.eval(None)).upper() == "ECB")


def moved_by_a_cast(plan: Java) -> str | None:
    """Return a field that a cast of the last expression puts in the place of another one; None where there is none."""
    *_, last = elements(plan.expressions())
    casts = (node for node in nodes(last) if name_of(node) == "Cast")
    found = (moved(*(json.loads(each.dataType().json()) for each in (cast.child(), cast))) for cast in casts)
    return next(filter(None, found), None)


def moved(before: Any, after: Any) -> str | None:  # noqa: ANN401 - Spark's types in JSON
    """Return a field that both types have at different places."""
    if not (isinstance(before, dict) and isinstance(after, dict)):
        return None
    fields, others = ([str(each["name"]) for each in kind.get("fields", ())] for kind in (before, after))
    known = {name.lower() for name in fields}
    for name, other in zip(fields, others, strict=False):
        if name.lower() != other.lower() and other.lower() in known:
            return other
    inner = [
        *zip(before.get("fields", ()), after.get("fields", ()), strict=False),
        *((before.get(part), after.get(part)) for part in ("type", "elementType", "keyType", "valueType")),
    ]
    return next(filter(None, (moved(*each) for each in inner)), None)


def name_of(node: Java) -> str:
    return str(node.getClass().getSimpleName())


def nodes(expression: Java) -> Iterator[Java]:
    yield expression
    for child in elements(expression.children()):
        yield from nodes(child)


def elements(seq: Java) -> Iterator[Java]:
    for number in range(seq.size()):
        yield seq.apply(number)


def said_by(error: PySparkException) -> str:
    """Return Spark's own error without the plan and the Java behind it."""
    text = str(error).partition("JVM stacktrace:")[0].partition(";\n")[0]
    return " ".join(line.strip() for line in text.splitlines() if line.strip(" ^-="))[:1_000]
