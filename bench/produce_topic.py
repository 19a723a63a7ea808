"""One of the processes that fill a topic: `python produce_topic.py TASK`; the task is JSON, made by topic_data.py.

Each partition is filled by one process, one after the other in transactions and in turn without, so every record has
the same offset in every run.
"""

import json
import sys
from collections.abc import Sequence

from confluent_kafka import Producer
from order_serializers import serializer
from order_templates import AT_ONCE, Make, Template, records, templates, value_of
from order_values import whole
from talking import BenchmarkError
from topic_data import IN_A_TRANSACTION, PRODUCERS, TopicData

QUEUED = 400_000
QUEUED_KBYTES = 262_144
FLUSH_S = 300.0


def main() -> None:
    """Produce this process's share; returns when all of it is in the log."""
    task = json.loads(sys.argv[1])
    data, number = TopicData(**task["data"]), int(task["producer"])
    producer = Producer(settings(data, task["bootstrap_servers"], number))
    mine = {partition: count for partition, count in data.counts().items() if partition % PRODUCERS == number}
    made, make = templates(data), maker(data, task["registry_url"])
    if data.transactional:
        produce_in_transactions(producer, data, mine, made, make)
    else:
        produce_in_turn(producer, data, mine, made, make)
    if left := producer.flush(FLUSH_S):
        raise BenchmarkError(f"expected all records of {data.name} in the log, {left:,} are not after {FLUSH_S:.0f} s")


def settings(data: TopicData, bootstrap_servers: str, number: int) -> dict[str, str | int | bool]:
    """Return the producer's settings: large batches, in order, none twice."""
    found: dict[str, str | int | bool] = {
        "bootstrap.servers": bootstrap_servers,
        "enable.idempotence": True,
        "compression.codec": data.compression,
        "linger.ms": 100,
        "batch.num.messages": 10_000,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": QUEUED + AT_ONCE,
        "queue.buffering.max.kbytes": QUEUED_KBYTES,
    }
    return found | ({"transactional.id": f"{data.name}-{number}"} if data.transactional else {})


def maker(data: TopicData, registry_url: str) -> Make:
    """Return what makes the values of a topic."""
    if not data.form:
        return value_of
    serialize = serializer(data.form, data.name, registry_url)
    return lambda number, order: serialize(whole(number, order))


def produce_in_turn(
    producer: Producer, data: TopicData, mine: dict[int, int], made: Sequence[Template], make: Make
) -> None:
    """Fill the partitions side by side, some thousand records of each in turn."""
    left = {partition: records(data, partition, count, made, make) for partition, count in mine.items()}
    while left:
        for partition, batches in list(left.items()):
            batch = next(batches, None)
            if batch is None:
                del left[partition]
            else:
                send(producer, data.name, partition, batch)


def produce_in_transactions(
    producer: Producer, data: TopicData, mine: dict[int, int], made: Sequence[Template], make: Make
) -> None:
    """Fill one partition after the other.

    Each transaction is of one partition only, so its marker's offset is known.
    """
    producer.init_transactions()
    for partition, count in mine.items():
        in_transaction = 0
        for batch in records(data, partition, count, made, make):
            if in_transaction == 0:
                producer.begin_transaction()
            send(producer, data.name, partition, batch)
            in_transaction += len(batch)
            if in_transaction == IN_A_TRANSACTION:
                producer.commit_transaction()
                in_transaction = 0
        if in_transaction:
            producer.commit_transaction()


def send(producer: Producer, topic: str, partition: int, batch: list[dict[str, object]]) -> None:
    """Hand records to the producer, when it has room."""
    limit = min(QUEUED, QUEUED_KBYTES * 500 // max(1, len(batch[0]["value"])))  # type: ignore[arg-type]
    while len(producer) > limit:
        producer.poll(0.01)
    queued = producer.produce_batch(topic, batch, partition=partition)
    if queued != len(batch):
        raise BenchmarkError(
            f"expected {len(batch):,} records to be queued, found {queued:,}: {batch[-1].get('_error')}"
        )


if __name__ == "__main__":
    main()
