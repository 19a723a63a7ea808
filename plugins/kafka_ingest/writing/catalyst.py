"""Expressions of Spark's own planner, for what its SQL has no words for: calling methods of Java objects."""

from collections.abc import Iterable, Mapping

from kafka_ingest.writing.java_classes import Java

STRING, INT, BIGINT, BINARY, BOOLEAN = "STRING", "INT", "BIGINT", "BINARY", "BOOLEAN"
"""Types of columns, as SQL spells them. Every other type here is the name of a Java class."""

NULL_IN_NULL_OUT = (True, True, True)
"""How methods are called: not with null, with perhaps null as the answer, and the same answer each time."""

NEVER_NULL, NULLABLE = False, True


class Catalyst:
    """Makes expressions of ``org.apache.spark.sql.catalyst``, which Spark compiles into the code of a query."""

    def __init__(self, jvm: Java) -> None:
        self._jvm = jvm
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._none = jvm.scala.Option.empty()
        self._types: dict[str, Java] = {}

    def seq(self, items: Iterable[Java]) -> Java:
        return self._jvm.PythonUtils.toSeq(list(items))

    def type_of(self, name: str) -> Java:
        """Return the type of a column, or the one of a Java class's objects."""
        if name not in self._types:
            types = self._jvm.org.apache.spark.sql.types
            is_class = not name.isupper()
            found = (
                types.ObjectType(self._jvm.java.lang.Class.forName(name)) if is_class else types.DataType.fromDDL(name)
            )
            self._types[name] = found
        return self._types[name]

    def attribute(self, name: str, data_type: Java) -> Java:
        """Return an attribute of a type that Java knows, never null."""
        no_metadata = self._jvm.org.apache.spark.sql.types.Metadata.empty()
        return self._expressions.AttributeReference(
            name, data_type, NEVER_NULL, no_metadata, self._new_id(), self.seq([])
        )

    def named(self, expression: Java, name: str) -> Java:
        return self._expressions.Alias(expression, name, self._new_id(), self.seq([]), self._none, self.seq([]))

    def call(self, target: Java, method: str, returns: str, *arguments: Java) -> Java:
        """Return what a method of an object returns, null where the object or an argument is."""
        return self._expressions.objects.Invoke(
            target, method, self.type_of(returns), self.seq(arguments), self.seq([]), *NULL_IN_NULL_OUT
        )

    def call_static(self, class_name: str, method: str, returns: str, *arguments: Java) -> Java:
        """Return what a method of a class returns, null where an argument is."""
        of_class, found = self._jvm.java.lang.Class.forName(class_name), self.type_of(returns)
        return self._expressions.objects.StaticInvoke(
            of_class, found, method, self.seq(arguments), self.seq([]), *NULL_IN_NULL_OUT, self._none
        )

    def utf8(self, text: Java) -> Java:
        return self.call_static("org.apache.spark.unsafe.types.UTF8String", "fromString", STRING, text)

    def constant(self, value: Java, type_name: str) -> Java:
        """Return an object that is the same for every record; tasks get a copy, so it has to be serializable."""
        return self._expressions.Literal.fromObject(value, self.type_of(type_name))

    def struct(self, fields: Mapping[str, Java]) -> Java:
        literal = self._expressions.Literal.create
        pairs = [part for name, field in fields.items() for part in (literal(name, self.type_of(STRING)), field)]
        return self._expressions.CreateNamedStruct(self.seq(pairs))

    def element(self, type_name: str, number: int = 1) -> Java:
        """Return the variable for one element of an array in ``each``; nested calls have different numbers."""
        return self._expressions.objects.LambdaVariable(f"element{number}", self.type_of(type_name), NULLABLE, number)

    def first_of_row(self, type_name: str) -> Java:
        return self._expressions.BoundReference(0, self.type_of(type_name), NEVER_NULL)

    def projection(self, expression: Java) -> Java:
        """Return what makes a row of the expression's value from a row."""
        return self._expressions.UnsafeProjection.create(self.seq([expression]))

    def each(self, array: Java, element: Java, becomes: Java) -> Java:
        """Return the column's array of what each element of Java's array becomes."""
        return self._expressions.objects.MapObjects(element, becomes, array, self._none)

    def not_null(self, expression: Java) -> Java:
        return self._expressions.IsNotNull(expression)

    def if_true(self, condition: Java, then: Java) -> Java:
        """Return ``then`` where the condition holds, null elsewhere."""
        return self._expressions.If(condition, then, self._expressions.Literal.create(None, then.dataType()))

    def _new_id(self) -> Java:
        return self._expressions.NamedExpression.newExprId()
