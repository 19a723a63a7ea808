"""Expressions of a feed file, read without Spark: what is none over the columns of one record is refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.model.sql_expression import LONGEST, WrongExpressionError, check_expression


@pytest.mark.parametrize(
    "text",
    [
        "value.id",
        "cast(value.amount as decimal(10, 2)) * 2",
        "exists(tags, tag -> tag = 'a')",
        "value.select.from + value.sum",
        "value.current_date = date '2026-01-01'",
        "'sum(a); (select 1)' = a -- sum(a); (select 1)",
        '"it\'s" || \'say "now()"\' || `now()`',
        r"""'it\'s' = r'a\' and a[0] = "\"" and b = """ + "''''",
        "/* a /* sum(b) */ ; */ a",
        "`a``b` + `select`.`sum`",
        "(values + 1) > 1 and (table) is null and (from.x) = 1",
        "first = 1 and over = 2 and count > 1",
        "a in (1, 2) and (a, b) = (1, 2)",
        "case when a then map('x', 1)['x'] else 0 end",
        "try_divide(a, b)",
        "a like any ('x%', 'y') and a not ilike SOME ('z')",
    ],
)
def test_an_expression_over_the_columns_of_one_record_is_taken(text: str) -> None:
    check_expression(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a Spark SQL expression, found ''"),
        (" \n ", "expected a Spark SQL expression, found"),
        ("-- nothing", "expected a Spark SQL expression, found '-- nothing'"),
        ("/**/", "expected a Spark SQL expression, found"),
        ("a; drop table x", "expected one expression, found ';' after it"),
        ("a;", "expected one expression, found ';' after it"),
        ("a in (1", "expected ')', found the end"),
        ("a[1", "expected ']', found the end"),
        ("a)", "expected brackets in pairs, found a ')' too many"),
        ("(a]", "expected brackets in pairs, found a ']' too many"),
        ("'x", "expected ' once more, at the end of what it begins, found the end"),
        (r"'x\'", "expected ' once more"),
        ("a = `b", "expected ` once more"),
        ("/* /* */ a", "expected */ at the end of a comment, found the end"),
        ("(select 1)", "found a sub-query (SELECT)"),
        ("a in (SELECT b from c)", "found a sub-query (SELECT)"),
        ("exists(select 1)", "found a sub-query (SELECT)"),
        ("(values (1))", "found a sub-query (VALUES)"),
        ("(with x as (select 1) select * from x)", "found a sub-query (WITH)"),
        ("(from x)", "found a sub-query (FROM)"),
        ("(table x)", "found a sub-query (TABLE)"),
        ("sum(a) > 1", "found sum, which is computed over many records"),
        ("COUNT(*)", "found count, which is computed over many records"),
        ("a = any (b) or some(like)", "found any, which is computed over many records"),
        ("`sum` (a)", "found sum, which is computed over many records"),
        ("system.builtin.max(a)", "found max, which is computed over many records"),
        ("explode(tags)", "found explode, which makes several rows of a record"),
        ("rank() over (order by a)", "found rank, which is computed over many records"),
        ("nope(a) over (order by a)", "found a window (OVER)"),
        ("nope(a) over w", "found a window (OVER)"),
        ("at > now()", "found now, whose value is another one when the record is read again"),
        ("at > current_date", "found current_date, whose value is another one"),
        ("at > timestamp 'now'", "found timestamp 'now', whose value is another one when the record is read again"),
        ("day = DATE'Today UTC'", "found DATE 'Today UTC', whose value is another one"),
        ("to_json(struct(*))", "found * for all columns: name them"),
        ("hash(a, *)", "found * for all columns: name them"),
        ("rand() < 0.5", "found rand, whose value is another one"),
        ("java_method('java.lang.System', 'exit', 1)", "found java_method, whose value is another one"),
        ("a" * (LONGEST + 1), "expected at most 10,000 characters, found 10,001"),
    ],
)
def test_what_is_none_is_refused_with_what_was_expected_and_found(text: str, message: str) -> None:
    with pytest.raises(WrongExpressionError) as error:
        check_expression(text)
    assert message in str(error.value)


@given(st.text(alphabet="ab'\"`\\-/*;()[] \n(select)sum.,r", max_size=60))
def test_no_text_is_anything_but_taken_or_refused(text: str) -> None:
    with suppress(WrongExpressionError):
        check_expression(text)
