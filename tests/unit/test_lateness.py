"""A feed is late where a run that was due should have read what waits, and not before."""

from datetime import UTC, datetime, timedelta

import pytest

from kafka_ingest.observing.due_feeds import is_late

AT_40 = datetime(2026, 3, 1, 10, 40, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_an_hourly_feed_is_not_late_while_its_records_wait_for_the_next_run() -> None:
    for minutes in (16, 40, 59):
        now = AT_40.replace(minute=minutes)
        # The run of 10:00 has read what there was; producers' clocks may be somewhat apart.
        assert not is_late("@hourly", MINUTE * (minutes + 10), now, now)


def test_an_hourly_feed_is_late_where_a_record_waits_that_the_newest_run_should_have_read() -> None:
    assert is_late("@hourly", MINUTE * 70, AT_40, AT_40)
    assert is_late("0 * * * *", timedelta(days=3), None, AT_40)


def test_a_run_that_is_due_has_a_quarter_of_an_hour_before_what_it_reads_is_late() -> None:
    of_before = timedelta(minutes=65)
    assert not is_late("@hourly", of_before, None, AT_40.replace(minute=10))
    assert is_late("@hourly", of_before, None, AT_40.replace(minute=20))


def test_without_the_records_age_the_last_plan_decides() -> None:
    assert not is_late("@hourly", None, AT_40.replace(minute=0, second=9), AT_40)
    assert is_late("@hourly", None, AT_40.replace(hour=9), AT_40)
    assert is_late("@hourly", None, None, AT_40)


@pytest.mark.parametrize("schedule", ["@quarterly", "0 6 * * 1-5", "@yearly"])
def test_a_feed_that_runs_seldom_is_not_late_for_days(schedule: str) -> None:
    assert not is_late(schedule, timedelta(days=1), None, AT_40)
    assert is_late(schedule, timedelta(days=90), None, AT_40)


def test_a_feed_without_times_is_late_by_age_alone() -> None:
    only_in_future = "0 0 1 1 * 0 2031"
    for schedule in (None, "@once", only_in_future):
        assert not is_late(schedule, timedelta(hours=23), None, AT_40)
        assert is_late(schedule, timedelta(hours=25), None, AT_40)
    assert not is_late("@continuous", timedelta(minutes=15), None, AT_40)
    assert is_late("@continuous", timedelta(minutes=25), None, AT_40)
