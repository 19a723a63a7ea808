"""How a batch's size is shared over its partitions."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from tests.fakes import partition

from kafka_ingest.offsets import TopicPartition
from kafka_ingest.planning.limits import share_fairly

P0, P1, P2, P3 = (partition(number) for number in range(4))

lags_of_some_partitions = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from(["orders", "refunds"]), st.integers(0, 30)),
    st.integers(0, 10**12),
    max_size=20,
)
limits = st.none() | st.integers(1, 10**6)


def shares(lags: dict[TopicPartition, int], max_records: int | None = None, per_partition: int | None = None) -> dict:
    """Share with the same headroom everywhere."""
    return share_fairly(lags, dict.fromkeys(lags, 0), max_records, per_partition)


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


def test_where_not_even_one_each_fits_the_least_headroom_comes_first() -> None:
    lags = {P0: 1_000, P1: 10, P2: 500, P3: 500}
    headroom = {P0: 900, P1: 3, P2: 80, P3: 7}
    assert share_fairly(lags, headroom, 2, None) == {P1: 1, P3: 1}


def test_equal_headroom_is_settled_by_the_partitions_number() -> None:
    assert shares({P2: 5, P1: 5, P0: 5}, 2) == {P0: 1, P1: 1}


def test_each_partition_is_cut_to_its_own_limit() -> None:
    assert shares({P0: 1_000, P1: 10}, None, 100) == {P0: 100, P1: 10}


def test_both_limits_hold_at_once() -> None:
    assert shares({P0: 1_000, P1: 1_000, P2: 10}, 60, 50) == {P0: 27, P1: 27, P2: 6}


def test_the_shares_do_not_depend_on_the_order_of_the_partitions() -> None:
    lags = {P0: 7, P1: 11, P2: 13, P3: 17}
    found = [shares(dict(order), 20) for order in itertools.permutations(lags.items())]
    assert all(list(each.items()) == list(found[0].items()) for each in found)


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
    lags: dict[TopicPartition, int], max_records: int | None, random: object
) -> None:
    shuffled = list(lags.items())
    random.shuffle(shuffled)
    assert list(shares(dict(shuffled), max_records).items()) == list(shares(lags, max_records).items())
