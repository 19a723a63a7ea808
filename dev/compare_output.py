"""Hold what a feed published against what is in its topic, record by record."""

from dataclasses import dataclass
from pathlib import Path

import pyarrow.dataset
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

POLL_S = 10.0
RECORDS_AT_ONCE = 10_000

Header = tuple[str, bytes | None]
Record = tuple[bytes | None, bytes | None, int, tuple[Header, ...]]
"""Key, value, timestamp in milliseconds since 1970, headers in their order."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many records were compared, and the positions that are wrong: none where all are equal."""

    records: int
    missing: list[tuple[int, int]]
    twice: list[tuple[int, int]]
    other: list[tuple[int, int]]

    @property
    def is_equal(self) -> bool:
        """Whether every record of the topic is in the output once, as it is there, and nothing else."""
        return not (self.missing or self.twice or self.other)

    def __str__(self) -> str:
        wrong = {"missing": self.missing, "twice": self.twice, "other than in the topic": self.other}
        found = [f"{len(positions):,} {what}, first {positions[0]}" for what, positions in wrong.items() if positions]
        return f"{self.records:,} records compared: " + ("; ".join(found) or "all equal")


def compare(bootstrap_servers: str, topic: str, output: Path) -> Comparison:
    """Read a topic without transactions from its beginning, and the whole output, and compare them by position."""
    expected = topic_records(bootstrap_servers, topic)
    found: dict[tuple[int, int], Record] = {}
    twice: list[tuple[int, int]] = []
    for batch in pyarrow.dataset.dataset(output, partitioning="hive").to_batches():
        for row in batch.to_pylist():
            position = (row["kafka_partition"], row["kafka_offset"])
            if position in found:
                twice.append(position)
            headers = tuple((header["key"], header["value"]) for header in row["kafka_headers"] or ())
            when = row["kafka_timestamp"]
            milliseconds = row["kafka_timestamp_ms"] if when is None else round(when.timestamp() * 1000)
            found[position] = (row["key"], row["value"], milliseconds, headers)
    missing = sorted(expected.keys() - found.keys())
    other = sorted(position for position, record in found.items() if expected.get(position) != record)
    return Comparison(len(expected), missing, sorted(twice), other)


def topic_records(bootstrap_servers: str, topic: str) -> dict[tuple[int, int], Record]:
    """Return all records of a topic by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "compare", "enable.auto.commit": False})
    records: dict[tuple[int, int], Record] = {}
    try:
        numbers = consumer.list_topics(topic, timeout=POLL_S).topics[topic].partitions
        left = sum(consumer.get_watermark_offsets(TopicPartition(topic, number))[1] for number in numbers)
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in numbers])
        while left:
            messages = consumer.consume(min(left, RECORDS_AT_ONCE), POLL_S)
            if not messages:
                raise TimeoutError(f"expected {left:,} more records of {topic} within {POLL_S:.0f} s")
            for message in messages:
                if (error := message.error()) is not None:
                    raise KafkaException(error)
                # Both are there on every record; only errors lack them.
                position = int(message.partition() or 0), int(message.offset() or 0)
                records[position] = (message.key(), message.value(), message.timestamp()[1], headers_of(message))
            left -= len(messages)
    finally:
        consumer.close()
    return records


def headers_of(message: Message) -> tuple[Header, ...]:
    """Return a record's headers, in their order; names may come again."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
