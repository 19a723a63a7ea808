"""A producer names topics, and a pattern is asked of every name: none keeps a plan at work for ever."""

import pytest

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.model import topics as topic_patterns
from kafka_ingest.model.topics import is_selected, selection
from kafka_ingest.settings.feed import a_pattern


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", r"([a-z]+-?)+\.x", "(.*)*(.*)*z"])
def test_a_name_that_pythons_own_expressions_would_try_for_years_is_decided(pattern: str) -> None:
    assert not is_selected("a" * 249, pattern)


def test_a_name_that_is_not_decided_in_time_stops_the_plan_with_the_pattern_and_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_patterns, "MATCHED_WITHIN_S", 0.01)
    with pytest.raises(InvalidFeedError, match=r"pattern '\(a\|aa\)\+' matches topic 'aaa.*tries too many ways"):
        is_selected("a" * 248 + "b", "(a|aa)+")


def test_groups_are_those_of_the_match_and_kafkas_own_topics_and_marks_are_never_selected() -> None:
    found = selection("shop.orders", r"shop\.(?P<table>[a-z_]+)")
    assert found is not None
    assert found.groupdict() == {"table": "orders"}
    assert not any(is_selected(each, ".*") for each in ("__consumer_offsets", "orders.kafka_ingest"))
    assert not is_selected("shop.orders.old", "shop.orders")


@pytest.mark.parametrize(
    "pattern",
    ["orders-{e}", "orders-{eu,us}", "(?:orders){e}", r"orders\\{i}", "{env}-orders", "[[:alpha:]_-]+", "shop{e"],
)
def test_what_means_something_else_than_to_python_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="expected a regular expression"):
        a_pattern(pattern)


@pytest.mark.parametrize("pattern", ["a{2}", "a{2,}", "a{,2}", "a{2,3}", r"shop\{x\}", "[a-z]{1,20}", r"(?P<t>[a-z]+)"])
def test_repetitions_and_escaped_braces_are_taken(pattern: str) -> None:
    a_pattern(pattern)


def test_a_pattern_of_an_earlier_plan_that_is_none_here_is_named() -> None:
    with pytest.raises(InvalidFeedError, match=r"expected a regular expression for topics, found 'shop\{e'"):
        is_selected("shop", "shop{e")
