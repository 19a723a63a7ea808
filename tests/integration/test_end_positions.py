"""Where a batch ends: at the last stable offset or the high watermark, or where a manual run says."""

from datetime import UTC, datetime, timedelta

from tests.kafka_faults import (
    hidden_by_deleted_records,
    hidden_for_good,
)
from tests.quick_project import QuickProject, spans

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def after(seconds: float) -> str:
    """Return the time so many seconds after the first record."""
    return (FIRST + timedelta(seconds=seconds)).isoformat()


# ── The end of what can be read ───────────────────────────────────────────────────────────────────────────────────────


# ── --end-timestamp ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_up_to_a_time_ends_before_the_first_record_of_that_time(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    for seconds, expected in (
        (-1, {}),
        (0, {}),
        (3, {0: (0, 3), 1: (0, 3)}),  # at a record, which is not read
        (6.5, {0: (0, 7), 1: (0, 5)}),  # between two records, and after the shorter log
        (3600, {0: (0, 10), 1: (0, 5)}),
    ):
        assert spans(quick.dry_run("--end-timestamp", after(seconds))) == expected, seconds


def test_a_time_before_what_is_left_of_a_log_ends_before_all_of_it_and_one_that_is_not_known_is_refused(
    quick: QuickProject, servers: str, name: str
) -> None:
    hidden_by_deleted_records(servers, name)
    quick.write_feed(name)
    assert quick.dry_run("--end-timestamp", "2020-01-01T00:00:00Z")["result"] == "nothing_new"

    hidden_for_good(servers, f"{name}-longer")
    quick.write_feed(f"{name}-longer")
    exit_code, code, message = quick.refusal("plan", "orders", "--end-timestamp", after(20))
    assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
    assert "NO_OFFSET_AT_TIME" in message
    assert quick.batches() == []


# ── --end-offset ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_explicit_ends_read_only_the_partitions_they_name(quick: QuickProject, orders: str) -> None:
    quick.write_feed(orders)
    [batch] = quick.run("orders", "--end-offset", f"{orders}:0=6")
    assert batch["rows"] == 6
    assert quick.stored_offsets() == {0: 6, 1: 0, 2: 0}
    assert spans(quick.dry_run()) == {0: (6, 10), 1: (0, 5)}


# ── What cannot be asked for ──────────────────────────────────────────────────────────────────────────────────────────


SENSELESS: list[tuple[tuple[str, ...], str]] = [
    (("--end-timestamp", "2026-01-01T00:00:00Z", "--end-offset", "orders:0=1"), "found both"),
    (("--end-timestamp", "2026-01-01T00:00:00"), "end_timestamp"),
    (("--end-timestamp", "yesterday"), "end_timestamp"),
    (("--end-offset", "orders=1"), "expected --end-offset TOPIC:PARTITION=OFFSET, such as orders:0=1200"),
    (("--end-offset", "orders:0=-1"), "expected --end-offset TOPIC:PARTITION=OFFSET"),
    (("--end-offset", "orders:0=1", "--end-offset", "orders:0=2"), "found orders:0 twice"),
]


def test_ends_that_make_no_sense_are_refused_before_kafka_is_asked(quick: QuickProject) -> None:
    quick.write_feed("orders")
    for options, said in SENSELESS:
        exit_code, _, message = quick.refusal("plan", "orders", *options)
        assert exit_code == 2, options
        assert said in message, options
