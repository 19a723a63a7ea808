"""The alternative that one writes by hand: confluent-kafka and pyarrow, one process.

`python plain_python.py TASK`, JSON.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

POLLED_AT_ONCE = 10_000
ROW_GROUP = 200_000
POLL_S = 0.5
TIMESTAMP = pa.timestamp("ms", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def main() -> None:
    """Land the task's topic, or its ``topics`` one after the other, each in a folder of its own."""
    task = json.loads(sys.argv[1])
    for topic in task.get("topics", ()):
        land({**task, "topic": topic, "output": f"{task['output']}/{topic}"})
    if "topics" not in task:
        land(task)


def land(task: dict[str, str]) -> None:
    """Read from the beginning to where the logs end now, and write it as one Parquet file."""
    consumer = Consumer(
        {
            "bootstrap.servers": task["bootstrap_servers"],
            "group.id": "plain-python",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }
    )
    topic = task["topic"]
    partitions = [TopicPartition(topic, number) for number in consumer.list_topics(topic).topics[topic].partitions]
    ends: dict[int, int] = {}
    for partition in partitions:
        bounds = consumer.get_watermark_offsets(partition)
        if bounds is None:
            raise TimeoutError(f"expected the bounds of {partition}, found no answer")
        partition.offset, end = bounds
        if partition.offset < end:
            ends[partition.partition] = end
    consumer.assign([partition for partition in partitions if partition.partition in ends])
    output = Path(task["output"])
    output.mkdir(parents=True)
    with pyarrow.parquet.ParquetWriter(
        output / "part-0.parquet", table([], "").schema, compression="zstd", compression_level=1
    ) as file:
        read(consumer, ends, file, task["topic_id"])
    consumer.close()


def read(consumer: Consumer, ends: dict[int, int], file: pyarrow.parquet.ParquetWriter, topic_id: str) -> None:
    """Write all records before the end offsets.

    A partition may end with a transaction's marker: then its end is announced.
    """
    rows: list[Message] = []
    left = set(ends)
    while left:
        messages = consumer.consume(POLLED_AT_ONCE, POLL_S)
        for message in messages:
            partition, offset, error = message.partition(), message.offset(), message.error()
            failed = error is not None and error.code() != KafkaError._PARTITION_EOF  # noqa: SLF001  (public all the same)
            if failed or partition is None or offset is None:
                raise KafkaException(error)
            if error is None and offset < ends[partition]:
                rows.append(message)
            if offset + 1 >= ends[partition]:
                left.discard(partition)
        if len(rows) >= ROW_GROUP:
            file.write_table(table(rows, topic_id))
            rows = []
    if rows:
        file.write_table(table(rows, topic_id))


def table(messages: list[Message], topic_id: str) -> pa.Table:
    """Return records as rows."""
    return pa.table(
        {
            "topic": pa.array([message.topic() for message in messages], pa.string()),
            "partition": pa.array([message.partition() for message in messages], pa.int32()),
            "offset": pa.array([message.offset() for message in messages], pa.int64()),
            "timestamp": pa.array([message.timestamp()[1] for message in messages], TIMESTAMP),
            "headers": pa.array([headers(message) for message in messages], HEADERS),
            "key": pa.array([message.key() for message in messages], pa.binary()),
            "value": pa.array([message.value() for message in messages], pa.binary()),
            "topic_id": pa.repeat(topic_id, len(messages)),
        }
    )


def headers(message: Message) -> list[dict[str, object]] | None:
    """Return a record's headers as rows, None where it has none."""
    found = message.headers() or []
    pairs = found.items() if isinstance(found, dict) else found
    return [{"key": name, "value": value} for name, value in pairs] or None


if __name__ == "__main__":
    main()
