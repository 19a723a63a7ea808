"""Searching the texts of feed files finds every file that may matter, however YAML writes it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_claims import may_name, may_share, refuse_shared
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.plain_yaml import read_plain_yaml


def feed(name: str = "orders", path: str = "/data/orders", group: str | None = None) -> dict[str, Any]:
    """Return a feed as its file says it."""
    kafka = {"topics": ["t"]} | ({"group": group} if group is not None else {})
    return {"name": name, "kafka": kafka, "sink": {"format": "parquet", "path": path}}


def share(first: Feed, second: Feed, environment: dict[str, str]) -> bool:
    """Return whether two feeds may not be there together, by the rule that reads both."""
    files = [FeedFile(Path("first.yaml"), first), FeedFile(Path("second.yaml"), second)]
    return any(file.error is not None for file in refuse_shared(files, environment))


names = st.sampled_from(["orders", "orders.eu", "data", "eu", "a-b", "1"])
groups = st.none() | st.sampled_from(["orders", "my group", "my  group", "it's", "''", "grüße", "a\nb", ":g", "g "])
parts = st.sampled_from(
    ["data", "lake", "orders", "orders.kafka-ingest", ".kafka-ingest", "my data", "it's", ".", "x", "+", "'"]
)
paths = st.tuples(
    st.sampled_from(["", "/", "./", "//"]), st.lists(parts, min_size=1, max_size=4), st.sampled_from("/ ")
)
feeds = st.builds(feed, names, paths.map(lambda drawn: drawn[0] + "/".join(drawn[1]) + drawn[2].strip()), groups)
roots = st.sampled_from(["", "/", "/data", "/data/lake", "/data/orders", "/data/lake/..", "data", "/x/./data"])


def usable(document: dict[str, Any]) -> bool:
    try:
        Feed.model_validate(document)
    except ValueError:
        return False
    return True


@settings(max_examples=settings.default.max_examples * 5, deadline=None)
@given(
    feeds.filter(usable),
    feeds.filter(usable),
    roots,
    st.sampled_from([None, "'", '"', "|", ">"]),
    st.booleans(),
    st.sampled_from([1, 80]),
    st.booleans(),
)
def test_no_file_that_shares_something_is_missed(
    mine: dict[str, Any],
    other: dict[str, Any],
    root: str,
    style: str | None,
    flow: bool,  # noqa: FBT001 - drawn
    width: int,
    unicode: bool,  # noqa: FBT001 - drawn
) -> None:
    text = yaml.dump(other, default_style=style, default_flow_style=flow, width=width, allow_unicode=unicode)
    environment = {"KAFKA_INGEST_DATA": root}
    first = Feed.model_validate(mine)
    second = Feed.model_validate(other)
    if style is None:
        assert read_plain_yaml(text) == other
    if share(first, second, environment):
        assert may_share(first, environment)(text)
    assert not (first.name == second.name and not may_name(first.name)(text))


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        ("/data/orders", "/data/orders"),
        ("/data/orders", "//data/./orders/"),
        ("/data/orders", "orders"),
        ("orders", "/data/orders"),
        ("/data/orders/eu", "/data/orders"),
        ("/data/orders/eu", "orders"),
        ("/data/orders", "orders/eu"),
        ("/data/orders", "/data/orders.kafka-ingest"),
        ("/data/orders", "orders.kafka-ingest/x"),
        ("/data/orders.kafka-ingest", "/data/orders"),
        ("/data/orders.kafka-ingest/x", "orders"),
        ("/x/y", "/x"),
        ("/data", "anything"),
    ],
)
def test_each_way_in_which_two_outputs_meet_is_found(mine: str, others: str) -> None:
    environment = {"KAFKA_INGEST_DATA": "/data"}
    first, second = Feed.model_validate(feed("a", mine)), Feed.model_validate(feed("b", others))
    assert share(first, second, environment)
    assert may_share(first, environment)(yaml.safe_dump(feed("b", others)))


DECODED = {"value": {"format": "json", "schema": "id int"}}
PARTED = {"partition_by": {"hour": "hour(kafka_timestamp)"}}
TABLE = {"format": "postgresql", "conn_id": "db", "table": "public.orders"}


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        (DECODED, "orders_dead_letters"),
        (DECODED, "orders_dead_letters/x"),
        ({"complete": {"by": "hour", "delay": "1h", "on_late": "dataset"}, "sink": PARTED}, "orders_late"),
        (DECODED | {"sink": TABLE}, "public.orders_dead_letters"),
        ({"sink": TABLE}, "public.orders_kafka_batches"),
    ],
)
def test_an_output_that_has_the_name_of_what_lies_beside_another_is_found_from_both_sides(
    mine: dict[str, Any], others: str
) -> None:
    environment = {"KAFKA_INGEST_DATA": "/data"}
    first = feed("a", "orders") | mine
    second = feed("b", others)
    first["sink"] = feed("a", "orders")["sink"] | mine.get("sink", {})
    if "table" in first["sink"]:
        second["sink"] = TABLE | {"path": "b", "table": others}
    one, other = Feed.model_validate(first), Feed.model_validate(second)
    assert share(one, other, environment)
    assert may_share(one, environment)(yaml.safe_dump(second))
    assert may_share(other, environment)(yaml.safe_dump(first))


@pytest.mark.parametrize(
    "text",
    [
        "name: orders",
        "{name: orders}",
        '{"name":"orders"}',
        "name: &it orders\n",
        "name: 'orders'",
        'name: "\\x6frders"',
        "name: >-\n  orders\n",
        "? name\n: orders",
        "[orders,x]",
    ],
)
def test_a_name_is_found_however_it_is_written(text: str) -> None:
    assert may_name("orders")(text)


@pytest.mark.parametrize("text", ["name: orders-eu", "name: eu.orders", "topics: [orders_late]", "name: my-orders"])
def test_a_longer_name_is_another(text: str) -> None:
    assert not may_name("orders")(text)


def test_feeds_of_one_lake_with_one_owner_do_not_seem_to_share_anything() -> None:
    first, second = feed("orders", "/data/lake/orders", "a"), feed("refunds", "/data/lake/refunds", "b")
    text = yaml.safe_dump(second | {"airflow": {"owner": "data", "tags": ["lake"]}})
    assert not may_share(Feed.model_validate(first), {"KAFKA_INGEST_DATA": "/data/lake"})(text)


@pytest.mark.parametrize(
    "theirs",
    [
        "s3://lake/raw/orders",
        "s3://another@lake/raw/orders",
        "s3://lake/raw/orders/eu",
        "s3://another@lake/raw",
        "s3://lake/raw/orders.kafka-ingest",
        "s3://lake/raw/orders.kafka-ingest/staging",
    ],
)
@pytest.mark.parametrize("root", ["", "/data"])
def test_one_place_in_a_store_is_one_output_whatever_connections_lead_there(theirs: str, root: str) -> None:
    environment = {"KAFKA_INGEST_DATA": root}
    first, second = (
        Feed.model_validate(feed(name, path) | {"sink": {"format": "delta", "path": path}})
        for name, path in (("a", "s3://aws_lake@lake/raw/orders"), ("b", theirs))
    )
    assert share(first, second, environment)
    assert may_share(first, environment)(f"name: b\nsink: {{format: delta, path: '{theirs}'}}")


@pytest.mark.parametrize("connection", ["", "azure_lake@"])
@pytest.mark.parametrize("container", ["lake", "pond"])
def test_azures_container_and_account_are_the_place_whatever_connections_lead_there(
    connection: str, container: str
) -> None:
    mine, theirs = (
        f"abfss://{before}@shop.dfs.core.windows.net/orders" for before in ("another@lake", f"{connection}{container}")
    )
    first, second = (
        Feed.model_validate(feed(name, path) | {"sink": {"format": "delta", "path": path}})
        for name, path in (("a", mine), ("b", theirs))
    )
    assert share(first, second, {}) is (container == "lake")
    assert may_share(first, {})(f"name: b\nsink: {{format: delta, path: '{theirs}'}}") is (container == "lake")


def test_other_places_in_a_store_are_other_outputs() -> None:
    first, *others = (
        Feed.model_validate(feed(name, path) | {"sink": {"format": "delta", "path": path}})
        for name, path in (("a", "s3://lake/orders"), ("b", "s3://pond/orders"), ("c", "s3://lake/orders2"))
    )
    assert not any(share(first, other, {}) for other in others)
