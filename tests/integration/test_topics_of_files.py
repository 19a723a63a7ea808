"""One file for many topics, by the command line: found, run by its fleet and by name, and stopped one by one."""

import time
from itertools import count

from tests.quick_project import QuickProject

from order_events import PARTITIONS, create_topic, order_events, produce

FEED = {"name": "shop-{table}", "start": "latest", "sink": {"format": "parquet", "path": "shop/{table}"}}


def test_topics_become_feeds_which_run_by_their_fleet_and_by_name(quick: QuickProject, servers: str, name: str) -> None:
    for table in ("orders", "refunds"):
        create_topic(servers, f"{name}.{table}", PARTITIONS)
    quick.write_shop(name, feed=FEED, overrides={f"{name}.audit": None})

    shown = quick.answer("feeds", "shop", "--json")
    [found] = shown["files"]
    assert [each["feed"] for each in found["new"]] == ["shop-orders", "shop-refunds"]
    assert found["unknown_overrides"] == [f"{name}.audit"]
    assert quick.kafka_ingest("status", "shop-orders").exit_code == 2, "a dry run remembers nothing"

    quick.answer("run", "--fleet", "shop", "--json")
    produce(servers, f"{name}.orders", [*order_events(50, seed=1)])
    create_topic(servers, f"{name}.later", PARTITIONS)
    produce(servers, f"{name}.later", order_events(30, seed=2, timestamps_ms=count(int(time.time() * 1000))))
    document = quick.answer("run", "--fleet", "shop", "--json")
    rows = {each["feed"]: sum(batch["rows"] for batch in each["batches"]) for each in document["feeds"]}
    assert rows == {"shop-later": 30, "shop-orders": 50, "shop-refunds": 0}

    produce(servers, f"{name}.orders", [*order_events(5, seed=3)])
    assert [batch["rows"] for batch in quick.run("shop-orders")] == [5]
    assert quick.status("shop-orders")["feed"] == "shop-orders"

    create_topic(servers, f"{name}.Orders", PARTITIONS)
    quick.write_shop(name, feed=FEED, overrides={f"{name}.refunds": None})
    again = quick.kafka_ingest("run", "--fleet", "shop", "--json")
    feeds = {each["feed"]: each["error"] for each in again.document["feeds"]}
    assert again.exit_code == 2
    assert [feed for feed, error in feeds.items() if error is None] == ["shop-later", "shop-orders"]
    assert "the control tables have feed shop-orders" in feeds[f"shop.yaml#{name}.Orders"]["message"]
    assert "overrides leave the topic out now" in quick.kafka_ingest("run", "shop-refunds").stderr
