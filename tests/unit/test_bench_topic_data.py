"""The benchmark's records: how many there are where, and that each is as long as was asked for."""

import json

import order_templates
import pytest
from order_templates import records, templates, value_of
from topic_data import IN_A_TRANSACTION, LARGEST_BYTES, SMALLEST_BYTES, TopicData


@pytest.fixture
def few_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred instead of 20,000, and less noise to take them from: making all takes seconds."""
    monkeypatch.setattr(order_templates, "TEMPLATES", 300)
    monkeypatch.setattr(order_templates, "RANDOM_CHARACTERS", 50_000)


@pytest.mark.parametrize(
    ("data", "counts"),
    [
        (TopicData("t", 8, partitions=4), {0: 2, 1: 2, 2: 2, 3: 2}),
        (TopicData("t", 10, partitions=4), {0: 3, 1: 3, 2: 2, 3: 2}),
        (TopicData("t", 10, partitions=1), {0: 10}),
        (TopicData("t", 100, partitions=4, skew=0.9), {0: 90, 1: 4, 2: 3, 3: 3}),
        (TopicData("t", 100, partitions=2, skew=0.25), {0: 25, 1: 75}),
        (TopicData("t", 3, partitions=3, skew=0.99), {0: 3, 1: 0, 2: 0}),
    ],
)
def test_records_are_spread_evenly_or_as_skew_says(data: TopicData, counts: dict[int, int]) -> None:
    assert data.counts() == counts


@pytest.mark.parametrize("skew", [0.0, 0.1, 0.333, 0.9, 0.99])
@pytest.mark.parametrize("partitions", [2, 3, 7, 100])
@pytest.mark.parametrize("number", [100, 101, 9_999])
def test_no_record_is_lost_by_rounding(number: int, partitions: int, skew: float) -> None:
    counts = TopicData("t", number, partitions=partitions, skew=skew).counts()

    assert sum(counts.values()) == number
    assert list(counts) == list(range(partitions))


@pytest.mark.parametrize(
    ("in_partition", "end"),
    [
        (1, 2),
        (IN_A_TRANSACTION - 1, IN_A_TRANSACTION),
        (IN_A_TRANSACTION, IN_A_TRANSACTION + 1),
        (IN_A_TRANSACTION + 1, IN_A_TRANSACTION + 3),
    ],
)
def test_each_transaction_takes_one_more_offset(in_partition: int, end: int) -> None:
    assert TopicData("t", in_partition, partitions=1, transactional=True).end_offsets() == {0: end}


def test_an_empty_partition_has_no_transaction() -> None:
    assert TopicData("t", 1, partitions=2, transactional=True).end_offsets() == {0: 2, 1: 0}


@pytest.mark.parametrize(
    ("wanted", "ends"), [(4, {0: 1, 1: 1, 2: 1, 3: 1}), (5, {0: 2, 1: 2, 2: 2, 3: 2}), (10, {0: 3, 1: 3, 2: 2, 3: 2})]
)
def test_a_part_of_a_topic_is_taken_evenly_and_ends_with_the_log(wanted: int, ends: dict[int, int]) -> None:
    assert TopicData("t", 10, partitions=4).first_offsets(wanted) == ends


@pytest.mark.usefixtures("few_templates")
@pytest.mark.parametrize("incompressible", [False, True])
@pytest.mark.parametrize("length", [SMALLEST_BYTES, 200, LARGEST_BYTES])
def test_every_value_is_json_of_the_length_that_was_asked_for(length: int, incompressible: bool) -> None:  # noqa: FBT001
    data = TopicData("t", 100, record_bytes=length, incompressible=incompressible)
    made = templates(data)

    for partition, count in data.counts().items():
        for batch in records(data, partition, count, made, value_of):
            assert {len(record["value"]) for record in batch} == {length}
            assert [json.loads(record["value"])["customer"].encode() for record in batch] == [r["key"] for r in batch]


@pytest.mark.usefixtures("few_templates")
def test_the_numbers_of_orders_are_of_one_length_and_never_twice_however_many_partitions_there_are() -> None:
    data = TopicData("t", 20_000, partitions=10_000)
    made = templates(data)
    numbers = [
        json.loads(record["value"])["order_id"]
        for partition, count in data.counts().items()
        for batch in records(data, partition, count, made, value_of)
        for record in batch
    ]

    assert len(set(numbers)) == len(numbers) == 20_000
    assert {len(str(number)) for number in numbers} == {10}


@pytest.mark.usefixtures("few_templates")
def test_the_same_data_are_the_same_records() -> None:
    data = TopicData("t", 50)
    once, again = (list(records(data, 1, 20, templates(data), value_of)) for _ in range(2))

    assert once == again
