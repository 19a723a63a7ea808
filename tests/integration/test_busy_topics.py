"""A topic that is written to while it is asked about: moments between two answers of Kafka are no state of its log."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer
from tests.kafka_faults import PATIENCE_S, create_topic, log_end, open_transaction, plain_records
from tests.quick_project import QuickProject

LOOKS = 25


@contextmanager
def busy_producer(servers: str, topic: str, partitions: int) -> Iterator[threading.Event]:
    """Produce one record after the other, without transactions, until the end.

    The event says that the first is there.
    """
    begun, enough = threading.Event(), threading.Event()

    def produce_on() -> None:
        settings = {"bootstrap.servers": servers, "acks": 1, "linger.ms": 0, "log_level": 0}
        with Producer(settings) as producer:
            while not enough.is_set():
                for partition in range(partitions):
                    producer.produce(topic, b"value", partition=partition)
                producer.flush(PATIENCE_S)
                begun.set()

    thread = threading.Thread(target=produce_on)
    thread.start()
    try:
        yield begun
    finally:
        enough.set()
        thread.join(PATIENCE_S)


def test_a_busy_producer_without_transactions_looks_like_none(quick: QuickProject, servers: str, name: str) -> None:
    create_topic(servers, name, 3)
    quick.write_feed(name)
    with busy_producer(servers, name, 3) as begun:
        assert begun.wait(PATIENCE_S)
        quick.run()
        before = log_end(servers, name, 0)
        for _ in range(LOOKS):
            assert quick.dry_run()["holds"] == []
            assert [entry["open_transaction"] for entry in quick.status()["partitions"]] == [None, None, None]
        assert log_end(servers, name, 0) > before + LOOKS, "it was busy"
        for _ in range(3):
            assert quick.plan("--end-offset", f"{name}:0={before}")["holds"] in ([], None)
            quick.run()
            assert [entry["open_transaction"] for entry in quick.status()["partitions"]] == [None, None, None]

    quick.run("orders", "--until-caught-up")
    assert quick.positions() == [
        (partition, n) for partition in range(3) for n in range(log_end(servers, name, partition))
    ]


def test_an_open_transaction_is_still_seen_beside_a_busy_producer(quick: QuickProject, servers: str, name: str) -> None:
    create_topic(servers, name, 2)
    quick.write_feed(name)
    with open_transaction(servers, name, 0, plain_records(3)), busy_producer(servers, name, 2) as begun:
        assert begun.wait(PATIENCE_S)
        for _ in range(10):
            assert [(hold["partition"], hold["at_offset"]) for hold in quick.dry_run()["holds"]] == [(0, 0)]
