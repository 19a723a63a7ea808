"""Which topics take part in a batch, and by which rule their partitions without a stored offset begin."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.fakes import CLUSTER, SOME_DAY, FakeTopic, feed_settings, log, topic
from tests.unit.planning_inputs import Stored, described, known_feed, stored

from kafka_ingest.errors import StartOutsideLogError, TopicGoneError, TopicRecreatedError, UnknownTopicError
from kafka_ingest.model.control_rows import NEVER_PLANNED, FeedSnapshot
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.planning.settings import (
    AtOffset,
    AtOffsets,
    AtTimestamp,
    Earliest,
    FromGroup,
    Latest,
    NewPartition,
    OnMissingTopic,
    OnTopicChanged,
    PartitionRule,
    StartRule,
)
from kafka_ingest.planning.topics import TopicsOfFeed, rules_to_resolve, topics_of_feed, topics_wanted

ONE = topic(log(0, 9))
TWO = topic(log(0, 9), log(0, 9))
ORDERS_AND_REFUNDS: dict[str, Any] = {"start_rules": {"orders": Earliest(), "refunds": Earliest()}}
HOLD: dict[str, Any] = ORDERS_AND_REFUNDS | {"on_missing_topic": OnMissingTopic.HOLD}


def pattern(text: str, start: StartRule | None = None, **exceptions: StartRule) -> dict[str, Any]:
    """Return the settings of a feed that reads what a pattern matches; some topics may have a start of their own."""
    return {"topic_pattern": text, "pattern_start": start or Earliest(), "start_rules": exceptions}


def selected(feed: FeedSnapshot | None, there: dict[str, FakeTopic], **settings: Any) -> TopicsOfFeed:
    """Return the topics of a feed that meets these topics on its cluster."""
    return topics_of_feed(feed or NEVER_PLANNED, feed_settings(**settings), described(**there), CLUSTER, SOME_DAY)


def rules(feed: FeedSnapshot | None, there: dict[str, FakeTopic], **settings: Any) -> dict[str, PartitionRule]:
    """Return the rule of every partition whose start is to be resolved, by its name."""
    found = rules_to_resolve(feed or NEVER_PLANNED, feed_settings(**settings), described(**there))
    return {str(topic_partition): rule for topic_partition, rule in found.items()}


# ── By list, by pattern ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_reads_its_topics_and_no_other_that_is_there() -> None:
    there = {"orders": ONE, "orders-eu": ONE, "refunds": ONE}
    assert list(selected(None, there, **ORDERS_AND_REFUNDS).present) == ["orders", "refunds"]


def test_a_pattern_reads_what_it_matches_as_a_whole() -> None:
    there = {"orders": ONE, "orders-eu": ONE, "old-orders": ONE, "refunds": ONE}
    assert list(selected(None, there, **pattern("orders")).present) == ["orders"]
    assert list(selected(None, there, **pattern("orders.*")).present) == ["orders", "orders-eu"]


def test_an_alternative_of_a_pattern_is_matched_as_a_whole_too() -> None:
    there = {"orders": ONE, "orders-eu": ONE, "refunds": ONE}
    assert list(selected(None, there, **pattern("orders|refunds")).present) == ["orders", "refunds"]


@pytest.mark.parametrize(
    "internal", ["__consumer_offsets", "__transaction_state", "__share_group_state", "clean.kafka_ingest"]
)
def test_a_pattern_matches_neither_kafkas_own_topics_nor_marks(internal: str) -> None:
    assert list(selected(None, {"orders": ONE, internal: ONE}, **pattern(".*")).present) == ["orders"]


def test_a_pattern_matches_a_topic_that_begins_with_a_single_underscore() -> None:
    assert list(selected(None, {"_schemas": ONE}, **pattern(".*")).present) == ["_schemas"]


def test_a_list_may_name_an_internal_topic_because_it_is_written_down() -> None:
    found = selected(None, {"__consumer_offsets": ONE}, start_rules={"__consumer_offsets": Earliest()})
    assert list(found.present) == ["__consumer_offsets"]


def test_a_pattern_that_matches_nothing_is_wrong_use_and_says_on_which_cluster() -> None:
    message = r"feed orders: no topic on cluster cluster-A matches kafka.topic_pattern 'order' as a whole"
    with pytest.raises(UnknownTopicError, match=message) as error:
        selected(None, {"orders": ONE}, **pattern("order"))
    assert error.value.exit_code == 2


def test_a_pattern_also_wants_a_topic_that_was_read_and_is_gone() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    assert topics_wanted(feed, feed_settings(**pattern(".*")), ["orders"]) == ["orders", "refunds"]
    assert topics_wanted(feed, feed_settings(**pattern("orders")), ["orders"]) == ["orders"]


def test_the_topics_of_the_feed_are_named_with_those_that_are_missing() -> None:
    found = selected(known_feed(stored({0: 5})), {"orders": ONE}, **HOLD)
    assert list(found.names) == ["orders", "refunds"]


# ── A topic or partition is not there: stop or hold ───────────────────────────────────────────────────────────────────


def test_a_topic_that_never_was_stops_the_feed_and_names_the_ways_out() -> None:
    with pytest.raises(
        UnknownTopicError, match=r"topic 'refunds' does not exist on cluster cluster-A.*on_missing_topic"
    ):
        selected(None, {"orders": ONE}, **ORDERS_AND_REFUNDS)


def test_a_topic_that_is_gone_stops_the_feed_and_names_the_command_that_ends_its_offsets() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5, 1: 6}, of="refunds"))
    message = (
        r"'refunds' has stored offsets for 2 partitions, but cluster cluster-A has no such topic.*"
        r"on_missing_topic: hold.*`kafka-ingest topic-changed orders --topic refunds --choice forget`"
    )
    with pytest.raises(TopicGoneError, match=message):
        selected(feed, {"orders": ONE}, **ORDERS_AND_REFUNDS)


def test_a_missing_partition_stops_the_feed_and_names_the_command_that_starts_over() -> None:
    message = r"orders-1 have stored offsets, .*has only 1 partitions.*--topic orders --choice start-over`"
    with pytest.raises(TopicGoneError, match=message):
        selected(known_feed(stored({0: 5, 1: 5})), {"orders": ONE})


def test_under_hold_the_other_topics_continue_and_the_missing_one_is_held_with_its_reason() -> None:
    found = selected(None, {"orders": ONE}, **HOLD)
    assert list(found.present) == ["orders"]
    (hold,) = found.holds
    assert (hold.topic, hold.partition, hold.cause, hold.since) == ("refunds", None, HoldCause.TOPIC_MISSING, SOME_DAY)
    assert "topic 'refunds' does not exist on cluster cluster-A" in hold.reason


def test_under_hold_a_topic_that_lost_partitions_takes_no_part_at_all() -> None:
    feed = known_feed(stored({0: 5, 1: 5}) | stored({0: 5}, of="refunds"))
    found = selected(feed, {"orders": ONE, "refunds": ONE}, **HOLD)
    assert list(found.present) == ["refunds"]
    assert [(hold.topic, hold.cause) for hold in found.holds] == [("orders", HoldCause.TOPIC_MISSING)]


def test_under_hold_a_topic_that_a_pattern_matched_and_that_is_gone_is_held() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="orders-eu"))
    found = selected(feed, {"orders": ONE}, **pattern("orders.*"), on_missing_topic=OnMissingTopic.HOLD)
    assert list(found.present) == ["orders"]
    assert [hold.topic for hold in found.holds] == ["orders-eu"]


HOLD_CHANGED: dict[str, Any] = ORDERS_AND_REFUNDS | {"on_topic_changed": OnTopicChanged.HOLD}
MADE_AGAIN = topic(log(0, 10), topic_id="another-topic-id")


def test_a_topic_made_again_stops_the_feed_unless_it_is_to_be_held() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    with pytest.raises(TopicRecreatedError, match="'refunds' was deleted and created again"):
        selected(feed, {"orders": ONE, "refunds": MADE_AGAIN}, **HOLD)


def test_a_topic_made_again_is_held_with_its_reason_and_the_others_continue() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    found = selected(feed, {"orders": ONE, "refunds": MADE_AGAIN}, **HOLD_CHANGED)
    assert list(found.present) == ["orders"]
    (hold,) = found.holds
    assert (hold.topic, hold.partition, hold.cause) == ("refunds", None, HoldCause.TOPIC_CHANGED)
    assert "found another-topic-id" in hold.reason


def test_a_topic_made_again_on_brokers_without_topic_ids_shows_by_its_missing_partitions_and_is_held() -> None:
    feed = known_feed(stored({0: 5, 1: 5}) | stored({0: 5}, of="refunds"))
    found = selected(feed, {"orders": ONE, "refunds": ONE}, **HOLD_CHANGED)
    assert [(hold.topic, hold.cause) for hold in found.holds] == [("orders", HoldCause.TOPIC_CHANGED)]


def test_where_a_topic_made_again_is_the_only_one_even_hold_stops() -> None:
    feed = known_feed(stored({0: 5}))
    with pytest.raises(TopicRecreatedError):
        selected(feed, {"orders": MADE_AGAIN}, on_topic_changed=OnTopicChanged.HOLD)


def test_a_missing_topic_stops_also_where_one_that_was_made_again_is_held() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    with pytest.raises(TopicGoneError, match="'orders' has stored offsets"):
        selected(feed, {"refunds": MADE_AGAIN}, **HOLD_CHANGED)


def test_where_every_topic_is_missing_even_hold_stops() -> None:
    with pytest.raises(UnknownTopicError, match="'orders' does not exist"):
        selected(None, {"else": ONE}, **HOLD)


def test_where_every_topic_is_gone_even_hold_wants_an_operator() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    with pytest.raises(TopicGoneError, match="'orders' has stored offsets"):
        selected(feed, {}, **HOLD)


def test_hold_does_not_cover_a_topic_that_was_made_again() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    with pytest.raises(TopicRecreatedError, match=r"'refunds'.*expected topic id topic-id-1, found topic-id-2"):
        selected(feed, {"orders": ONE, "refunds": topic(log(0, 9), topic_id="topic-id-2")}, **HOLD)


def test_a_missing_topic_that_the_feed_no_longer_reads_is_ignored() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    found = selected(feed, {"orders": ONE})
    assert (list(found.present), found.holds) == (["orders"], [])


def test_a_held_topic_that_is_back_takes_part_again() -> None:
    feed = known_feed(stored({0: 5}) | stored({0: 5}, of="refunds"))
    held = Hold("refunds", None, HoldCause.TOPIC_MISSING, "gone", datetime(2026, 1, 1, tzinfo=UTC))
    found = selected(known_feed(feed.stored, holds=[held]), {"orders": ONE, "refunds": ONE}, **HOLD)
    assert (list(found.present), found.holds) == (["orders", "refunds"], [])


# ── Explicit starts name partitions that have to be there ─────────────────────────────────────────────────────────────


def test_a_start_that_names_a_partition_the_topic_does_not_have_is_refused_with_those_it_has() -> None:
    with pytest.raises(
        StartOutsideLogError, match=r"start names orders-2, orders-7, but topic 'orders' has partitions 0 to 1"
    ):
        selected(None, {"orders": TWO}, start_rules={"orders": AtOffsets({0: 1, 2: 1, 7: 1}, Earliest())})


def test_the_named_partitions_of_a_topic_that_was_read_before_are_not_looked_at_again() -> None:
    feed = known_feed(stored({0: 5}))
    found = selected(feed, {"orders": ONE}, start_rules={"orders": AtOffsets({7: 1}, Earliest())})
    assert list(found.present) == ["orders"]


def test_an_exception_of_a_pattern_names_partitions_that_have_to_be_there_too() -> None:
    with pytest.raises(StartOutsideLogError, match="orders-eu-3"):
        selected(None, {"orders-eu": ONE}, **pattern("orders.*", **{"orders-eu": AtOffsets({3: 1}, Latest())}))


# ── The start rule is applied once ────────────────────────────────────────────────────────────────────────────────────


def test_the_first_plan_gives_every_partition_the_start_rule_of_its_topic() -> None:
    starts = {"orders": AtOffsets({1: 60}, Latest()), "refunds": FromGroup("old", Earliest())}
    assert rules(None, {"orders": TWO, "refunds": ONE}, start_rules=starts) == {
        "orders-0": Latest(),
        "orders-1": AtOffset(60),
        "refunds-0": FromGroup("old", Earliest()),
    }


def test_under_a_pattern_topics_begin_by_the_patterns_rule_apart_from_its_exceptions() -> None:
    there = {"orders": ONE, "refunds": ONE}
    assert rules(None, there, **pattern(".*", Latest(), refunds=AtOffsets({0: 3}, Latest()))) == {
        "orders-0": Latest(),
        "refunds-0": AtOffset(3),
    }


def test_a_partition_with_a_stored_offset_has_no_rule_left_to_resolve() -> None:
    assert rules(known_feed(stored({0: 0, 1: 5})), {"orders": TWO}) == {}


@pytest.mark.parametrize(
    "rule",
    [
        Earliest(),
        Latest(),
        AtOffsets({1: 5}, Latest()),
        FromGroup("old", Latest()),
        AtTimestamp(datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_partition_that_a_known_topic_gained_is_new_whatever_the_start_rule(rule: StartRule) -> None:
    assert rules(known_feed(stored({0: 5})), {"orders": TWO}, start_rules={"orders": rule}) == {
        "orders-1": NewPartition()
    }


def test_a_topic_whose_seeds_are_all_pending_is_known() -> None:
    feed = known_feed(stored({0: None}, seeded_by="latest"))
    assert rules(feed, {"orders": TWO}, start_rules={"orders": Latest()}) == {
        "orders-0": Latest(),
        "orders-1": NewPartition(),
    }


def test_a_pending_seed_begins_as_the_feed_file_says_now() -> None:
    feed = known_feed(stored({0: None}, seeded_by="group old otherwise latest"))
    assert rules(feed, {"orders": ONE}, start_rules={"orders": Earliest()}) == {"orders-0": Earliest()}


def test_a_pending_new_partition_stays_one_whatever_the_feed_file_says() -> None:
    feed = known_feed(stored({0: None}, seeded_by="new partition"))
    assert rules(feed, {"orders": ONE}, start_rules={"orders": Latest()}) == {"orders-0": NewPartition()}


# ── Topics that come later: new, or brought in ────────────────────────────────────────────────────────────────────────


def later(
    rows: Stored, there: dict[str, FakeTopic], *, was: dict[str, Any], **settings: Any
) -> dict[str, PartitionRule]:
    """Return what is to be resolved for a feed whose last plan had these topics or this pattern."""
    return rules(known_feed(rows, **was), there, **settings)


def test_a_topic_that_an_unchanged_pattern_newly_matches_is_new() -> None:
    found = later(
        stored({0: 5}),
        {"orders": ONE, "orders-eu": TWO},
        was={"topic_pattern": "orders.*"},
        **pattern("orders.*", Latest()),
    )
    assert found == {"orders-eu-0": NewPartition(), "orders-eu-1": NewPartition()}


def test_a_topic_that_an_edited_pattern_brings_in_begins_by_the_start_rule() -> None:
    there = {"orders": ONE, "refunds": ONE}
    found = later(stored({0: 5}), there, was={"topic_pattern": "orders.*"}, **pattern("orders.*|refunds", Latest()))
    assert found == {"refunds-0": Latest()}


def test_a_topic_that_the_pattern_matched_before_it_was_edited_too_is_new() -> None:
    there = {"orders": ONE, "orders-eu": ONE, "refunds": ONE}
    found = later(stored({0: 5}), there, was={"topic_pattern": "orders.*"}, **pattern(".*", Latest()))
    assert found == {"orders-eu-0": NewPartition(), "refunds-0": Latest()}


def test_a_pattern_was_matched_as_a_whole_at_the_last_plan_too() -> None:
    there = {"orders": ONE, "orders-eu": ONE}
    found = later(stored({0: 5}), there, was={"topic_pattern": "orders"}, **pattern("orders.*", Latest()))
    assert found == {"orders-eu-0": Latest()}


def test_a_topic_that_an_edited_list_brings_in_begins_by_the_start_rule() -> None:
    starts = {"orders": Earliest(), "refunds": Latest()}
    assert later(stored({0: 5}), {"orders": ONE, "refunds": ONE}, was={}, start_rules=starts) == {"refunds-0": Latest()}


def test_a_topic_of_the_list_that_was_missing_at_the_last_plan_and_appears_is_new() -> None:
    starts = {"orders": Earliest(), "refunds": Latest()}
    was = {"topics": ["orders", "refunds"]}
    found = later(stored({0: 5}), {"orders": ONE, "refunds": ONE}, was=was, start_rules=starts)
    assert found == {"refunds-0": NewPartition()}


def test_a_topic_that_was_matched_by_the_pattern_is_new_where_the_pattern_became_a_list_since() -> None:
    starts = {"orders": Earliest(), "orders-eu": Latest()}
    was = {"topic_pattern": "orders.*"}
    assert later(stored({0: 5}), {"orders": ONE, "orders-eu": ONE}, was=was, start_rules=starts) == {
        "orders-eu-0": NewPartition()
    }


def test_a_list_that_becomes_a_pattern_brings_in_what_it_did_not_name() -> None:
    there = {"orders": ONE, "orders-eu": ONE}
    assert later(stored({0: 5}), there, was={}, **pattern("orders.*", Latest())) == {"orders-eu-0": Latest()}


def test_a_topic_that_was_read_long_ago_and_is_named_again_continues_where_it_stood() -> None:
    rows = stored({0: 5}) | stored({0: 7}, of="refunds")
    there = {"orders": ONE, "refunds": TWO}
    found = later(rows, there, was={"topics": ["orders"]}, start_rules={"orders": Earliest(), "refunds": Latest()})
    assert found == {"refunds-1": NewPartition()}


def test_partitions_are_distinguished_by_their_topics() -> None:
    rows = stored({0: 5}) | stored({0: None}, of="refunds", seeded_by="earliest")
    assert rules(known_feed(rows), {"orders": ONE, "refunds": ONE}, **ORDERS_AND_REFUNDS) == {"refunds-0": Earliest()}
