"""The planner's decision: stored offsets, Kafka's answers and settings in, seeds and ranges or a named error out."""

import pytest
from tests.fakes import log, partition, span, topic
from tests.unit.planning_inputs import NO_LEADER, answers, answers_of, decided, seeds_of, starting, stored

from kafka_ingest.errors import (
    OffsetsLostError,
    StartOutsideLogError,
    StoredOffsetBeyondLogError,
    TopicGoneError,
    TopicRecreatedError,
    UnknownTopicError,
    WrongClusterError,
)
from kafka_ingest.model.offsets import Isolation, LogBounds, StoredOffset, Unavailable, ranges_outside_log
from kafka_ingest.planning.settings import AtOffsets, Earliest, Latest

# ── The first plan: the start rule is applied once ────────────────────────────────────────────────────────────────────


def test_earliest_reads_from_the_log_start_to_the_end() -> None:
    decision = decided(answers(orders=topic(log(10, 100), log(0, 50))))
    assert decision.ranges == (span(0, 10, 100), span(1, 0, 50))


def test_earliest_seeds_every_partition_there_is() -> None:
    decision = decided(answers(orders=topic(log(10, 100), log(7, 7))))
    assert seeds_of(decision) == {partition(0): (10, "earliest"), partition(1): (7, "earliest")}


def test_latest_reads_nothing_and_seeds_the_ends_so_that_it_does_not_slide_forever() -> None:
    decision = decided(answers(orders=topic(log(10, 100), log(0, 0))), **starting(Latest()))
    assert decision.ranges == ()
    assert seeds_of(decision) == {partition(0): (100, "latest"), partition(1): (0, "latest")}


def test_latest_under_read_committed_seeds_the_last_stable_offset() -> None:
    decision = decided(answers(orders=topic(log(0, 100, lso=80))), **starting(Latest()))
    assert seeds_of(decision) == {partition(0): (80, "latest")}


def test_explicit_offsets_begin_where_they_say_and_the_others_by_the_other_rule() -> None:
    kafka = answers(orders=topic(log(10, 100), log(0, 50)))
    decision = decided(kafka, **starting(AtOffsets({0: 60}, Latest())))
    assert decision.ranges == (span(0, 60, 100),)
    assert seeds_of(decision) == {partition(0): (60, "offset 60"), partition(1): (50, "latest")}


def test_an_explicit_offset_outside_the_log_is_refused() -> None:
    with pytest.raises(StartOutsideLogError, match="orders-0"):
        decided(answers(orders=topic(log(10, 100))), **starting(AtOffsets({0: 101}, Earliest())))


def test_an_explicit_offset_of_a_partition_that_the_topic_does_not_have_is_refused() -> None:
    with pytest.raises(StartOutsideLogError, match="orders-3"):
        decided(answers(orders=topic(log(0, 100), log(0, 50))), **starting(AtOffsets({3: 60}, Earliest())))


def test_each_topic_begins_by_its_own_rule() -> None:
    kafka = answers(orders=topic(log(0, 100)), refunds=topic(log(0, 20)))
    decision = decided(kafka, start_rules={"orders": Earliest(), "refunds": Latest()})
    assert seeds_of(decision) == {partition(0): (0, "earliest"), partition(0, "refunds"): (20, "latest")}


def test_seeds_carry_the_topic_id_and_the_leader_epoch() -> None:
    decision = decided(answers(orders=topic(log(0, 100, leader_epoch=4), topic_id="its-id")))
    assert decision.seeds == (StoredOffset(partition(0), "its-id", 0, 0, "earliest", leader_epoch=4),)
    assert decision.topic_ids == {"orders": "its-id"}
    assert decision.leader_epochs == {partition(0): 4}


# ── Later plans: stored offsets always win ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rule", [Earliest(), Latest(), AtOffsets({0: 5}, Earliest())])
def test_a_stored_offset_wins_over_every_start_rule(rule: object) -> None:
    decision = decided(answers(orders=topic(log(0, 100))), stored({0: 60}), **starting(rule))
    assert decision.ranges == (span(0, 60, 100),)
    assert decision.seeds == ()


def test_a_stored_offset_of_0_wins_like_any_other() -> None:
    decision = decided(answers(orders=topic(log(0, 100))), stored({0: 0}), **starting(Latest()))
    assert decision.ranges == (span(0, 0, 100),)


def test_nothing_new_is_a_decision_without_ranges_and_without_seeds() -> None:
    decision = decided(answers(orders=topic(log(0, 100), log(0, 50))), stored({0: 100, 1: 50}))
    assert (decision.ranges, decision.seeds, decision.capped) == ((), (), False)


def test_a_partition_without_anything_new_has_no_range() -> None:
    decision = decided(answers(orders=topic(log(0, 100), log(0, 50))), stored({0: 100, 1: 20}))
    assert decision.ranges == (span(1, 20, 50),)


@pytest.mark.parametrize("rule", [Earliest(), Latest(), AtOffsets({1: 5}, Latest())])
def test_a_partition_that_a_known_topic_gained_begins_at_0_whatever_the_rule(rule: object) -> None:
    decision = decided(answers(orders=topic(log(0, 100), log(0, 30))), stored({0: 100}), **starting(rule))
    assert decision.ranges == (span(1, 0, 30),)
    assert seeds_of(decision) == {partition(1): (0, "new partition")}


def test_a_new_partition_whose_log_starts_above_0_has_lost_records() -> None:
    with pytest.raises(
        OffsetsLostError, match=r"orders-1: begins at 0 \(new partition\), log start 12 \(12 offsets gone\)"
    ):
        decided(answers(orders=topic(log(0, 100), log(12, 30))), stored({0: 100}), **starting(Latest()))


def test_a_topic_that_an_edited_list_brings_in_begins_by_the_start_rule() -> None:
    kafka = answers(orders=topic(log(0, 100)), refunds=topic(log(12, 30)))
    decision = decided(kafka, stored({0: 100}), start_rules={"orders": Earliest(), "refunds": Earliest()})
    assert seeds_of(decision) == {partition(0, "refunds"): (12, "earliest")}


def test_a_topic_that_the_feed_no_longer_names_keeps_its_rows_and_takes_no_part() -> None:
    rows = stored({0: 100}) | stored({0: 5}, of="refunds")
    decision = decided(answers(orders=topic(log(0, 110))), rows)
    assert decision.ranges == (span(0, 100, 110),)


# ── Topics and clusters that are not what they were ───────────────────────────────────────────────────────────────────


def test_a_topic_that_does_not_exist_and_was_never_read_is_wrong_use() -> None:
    with pytest.raises(
        UnknownTopicError, match="feed orders: topic 'orders' does not exist on cluster cluster-A"
    ) as error:
        decided(answers())
    assert error.value.exit_code == 2


def test_a_topic_with_stored_offsets_that_is_gone_wants_an_operator() -> None:
    with pytest.raises(TopicGoneError, match=r"topic 'orders' has stored offsets for 2 partitions.*cluster-A") as error:
        decided(answers(), stored({0: 5, 1: 6}))
    assert error.value.exit_code == 3


def test_a_topic_of_another_id_was_made_again_and_both_ids_are_named() -> None:
    with pytest.raises(TopicRecreatedError, match=r"'orders'.*expected topic id topic-id-1, found topic-id-2"):
        decided(answers(orders=topic(log(0, 100), topic_id="topic-id-2")), stored({0: 5}))


def test_a_topic_that_was_made_again_with_fewer_partitions_is_not_called_a_wrong_start() -> None:
    kafka = answers(orders=topic(log(0, 100), topic_id="topic-id-2"))
    with pytest.raises(TopicRecreatedError, match="expected topic id topic-id-1, found topic-id-2"):
        decided(kafka, stored({0: 5, 1: 60}), **starting(AtOffsets({1: 60}, Earliest())))


def test_a_topic_id_that_brokers_do_not_know_says_nothing_either_way() -> None:
    decision = decided(answers(orders=topic(log(0, 100), topic_id=None)), stored({0: 5}))
    assert decision.ranges == (span(0, 5, 100),)


def test_partitions_never_become_fewer_so_the_topic_was_made_again() -> None:
    with pytest.raises(TopicGoneError, match="orders-1, orders-2 have stored offsets, but topic 'orders' has only 1"):
        decided(answers(orders=topic(log(0, 100))), stored({0: 5, 1: 6, 2: 7}))


def test_a_pending_partition_that_is_gone_counts_as_known() -> None:
    with pytest.raises(TopicGoneError, match="orders-1"):
        decided(answers(orders=topic(log(0, 100))), stored({0: 5, 1: None}))


def test_another_cluster_is_refused_and_both_ids_are_named() -> None:
    kafka = answers_of({"orders": topic(log(0, 100))}, cluster_id="cluster-B")
    with pytest.raises(WrongClusterError, match=r"feed orders: .*cluster cluster-A, .*leads to cluster cluster-B"):
        decided(kafka, stored({0: 5}))


def test_another_cluster_is_refused_before_its_topics_are_looked_at() -> None:
    with pytest.raises(WrongClusterError):
        decided(answers_of({}, cluster_id="cluster-B"), stored({0: 5}))


def test_a_feed_that_was_never_planned_may_be_of_any_cluster() -> None:
    assert decided(answers_of({"orders": topic(log(0, 1))}, cluster_id="cluster-B")).cluster_id == "cluster-B"


# ── Stored offsets outside the log ────────────────────────────────────────────────────────────────────────────────────


def test_a_stored_offset_below_the_log_start_is_loss_with_both_numbers_and_the_cluster() -> None:
    message = r"cluster cluster-A.*orders-0: stored offset 1,000, log start 1,234 \(234 offsets gone\)"
    with pytest.raises(OffsetsLostError, match=message):
        decided(answers(orders=topic(log(1_234, 5_000))), stored({0: 1_000}))


def test_a_single_lost_record_is_loss() -> None:
    with pytest.raises(OffsetsLostError, match=r"orders-0: stored offset 9, log start 10 \(1 offset gone\)"):
        decided(answers(orders=topic(log(10, 20))), stored({0: 9}))


def test_a_stored_offset_at_the_log_start_is_not_loss() -> None:
    assert decided(answers(orders=topic(log(10, 20))), stored({0: 10})).ranges == (span(0, 10, 20),)


def test_a_stored_offset_above_the_log_end_is_refused_with_both_numbers_and_the_cluster() -> None:
    with pytest.raises(
        StoredOffsetBeyondLogError, match=r"cluster cluster-A.*orders-0: stored offset 5,001, log end 5,000"
    ):
        decided(answers(orders=topic(log(0, 5_000))), stored({0: 5_001}))


def test_a_stored_offset_at_the_log_end_is_nothing_new() -> None:
    assert decided(answers(orders=topic(log(0, 5_000))), stored({0: 5_000})).ranges == ()


def test_every_partition_outside_its_log_is_named_and_only_those() -> None:
    with pytest.raises(OffsetsLostError, match=r"orders-0: .*, orders-2: ") as error:
        decided(answers(orders=topic(log(10, 20), log(0, 20), log(10, 20))), stored({0: 1, 1: 1, 2: 2}))
    assert "orders-1" not in str(error.value)


# ── Isolation ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_read_committed_ends_at_the_last_stable_offset() -> None:
    assert decided(answers(orders=topic(log(0, 100, lso=80)))).ranges == (span(0, 0, 80),)


def test_read_uncommitted_ends_at_the_high_watermark() -> None:
    decision = decided(answers(orders=topic(log(0, 100, lso=80))), isolation=Isolation.READ_UNCOMMITTED)
    assert decision.ranges == (span(0, 0, 100),)


def test_a_stored_offset_above_the_last_stable_offset_has_nothing_to_read_yet() -> None:
    decision = decided(answers(orders=topic(log(0, 100, lso=80), log(0, 50))), stored({0: 90, 1: 40}))
    assert decision.ranges == (span(1, 40, 50),)


# ── Partitions that Kafka cannot answer for ───────────────────────────────────────────────────────────────────────────


def test_an_unavailable_partition_is_left_out_with_its_reason_and_holds_up_no_other() -> None:
    decision = decided(answers(orders=topic(NO_LEADER, log(0, 50))), stored({0: 5, 1: 10}))
    assert decision.ranges == (span(1, 10, 50),)
    assert decision.left_out == {partition(0): "LEADER_NOT_AVAILABLE: no leader"}


def test_an_unavailable_partition_with_a_stored_offset_gets_no_seed() -> None:
    assert decided(answers(orders=topic(NO_LEADER)), stored({0: 5})).seeds == ()


def test_an_unavailable_partition_of_a_new_topic_is_a_pending_seed_with_its_rule() -> None:
    decision = decided(answers(orders=topic(NO_LEADER, log(0, 50))), **starting(Latest()))
    assert seeds_of(decision) == {partition(0): (None, "latest"), partition(1): (50, "latest")}


def test_an_unavailable_partition_that_a_known_topic_gained_is_pending_as_a_new_one() -> None:
    decision = decided(answers(orders=topic(log(0, 50), NO_LEADER)), stored({0: 5}), **starting(Latest()))
    assert seeds_of(decision) == {partition(1): (None, "new partition")}


def test_a_pending_seed_that_is_still_unavailable_stays_as_it_is() -> None:
    decision = decided(answers(orders=topic(NO_LEADER)), stored({0: None}))
    assert decision.seeds == ()
    assert set(decision.left_out) == {partition(0)}


def test_a_pending_seed_is_resolved_by_the_feeds_rule_when_its_leader_is_back() -> None:
    rows = stored({0: None, 1: 50}, seeded_by="latest")
    decision = decided(answers(orders=topic(log(3, 40), log(0, 50))), rows, **starting(Latest()))
    assert seeds_of(decision) == {partition(0): (40, "latest")}


def test_a_pending_seed_of_a_new_partition_is_resolved_to_0_whatever_the_feeds_rule() -> None:
    rows = stored({0: 50}) | stored({1: None}, seeded_by="new partition")
    decision = decided(answers(orders=topic(log(0, 50), log(0, 40))), rows, **starting(Latest()))
    assert seeds_of(decision) == {partition(1): (0, "new partition")}
    assert decision.ranges == (span(1, 0, 40),)


@pytest.mark.parametrize(("edited", "offset"), [(Earliest(), 3), (Latest(), 40), (AtOffsets({0: 7}, Latest()), 7)])
def test_a_pending_seed_is_resolved_by_the_feed_file_as_it_is_when_its_leader_is_back(
    edited: object, offset: int
) -> None:
    decision = decided(
        answers(orders=topic(log(3, 40))), stored({0: None}, seeded_by="offset 5000"), **starting(edited)
    )
    assert [(seed.topic_partition, seed.next_offset) for seed in decision.seeds] == [(partition(0), offset)]


def test_a_pending_seed_is_noted_again_where_the_feed_file_was_edited() -> None:
    decision = decided(answers(orders=topic(NO_LEADER)), stored({0: None}, seeded_by="earliest"), **starting(Latest()))
    assert seeds_of(decision) == {partition(0): (None, "latest")}


@pytest.mark.parametrize(
    ("bounds", "numbers"),
    [
        (log(9, 40), "names offset 7, but the log starts at 9"),
        (log(0, 6), "names offset 7, but the log ends at 6"),
    ],
)
def test_a_pending_explicit_offset_that_the_log_does_not_hold_is_refused_by_the_start_that_names_it(
    bounds: LogBounds, numbers: str
) -> None:
    rule = starting(AtOffsets({0: 7}, Earliest()))
    noted = decided(answers(orders=topic(NO_LEADER)), **rule)
    with pytest.raises(StartOutsideLogError, match=numbers):
        decided(answers(orders=topic(bounds)), {seed.topic_partition: seed for seed in noted.seeds}, **rule)


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backlog_above_the_limit_is_cut_and_said_to_be_capped() -> None:
    decision = decided(answers(orders=topic(log(0, 100), log(0, 100))), max_records=50)
    assert (decision.ranges, decision.capped) == ((span(0, 0, 25), span(1, 0, 25)), True)


def test_a_backlog_of_exactly_the_limit_is_not_capped() -> None:
    assert decided(answers(orders=topic(log(0, 50))), max_records=50).capped is False


def test_a_partitions_own_limit_caps_the_batch_too() -> None:
    decision = decided(answers(orders=topic(log(0, 100), log(0, 10))), max_records_per_partition=30)
    assert (decision.ranges, decision.capped) == ((span(0, 0, 30), span(1, 0, 10)), True)


def test_records_above_the_last_stable_offset_could_not_be_read_so_they_do_not_cap() -> None:
    assert decided(answers(orders=topic(log(0, 100, lso=50))), max_records=50).capped is False


def test_the_partition_that_retention_reaches_first_is_read_first() -> None:
    kafka = answers(orders=topic(log(0, 1_000), log(90, 1_000)))
    assert decided(kafka, stored({0: 100, 1: 100}), max_records=1).ranges == (span(1, 100, 101),)


def test_ranges_are_sorted_by_topic_and_partition_number() -> None:
    kafka = answers(b=topic(*[log(0, 5)] * 11), a=topic(log(0, 5)))
    decision = decided(kafka, start_rules={"b": Earliest(), "a": Earliest()})
    assert [str(each.topic_partition) for each in decision.ranges] == ["a-0", *(f"b-{number}" for number in range(11))]


# ── Open batches held against the log ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("bounds", "problems"),
    [
        (log(100, 200), []),
        (log(0, 500), []),
        (log(101, 500), ["orders-0[100, 200) begins below the log start 101"]),
        (log(0, 199), ["orders-0[100, 200) ends above the log end 199"]),
        (log(0, 500, lso=199), ["orders-0[100, 200) ends above the log end 199"]),
        (NO_LEADER, []),
    ],
)
def test_a_range_fits_the_log_while_all_of_it_can_be_read(bounds: LogBounds | Unavailable, problems: list[str]) -> None:
    found = ranges_outside_log((span(0, 100, 200),), {partition(0): bounds}, Isolation.READ_COMMITTED)
    assert found == problems
