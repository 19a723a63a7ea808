"""``for_each_topic``: what a file comes to, and that what is wrong with one topic stops its feed alone."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafka_ingest.model.topics import FilePlan, TopicMemory
from kafka_ingest.settings.feed_file import FeedFile, read_feed_file
from kafka_ingest.settings.topic_feeds import Others, TopicFeeds, all_feeds, topic_feeds

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
PATTERN = r"for_each_topic: 'shop\.(?P<table>.*)'"
SHOP = """
fleet: shop
schedule: "*/5 * * * *"
{pattern}
feed:
  name: "shop-{{table}}"
  sink: {sink}
  {more}
overrides: {overrides}
"""
ISSUE = """
fleet: shop
schedule: "*/5 * * * *"
for_each_topic: "shop\\\\.(?P<table>[a-z_]+)"
feed:
  name: "shop-{table}"
  sink: {format: iceberg, catalog: lake, table: "shop.{table}"}
  value: {format: avro, registry: schemas}
overrides: {"shop.orders": {limits: {max_records: 1_000_000}}, "shop.audit": null}
"""
PARQUET = '{format: parquet, path: "/data/shop/{table}"}'


class Folder:
    """A folder of feed files, and what plans remember of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.memory = TopicMemory()

    def write(self, text: str, name: str = "shop") -> Path:
        """Write a file."""
        path = self.path / f"{name}.yaml"
        path.write_text(text)
        return path

    def shop(
        self, name: str = "shop", *, pattern: str = PATTERN, sink: str = PARQUET, more: str = "", overrides: str = "{}"
    ) -> Path:
        """Write a file for the topics of a shop."""
        return self.write(SHOP.format(pattern=pattern, sink=sink, more=more, overrides=overrides), name)

    def files(self) -> list[FeedFile]:
        """Return all files."""
        return [read_feed_file(path) for path in sorted(self.path.glob("[!_]*.yaml"))]

    def comes_to(self, *topics: str, name: str = "shop", ids: Mapping[str, str | None] | None = None) -> TopicFeeds:
        """Return what a file comes to with these topics there."""
        file = read_feed_file(self.path / f"{name}.yaml")
        assert file.topics is not None, file.error
        there = {topic: f"id-{topic}" for topic in topics} | dict(ids or {})
        return topic_feeds(file, there, self.memory, Others(self.path, self.files()), {})

    def planned(self, *topics: str, name: str = "shop", at: datetime = NOON) -> TopicFeeds:
        """Return the same, and remember it, with feeds that were planned."""
        found = self.comes_to(*topics, name=name)
        file = f"{name}.yaml"
        pattern = read_feed_file(self.path / file).topics
        assert pattern is not None
        kept = [each for each in self.memory.seen if each.file != file]
        plans = [each for each in self.memory.plans if each.file != file]
        feeds = {each.feed: frozenset({each.topic}) for each in found.seen if each.feed is not None}
        self.memory = TopicMemory(
            (*plans, FilePlan(file, at, pattern.pattern)),
            (*kept, *found.seen),
            tuple((dict(self.memory.planned) | feeds).items()),
        )
        return found

    def error(self, name: str = "shop") -> str:
        """Return why a file cannot be used."""
        return str(read_feed_file(self.path / f"{name}.yaml").error)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An empty folder."""
    return Folder(tmp_path)


def names(found: TopicFeeds) -> dict[str, str]:
    """Return the names of the feeds that can be used, by topic."""
    return {each.feed.kafka.listed[0].name: each.feed.name for each in found.files if each.feed is not None}


def test_each_topic_that_the_pattern_matches_as_a_whole_becomes_a_feed(folder: Folder) -> None:
    folder.shop()
    found = folder.comes_to("shop.orders", "shop.refunds", "myshop.orders", "shop", "__shop.x", "shop.a.kafka_ingest")
    assert names(found) == {"shop.orders": "shop-orders", "shop.refunds": "shop-refunds"}
    assert (found.new, found.stopped, found.left) == (["shop.orders", "shop.refunds"], {}, {})
    orders = found.files[0].feed
    assert orders is not None
    assert (orders.fleet, orders.schedule, orders.sink.path) == ("shop", "*/5 * * * *", "/data/shop/orders")
    assert [each.path.name for each in found.files] == ["shop.yaml#shop.orders", "shop.yaml#shop.refunds"]


def test_a_topics_output_is_called_as_its_feed_where_the_file_names_none(folder: Folder) -> None:
    folder.write(ISSUE)
    [orders] = [each.feed for each in folder.comes_to("shop.orders", "shop.audit").files]
    assert orders is not None
    assert (orders.sink.path, orders.limits.max_records) == ("shop-orders", 1_000_000)
    assert orders.sink.address == {"catalog": "lake", "table": "shop.orders"}


def test_a_topic_of_which_only_the_beginning_matches_is_none(folder: Folder) -> None:
    folder.shop(pattern=r"for_each_topic: 'shop\.(?P<table>[a-z]+)'")
    assert names(folder.comes_to("shop.orders", "shop.orders.v2")) == {"shop.orders": "shop-orders"}


def test_an_override_wins_key_by_key_over_the_feed_and_this_over_the_folders_defaults(folder: Folder) -> None:
    folder.write("kafka: {conn_id: eu}\nlimits: {max_records: 7, max_records_per_partition: 3}\n", "_defaults")
    folder.shop(
        more="limits: {max_records: 9}\n  alerts: {lag: 5}",
        overrides='{shop.orders: {limits: {max_records: 1}, alerts: null, name: "first-{topic}"}}',
    )
    orders, refunds = (each.feed for each in folder.comes_to("shop.orders", "shop.refunds").files)
    assert orders is not None
    assert refunds is not None
    assert (orders.name, orders.alerts, orders.kafka.conn_id) == ("first-shop.orders", None, "eu")
    assert (orders.limits.max_records, orders.limits.max_records_per_partition) == (1, 3)
    assert (refunds.limits.max_records, refunds.limits.max_records_per_partition) == (9, 3)
    assert refunds.alerts is not None


def test_null_leaves_a_topic_out_and_an_override_that_meets_no_topic_is_shown(folder: Folder) -> None:
    folder.shop(overrides="{shop.audit: null, shop.gone: {alerts: null}, other: {alerts: null}}")
    found = folder.comes_to("shop.audit", "shop.orders", "other")
    assert (names(found), found.left_out) == ({"shop.orders": "shop-orders"}, ["shop.audit"])
    assert found.unknown_overrides == ["other", "shop.gone"]


def test_a_text_that_is_no_placeholder_stays_as_it_is(folder: Folder) -> None:
    folder.shop(more="""where: "topic RLIKE '^[a-z]{2}'" """)
    feed = folder.comes_to("shop.a").files[0].feed
    assert feed is not None
    assert feed.where == "topic RLIKE '^[a-z]{2}'"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pattern": "for_each_topic: 'shop.('"}, "for_each_topic: expected a regular expression"),
        ({"pattern": "for_each_topic: [a]"}, "for_each_topic: expected a regular expression, found list"),
        ({"pattern": r"for_each_topic: 'a\.(?P<topic>b)'"}, "groups with other names than topic"),
        ({"more": "transform: '{tabel}'"}, "expected placeholders {topic}, {table}, found {tabel}"),
        ({"more": "kafka: {topics: [a]}"}, "feed.kafka.topics: expected it to be the same in all feeds of the file"),
        ({"more": "fleet: b"}, "feed.fleet: expected it to be the same"),
        ({"more": "limts: {}"}, "limts: unknown key; did you mean limits?"),
        ({"overrides": "[a]"}, "overrides: expected a mapping by topic, found list"),
        ({"overrides": "{'a b': null}"}, "overrides: expected a topic's name, found 'a b'"),
        ({"overrides": "{a: 5}"}, "overrides.a: expected a mapping, or null for a topic without a feed, found 5"),
        ({"overrides": "{a: {kafka: {conn_id: b}}}"}, "overrides.a.kafka.conn_id: expected it to be the same"),
        ({"overrides": "{}\nsink: {}"}, "sink: unknown key; beside for_each_topic expected feed, fleet, overrides"),
    ],
)
def test_what_is_wrong_with_a_file_is_its_own_error(folder: Folder, changed: dict[str, str], why: str) -> None:
    folder.shop(**changed)  # type: ignore[arg-type]
    assert why in folder.error()


def test_a_file_needs_a_fleet_a_feed_and_a_name_that_differs(folder: Folder) -> None:
    folder.write("for_each_topic: a.*\nfeed: {name: '{topic}', sink: {format: parquet, path: '/d/{topic}'}}")
    assert "fleet: expected a fleet" in folder.error()
    folder.write("for_each_topic: a.*\nfleet: f")
    assert "feed: expected a mapping" in folder.error()
    folder.write("for_each_topic: a.*\nfleet: f\nfeed: {name: a, sink: {format: parquet, path: '/d/{topic}'}}")
    assert "feed.name: expected a placeholder in it" in folder.error()
    folder.write("for_each_topic: a.*\nfleet: 'f-{topic}'\nfeed: {name: '{topic}', sink: {format: parquet}}")
    assert "fleet: expected it to be the same in all feeds of the file" in folder.error()


def test_a_topic_that_gives_no_name_or_place_of_a_feed_stops_alone(folder: Folder) -> None:
    folder.shop(pattern=r"for_each_topic: 'shop(?P<x>\.)?(?P<table>.*)'", more='airflow: {tags: ["{x}"]}')
    found = folder.comes_to("shop.orders", "shop..", "shop...", "shop.", "shopping")
    assert names(found) == {}
    assert "expected {x} to be letters or digits of the topic's name, found '.'" in found.stopped["shop.orders"]
    folder.shop()
    found = folder.comes_to("shop.orders", "shop..", "shop...", "shop.", f"shop.{'a' * 240}")
    assert names(found) == {"shop.orders": "shop-orders"}
    assert "found '..'" in found.stopped["shop..."]
    assert "found no part of the topic's name" in found.stopped["shop."]
    assert "expected up to 200 letters" in found.stopped[f"shop.{'a' * 240}"]
    assert [each.name for each in found.files if each.error is not None] == [None] * 4


def test_the_name_of_the_fleet_or_of_a_project_dag_stops_that_feed(folder: Folder) -> None:
    folder.shop(overrides="{shop.a: {name: shop}, shop.b: {name: maintain_feeds}, shop.c: {airflow: {pool: x}}}")
    found = folder.comes_to("shop.a", "shop.b", "shop.c", "shop.d")
    assert names(found) == {"shop.d": "shop-d"}
    assert "expected a fleet whose name no feed has" in found.stopped["shop.a"]
    assert "not one of the project's own DAGs" in found.stopped["shop.b"]
    assert "expected airflow.pool 'default_pool'" in found.stopped["shop.c"]


def test_two_new_topics_that_differ_in_case_alone_both_stop_and_a_known_one_continues(folder: Folder) -> None:
    folder.shop()
    found = folder.comes_to("shop.Orders", "shop.orders", "shop.refunds")
    assert (names(found), sorted(found.stopped)) == ({"shop.refunds": "shop-refunds"}, ["shop.Orders", "shop.orders"])
    assert "by the case of its letters alone" in found.stopped["shop.orders"]
    folder.planned("shop.orders")
    found = folder.comes_to("shop.Orders", "shop.orders")
    assert (names(found), sorted(found.stopped)) == ({"shop.orders": "shop-orders"}, ["shop.Orders"])


def test_of_two_topics_with_one_output_the_known_one_continues(folder: Folder) -> None:
    folder.shop(overrides="{shop.b: {sink: {path: /data/shop/orders}}}")
    assert sorted(folder.comes_to("shop.orders", "shop.b").stopped) == ["shop.b", "shop.orders"]
    folder.planned("shop.orders")
    found = folder.comes_to("shop.orders", "shop.b")
    assert (names(found), list(found.stopped)) == ({"shop.orders": "shop-orders"}, ["shop.b"])
    assert "sink.path '/data/shop/orders' is also that of" in found.stopped["shop.b"]


def test_a_feed_of_another_file_keeps_its_name_and_its_output(folder: Folder) -> None:
    folder.shop()
    of_one = "{{name: {}, kafka: {{topics: [x]}}, sink: {{format: parquet, path: {}}}}}"
    folder.write(of_one.format("shop-orders", "/data/else"), "one")
    folder.write(of_one.format("two", "/data/SHOP/refunds"), "two")
    found = folder.comes_to("shop.orders", "shop.refunds", "shop.rest")
    assert names(found) == {"shop.rest": "shop-rest"}
    assert "name 'shop-orders' is also that of" in found.stopped["shop.orders"]
    assert "two.yaml" in found.stopped["shop.refunds"]


def test_a_name_that_the_control_tables_know_of_another_topic_stops(folder: Folder) -> None:
    folder.shop()
    folder.memory = TopicMemory(
        planned=(("shop-orders", frozenset({"old"})), ("Shop-refunds", frozenset()), ("shop-x", frozenset({"shop.x"})))
    )
    found = folder.comes_to("shop.orders", "shop.refunds", "shop.x")
    assert names(found) == {"shop.x": "shop-x"}, "a feed that had a file of its own, with the same topic, goes on"
    assert "the control tables have feed shop-orders of old" in found.stopped["shop.orders"]
    assert "the control tables have feed Shop-refunds" in found.stopped["shop.refunds"]


def test_an_edited_pattern_neither_loses_nor_doubles_a_feed(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders", "shop.refunds")
    folder.shop(pattern=r"for_each_topic: 'shop\.(?P<table>o.*)'")
    found = folder.comes_to("shop.orders", "shop.refunds")
    assert (names(found), found.known, found.new) == ({"shop.orders": "shop-orders"}, ["shop.orders"], [])
    assert list(found.left) == ["shop.refunds"]
    [held] = [each for each in found.files if each.error is not None]
    assert held.name == "shop-refunds"
    assert "feed shop-refunds of topic shop.refunds is held" in str(held.error)
    assert [each.feed for each in found.seen] == ["shop-orders", "shop-refunds"]

    folder.shop(pattern=r"for_each_topic: '(?P<table>shop\.o.*)'")
    found = folder.comes_to("shop.orders")
    assert names(found) == {}
    assert "expected the feed's name to stay 'shop-orders', found 'shop-shop.orders'" in found.stopped["shop.orders"]
    assert [each.feed for each in found.seen] == ["shop-orders", "shop-refunds"]


def test_a_feed_that_was_renamed_in_the_control_tables_gets_its_new_name(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders")
    folder.memory = replace(folder.memory, planned=(("first", frozenset({"shop.orders"})),))
    folder.shop(overrides="{shop.orders: {name: first}}")
    found = folder.comes_to("shop.orders")
    assert (names(found), found.known) == ({"shop.orders": "first"}, ["shop.orders"])
    assert [each.feed for each in found.seen] == ["first"]


def test_a_topic_that_is_gone_or_made_again_stays_its_feed_which_plans_decide_about(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders", "shop.refunds")
    found = folder.comes_to(ids={"shop.refunds": "another"})
    assert found.known == ["shop.orders", "shop.refunds"]
    assert (found.gone, found.made_again) == (["shop.orders"], ["shop.refunds"])
    assert [(each.topic, each.topic_id) for each in found.seen] == [
        ("shop.orders", "id-shop.orders"),
        ("shop.refunds", "another"),
    ]


def test_a_topic_that_two_files_match_stops_in_both_or_in_the_one_that_does_not_know_it(folder: Folder) -> None:
    folder.shop()
    folder.shop("two", pattern="for_each_topic: '(?P<table>shop.*)'", sink='{format: parquet, path: "/b/{table}"}')
    assert (
        "expected a topic that one file matches, found that two.yaml matches it too"
        in (folder.comes_to("shop.orders").stopped["shop.orders"])
    )
    assert list(folder.comes_to("shop.orders", "shopping", name="two").stopped) == ["shop.orders"]
    (folder.path / "two.yaml").rename(folder.path / "two.txt")
    folder.planned("shop.orders")
    (folder.path / "two.txt").rename(folder.path / "two.yaml")
    assert names(folder.comes_to("shop.orders")) == {"shop.orders": "shop-orders"}
    stopped = folder.comes_to("shop.orders", "shopping", name="two").stopped
    assert "where it is feed shop-orders" in stopped["shop.orders"]
    folder.shop(overrides="{shop.orders: null}")
    assert names(folder.comes_to("shop.orders", name="two")) == {"shop.orders": "shop-shop.orders"}


def test_a_file_with_another_name_takes_over_what_it_came_to(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders", "shop.refunds")
    (folder.path / "shop.yaml").unlink()
    folder.shop("store", pattern=r"for_each_topic: 'shop\.(?P<table>o.*)'")
    found = folder.comes_to("shop.orders", "shop.refunds", name="store")
    assert (found.known, found.new, found.left) == (["shop.orders"], [], {})
    folder.shop("store", pattern=r"for_each_topic: '(?P<table>shop\.o.*)'")
    assert "name to stay 'shop-orders'" in folder.comes_to("shop.orders", name="store").stopped["shop.orders"]


def test_what_a_renamed_file_has_taken_over_is_its_own_alone(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders", "shop.refunds")
    (folder.path / "shop.yaml").rename(folder.path / "store.yaml")
    assert folder.planned("shop.orders", "shop.refunds", name="store").known == ["shop.orders", "shop.refunds"]
    assert len(folder.memory.seen) == 4, "what the file was called before is remembered, too"

    folder.shop("other", pattern="for_each_topic: 'shop.(?P<table>orders)'")
    assert folder.comes_to("shop.orders", "shop.refunds", name="other").known == []
    assert folder.comes_to("shop.orders", "shop.refunds", name="store").known == ["shop.orders", "shop.refunds"]
    (folder.path / "other.yaml").unlink()
    folder.shop("store", pattern="for_each_topic: 'shop.(?P<table>orders)'")
    assert [*folder.comes_to("shop.orders", "shop.refunds", name="store").left] == ["shop.refunds"]


def test_a_new_topic_was_made_since_the_last_plan_where_that_would_have_found_it(folder: Folder) -> None:
    def found_after(found: TopicFeeds) -> dict[str, datetime | None]:
        return {each.topic: each.found_after for each in found.seen}

    folder.shop(pattern=r"for_each_topic: 'shop\.(?P<table>a.*)'", overrides="{shop.axe: null}")
    assert found_after(folder.planned("shop.a", "shop.axe", "shop.b")) == {"shop.a": None, "shop.axe": None}
    folder.shop(pattern=r"for_each_topic: 'shop\.(?P<table>[ab].*)'")
    found = folder.planned("shop.a", "shop.axe", "shop.b", "shop.apple")
    assert found_after(found) == {"shop.a": None, "shop.axe": None, "shop.b": None, "shop.apple": NOON}
    later = folder.comes_to("shop.apple", "shop.bee").seen
    assert {each.topic: each.found_after for each in later}["shop.apple"] == NOON


def test_a_stopped_topic_is_remembered_without_a_feed_until_it_is_gone(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.a")
    folder.shop(overrides="{shop.b: {name: shop}}")
    found = folder.planned("shop.a", "shop.b")
    assert [(each.topic, each.feed, each.found_after) for each in found.seen][1:] == [("shop.b", None, NOON)]
    assert [each.topic for each in folder.comes_to("shop.a").seen] == ["shop.a"]


def test_a_feed_that_writes_a_topic_of_the_pattern_stops_since_there_would_be_no_end_of_feeds(folder: Folder) -> None:
    folder.shop(sink='{format: kafka, path: "/data/{table}", conn_id: kafka_default, topic: "{topic}.copy"}')
    assert "it would become a feed, too" in folder.comes_to("shop.orders").stopped["shop.orders"]


def test_a_topics_feed_whose_records_come_back_to_it_by_another_feed_stops_alone(folder: Folder) -> None:
    folder.shop(sink='{format: kafka, path: "/data/{table}", conn_id: kafka_default, topic: "copy.{table}"}')
    back = "{format: kafka, path: /data/back, conn_id: kafka_default, topic: shop.orders}"
    folder.write(f"name: back\nkafka: {{topics: [copy.orders]}}\nsink: {back}", "back")
    found = folder.comes_to("shop.orders", "shop.refunds")
    assert found.new == ["shop.refunds"]
    assert found.stopped["shop.orders"].startswith("records that it writes to topic copy.orders come back to it: ")


def test_without_kafka_a_file_is_what_its_last_plan_came_to_by_what_it_says_now(folder: Folder) -> None:
    folder.shop()
    folder.planned("shop.orders", "shop.refunds")
    folder.write("{name: one, kafka: {topics: [x]}, sink: {format: parquet, path: /data/one}}", "one")
    folder.shop(more="limits: {max_records: 4}", overrides="{shop.refunds: null}")
    files = all_feeds(folder.files(), folder.memory, folder.path, {})
    assert [(each.name, each.error is None) for each in files] == [
        ("one", True),
        ("shop-orders", True),
        ("shop-refunds", False),
    ]
    assert files[1].feed is not None
    assert files[1].feed.limits.max_records == 4


def test_hundreds_of_topics_become_feeds_that_are_all_different(folder: Folder) -> None:
    folder.shop()
    topics = [f"shop.table_{number}" for number in range(200)]
    assert len(folder.planned(*topics).new) == 200
    assert len(folder.comes_to(*topics).known) == 200
