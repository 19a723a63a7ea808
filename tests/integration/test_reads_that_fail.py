"""What becomes of a batch that cannot be read as planned: the named error, the next run, and every record once."""

import pytest
from confluent_kafka import Producer
from tests.kafka_faults import (
    Record,
    corrupt_batch,
    create_topic,
    delete_records,
    plain_records,
    produce,
    recreate_topic,
)
from tests.quick_project import QuickProject, spans

from embedded_broker import EmbeddedBroker

# ── Retention between plan and read ───────────────────────────────────────────────────────────────────────────────────


def test_retention_while_spark_starts_becomes_the_named_error_and_the_next_run_decides(
    quick: QuickProject, servers: str, orders: str
) -> None:
    def retention() -> None:
        delete_records(servers, orders, 0, 4)
        delete_records(servers, orders, 1, 2)

    quick.write_feed(orders)
    with quick.submitting(spark_is_real=True, before_spark=retention):
        exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (1, "RANGE_NOT_IN_LOG")
    assert f"{orders}-0[0, 10) begins below the log start 4" in message
    assert "Run the feed again" in message
    assert quick.status()["open_batch"]["state"] == "PLANNED"
    assert quick.rows() == []

    exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "OFFSETS_LOST")
    assert f"`kafka-ingest skip orders {orders} 0 0-4 --reason …`" in message
    [abandoned] = quick.batches()
    assert abandoned["state"] == "ABANDONED"
    assert f"{orders}-0[0, 10) begins below the log start 4" in abandoned["reason"]

    quick.edit_feed(on_data_loss="record_gap")
    [batch] = quick.run()
    assert batch["rows"] == 9
    assert quick.gaps() == [(0, 0, 4, "retention", "open"), (1, 0, 2, "retention", "open")]
    assert quick.positions() == [(0, n) for n in range(4, 10)] + [(1, n) for n in range(2, 5)]


def test_retention_that_took_more_than_the_batch_is_one_gap(quick: QuickProject, servers: str, orders: str) -> None:
    quick.write_feed(orders, on_data_loss="record_gap", limits={"max_records_per_partition": 3})
    quick.plan()
    delete_records(servers, orders, 0, 7)
    quick.run("orders", "--until-caught-up")
    assert quick.gaps() == [(0, 0, 7, "retention", "open")]
    assert quick.positions() == [(0, n) for n in range(7, 10)] + [(1, n) for n in range(5)]


@pytest.mark.parametrize(
    ("log_start", "gaps", "first"),
    [
        (3, [(0, 1, 3, "retention", "open"), (0, 4, 6, "skipped", "open")], [3]),
        (5, [(0, 1, 4, "retention", "open"), (0, 4, 6, "skipped", "open")], []),
        (
            8,
            [(0, 1, 4, "retention", "open"), (0, 4, 6, "skipped", "open"), (0, 6, 8, "retention", "open")],
            [],
        ),
    ],
)
def test_retention_that_reaches_a_gap_filed_ahead_of_a_planned_batch_files_nothing_twice(
    quick: QuickProject,
    servers: str,
    orders: str,
    log_start: int,
    gaps: list[tuple[int, int, int, str, str]],
    first: list[int],
) -> None:
    quick.write_feed(orders, on_data_loss="record_gap")
    quick.run("orders", "--end-offset", f"{orders}:0=1")
    quick.answer("skip", "orders", orders, "0", "4-6", "--reason", "poisoned")
    planned = quick.plan()
    assert spans(planned) == {0: (1, 4), 1: (0, 5)}
    delete_records(servers, orders, 0, log_start)

    quick.run("orders", "--until-caught-up")
    assert quick.gaps() == gaps
    after = range(max(6, log_start), 10)
    assert quick.positions() == [(0, n) for n in (0, *first, *after)] + [(1, n) for n in range(5)]
    assert quick.batches()[-1]["state"] == "COMMITTED"
    [kept] = [batch for batch in quick.batches() if batch["left_out"]]
    assert (kept["batch_id"], kept["state"]) == (planned["batch_id"], "COMMITTED")
    assert quick.stored_offsets() == {0: 10, 1: 5, 2: 0}


# ── The topic is another one ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_made_again_while_spark_starts_becomes_the_named_error(
    quick: QuickProject, servers: str, orders: str
) -> None:
    # Spark waits so long for records that never come, two minutes by default.
    patience = {"spark.network.timeout": "4s", "spark.executor.heartbeatInterval": "1s"}
    quick.write_feed(orders, spark={"conf": patience})
    with quick.submitting(spark_is_real=True, before_spark=lambda: recreate_topic(servers, orders, 3)):
        exit_code, code, _ = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
    assert quick.status()["open_batch"]["state"] == "PLANNED"
    assert quick.rows() == []


def test_a_topic_made_again_whose_numbers_fit_is_found_although_the_read_went_well(
    quick: QuickProject, servers: str, orders: str
) -> None:
    def made_again() -> None:
        recreate_topic(servers, orders, 3)
        for partition in range(3):
            produce(servers, orders, partition, plain_records(12))

    quick.write_feed(orders)
    with quick.submitting(before_spark=made_again):
        exit_code, code, _ = quick.refusal("run", "orders")
    assert (exit_code, code) == (3, "TOPIC_RECREATED")
    assert quick.status()["open_batch"]["state"] == "PLANNED"
    assert quick.rows() == []


# ── A record that cannot be read ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three_batches(servers: str, name: str) -> str:
    """A topic of two partitions: 0 holds three record batches of four, 1 holds five records."""
    create_topic(servers, name, 2)
    for _ in range(3):
        produce(servers, name, 0, plain_records(4))
    produce(servers, name, 1, plain_records(5))
    return name


def test_a_damaged_batch_fails_the_run_once_is_read_up_to_shown_and_jumped_over(
    quick: QuickProject, broker: EmbeddedBroker, three_batches: str
) -> None:
    corrupt_batch(broker, three_batches, 0, 5)
    quick.write_feed(three_batches)

    with quick.submitting(spark_is_real=True):
        exit_code, code, message = quick.refusal("run", "orders")
        assert (exit_code, code) == (1, "PARTITION_UNREADABLE")
        assert f"{three_batches}-0: the record at offset 4 cannot be read" in message
        assert "Run the feed again: the plan ends before that offset, and the other partitions continue" in message
        assert f"`kafka-ingest skip orders {three_batches} 0 4-TO --reason …`" in message
        assert quick.rows() == []

        [batch] = quick.run()
        assert batch["rows"] == 9
        assert quick.stored_offsets() == {0: 4, 1: 5}

    unreadable = quick.partition(0)["unreadable"]
    assert unreadable["at_offset"] == 4
    assert unreadable["since"] is not None
    assert quick.partition(1)["unreadable"] is None
    assert quick.plan()["result"] == "nothing_new"
    assert quick.partition(0)["unreadable"] == unreadable, "also after a plan that tried it again"
    assert [left_out["partition"] for left_out in quick.dry_run()["left_out"]] == [0]

    quick.answer("skip", "orders", three_batches, "0", "4-8", "--reason", "the segment is damaged")
    [batch] = quick.run()
    assert batch["rows"] == 4
    assert quick.gaps() == [(0, 4, 8, "skipped", "open")]
    assert quick.partition(0)["unreadable"] is None
    assert quick.positions() == [(0, n) for n in (0, 1, 2, 3, 8, 9, 10, 11)] + [(1, n) for n in range(5)]


def test_a_damaged_batch_that_is_mended_is_read_without_a_decision(
    quick: QuickProject, broker: EmbeddedBroker, three_batches: str
) -> None:
    quick.write_feed(three_batches)
    quick.run("orders", "--end-offset", f"{three_batches}:0=6")
    corrupt_batch(broker, three_batches, 0, 5)
    with quick.submitting(spark_is_real=True):
        exit_code, code, message = quick.refusal("run", "orders")
    assert (exit_code, code) == (1, "PARTITION_UNREADABLE")
    assert f"{three_batches}-0: the record at offset 6 cannot be read" in message
    [batch] = quick.run()
    assert batch["rows"] == 5
    assert quick.partition(0)["unreadable"]["at_offset"] == 6

    corrupt_batch(broker, three_batches, 0, 5)
    [batch] = quick.run()
    assert batch["rows"] == 6
    assert quick.gaps() == []
    assert quick.partition(0)["unreadable"] is None
    assert quick.positions() == [(0, n) for n in range(12)] + [(1, n) for n in range(5)]


# ── A timestamp that Spark's source cannot take ───────────────────────────────────────────────────────────────────────


def test_a_timestamp_in_nanoseconds_is_committed_at_the_first_attempt_counted_and_shown(
    quick: QuickProject, servers: str, name: str
) -> None:
    largest = str(2**63 - 1)
    taking_any = {"message.timestamp.before.max.ms": largest, "message.timestamp.after.max.ms": largest}
    create_topic(servers, name, 2, config=taking_any)
    produce(servers, name, 0, [*plain_records(3), Record(b"odd", b"key", 1_700_000_000_000_000_000)])
    produce(servers, name, 1, plain_records(4))
    quick.write_feed(name)

    with quick.submitting(spark_is_real=True):
        [batch] = quick.run()

    assert batch["rows"] == 8
    assert quick.stored_offsets() == {0: 4, 1: 4}
    [odd] = [row for row in quick.rows() if row["kafka_timestamp"] is None]
    assert (odd["kafka_offset"], odd["value"], odd["kafka_timestamp_ms"]) == (3, b"odd", 1_700_000_000_000_000_000)
    [event] = quick.answer("history", "orders", "--kind", "no_dates")["events"]
    assert event["detail"]["rows"] == 1
    assert event["batch_id"] == batch["batch_id"]


# ── A heap that is too small ──────────────────────────────────────────────────────────────────────────────────────────


def test_records_that_do_not_fit_into_the_heap_hold_their_partition_until_the_named_setting_is_raised(
    quick: QuickProject, servers: str, name: str
) -> None:
    create_topic(servers, name)
    settings = {"bootstrap.servers": servers, "compression.codec": "zstd", "message.max.bytes": 100_000_000}
    with Producer(settings) as producer:
        for _ in range(5):
            producer.produce(name, b"x" * 60_000_000, partition=0)
    quick.write_feed(name, spark={"conf": {"spark.driver.memory": "512m"}})

    with quick.submitting(spark_is_its_own=True):
        exit_code, code, message = quick.refusal("run", "orders")

    assert (exit_code, code) == (1, "PARTITION_UNREADABLE")
    assert "too little memory for the record at offset 0, which has 60,000,000 bytes" in message
    assert "Raise spark.driver.memory in the feed's spark.conf to 5723m" in message
    status = quick.status()
    assert status["open_batch"]["state"] == "PLANNED"
    assert [hold["cause"] for hold in status["holds"]] == ["unreadable"]
    assert quick.rows() == []
