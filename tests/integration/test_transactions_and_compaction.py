"""Offsets without a record, read by Spark: what transactions and compaction leave, and open transactions."""

from typing import Any

import pytest
from tests.kafka_faults import (
    aborted_transaction,
    committed_transaction,
    compacted_topic,
    create_topic,
    open_transaction,
    plain_records,
    produce,
    range_without_records,
)
from tests.quick_project import QuickProject, spans

from embedded_broker import EmbeddedBroker

Counts = dict[tuple[str, int], tuple[int, int, int, int]]


def counts(batch: dict[str, Any]) -> Counts:
    """Return start offset, end offset, rows and invisible offsets of each range of a batch."""
    return {
        (found["topic"], found["partition"]): (
            found["start_offset"],
            found["end_offset"],
            found["rows"],
            found["invisible"],
        )
        for found in batch["ranges"]
    }


def read_by_spark(quick: QuickProject, *options: str) -> Counts:
    """Run the feed once with Spark, and return what its batch counted."""
    with quick.submitting(spark_is_real=True):
        quick.run("orders", *options)
    [batch] = quick.batches()
    return counts(batch)


# ── Read by Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_logs_with_aborted_records_markers_and_compacted_holes_are_read_and_what_is_invisible_is_counted(
    quick: QuickProject, broker: EmbeddedBroker, servers: str, name: str
) -> None:
    compacted = f"{name}-compacted"
    remaining = compacted_topic(broker, compacted)
    create_topic(servers, name, 6)
    produce(servers, name, 0, plain_records(3))
    aborted_transaction(servers, name, 0, plain_records(2))
    aborted_transaction(servers, name, 1, plain_records(2))
    produce(servers, name, 1, plain_records(3))
    range_without_records(servers, name, 2)
    committed_transaction(servers, name, 3, plain_records(3))
    produce(servers, name, 5, plain_records(4))
    quick.write_feed(name, kafka={"topics": [name, compacted]})

    assert read_by_spark(quick) == {
        (name, 0): (0, 6, 3, 3),
        (name, 1): (0, 6, 3, 3),
        (name, 2): (0, 8, 0, 8),
        (name, 3): (0, 4, 3, 1),
        (name, 5): (0, 4, 4, 0),
        (compacted, 0): (0, 22, 6, 16),
    }
    assert [row["kafka_offset"] for row in quick.rows() if row["kafka_topic"] == compacted] == remaining
    assert [position for position in quick.positions() if position[0] == 1] == [(1, 3), (1, 4), (1, 5)]
    assert quick.run() == []


def test_ranges_may_begin_and_end_anywhere_inside_what_is_invisible(
    quick: QuickProject, broker: EmbeddedBroker, servers: str, name: str
) -> None:
    # Records at 0 and 1, aborted ones at 2, 3 and 4, their marker at 5, records at 6 and 7.
    create_topic(servers, name, 6)
    for partition in range(6):
        produce(servers, name, partition, plain_records(2))
        aborted_transaction(servers, name, partition, plain_records(3))
        produce(servers, name, partition, plain_records(2))
    # Records at 0 and from 5 on, a hole at 1 to 4.
    compacted = f"{name}-compacted"
    compacted_topic(broker, compacted, keys=2, rounds=3, partitions=3)

    wanted: Counts = {
        (name, 0): (0, 3, 2, 1),
        (name, 1): (3, 5, 0, 2),
        (name, 2): (5, 6, 0, 1),
        (name, 3): (5, 8, 2, 1),
        (name, 4): (4, 8, 2, 2),
        (name, 5): (0, 6, 2, 4),
        (compacted, 0): (0, 3, 1, 2),
        (compacted, 1): (2, 4, 0, 2),
        (compacted, 2): (3, 8, 3, 2),
    }
    offsets: dict[str, dict[int, int]] = {}
    ends: list[str] = []
    for (topic, partition), (start, end, _, _) in wanted.items():
        offsets.setdefault(topic, {})[partition] = start
        ends += ["--end-offset", f"{topic}:{partition}={end}"]
    quick.write_feed(name, kafka={"topics": [name, compacted]}, start={"offsets": offsets, "otherwise": "earliest"})
    assert read_by_spark(quick, *ends) == wanted


def test_a_feed_that_reads_uncommitted_gets_aborted_records_and_never_a_marker(
    quick: QuickProject, servers: str, name: str
) -> None:
    create_topic(servers, name)
    produce(servers, name, 0, plain_records(2))
    aborted_transaction(servers, name, 0, plain_records(3))
    quick.write_feed(name, kafka={"topics": [name], "isolation": "read_uncommitted"})
    with open_transaction(servers, name, 0, plain_records(2)):
        assert read_by_spark(quick) == {(name, 0): (0, 8, 7, 1)}


# ── Every offset has to be a record ───────────────────────────────────────────────────────────────────────────────────


def test_a_dense_feed_refuses_a_range_with_holes_by_partition_and_counts_and_auto_takes_it(
    quick: QuickProject, servers: str, orders: str
) -> None:
    aborted_transaction(servers, orders, 1, plain_records(2))
    quick.write_feed(orders, kafka={"topics": [orders], "offsets": "dense"})
    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "OFFSETS_MISSING")
    assert f"{orders}-1[0, 8): 5 records, 3 offsets without one" in message
    assert f"{orders}-0" not in message
    assert "(kafka.offsets: dense)" in message
    assert "set kafka.offsets: auto and abandon the batch" in message
    assert quick.stored_offsets() == {0: 0, 1: 0, 2: 0}
    assert quick.rows() == []

    # As the message says.
    quick.edit_feed(kafka={"topics": [orders], "offsets": "auto"})
    quick.answer("abandon", quick.status()["open_batch"]["batch_id"], "--reason", "a transaction explains it")
    [batch] = quick.run()
    assert batch["rows"] == 15
    assert counts(quick.batches()[0])[orders, 1] == (0, 8, 5, 3)


# ── Transactions that are open ────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_below_the_last_stable_offset_is_no_batch_no_lag_and_a_state_of_its_own_with_since_when(
    quick: QuickProject, servers: str, orders: str
) -> None:
    quick.write_feed(orders)
    quick.run()
    with open_transaction(servers, orders, 0, plain_records(3)):
        produce(servers, orders, 0, plain_records(2))
        assert quick.partition(0)["open_transaction"] == {"at_offset": 10, "offsets_behind_it": 5, "since": None}

        found = quick.plan()
        assert (found["result"], found["ranges"]) == ("nothing_new", [])
        [hold] = found["holds"]
        assert (hold["partition"], hold["cause"], hold["at_offset"]) == (0, "open_transaction", 10)
        entry = quick.partition(0)
        assert entry["open_transaction"] == {"at_offset": 10, "offsets_behind_it": 5, "since": hold["since"]}
        assert (entry["lag"], entry["last_stable_offset"], entry["high_watermark"]) == (0, 10, 15)
        assert quick.partition(1)["open_transaction"] is None

        quick.plan()
        assert quick.partition(0)["open_transaction"]["since"] == hold["since"], "it is the same one"
        assert "open transaction, 5 offsets behind it, since" in quick.kafka_ingest("status", "orders").stdout

    assert quick.partition(0)["open_transaction"] is None
    assert spans(quick.plan()) == {0: (10, 16)}
    assert quick.partition(0)["open_transaction"] is None


@pytest.mark.parametrize(("isolation", "lag"), [("read_committed", 0), ("read_uncommitted", 3)])
def test_lag_counts_what_the_feed_may_read(
    quick: QuickProject, servers: str, orders: str, isolation: str, lag: int
) -> None:
    quick.write_feed(orders, kafka={"topics": [orders], "isolation": isolation})
    quick.run()
    with open_transaction(servers, orders, 0, plain_records(3)):
        assert quick.partition(0)["lag"] == lag
        assert (quick.partition(0)["open_transaction"] is None) == (isolation == "read_uncommitted")
