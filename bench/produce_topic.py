"""One of the processes that fill a topic: `python produce_topic.py TASK`; the task is JSON, made by topic_data.py.

Each partition is filled by one process, one after the other in transactions and in turn without, so every record has
the same offset in every run.
"""

import json
import random
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from confluent_kafka import Producer
from talking import BenchmarkError
from topic_data import IN_A_TRANSACTION, PRODUCERS, TopicData

AT_ONCE = 5_000
QUEUED = 400_000
QUEUED_KBYTES = 262_144
FLUSH_S = 300.0

FIRST_ORDER = 1_000_000_000
ORDERS = 9_000_000_000
"""Numbers of ten digits, so that every value has the same length."""

CUSTOMERS = 5_000
TEMPLATES = 20_000
RANDOM_CHARACTERS = 8_000_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
PHRASES = (
    "leave at the door", "call before delivery", "gift wrapping", "no substitutes", "second floor on the left",
    "deliver after six", "paid in advance", "express", "return of a former order", "ring twice",
)  # fmt: skip
NOTES = 200
"""With this number zstd finds most notes again, snappy only some: of a record of 200 bytes they leave 18 and 69."""
CODE_CHARACTERS = 60


class Template(NamedTuple):
    """A record but for its number."""

    key: bytes
    rest: bytes


def main() -> None:
    """Produce this process's share; returns when all of it is in the log."""
    task = json.loads(sys.argv[1])
    data, number = TopicData(**task["data"]), int(task["producer"])
    producer = Producer(settings(data, task["bootstrap_servers"], number))
    mine = {partition: count for partition, count in data.counts().items() if partition % PRODUCERS == number}
    made = templates(data)
    if data.transactional:
        produce_in_transactions(producer, data, mine, made)
    else:
        produce_in_turn(producer, data, mine, made)
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


def templates(data: TopicData) -> list[Template]:
    """Return records without their numbers, all of one length; the same for the same data."""
    chance = random.Random(data.seed)  # noqa: S311  (repeatable, not secret)
    noise = "".join(chance.choices(ALPHABET, k=RANDOM_CHARACTERS)) if data.incompressible else ""
    frame = len(value_of(FIRST_ORDER, rest_of("customer-1000", 10_000, "")))
    length = data.record_bytes - frame
    notes = [note_of(length, chance) for _ in range(NOTES)]
    found = []
    for _ in range(TEMPLATES):
        customer = f"customer-{chance.randrange(1_000, 1_000 + CUSTOMERS)}"
        note = noise_of(noise, length, chance) if noise else chance.choice(notes)
        found.append(Template(customer.encode(), rest_of(customer, chance.randrange(10_000, 100_000), note)))
    return found


def rest_of(customer: str, cents: int, note: str) -> bytes:
    """Return what follows an order's number in a value."""
    return f', "customer": "{customer}", "amount": {cents // 100}.{cents % 100:02}, "note": "{note}"}}'.encode()


def value_of(order: int, rest: bytes) -> bytes:
    """Return the value of a record, JSON."""
    return b'{"order_id": %d%b' % (order, rest)


def noise_of(noise: str, length: int, chance: random.Random) -> str:
    """Return characters in which nothing repeats; JSON leaves six bits of eight."""
    start = chance.randrange(len(noise) - length)
    return noise[start : start + length]


def note_of(length: int, chance: random.Random) -> str:
    """Return a note of exactly this length: a code in which nothing repeats, then phrases."""
    code = "".join(chance.choices(ALPHABET, k=CODE_CHARACTERS))
    return f"{code} {'; '.join(chance.choices(PHRASES, k=length))}"[:length]


def produce_in_turn(producer: Producer, data: TopicData, mine: dict[int, int], made: Sequence[Template]) -> None:
    """Fill the partitions side by side, some thousand records of each in turn."""
    left = {partition: records(data, partition, count, made) for partition, count in mine.items()}
    while left:
        for partition, batches in list(left.items()):
            batch = next(batches, None)
            if batch is None:
                del left[partition]
            else:
                send(producer, data.name, partition, batch)


def produce_in_transactions(
    producer: Producer, data: TopicData, mine: dict[int, int], made: Sequence[Template]
) -> None:
    """Fill one partition after the other.

    Each transaction is of one partition only, so its marker's offset is known.
    """
    producer.init_transactions()
    for partition, count in mine.items():
        in_transaction = 0
        for batch in records(data, partition, count, made):
            if in_transaction == 0:
                producer.begin_transaction()
            send(producer, data.name, partition, batch)
            in_transaction += len(batch)
            if in_transaction == IN_A_TRANSACTION:
                producer.commit_transaction()
                in_transaction = 0
        if in_transaction:
            producer.commit_transaction()


def records(data: TopicData, partition: int, count: int, made: Sequence[Template]) -> Iterator[list[dict[str, object]]]:
    """Yield a partition's records, some thousand at a time; IN_A_TRANSACTION is a multiple of that."""
    chance = random.Random(data.seed * 1_000 + partition)  # noqa: S311  (repeatable, not secret)
    order = FIRST_ORDER + partition * min(100_000_000, ORDERS // data.partitions)
    for start in range(0, count, AT_ONCE):
        chosen = chance.choices(made, k=min(AT_ONCE, count - start))
        yield [
            {"key": key, "value": b'{"order_id": %d%b' % (number, rest)}
            for number, (key, rest) in enumerate(chosen, order + start)
        ]


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
