"""Spark SQL expressions of a feed file, checked without Spark: what is no expression of one record is refused.

Spark has the last word (:mod:`kafka_ingest.writing.shape`): it knows columns, types, and what functions are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

LONGEST: Final = 10_000

NEWER_AGGREGATES: Final = frozenset(
    {
        *("approx_top_k", "approx_top_k_accumulate", "approx_top_k_combine", "bitmap_and_agg", "measure"),
        *("theta_intersection_agg", "theta_sketch_agg", "theta_union_agg"),
        *(f"kll_{act}_agg_{kind}" for act in ("merge", "sketch") for kind in ("bigint", "double", "float")),
        *(f"tuple_{act}_agg_{of}" for act in ("intersection", "sketch", "union") for of in ("double", "integer")),
    }
)
"""Those of Spark 4.1 and 4.2."""

AGGREGATES: Final = NEWER_AGGREGATES | frozenset(
    {
        *("any", "any_value", "approx_count_distinct", "approx_percentile", "array_agg", "avg", "bit_and"),
        *("bit_or", "bit_xor", "bitmap_construct_agg", "bitmap_or_agg", "bool_and", "bool_or", "collect_list"),
        *("collect_set", "corr", "count", "count_if", "count_min_sketch", "covar_pop", "covar_samp", "every"),
        *("first", "first_value", "grouping", "grouping_id", "histogram_numeric", "hll_sketch_agg"),
        *("hll_union_agg", "kurtosis", "last", "last_value", "listagg", "max", "max_by", "mean", "median"),
        *("min", "min_by", "mode", "percentile", "percentile_approx", "percentile_cont", "percentile_disc"),
        *("regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx"),
        *("regr_sxy", "regr_syy", "schema_of_variant_agg", "skewness", "some", "std", "stddev", "stddev_pop"),
        *("stddev_samp", "string_agg", "sum", "try_avg", "try_sum", "var_pop", "var_samp", "variance"),
    }
)
"""Spark's functions over many records. The three groups are Spark's own; a test compares them with its registry."""

GENERATORS: Final = frozenset(
    {
        *("collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode"),
        *("posexplode_outer", "session_window", "sql_keywords", "stack", "variant_explode"),
        *("variant_explode_outer", "window"),
    }
)
"""Functions that make several rows of a record, or may."""

WINDOWS: Final = frozenset(
    {
        *("cume_dist", "dense_rank", "lag", "lead", "nth_value", "ntile", "percent_rank", "rank", "row_number"),
    }
)

CHANGING: Final = frozenset(
    {
        *("curdate", "current_catalog", "current_database", "current_date", "current_path", "current_schema"),
        *("current_time", "current_timestamp", "current_user", "input_file_block_length", "input_file_block_start"),
        *("input_file_name", "java_method", "localtimestamp", "monotonically_increasing_id", "now", "rand"),
        *("randn", "random", "randstr", "reflect", "session_user", "shuffle", "spark_partition_id"),
        *("try_reflect", "uniform", "user", "uuid", "version"),
    }
)
"""Functions whose values are others when the same record is read again, or that depend on who reads it."""

WITHOUT_PARENTHESES: Final = frozenset(
    {
        *("current_date", "current_time", "current_timestamp", "current_user", "localtimestamp"),
        *("session_user",),
    }
)
"""Those that are called by their name alone."""

TIME_WORDS: Final = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
TIME_OF_NOW: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark takes for a date or time, in place of one, perhaps with a time zone after it."""

OPENING: Final = {"(": ")", "[": "]"}
QUERIES: Final = frozenset({"from", "table", "values", "with"})
"""Words that may begin a query, after a parenthesis."""

TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
    | (?P<comment>--[^\r\n]*|/\*)
    | (?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<open_text>['"`])
    | (?P<word>\w+)
    | (?P<sign>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class WrongExpressionError(ValueError):
    """The text is no expression that can be used; the message says what was expected, and what was found."""


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an expression: a ``word``, a ``quoted`` name, a ``string`` or a ``sign``."""

    kind: str
    text: str

    @property
    def name(self) -> str:
        """What a word or a quoted name means, in small letters; empty for others."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`").lower()
        return self.text.lower() if self.kind == "word" else ""


def check_expression(text: str) -> None:
    """Raise WrongExpressionError unless a text may be one expression over the columns of one record."""
    if len(text) > LONGEST:
        raise WrongExpressionError(f"expected at most {LONGEST:,} characters, found {len(text):,}")
    tokens = list(tokens_of(text))
    if not tokens:
        raise WrongExpressionError(f"expected a Spark SQL expression, found {text[:100]!r}")
    check_brackets(tokens)
    end = Token("end", "")
    for before, token, after, then in zip(
        [end, *tokens], tokens, [*tokens[1:], end], [*tokens[2:], end, end], strict=False
    ):
        if token.text == ";":
            raise WrongExpressionError("expected one expression, found ';' after it")
        if found := (
            query_at(before, token, after, then)
            or function_at(before, token, after)
            or columns_or_time_at(before, token, after)
        ):
            raise WrongExpressionError(f"expected an expression over the columns of one record, found {found}")


def query_at(before: Token, token: Token, after: Token, then: Token) -> str | None:
    """Return in words which sub-query begins with a token."""
    word = token.text.lower() if token.kind == "word" and before.text != "." else ""
    if word == "select" and (before.text in {"", "("} or after.kind in {"word", "quoted", "string"}):
        return "a sub-query (SELECT)"
    starts = after.kind in {"word", "quoted", "string"} or (after.text == "(" and word in {"values", "from"})
    is_function = word == "values" and then.text == "." and after.text == "("
    if word in QUERIES and before.text == "(" and starts and not is_function:
        return f"a sub-query ({word.upper()})"
    return None


def function_at(before: Token, token: Token, after: Token) -> str | None:
    """Return in words which function that cannot be used is called by a token."""
    name = token.name
    if token.kind == "word" and name == "over" and before.text == ")" and (after.text == "(" or after.name):
        return "a window (OVER)"
    is_called = after.text == "(" and not (name in {"any", "some"} and before.name in {"like", "ilike"})
    if not is_called and not (token.kind == "word" and name in WITHOUT_PARENTHESES and before.text != "."):
        return None
    for names, kind in (
        (AGGREGATES, "which is computed over many records"),
        (GENERATORS, "which makes several rows of a record"),
        (WINDOWS, "which is computed over many records"),
        (CHANGING, "whose value is another one when the record is read again"),
    ):
        if name in names:
            return f"{name}, {kind}"
    return None


def columns_or_time_at(before: Token, token: Token, after: Token) -> str | None:
    """Return in words which token stands for all columns, or for the time at which it is read."""
    if token.text == "*" and before.text in {"", "(", ","}:
        return "* for all columns: name them"
    is_time = token.kind == "word" and token.name in TIME_WORDS and after.kind == "string"
    if is_time and TIME_OF_NOW.match(after.text.lstrip("rR")[1:]):
        return f"{token.text} {after.text}, whose value is another one when the record is read again"
    return None


def check_brackets(tokens: list[Token]) -> None:
    """Raise WrongExpressionError unless each bracket is closed."""
    expected: list[str] = []
    for token in tokens:
        if token.kind != "sign":
            continue
        if token.text in OPENING:
            expected.append(OPENING[token.text])
        elif token.text in OPENING.values() and (not expected or token.text != expected.pop()):
            raise WrongExpressionError(f"expected brackets in pairs, found a {token.text!r} too many")
    if expected:
        raise WrongExpressionError(f"expected {expected[-1]!r}, found the end")


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of an expression as Spark's SqlBaseLexer.g4 finds them, without spaces and comments."""
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:  # pragma: no cover - the last alternative matches anything
            return
        kind, piece = str(found.lastgroup), found[0]
        if kind == "open_text":
            raise WrongExpressionError(f"expected {piece} once more, at the end of what it begins, found the end")
        at = end_of_comment(text, at) if piece == "/*" else found.end()
        if kind not in {"space", "comment"}:
            yield Token(kind, piece)


def end_of_comment(text: str, begin: int) -> int:
    """Return where a comment ends that begins with ``/*``; there may be others in it."""
    depth = 0
    for found in re.finditer(r"/\*|\*/", text[begin:]):
        depth += 1 if found[0] == "/*" else -1
        if not depth:
            return begin + found.end()
    raise WrongExpressionError("expected */ at the end of a comment, found the end")
