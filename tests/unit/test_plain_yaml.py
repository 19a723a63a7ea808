"""Plain YAML: what is a number, a word or a text, and what no text may do, however it is written."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kafka_ingest.settings.plain_yaml import MAX_BYTES, NotPlainError, read_plain_yaml

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5_000", -5000),
        ("0", 0),
        ("true", True),
        ("Yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("'no'", "no"),
        # What YAML 1.1 reads as something else than stands there.
        ("010", "010"),
        ("0x1f", "0x1f"),
        ("12:30", "12:30"),
        ("1.10", "1.10"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        ("2026-01-01", "2026-01-01"),
        ("2026-13-45", "2026-13-45"),
        ("=", "="),
        ("{a: &x [1], b: *x}", {"a": [1], "b": [1]}),
        ("{1: a, '1': b}", {1: "a", "1": "b"}),
    ],
)
def test_a_value_is_what_stands_there(text: str, value: object) -> None:
    found = read_plain_yaml(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!bool abc", "line 1: expected plain values, found the tag 'tag:yaml.org,2002:bool'"),
        ("!!python/object/apply:os.getcwd []", "expected plain values, found the tag"),
        ("a: ! b", "expected plain values, found the tag"),
        ("a: " + "9" * 4000, "expected a number of at most 40 digits, found 4,000"),
        ("a: &a [*a]", r"alias \*a names nothing that stands before it"),
        ("a: 1\nb: 2\na: 3", "line 3: key 'a' comes twice"),
        ("? [a]\n: b", "expected a text as key, found list"),
        ("no: b", "expected a text as key, found bool, which YAML makes of an unquoted word; write it in quotes"),
        ("<<: {a: b}", "merge keys"),
        ("[" * 100_000, "expected at most 20 levels, found more"),
        ("- " * 100_000, "expected at most 20 levels, found more"),
        ("? " * 100_000, "expected at most 20 levels, found more"),
        (BOMB, "expected at most 100,000 values and 1,048,576 characters, aliases written out"),
        (f"a: &a {'x' * 1000}\nb: [{','.join(['*a'] * 1100)}]", "aliases written out"),
        ("x" * (MAX_BYTES + 1), "expected at most 1,048,576 characters, found 1,048,577"),
        ('"\\0"', r"the character U\+0000"),
        ("a: 1\n---\nb: 1", "expected one document"),
        ("a: [", "while parsing"),
    ],
)
def test_what_is_not_plain_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(NotPlainError, match=message):
        read_plain_yaml(text)


def values_in_all(last: int) -> str:
    """Return a list that holds a hundred lists of 999 values, all but one by its name, and some values more."""
    return f"- &a [{','.join('x' * 998)}]\n" + "- *a\n" * 99 + "- x\n" * last


def test_a_file_may_hold_exactly_as_many_values_as_is_said() -> None:
    assert len(read_plain_yaml(values_in_all(99))) == 199
    with pytest.raises(NotPlainError, match="expected at most 100,000 values"):
        read_plain_yaml(values_in_all(100))


def test_the_offsets_of_fifty_thousand_partitions_are_not_too_many() -> None:
    offsets = {number: 10**9 + number for number in range(49_000)}
    text = "orders:\n" + "".join(f"  {number}: {offset}\n" for number, offset in offsets.items())
    assert read_plain_yaml(text) == {"orders": offsets}


plain_texts = st.text(st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="\ufeff\ufffe\uffff"))
plain_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | plain_texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers() | plain_texts, inner, max_size=4),
    max_leaves=20,
)


@given(plain_values)
def test_plain_values_are_read_as_any_yaml_loader_reads_them(value: Any) -> None:
    text = yaml.safe_dump(value, allow_unicode=True)
    if "<<" in text:
        return
    assert read_plain_yaml(text) == yaml.safe_load(text)
