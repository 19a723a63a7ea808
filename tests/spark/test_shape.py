"""Decoded records become rows in a real Spark: which are filtered or dead, and which columns the others have."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from pyspark.sql import Row, SparkSession
from tests.spark.avro_values import of_registry, wired, written
from tests.spark.test_decode import NO_NEEDS, ORDER, TEXT, Topic, by_offset, records, stage_as, values_below

from kafka_ingest.batches.freeze_schemas import avro_writer
from kafka_ingest.model import sql_expression
from kafka_ingest.model.avro_schema import read_avro
from kafka_ingest.model.batch import DataNeeds
from kafka_ingest.model.decoding import Columns, Decoding, FieldDecoding, Format
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.record_schema import quoted, read_schema
from kafka_ingest.model.schema_source import RegisteredSchema
from kafka_ingest.model.written_columns import SelectedColumn, Shape, columns_without_new, written_columns
from kafka_ingest.writing.decode import DEAD, decoded
from kafka_ingest.writing.expressions import ExpressionRefusedError, Expressions
from kafka_ingest.writing.shape import FILTERED, PerPartition, check_shape, error_name, shaped
from kafka_ingest.writing.stage_decoded import StagedRecords
from kafka_ingest.writing.transform import columns_in

ID = SelectedColumn("id", "int", "cast(value as int)")
TWICE = SelectedColumn("twice", "int", "cast(value as int) * 2")


def column(sql: str, kind: str = "int", name: str = "x") -> SelectedColumn:
    return SelectedColumn(name, kind, sql)


def becomes(spark: SparkSession, values: Sequence[Any], decoding: Decoding) -> list[Any]:
    """Return of each value its row's columns, FILTERED, or the part and text of the dead letter."""
    found: list[Any] = []
    for with_reasons in (False, True):
        rows = shaped(decoded(records(spark, values), decoding), decoding.shape, with_reasons=with_reasons)
        assert set(rows.columns) >= {"kafka_offset", "kafka_topic_id", DEAD, FILTERED}
        kept = [name for name in rows.columns if not name.startswith("kafka_")]
        shown = by_offset(rows.selectExpr("kafka_offset", *kept, f"{DEAD} as dead", f"{FILTERED} as filtered"))
        found.append(
            [
                (row["dead"]["part"], row["dead"]["text"])
                if row["dead"]
                else "filtered"
                if row["filtered"]
                else tuple(row[name] for name in kept)
                for row in shown
            ]
        )
    generic, reasoned = found
    assert [each == other or each[0] == other[0] for each, other in zip(generic, reasoned, strict=True)]
    return reasoned


def test_an_expression_that_fails_makes_its_record_a_dead_letter_and_no_other(spark: SparkSession) -> None:
    failing = "expected an expression that gives a value for the record, found "
    decoding = Decoding(TEXT, shape=Shape((ID, TWICE), "cast(value as int) % 2 = 1 or value is null"))

    assert becomes(spark, ["1", "2", "x", None, "2147483647", "3"], decoding) == [
        (1, 2),
        "filtered",
        ("where", failing + "CAST_INVALID_INPUT in where: cast(value as int) % 2 = 1 or value is null"),
        (None, None),
        ("select", failing + "ARITHMETIC_OVERFLOW in column twice: cast(value as int) * 2"),
        (3, 6),
    ]


CAST = "CAST_INVALID_INPUT"
RAISING = {
    "cast(value as int)": CAST,
    "1 div (length(value) - 1)": "DIVIDE_BY_ZERO",
    "1 / 0": "DIVIDE_BY_ZERO",
    "element_at(array(1, 2), 5)": "INVALID_ARRAY_INDEX_IN_ELEMENT_AT",
    "split(value, ',')[length(value)]": "INVALID_ARRAY_INDEX",
    "map_concat(map(value, 1), map(value, 2))": "DUPLICATED_MAP_KEY",
    "raise_error(concat('[NO_SUCH] ', value))": "USER_RAISED_EXCEPTION",
    "assert_true(value = 'y')": "USER_RAISED_EXCEPTION",
    "to_timestamp(value)": CAST,
    "transform(array(value), x -> cast(x as int))": CAST,
    "from_json(value, 'a int', map('mode', 'FAILFAST'))": "MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION",
    "cast(2147483647 as int) + length(value)": "ARITHMETIC_OVERFLOW",
    "struct(cast(value as int) as a, cast(value as int) + 1 as b)": CAST,
    "decode(unhex('ff'), 'nope')": "INVALID_PARAMETER_VALUE.CHARSET",
    "cast(value as timestamp)": CAST,
    "regexp_extract('a', '(', 1)": "INVALID_PARAMETER_VALUE.PATTERN",
    "if(value = 'x', cast(value as int), 1)": CAST,
    "timestamp_millis(1000000000000000000 + length(value))": "ArithmeticException",
}
"""Of expressions over the text x, what they raise, by Spark's own name where it has one."""


def test_nothing_that_an_expression_raises_fails_the_task_and_the_error_is_named(spark: SparkSession) -> None:
    values = records(spark, ["x", "x"]).selectExpr("cast(value as string) as value")
    made = Expressions(values)
    tried = [made.tried({"a": sql, "b": sql}, "true") for sql in RAISING]
    good = made.tried({"a": "length(value)", "b": "cast(try_cast(value as int) as int)"}, "true")
    said = [made.failure(sql, "true").alias(f"said{number}") for number, sql in enumerate(RAISING)]
    names = [f"{error_name(f'said{number}')} as name{number}" for number in range(len(RAISING))]

    for row in values.select(good, *tried).collect():
        assert [*row[0]] == [1, None]
        assert dict(zip(RAISING, row[1:], strict=True)) == dict.fromkeys(RAISING)
    for row in values.select(*said).selectExpr(*names).collect():
        assert dict(zip(RAISING, row, strict=True)) == RAISING


def test_constants_beside_an_expression_that_fails_are_none_of_its_errors(spark: SparkSession) -> None:
    constants = ["true", "false", "cast(null as boolean)", "1 = 0"]
    columns = [SelectedColumn(f"c{number}", "boolean", sql) for number, sql in enumerate(constants)]
    decoding = Decoding(TEXT, shape=Shape((*columns, ID), "true"))
    said = f"expected an expression that gives a value for the record, found {CAST} in column id: cast(value as int)"

    assert becomes(spark, ["x", "5"], decoding) == [("select", said), (True, False, None, False, 5)]


def test_a_record_that_cannot_be_decoded_is_never_filtered_and_no_expression_sees_it(spark: SparkSession) -> None:
    decoding = Decoding(ORDER, shape=Shape((column("value.id", "bigint"),), "raise_error('seen') is null"))

    assert [each[0] for each in becomes(spark, ["x", '{"id": 1}'], decoding)] == ["value", "where"]


def test_expressions_see_the_columns_that_the_feed_would_have_without_select(spark: SparkSession) -> None:
    flat = Decoding(ORDER, TEXT, Columns.FLATTEN, Shape((column("id + length(key)", "bigint", "key"),), "paid"))
    nested = Decoding(ORDER, shape=Shape((column("value.address.city", "string"), column("key", "binary", "k"))))
    raw = Decoding(shape=Shape(where="value = X'31' and kafka_offset = 0"))
    assert becomes(spark, ['{"id": 1, "paid": true}', '{"id": 2}', '{"paid": false}'], flat) == [
        (2,),
        "filtered",
        "filtered",
    ]
    assert becomes(spark, ['{"address": {"city": "Berlin"}}'], nested) == [("Berlin", bytearray(b"k"))]
    assert becomes(spark, ["1", "1"], raw) == [(bytearray(b"k"), bytearray(b"1")), "filtered"]


def test_selected_columns_are_in_the_place_of_key_and_value(spark: SparkSession) -> None:
    decoding = Decoding(TEXT, shape=Shape((TWICE, ID)))
    rows = shaped(decoded(records(spark, []), decoding), decoding.shape, with_reasons=False)

    assert rows.columns[:4] == ["kafka_offset", "twice", "id", "kafka_headers"]


def test_a_selected_column_takes_the_place_of_its_own_name_where_the_others_stay(spark: SparkSession) -> None:
    shape = Shape((column("length(key)", "int", "n"), column("cast(id as string)", "string", "ID")), keeps_others=True)
    decoding = Decoding(FieldDecoding(Format.JSON, "id bigint, paid boolean"), TEXT, Columns.FLATTEN, shape)
    rows = shaped(decoded(records(spark, []), decoding), shape, with_reasons=False)

    assert rows.columns[:5] == ["kafka_offset", "key", "ID", "paid", "n"]
    assert becomes(spark, ['{"id": 7, "paid": true}'], decoding) == [("k", "7", True, 1)]


PLACE = "array(named_struct('city', value, 'zip', value))"
TURNED = "array<struct<zip:string,city:string>>"


@pytest.mark.parametrize(
    ("shape", "problem"),
    [
        (Shape(where="nope = 1"), r"where: \[UNRESOLVED_COLUMN.WITH_SUGGESTION\] .*`nope`.*Did you mean one of.*`key`"),
        (Shape(where="value ="), r"where: \[PARSE_SYNTAX_ERROR\]"),
        (Shape(where="value"), "where: expected an expression of type boolean, found string$"),
        (Shape((column("value"),)), r"select.x: expected an expression of type int, found string: cast it, as in cast"),
        (Shape((column("1 as y"),)), "select.x: expected an expression without a name of its own"),
        (Shape((column("null"),)), "select.x: expected an expression of type int, found void"),
        (Shape((column("kafka_dead", "string"),)), r"select.x: \[UNRESOLVED_COLUMN"),
        (Shape((column("sum(1)", "bigint"),)), r"select.x: .*(GROUP BY|aggregate)"),
        (Shape((column("explode(array(1))"),)), "select.x: expected an expression over the columns of"),
        (Shape((column("count(1) over ()", "bigint"),)), "found an aggregate, a window or"),
        (Shape((column("(select 1)"),)), "found a sub-query"),
        (Shape((column(f"cast({PLACE} as {TURNED})", TURNED),)), "found one that gives zip the value of another, as"),
        (Shape((column("cast(unix_timestamp() as int)"),)), "found CurrentTimestamp, whose value is another one"),
        (Shape((column("user", "string"),)), "found CurrentUser, whose value is another one"),
        (Shape((column("cast(random() as int)"),)), "found a function whose value is another one"),
        (Shape((column("version()", "string"),)), "found SparkVersion, whose value is another one"),
        (Shape((column("hex(aes_encrypt(value, key))", "string"),)), "aes_encrypt without an initialization vector"),
        (Shape((column("aes_encrypt(value, key, 'CBC')", "binary"),)), "aes_encrypt without an initialization vector"),
        (Shape(where="to_date('today') > date(value)"), "where: .*found a time like 'now', whose value is another"),
        (Shape(where="to_timestamp('now') > timestamp(value)"), "where: .*found a time like 'now', whose value is"),
        (Shape((column("to_json(struct(*))", "string"),)), r"select.x: expected columns by their names, found \*"),
        (Shape(where="to_timestamp(value) > ' Now UTC'"), "where: .*found a time like 'now', whose value is another"),
        (Shape((column("cast('today' as date)", "date"),)), "found a time like 'now', whose value is another one"),
        (Shape(where=f"{'(' * 1_500}true{')' * 1_500}"), "expected an expression that Spark can parse, found one with"),
        (Shape((column("nope(1)"),)), r"\[UNRESOLVED_ROUTINE\]"),
        (
            Shape((column("struct(1 as a)", "struct<A: int>"),)),
            "expected an expression of type struct<A:int>, ",
        ),
    ],
)
def test_what_spark_refuses_ends_the_attempt_before_it_reads(spark: SparkSession, shape: Shape, problem: str) -> None:
    with pytest.raises(ExpressionRefusedError, match=problem) as error:
        check_shape(decoded(records(spark, []), Decoding(TEXT)), shape)
    assert str(error.value).startswith("EXPRESSION_REFUSED: ")
    assert "Project" not in str(error.value)


def test_encryption_that_gives_the_same_again_is_taken(spark: SparkSession) -> None:
    modes = ["'ECB'", "'GCM', 'DEFAULT', substr(value, 1, 12)", "'CBC', 'PKCS', unhex(repeat('00', 16))"]
    selected = tuple(column(f"aes_encrypt(value, '0123456789abcdef', {mode})", "binary") for mode in modes)

    for each in selected:
        check_shape(decoded(records(spark, []), Decoding(TEXT)), Shape((each,)))


def test_names_of_the_environment_and_of_settings_stay_text_in_expressions_and_schemas(spark: SparkSession) -> None:
    name = "${env:PATH} ${system:java.version} ${spark.app.id}"
    decoding = Decoding(TEXT, shape=Shape((column(f"concat(value, '{name}')", "string"),), f"'{name}' like '$%'"))
    old, new = (
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}, *more]}
        for more in ((), ({"name": "b", "type": "string", "default": name},))
    )
    values = of_registry(new, avro_writer(RegisteredSchema(1, json.dumps(old), "AVRO"), read_avro(json.dumps(new))))

    assert becomes(spark, ["x"], decoding) == [(f"x{name}",)]
    rows = decoded(records(spark, [wired(1, written(old, {"a": "x"}))]), Decoding(values)).collect()
    assert [row["value"].asDict() for row in rows] == [{"a": "x", "b": name}]


def test_functions_refused_by_their_names_are_those_that_spark_counts_among_them(spark: SparkSession) -> None:
    named: dict[str, set[str]] = {}
    session: Any = spark._jsparkSession
    identifier = spark.sparkContext._jvm.org.apache.spark.sql.catalyst.FunctionIdentifier  # type: ignore[union-attr]
    for row in spark.sql("show system functions").collect():
        if row[0] not in {"!=", "<>", "case", "||"}:
            info = session.sessionState().catalog().lookupFunctionInfo(identifier(row[0]))
            named.setdefault(info.getGroup(), set()).add(row[0])
    assert named["agg_funcs"] <= sql_expression.AGGREGATES
    assert named["generator_funcs"] <= sql_expression.GENERATORS
    assert named["window_funcs"] <= sql_expression.WINDOWS
    every = set().union(*named.values())
    assert (
        not (sql_expression.AGGREGATES | sql_expression.GENERATORS | sql_expression.WINDOWS)
        - every
        - {"schema_of_variant_agg"}
        - sql_expression.NEWER_AGGREGATES
    )


# ── Staged ────────────────────────────────────────────────────────────────────────────────────────────────────────────

VALUES = {0: ["1", "2"], 1: ["1", "x", "4"], 2: ["1", "2", "4"]}
"""Of each partition: whole numbers, one that is none, and an offset without a record."""


def test_filtered_records_are_counted_by_partition_and_only_ranges_with_others_are_read_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    topic = Topic(spark, VALUES)
    odd = Shape((ID,), "cast(value as int) % 2 = 1")

    staged = stage_as(topic, tmp_path, Decoding(TEXT, shape=odd))

    assert staged.rows_read == 8
    assert staged.filtered == {
        TopicPartition("orders", 0): 1,
        TopicPartition("orders", 1): 1,
        TopicPartition("orders", 2): 2,
    }
    assert [each.partition for each in topic.asked[1]] == [1, 2]
    assert values_below(tmp_path / "data", "id") == [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    letters = values_below(tmp_path / "dead-letters", "value", "error_part", "error_class", "error")
    said = "expected an expression that gives a value for the record, found CAST_INVALID_INPUT in where: "
    assert letters == [(1, 1, b"x", "where", "EXPRESSION", said + "cast(value as int) % 2 = 1")]
    schema = pyarrow.parquet.read_table(tmp_path / "data").schema
    assert [name for name in schema.names if name not in topic.read([]).columns] == ["id"]


def test_where_works_on_records_that_are_stored_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    staged = stage_as(Topic(spark, VALUES), tmp_path, Decoding(shape=Shape(where="value = X'31'")))

    assert values_below(tmp_path / "data", "value") == [(0, 0, b"1"), (1, 0, b"1"), (2, 0, b"1")]
    assert sorted(each.partition for each in staged.filtered) == [0, 1, 2]
    assert sum(staged.filtered.values()) == 5
    assert not (tmp_path / "dead-letters").exists()


def test_a_batch_of_which_nothing_is_left_is_counted_as_well(spark: SparkSession, tmp_path: Path) -> None:
    staged = stage_as(Topic(spark, VALUES), tmp_path, Decoding(shape=Shape(where="false")))

    assert (staged.rows_read, sum(staged.filtered.values())) == (8, 8)


def transformed(
    topic: Topic, directory: Path, function: str, where: str | None = None, needs: DataNeeds = NO_NEEDS
) -> StagedRecords:
    shape = Shape((column("try_cast(value as int)", "int", "id"),), where, f"tests.spark.functions:{function}")
    return stage_as(topic, directory, Decoding(TEXT, shape=shape), needs)


def test_what_a_function_drops_is_filtered_and_what_it_returns_is_written(spark: SparkSession, tmp_path: Path) -> None:
    staged = transformed(Topic(spark, VALUES), tmp_path, "every_second", "value <> 'x'")

    assert staged.rows_read == 8
    assert staged.filtered == {TopicPartition("orders", number): 1 for number in range(3)}
    written = [(0, 0, 1, 2), (1, 0, 1, 2), (1, 2, 4, 8), (2, 0, 1, 2), (2, 2, 4, 8)]
    assert values_below(tmp_path / "data", "id", "twice") == written
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    file = next((tmp_path / "data").glob("*.parquet"))
    assert columns_in(spark, file) == {"id": "int", "twice": "int"}
    # Spark would read other directories, or none, if it took this one for a pattern.
    assert transformed(Topic(spark, VALUES), tmp_path / "a[gain]*{x,y}?", "newest_of_each_id").filtered
    none = transformed(Topic(spark, VALUES), tmp_path / "none", "none")
    assert (none.rows_read, sum(none.filtered.values())) == (8, 8)


def test_what_a_function_returns_is_divided_by_the_partitions_of_a_table(spark: SparkSession, tmp_path: Path) -> None:
    terms = terms_of(["kafka_partition", "day(kafka_timestamp)"])
    needs = DataNeeds(partition_by=terms, own_columns=True)

    staged = transformed(Topic(spark, VALUES), tmp_path, "every_second", "value <> 'x'", needs)

    assert (staged.rows_read, sum(staged.filtered.values())) == (8, 3)
    found: list[tuple[int, int]] = []
    for path in (tmp_path / "data").rglob("*.parquet"):
        rows = pyarrow.parquet.ParquetFile(path).read().to_pylist()
        folders = {(f"kafka_partition={each['kafka_partition']}", f"kafka_date={each['kafka_date']}") for each in rows}
        assert folders == {path.parts[-3:-1]}
        found += [(each["kafka_partition"], each["twice"]) for each in rows]
    assert sorted(found) == [(0, 2), (1, 2), (1, 8), (2, 2), (2, 8)]
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    # It is not handed the columns that follow from others, and adds none of that name.
    with pytest.raises(ExpressionRefusedError, match="kafka_date: expected no such column, found date"):
        transformed(Topic(spark, VALUES), tmp_path / "again", "with_a_date", needs=needs)


def test_a_time_zone_that_a_function_sets_is_that_of_its_own_columns_and_of_no_partition_or_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    needs = DataNeeds(partition_by=terms_of(["hour(kafka_timestamp)"]))

    transformed(Topic(spark, VALUES), tmp_path, "in_another_time_zone", needs=needs)

    for path in (tmp_path / "data").rglob("*.parquet"):
        assert path.parent.name == "kafka_hour=2025-12-31T19"  # in New York, as the session of this test has it
        file = pyarrow.parquet.ParquetFile(path)
        assert set(file.read()["zone"].to_pylist()) == {"+13:00"}
        assert "INT96" not in {file.schema.column(number).physical_type for number in range(len(file.schema))}


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("nope", "expected a function that the driver's Python can import, found none"),
        ("no_rows_at_all", "expected a DataFrame, found int"),
        ("that_exits", "found that it ends the process .8 rows are enough"),
        ("twice", "found 8 that come more than once"),
        ("moved", "found 8 at positions that it was not given"),
        ("at_another_time", "found 8 with another kafka_timestamp, kafka_topic_id or kafka_timestamp_ms"),
        ("without_a_position", "kafka_partition: expected int, found no such column"),
        ("as_text", "kafka_offset: expected bigint, found string"),
        ("called_like_ours", "Kafka_id: expected no such column, found int"),
        ("with_a_name_twice", "found id more than once"),
    ],
)
def test_a_function_that_returns_other_rows_than_it_was_handed_ends_the_attempt(
    spark: SparkSession, tmp_path: Path, function: str, problem: str
) -> None:
    with pytest.raises(ExpressionRefusedError, match=problem):
        transformed(Topic(spark, VALUES), tmp_path, function)


def test_counts_by_partition_are_exact_for_any_partitions_of_many_topics(spark: SparkSession) -> None:
    ranges = [
        OffsetRange(TopicPartition(f"t{topic}", partition), 0, 10**6)
        for topic in range(40)
        for partition in (0, topic, 7 * topic + 3)
    ]
    by_partition = {each.topic_partition: 1 + number % 13 for number, each in enumerate(dict.fromkeys(ranges))}
    counted = PerPartition(ranges)
    rows = [(tp.topic, tp.partition, number) for tp, number in by_partition.items()]
    frame = spark.createDataFrame(rows, "kafka_topic string, kafka_partition int, number int").repartition(7)

    each = frame.selectExpr("*", "explode(sequence(1, number)) as n", "n % 2 = 0 as even")
    [found] = each.select(counted.counted("even").alias("even"), counted.counted("n < 0").alias("none")).collect()

    assert counted.of(found["even"]) == {tp: number // 2 for tp, number in by_partition.items() if number > 1}
    assert counted.of(found["none"]) == {}


def test_new_fields_are_left_out_of_columns_and_all_others_stay_as_they_are(spark: SparkSession) -> None:
    schema = (
        "id int, new int, odd struct<a: int, `b'\\c`: string, new: int>, list array<struct<x: int, new: int>>, "
        "map map<string, array<struct<y: int, new: struct<z: int>>>>, same struct<p: date>"
    )
    before = written_columns(
        read_schema(
            "id int, odd struct<a: int, `b'\\c`: string>, list array<struct<x: int>>, "
            "map map<string, array<struct<y: int>>>, same struct<p: date>"
        )
    )
    order = Decoding(value=FieldDecoding(Format.JSON, schema), columns=Columns.FLATTEN)
    decoded_columns = read_schema(schema)
    chosen = columns_without_new(decoded_columns, before)
    selected = columns_without_new(
        decoded_columns,
        before,
        [SelectedColumn(each.name, "", f"({quoted(each.name)})") for each in decoded_columns.fields],
    )
    values = [
        json.dumps(
            {
                "id": 1,
                "new": 2,
                "odd": {"a": 3, "b'\\c": "x", "new": 4},
                "list": [{"x": 5, "new": 6}, None, {}],
                "map": {"k": [{"y": 7, "new": {"z": 8}}, None], "l": None},
                "same": {"p": "2026-01-31"},
            }
        ).encode(),
        b"{}",
    ]

    for columns in (chosen, selected):
        shape = Shape(select=columns)
        check_shape(decoded(records(spark, values), order), shape)

        full, empty = becomes(spark, values, replace(order, shape=shape))

        assert full == (
            1,
            Row(**{"a": 3, "b'\\c": "x"}),
            [Row(x=5), None, Row(x=None)],
            {"k": [Row(y=7), None], "l": None},
            Row(p=date(2026, 1, 31)),
        )
        assert empty == (None,) * 5
