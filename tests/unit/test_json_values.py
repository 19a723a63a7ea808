"""JSON read strictly: what it says of a text, beside the values that tests/values has."""

import ast
import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark import cloudpickle

from kafka_ingest.model.decoding import DeadClass, UnknownFields
from kafka_ingest.writing import json_values
from kafka_ingest.writing.decode_strictly import SENT_BY_VALUE
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.json_values import JsonReader, RefusedError

NESTED = (
    "id int, before struct<credit: decimal(5,2), `odd.name`: int>, "
    "items array<struct<price: float, tags: array<int>>>, by_user map<string,struct<at: date>>, at timestamp"
)


def refused(text: str, ddl: str = NESTED, unknown_fields: str = "ignore") -> RefusedError:
    """Return the error of a text."""
    with pytest.raises(RefusedError) as found:
        JsonReader(ddl, unknown_fields).read(text.encode())
    return found.value


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('{"before": {"credit": "5,5"}}', "a text that is no number for before.credit (decimal(5,2))"),
        ('{"before": {"odd.name": 1.5}}', "a fraction for before.odd.name (int)"),
        ('{"before": []}', "an array for before (struct)"),
        ('{"items": [{}, null, {"tags": [1, 2, "x"]}]}', "a text for items[2].tags[2] (int)"),
        ('{"by_user": {"ann@example.org": {"at": true}}}', "true for by_user.*.at (date)"),
        ('{"items": {"price": 1}}', "an object for items (array)"),
    ],
)
def test_the_error_names_the_whole_path_of_what_does_not_fit(text: str, named: str) -> None:
    error = refused(text)

    assert (error.dead_class, error.said) == ("DOES_NOT_FIT", f"expected values that fit the schema, found {named}")


def test_the_error_names_three_of_many_values_in_at_most_300_characters_and_shows_no_value_of_the_record() -> None:
    many = refused(json.dumps({"items": [{"tags": ["secret"] * 1000}]})).said
    assert many.endswith("a text for items[0].tags[2] (int) and 997 more")

    long_name = refused('{"\\n\\u200b' + "x" * 100_000 + '": 1}', unknown_fields="refuse")
    assert (long_name.dead_class, len(long_name.said)) == ("UNKNOWN_FIELD", 300)
    assert long_name.said.startswith("expected fields of the schema only, found ??xxx")
    for text in ('{"at": "secret"}', '{"id": "secret"}', '{"by_user": {"secret": 1}}', '"secret"', '{"x": secret}'):
        assert "secret" not in refused(text).said


def test_the_error_of_a_time_in_another_form_names_the_forms_that_are_read() -> None:
    said = refused(json.dumps({"at": "secret", "before": {"x" * 250: 1}, "items": [{"tags": "y"}]})).said

    for form in ("2026-01-31T12:00:00.123456+02:00", "without seconds", "Z, +0200, +02"):
        assert form in said


def test_what_is_kept_of_an_object_is_the_text_of_its_source() -> None:
    text = '{"id": 1, "a b": { "x" : [1.10, "\\ud800"] } , "t": "\\u00e9", "n": null, "f": -0.50, "é": [ ] }'

    *_, kept = JsonReader("id int", "keep").read(text.encode())

    assert kept == {"a b": '{ "x" : [1.10, "\\ud800"] }', "t": "é", "n": None, "f": "-0.50", "é": "[ ]"}


@pytest.mark.parametrize(
    ("text", "dead_class"),
    [
        ('{"x": "\\ud800"}', "DOES_NOT_FIT"),
        ('{"\\ud800": 1}', "DOES_NOT_FIT"),
        ('{"x": 1, "x": 2}', "DUPLICATE_FIELD"),
        ('{"ID": 1}', "OTHER_CASE"),
        ('{"id": "x", "y": 1}', "DOES_NOT_FIT"),
    ],
)
def test_unknown_fields_are_kept_whole_or_the_record_is_dead(text: str, dead_class: str) -> None:
    assert refused(text, "id int", "keep").dead_class == dead_class


def test_of_several_wrong_values_the_class_is_that_of_the_gravest() -> None:
    wrong = '{"m": {"a": 1, "a": 2}, "d": 1e999, "ID": 5, "x": 1'

    assert refused(wrong + ', "n": "1"}', "m map<string,int>, d double, n int, id int").dead_class == "DOES_NOT_FIT"
    assert refused(wrong + "}", "m map<string,int>, d double, id int", "refuse").dead_class == "OUT_OF_RANGE"
    assert refused(wrong + "}", "m map<string,int>, id int", "refuse").dead_class == "DUPLICATE_FIELD"
    assert refused(wrong + "}", "id int", "refuse").dead_class == "OTHER_CASE"
    assert refused(wrong + "}", "x int", "refuse").dead_class == "UNKNOWN_FIELD"


@pytest.mark.parametrize(
    ("number", "single"),
    [
        ("1.00000017881393432617187499", 1.0000001192092896),
        ("1.00000017881393432617187500", 1.000000238418579),
        ("1.00000017881393432617187501", 1.000000238418579),
        ("3.40282356779733661637539395458142568447e38", 3.4028234663852886e38),
    ],
)
def test_a_float_is_the_one_next_to_the_number_and_not_to_the_double_next_to_it(number: str, single: float) -> None:
    assert JsonReader("f float", "ignore").read(f'{{"f": {number}}}'.encode()) == (single,)


ODD_TEXT = st.text("0123456789eE+-.,:TZ", max_size=32)
KINDS = ("boolean", "smallint", "bigint", "float", "double", "decimal(10,2)", "decimal(38,38)", "date", "timestamp")


@given(ODD_TEXT | ODD_TEXT.map(json.dumps), st.sampled_from(KINDS))
@example('"1e"', "decimal(10,2)")
@example("1e99999999999999999999", "decimal(10,2)")
def test_a_value_is_read_or_refused_whatever_its_text_is(text: str, kind: str) -> None:
    value, dead_class, said = JsonReader(f"f {kind}", "ignore")(f'{{"f": {text}}}'.encode())

    assert (value is None) == (dead_class is not None) == (said is not None)


@pytest.mark.parametrize(
    ("time", "what"),
    [
        ("2024-01-31T24:00:00Z", "a time of day beyond 23:59:59"),
        ("2016-12-31T23:59:60Z", "a time of day beyond 23:59:59"),
        ("2024-01-31T12:00:00+18:01", "an offset beyond 18 hours, or of more than 59 minutes"),
        ("2024-01-31T12:00:00+01:60", "an offset beyond 18 hours, or of more than 59 minutes"),
        ("2024-02-30T12:00:00Z", "none that exists in the years 1 to 9999"),
    ],
)
def test_the_error_of_a_time_that_does_not_exist_names_what_is_beyond_its_limits(time: str, what: str) -> None:
    error = refused(json.dumps({"at": time}))

    assert error.dead_class == "OUT_OF_RANGE"
    assert error.said == f"expected values that their types can hold, found {what} for at (timestamp)"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c", "A"]), JSON), st.sampled_from([None, 1]))
def test_a_text_column_holds_what_json_would_read_again_as_the_same_value(
    values: dict[str, Any], indent: int | None
) -> None:
    text = json.dumps(values, indent=indent)

    found = JsonReader("a string, b string, c string", "ignore").read(text.encode()) if "A" not in values else ()

    for name, stored in zip("abc", found, strict=False):
        wanted = values.get(name)
        assert stored == wanted if wanted is None or isinstance(wanted, str) else json.loads(stored) == wanted
        assert stored is None or isinstance(wanted, str) or stored in text


def test_any_number_of_levels_is_read_or_refused_and_python_keeps_its_limit() -> None:
    limit = sys.getrecursionlimit()

    for levels in (150, 250, 997):
        text = "[" * levels + "]" * levels
        assert JsonReader("x string", "ignore").read(f'{{"x": {text}}}'.encode()) == (text,)
    for levels in (998, 100_000):
        assert refused('{"x": ' + "[" * levels).dead_class == "NOT_JSON"
        assert refused('{"x": ' + "[" * levels + "]" * levels + "}").dead_class == "NOT_JSON"
    assert sys.getrecursionlimit() == limit


@pytest.mark.long
def test_a_value_of_more_than_a_million_elements_is_refused_before_it_is_read() -> None:
    read = JsonReader("x string", "ignore").read

    assert read(b'{"x": "' + b'\\",' * 1_000_000 + b'"}') == ('",' * 1_000_000,)
    assert len(read(b'{"x": [' + b"1," * 999_999 + b"1]}")[0]) == 2_000_001
    for begin, each, end in (('{"x": [', "1 ", "]}"), ("[", "{}", ""), ("{", '"x": 1', "}"), ("", "[", "")):
        error = refused(f"{begin}{','.join([each] * 1_000_001)}{end}")
        assert (error.dead_class, error.said) == (
            "TOO_LARGE",
            "expected at most 1,000,000 elements and fields in a value, found more",
        )


def test_it_names_classes_and_settings_as_the_package_does_and_needs_nothing_but_python() -> None:
    own = {value for name, value in vars(json_values).items() if name == value and name != "ROUND_HALF_UP"}
    assert own <= set(DeadClass)
    assert {str(each) for each in UnknownFields} == {"ignore", "refuse", "keep"}
    imported = {
        name
        for node in ast.walk(ast.parse(inspect.getsource(json_values)))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [str(node.module)]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert {name for name in imported if name.partition(".")[0] not in sys.stdlib_module_names} == {
        "kafka_ingest.model.record_schema"
    }


def test_a_worker_without_this_package_reads_as_the_driver_does() -> None:
    sent = cloudpickle.dumps(for_workers(JsonReader(NESTED, "ignore"), *SENT_BY_VALUE))
    worker = (
        "import sys, pickle; sys.modules['kafka_ingest'] = None; "
        "read = pickle.load(sys.stdin.buffer); print(read(b'{\"id\": 1.0}'), read(b'{\"before\": 5}')[1], read(None))"
    )

    done = subprocess.run([sys.executable, "-c", worker], input=sent, capture_output=True, check=False)

    assert done.stdout.decode() == "((1, None, None, None, None), None, None) DOES_NOT_FIT (None, None, None)\n", (
        done.stderr
    )
