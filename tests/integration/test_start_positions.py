"""Where a feed begins: every start rule against real logs, applied once, and explicit numbers from then on."""

from datetime import UTC, datetime, timedelta

from tests.integration.conftest import MoveGroup
from tests.kafka_faults import (
    FIRST_TIMESTAMP_MS,
    Record,
    create_topic,
    delete_records,
    hidden_for_good,
    plain_records,
    produce,
)
from tests.quick_project import QuickProject, seeds, spans

FIRST = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> dict[str, str]:
    """Return the start rule of a time so many seconds after the first record."""
    return {"timestamp": (FIRST + timedelta(seconds=seconds)).isoformat()}


# ── earliest and latest ───────────────────────────────────────────────────────────────────────────────────────────────


def test_earliest_begins_at_the_log_start_also_where_retention_moved_it(
    quick: QuickProject, servers: str, orders: str
) -> None:
    delete_records(servers, orders, 0, 4)
    quick.write_feed(orders, start="earliest")
    found = quick.dry_run()
    assert spans(found) == {0: (4, 10), 1: (0, 5)}
    assert seeds(found) == {0: (4, "earliest"), 1: (0, "earliest"), 2: (0, "earliest")}


def test_latest_seeds_the_ends_and_reads_only_what_comes_after_the_first_plan(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, start="latest")
    assert quick.run() == []
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    produce(servers, orders, 0, plain_records(2))
    produce(servers, orders, 2, plain_records(3))
    assert spans(quick.dry_run()) == {0: (10, 12), 2: (0, 3)}


# ── group: where another consumer stands ──────────────────────────────────────────────────────────────────────────────


def test_a_group_s_offsets_are_taken_over_and_partitions_without_one_begin_as_the_fallback_says(
    quick: QuickProject, orders: str, move_group: MoveGroup
) -> None:
    group = f"{orders}-old"
    move_group(group, orders, {0: 7})
    for otherwise, of_partition_1 in (("earliest", 0), ("latest", 5)):
        quick.write_feed(orders, start={"group": group, "otherwise": otherwise})
        fallback = f"{otherwise}: group {group} has no offset"
        assert seeds(quick.dry_run()) == {0: (7, f"group {group}"), 1: (of_partition_1, fallback), 2: (0, fallback)}


def test_a_feed_may_begin_at_its_own_group_which_then_follows(
    quick: QuickProject, orders: str, move_group: MoveGroup
) -> None:
    group = f"{orders}-own"
    move_group(group, orders, {0: 8, 1: 5, 2: 0})
    quick.write_feed(
        orders, start={"group": group, "otherwise": "earliest"}, kafka={"topics": [orders], "group": group}
    )
    [batch] = quick.run()
    assert batch["rows"] == 2
    assert quick.group_offsets() == {0: 10, 1: 5, 2: 0}


# ── timestamp: as ListOffsets defines it, resolved to a number ────────────────────────────────────────────────────────


def test_a_timestamp_begins_at_the_first_record_of_that_time_or_later(quick: QuickProject, orders: str) -> None:
    # Before the log, at records, between two, and less than a millisecond after one.
    for seconds, offset in ((-3600, 0), (0, 0), (3, 3), (3.001, 4), (3.0000005, 4), (9, 9)):
        quick.write_feed(orders, start=at(seconds))
        start, rule = seeds(quick.dry_run())[0]
        assert (start, rule.partition(" ")[0]) == (offset, "timestamp"), seconds


def test_a_timestamp_after_the_log_or_in_an_empty_partition_begins_at_the_end_and_the_seed_says_so(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders, start=at(9.5))
    assert quick.run() == []
    note = "timestamp 2026-01-01T00:00:09.500000+00:00: no record is of that time or later, so the log's end"
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}
    assert {entry["seeded_by"] for entry in quick.status()["partitions"]} == {note}
    # Once resolved it is a number: a late record of an earlier time is read like any other.
    produce(servers, orders, 2, [Record(timestamp_ms=FIRST_TIMESTAMP_MS)])
    assert spans(quick.dry_run()) == {2: (0, 1)}


def test_a_timestamp_in_a_log_whose_times_jump_back_begins_at_the_first_record_that_is_late_enough(
    quick: QuickProject, servers: str, name: str
) -> None:
    create_topic(servers, name)
    for second in (5, 1, 8, 2):
        produce(servers, name, 0, plain_records(1, FIRST_TIMESTAMP_MS + second * 1_000))
    quick.write_feed(name, start=at(6))
    assert spans(quick.dry_run()) == {0: (2, 4)}


def test_a_timestamp_that_kafka_contradicts_itself_about_stays_pending_with_the_reason_and_skips_nothing(
    quick: QuickProject, servers: str, name: str
) -> None:
    hidden_for_good(servers, name)
    other = f"{name}-other"
    create_topic(servers, other)
    produce(servers, other, 0, plain_records(40))
    quick.write_feed(name, start=at(20), kafka={"topics": [name, other]})
    quick.run()
    [batch] = quick.batches()
    assert [(found["topic"], found["start_offset"]) for found in batch["ranges"]] == [(other, 20)]
    found = quick.partition(0, topic=name)
    assert (found["stored_offset"], found["seeded_by"]) == (None, "timestamp 2026-01-01T00:00:20+00:00")
    assert found["unavailable"]["reason"].startswith("NO_OFFSET_AT_TIME")
    delete_records(servers, name, 0, 3)
    assert spans(quick.plan()) == {0: (3, 5)}


def test_a_time_that_kafka_contradicts_itself_about_moves_no_stored_offset_and_backfills_nothing(
    quick: QuickProject, servers: str, name: str
) -> None:
    hidden_for_good(servers, name)
    quick.write_feed(name)
    quick.run()
    time = at(20)["timestamp"]
    for command in (("reset", "orders", "--to", f"timestamp={time}"), ("backfill", "orders", f"from={time}")):
        exit_code, code, message = quick.refusal(*command)
        assert (exit_code, code) == (1, "KAFKA_UNAVAILABLE")
        assert "NO_OFFSET_AT_TIME" in message
    assert quick.stored_offsets() == {0: 5}
