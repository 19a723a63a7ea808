"""How many records of each batch are in an output topic, by where marks say that they are; without a broker."""

from uuid import UUID

from confluent_kafka import Message

from kafka_ingest.sinks.kafka_topic import topic_rows
from kafka_ingest.sinks.kafka_topic.contents import Count
from kafka_ingest.sinks.kafka_topic.topic_rows import LandedRange, Landing, Records, landed_in

FIRST, SECOND = UUID(int=1), UUID(int=2)


def counted(landed: dict[UUID, tuple[LandedRange, ...] | None], records: Records, *, compacts: bool = False) -> Count:
    count = Count("orders_clean", compacts)
    count.take(landed, {FIRST: 10, SECOND: 10}, {0: records})
    return count


def placed(start: int, end: int) -> tuple[LandedRange, ...]:
    return (LandedRange(0, start, end, 10),)


def test_a_record_that_is_not_there_is_missing_from_the_batch_whose_place_it_was_in() -> None:
    count = counted({FIRST: placed(0, 10), SECOND: placed(11, 21)}, Records(0, [*range(10), *range(11, 18)]))
    assert (+count.gone, +count.deleted, count.problems) == ({(SECOND, 0): 3}, {}, [])


def test_batches_that_lie_among_each_other_are_counted_together() -> None:
    both = {FIRST: placed(0, 18), SECOND: placed(2, 20)}
    assert +counted(both, Records(0, range(20))).gone == {}
    assert counted(both, Records(0, range(21))).problems == [
        "orders_clean, where no mark says that a batch is: expected 0 records, found 1. Find what else writes to it"
    ]


def test_what_is_below_the_log_start_was_deleted_by_retention_and_the_rest_is_missing() -> None:
    count = counted({FIRST: placed(0, 10), SECOND: placed(11, 21)}, Records(4, [*range(4, 9), *range(11, 21)]))
    assert (+count.gone, +count.deleted) == ({(FIRST, 0): 5}, {(FIRST, 0): 4})


def test_of_a_compacted_topic_no_record_is_missing() -> None:
    count = counted({FIRST: placed(0, 10), SECOND: placed(11, 21)}, Records(0, [9, 20]), compacts=True)
    assert count.deleted == count.gone == {(FIRST, 0): 9, (SECOND, 0): 9}


def test_records_of_marks_without_a_place_are_those_that_no_other_mark_has() -> None:
    assert +counted({FIRST: placed(0, 10), SECOND: None}, Records(0, range(20))).gone == {}
    assert +counted({FIRST: placed(0, 10), SECOND: None}, Records(0, range(19))).gone == {(SECOND, -1): 1}


def test_a_mark_has_the_place_of_its_records_unless_a_broker_did_not_say_it() -> None:
    landing = Landing()
    for offset in (5, 6, 8):
        landing.note(None, Message(partition=2, offset=offset))
    assert landed_in({"landed": landing.as_document()}) == (LandedRange(2, 5, 9, 3),)
    landing.note(None, Message(partition=2, offset=-1001))
    assert landing.as_document() is None


def test_a_mark_that_would_be_too_large_for_its_topic_has_no_places() -> None:
    landing = Landing({number: [0, 0, 1] for number in range(topic_rows.MOST_RANGES)})
    assert landing.as_document() is not None
    landing.note(None, Message(partition=topic_rows.MOST_RANGES, offset=0))
    assert landing.as_document() is None


def test_a_batch_that_was_published_while_records_were_read_is_neither_missing_nor_too_much() -> None:
    meanwhile = UUID(int=3)
    marked = {FIRST: placed(0, 10), SECOND: placed(10, 21), meanwhile: placed(20, 32)}
    for seen in (20, 24, 30):
        count = counted(marked, Records(0, range(seen)))
        assert (+count.gone, count.problems) == ({}, [])
    assert counted(marked, Records(0, range(31))).problems != []
