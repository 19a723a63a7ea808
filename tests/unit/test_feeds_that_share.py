"""Which feeds may not be there together, and how a feed's file is found by the name in its text."""

from pathlib import Path
from typing import Any

import pytest

from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_claims import refuse_shared
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.files_for_dags import may_name


def feed(name: str = "orders", path: str = "/data/orders", group: str | None = None) -> dict[str, Any]:
    """Return a feed as its file says it."""
    kafka = {"topics": ["t"]} | ({"group": group} if group is not None else {})
    return {"name": name, "kafka": kafka, "sink": {"format": "parquet", "path": path}}


def share(first: Feed, second: Feed, environment: dict[str, str]) -> bool:
    """Return whether two feeds may not be there together, by the rule that reads both."""
    files = [FeedFile(Path("first.yaml"), first), FeedFile(Path("second.yaml"), second)]
    return any(file.error is not None for file in refuse_shared(files, environment))


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


DECODED = {"value": {"format": "json", "schema": "id int"}}
PARTED = {"partition_by": {"hour": "hour(kafka_timestamp)"}}
TABLE = {"format": "postgresql", "conn_id": "db", "table": "public.orders"}
ICEBERG = {"format": "iceberg", "catalog": "lake", "table": "public.orders"}


@pytest.mark.parametrize(
    ("mine", "others"),
    [
        (DECODED, "orders_dead_letters"),
        (DECODED, "orders_dead_letters/x"),
        ({"complete": {"by": "hour", "delay": "1h", "on_late": "dataset"}, "sink": PARTED}, "orders_late"),
        (DECODED | {"sink": TABLE}, "public.orders_dead_letters"),
        (DECODED | {"sink": ICEBERG}, "public.orders_dead_letters"),
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
        second["sink"] = first["sink"] | {"path": "b", "table": others}
    one, other = Feed.model_validate(first), Feed.model_validate(second)
    assert share(one, other, environment)
    assert share(other, one, environment)


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
    assert may_name(text, "orders")


def test_feeds_of_one_lake_with_one_owner_share_nothing() -> None:
    first, second = feed("orders", "/data/lake/orders", "a"), feed("refunds", "/data/lake/refunds", "b")
    one, other = Feed.model_validate(first), Feed.model_validate(second | {"airflow": {"owner": "data"}})
    assert not share(one, other, {"KAFKA_INGEST_DATA": "/data/lake"})


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


def test_other_places_in_a_store_are_other_outputs() -> None:
    first, *others = (
        Feed.model_validate(feed(name, path) | {"sink": {"format": "delta", "path": path}})
        for name, path in (("a", "s3://lake/orders"), ("b", "s3://pond/orders"), ("c", "s3://lake/orders2"))
    )
    assert not any(share(first, other, {}) for other in others)
