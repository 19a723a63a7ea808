"""How large a batch of a Kafka output may be, by how long the transactions of earlier ones took; without a broker."""

import pytest
from confluent_kafka import Message
from tests.fakes import FakeKafkaCluster, FeedInMemory, feed_settings, log, topic

from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.sinks.kafka_topic.marks import Pace, longest_s, most_rows, pace_in
from kafka_ingest.sinks.kafka_topic.topic_rows import SeenMarks

QUARTER_OF_AN_HOUR_S = 900


def test_where_nothing_was_measured_a_minute_and_a_second_for_20000_rows_or_2_megabytes_are_counted() -> None:
    assert longest_s(0, 0, ()) == 60
    assert longest_s(40_000, 6_000_000, ()) == 60 + 2 + 3


def test_four_times_the_slowest_of_the_newest_transactions_are_counted_and_none_that_mostly_waited() -> None:
    fast, slow, short = Pace(1_000_000, 400_000_000, 4.0), Pace(1_000, 4_000_000, 2.0), Pace(1, 4_000_000, 0.9)
    waited = Pace(10, 1_999_999, 30.0)
    assert longest_s(500_000, 200_000_000, [fast]) == 60 + 4 * 2
    assert longest_s(500_000, 200_000_000, [fast, slow, short, waited]) == 60 + 4 * 100


def test_a_batch_has_so_many_rows_of_the_size_of_the_largest_that_half_of_the_allowed_time_is_left() -> None:
    assert most_rows(QUARTER_OF_AN_HOUR_S, ()) == 52_173
    assert longest_s(52_173, 52_173 * 16_000, ()) == pytest.approx(60 + 420, abs=0.1)
    # 4 MB a second at most, and 8,000 bytes a row.
    earlier = [Pace(10_000, 80_000_000, 5.0), Pace(500_000, 100_000_000, 2.0)]
    assert most_rows(QUARTER_OF_AN_HOUR_S, earlier) == 420 * 4_000_000 // 8_000
    assert longest_s(210_000, 210_000 * 8_000, earlier) == 60 + 420


def test_how_large_rows_are_is_known_of_short_transactions_too() -> None:
    assert most_rows(QUARTER_OF_AN_HOUR_S, [Pace(10, 10_000_000, 0.2)]) == 839


@pytest.mark.parametrize("allowed_s", [60, 60.001])
def test_a_batch_has_a_row_however_little_is_allowed(allowed_s: float) -> None:
    assert most_rows(allowed_s, ()) >= 1


def test_a_mark_says_how_long_its_transaction_took_unless_an_earlier_version_made_it_or_it_has_no_rows() -> None:
    produced = '{"outcome": "published", "produced": {"rows": 20, "bytes": 4000, "milliseconds": 1500}}'
    assert pace_in(produced.encode()) == Pace(20, 4000, 1.5)
    assert pace_in(produced.replace("20", "0").encode()) is None
    assert pace_in(b'{"outcome": "published"}') is None
    with pytest.raises(ForeignJsonError):
        pace_in(b'{"produced": {"rows": "many"}}')


def test_marks_that_were_read_again_are_noted_once_and_the_newest_twenty_are_kept() -> None:
    seen = SeenMarks()
    for offset in (*range(0, 50, 2), 4, 6):
        seen.note(Message(key=b"%d" % offset, value=b"mark %d" % offset, offset=offset))
    assert (seen.next_offset, seen.offsets[b"4"], len(seen.offsets)) == (49, 4, 25)
    assert list(seen.newest) == [b"mark %d" % offset for offset in range(10, 50, 2)]


@pytest.mark.parametrize(("of_feed", "of_output", "planned"), [(None, 7, 7), (5, 7, 5), (9, 7, 7), (9, None, 9)])
def test_a_batch_is_cut_where_its_output_takes_fewer_rows_at_once(
    monkeypatch: pytest.MonkeyPatch, of_feed: int | None, of_output: int | None, planned: int
) -> None:
    feed = FeedInMemory(FakeKafkaCluster({"orders": topic(log(0, 100))}), settings=feed_settings(max_records=of_feed))
    if of_output is not None:
        monkeypatch.setattr(feed.sink, "most_rows", lambda: of_output, raising=False)
    assert (feed.planned().max_rows, feed.planned().capped) == (planned, True)
