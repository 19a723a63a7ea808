"""How a batch's size is shared over its partitions."""

import itertools
from datetime import UTC, datetime
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.planning.limits import share_fairly

P0, P1, P2, P3 = (partition(number) for number in range(4))

lags_of_some_partitions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["orders", "refunds"]), st.integers(0, 30)),
    st.integers(0, 10**12),
    max_size=20,
)
limits = st.none() | st.integers(1, 10**6)


def shares(
    lags: dict[TopicPartition, int], max_records: int | None = None, per_partition: int | None = None
) -> dict[TopicPartition, int]:
    """Share with the same headroom everywhere."""
    return share_fairly(lags, dict.fromkeys(lags, 0), {}, max_records, per_partition)


def test_without_limits_everything_is_taken() -> None:
    assert shares({P0: 10, P1: 1_000_000}) == {P0: 10, P1: 1_000_000}


def test_a_limit_above_the_backlog_takes_everything() -> None:
    assert shares({P0: 10, P1: 20}, 31) == {P0: 10, P1: 20}


def test_a_limit_equal_to_the_backlog_takes_everything() -> None:
    assert shares({P0: 10, P1: 20}, 30) == {P0: 10, P1: 20}


def test_shares_are_proportional_to_lag() -> None:
    assert shares({P0: 301, P1: 601, P2: 101}, 103) == {P0: 31, P1: 61, P2: 11}


def test_a_small_partition_beside_a_huge_one_is_not_starved() -> None:
    assert shares({P0: 1_000_000_000, P1: 1}, 10) == {P0: 9, P1: 1}


def test_what_does_not_divide_goes_to_the_largest_remainders() -> None:
    assert shares({P0: 101, P1: 101, P2: 201}, 10) == {P0: 3, P1: 3, P2: 4}


def test_equal_remainders_go_to_the_first_partitions() -> None:
    assert shares({P0: 100, P1: 100, P2: 100}, 100) == {P0: 34, P1: 33, P2: 33}


def test_a_partition_without_lag_takes_no_part() -> None:
    assert shares({P0: 0, P1: 10}, 5) == {P1: 5}


def test_nothing_to_read_is_nothing_to_share() -> None:
    assert shares({}, 5) == {}


def test_one_for_each_partition_is_one_each() -> None:
    assert shares({P0: 1_000, P1: 10, P2: 1}, 3) == {P0: 1, P1: 1, P2: 1}


def test_where_not_even_one_each_fits_half_goes_to_the_least_headroom_and_half_to_those_that_waited_longest() -> None:
    lags = {P0: 1_000, P1: 10, P2: 500, P3: 500}
    headroom = {P0: 900, P1: 3, P2: 80, P3: 7}
    moved = {tp: datetime(2026, 1, day, tzinfo=UTC) for tp, day in {P0: 1, P1: 2, P2: 3, P3: 4}.items()}
    assert share_fairly(lags, headroom, moved, 2, None) == {P0: 1, P1: 1}
    assert share_fairly(lags, headroom, moved, 1, None) == {P0: 1}
    assert share_fairly(lags, headroom, moved, 3, None) == {P0: 1, P1: 1, P2: 1}
    assert share_fairly(lags, headroom, {P0: moved[P0]}, 1, None) == {P1: 1}, (
        "one without a stored offset waited longest"
    )


def test_however_small_the_limit_every_partition_has_its_turn() -> None:
    partitions = [P0, P1, P2, P3]
    headroom = {P0: 0, P1: 0, P2: 1_000_000, P3: 5}
    moved = dict.fromkeys(partitions, datetime(2026, 1, 1, tzinfo=UTC))
    read = dict.fromkeys(partitions, 0)
    for minute in range(1, 41):
        for topic_partition in share_fairly(dict.fromkeys(partitions, 100), headroom, moved, 2, None):
            read[topic_partition] += 1
            moved[topic_partition] = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
    assert min(read.values()) >= 10


def test_equal_headroom_is_settled_by_the_partitions_number() -> None:
    assert shares({P2: 5, P1: 5, P0: 5}, 2) == {P0: 1, P1: 1}


# ── Retention is nearer to some ───────────────────────────────────────────────────────────────────────────────────────


def test_half_of_what_is_left_after_one_each_goes_to_the_least_headroom_and_the_rest_by_lag() -> None:
    # 2 of 102 are one each; 50 go to P1, the other 50 are shared over what both still have: 1,000 and 950.
    assert share_fairly({P0: 1_001, P1: 1_001}, {P0: 900, P1: 3}, {}, 102, None) == {P0: 27, P1: 75}


def test_where_the_headroom_is_the_same_everywhere_all_is_proportional_to_lag() -> None:
    assert share_fairly({P0: 1_001, P1: 1_001}, {P0: 3, P1: 3}, {}, 102, None) == {P0: 51, P1: 51}


def test_the_urgent_half_goes_to_the_next_least_headroom_once_the_first_is_read_to_its_end() -> None:
    # 3 are one each; of the urgent 50, P2 needs 9, so 41 go to P1; the other 50 by what is left: P0 1,000, P1 959.
    lags = {P0: 1_001, P1: 1_001, P2: 10}
    assert share_fairly(lags, {P0: 900, P1: 80, P2: 0}, {}, 103, None) == {P0: 27, P1: 66, P2: 10}


def test_partitions_of_the_same_least_headroom_share_the_urgent_half_by_lag() -> None:
    # 3 are one each; of the urgent 60, P1 and P2 take 40 and 20 as 200 is to 100; the other 60 by what is left.
    lags = {P0: 241, P1: 201, P2: 101}
    assert share_fairly(lags, {P0: 9, P1: 0, P2: 0}, {}, 123, None) == {P0: 31, P1: 61, P2: 31}


def test_a_partitions_own_limit_holds_for_the_urgent_too() -> None:
    # 2 are one each; of the 60 that each may have, the urgent 49 leave P1 10; the other 49 are shared as 59 to 10.
    assert share_fairly({P0: 1_000, P1: 1_000}, {P0: 900, P1: 0}, {}, 100, 60) == {P0: 43, P1: 57}


def test_the_least_urgent_partition_still_gets_one_beside_a_huge_urgent_one() -> None:
    assert share_fairly({P0: 10**12, P1: 1}, {P0: 0, P1: 10**12}, {}, 2, None) == {P0: 1, P1: 1}


# ── A partition's own limit ───────────────────────────────────────────────────────────────────────────────────────────


def test_each_partition_is_cut_to_its_own_limit() -> None:
    assert shares({P0: 1_000, P1: 10}, None, 100) == {P0: 100, P1: 10}


def test_both_limits_hold_at_once() -> None:
    assert shares({P0: 1_000, P1: 1_000, P2: 10}, 60, 50) == {P0: 27, P1: 27, P2: 6}


def test_the_shares_do_not_depend_on_the_order_of_the_partitions() -> None:
    lags = {P0: 7, P1: 11, P2: 13, P3: 17}
    found = [shares(dict(order), 20) for order in itertools.permutations(lags.items())]
    assert all(list(each.items()) == list(found[0].items()) for each in found)


# ── Whatever the numbers ──────────────────────────────────────────────────────────────────────────────────────────────


@given(lags_of_some_partitions, limits, limits)
def test_the_shares_add_up_to_the_limit_or_to_all_there_is(
    lags: dict[TopicPartition, int], max_records: int | None, per_partition: int | None
) -> None:
    readable = sum(min(lag, per_partition or lag) for lag in lags.values())
    expected = readable if max_records is None else min(max_records, readable)
    assert sum(shares(lags, max_records, per_partition).values()) == expected


@given(lags_of_some_partitions, limits, limits)
def test_a_share_is_at_least_one_and_at_most_the_lag_and_the_partitions_limit(
    lags: dict[TopicPartition, int], max_records: int | None, per_partition: int | None
) -> None:
    for taken, share in shares(lags, max_records, per_partition).items():
        assert 1 <= share <= min(lags[taken], per_partition or lags[taken])


@given(lags_of_some_partitions, st.integers(1, 10**6))
def test_no_partition_with_lag_is_left_out_where_one_each_fits(
    lags: dict[TopicPartition, int], max_records: int
) -> None:
    behind = {taken for taken, lag in lags.items() if lag}
    found = set(shares(lags, max_records))
    assert found == behind if max_records >= len(behind) else len(found) == max_records


@given(lags_of_some_partitions, limits, st.randoms(use_true_random=False))
def test_any_order_of_the_partitions_gives_the_same_shares(
    lags: dict[TopicPartition, int], max_records: int | None, random: Random
) -> None:
    shuffled = list(lags.items())
    random.shuffle(shuffled)
    assert list(shares(dict(shuffled), max_records).items()) == list(shares(lags, max_records).items())


@st.composite
def lags_with_headroom(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Draw partitions, some of the same headroom."""
    lags = draw(lags_of_some_partitions)
    return lags, {found: draw(st.sampled_from([0, 1, 500]) | st.integers(0, 10**6)) for found in lags}


@given(lags_with_headroom(), st.integers(1, 10**6), limits, st.randoms(use_true_random=False))
def test_whatever_the_headroom_the_shares_are_whole_within_the_limits_and_of_any_order(
    known: tuple[dict[TopicPartition, int], dict[TopicPartition, int]],
    max_records: int,
    per_partition: int | None,
    random: Random,
) -> None:
    lags, headroom = known
    found = share_fairly(lags, headroom, {}, max_records, per_partition)
    readable = {taken: min(lag, per_partition or lag) for taken, lag in lags.items() if lag}
    assert sum(found.values()) == min(max_records, sum(readable.values()))
    assert all(1 <= share <= readable[taken] for taken, share in found.items())
    shuffled = list(lags.items())
    random.shuffle(shuffled)
    assert list(share_fairly(dict(shuffled), headroom, {}, max_records, per_partition).items()) == list(found.items())


@given(st.integers(2, 10**6), st.integers(2, 10**6), st.integers(0, 100), st.integers(1, 100), st.integers(2, 10**5))
def test_less_headroom_never_means_a_smaller_share(lag: int, limit: int, least: int, more: int, other_lag: int) -> None:
    lags = {P0: lag, P1: other_lag}
    urgent = share_fairly(lags, {P0: least, P1: least + more}, {}, limit, None)
    calm = share_fairly(lags, {P0: least + more, P1: least}, {}, limit, None)
    assert urgent[P0] >= calm[P0]
