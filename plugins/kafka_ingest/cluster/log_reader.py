"""What only a consumer can say of a log. It is given its partitions, never joins a group, and commits nothing."""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Final

import tenacity
from confluent_kafka import OFFSET_END, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientTopicPartition

from kafka_ingest.model.offsets import FirstRecord, TopicPartition, Unavailable

FAR_BEYOND: Final = 2**62
"""An offset that no log reaches."""

EPOCH_END: Final = re.compile(r"broker end offset is (?P<end>-?[0-9]+) \(offset leader epoch (?P<epoch>-?[0-9]+)\)")
"""librdkafka's answer in words: rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c."""

LITTLE = {
    "auto.offset.reset": "error",
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 65_536,
    # A record batch holds more than one message, so the queue is always full: librdkafka would wait a second then, and
    # got two partitions a second where batches are large; without waiting, a hundred.
    "fetch.queue.backoff.ms": 0,
    "fetch.wait.max.ms": 50,
}
"""Settings of a consumer that wants one record of each partition, and no more bytes than it has to take."""


def first_answers(
    consumer: Consumer, offsets: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, Message]:
    """Return a consumer's first answer at each offset: a record, or an error. Without an answer in time: left out."""
    consumer.assign([ClientTopicPartition(tp.topic, tp.partition, offset) for tp, offset in sorted(offsets.items())])
    found: dict[TopicPartition, Message] = {}
    for topic_partition, message in answers(consumer, timeout_s):
        if topic_partition not in found:
            found[topic_partition] = message
            consumer.pause([ClientTopicPartition(topic_partition.topic, topic_partition.partition)])
        if len(found) == len(offsets):
            break
    return found


def first_records(
    consumer: Consumer, log_starts: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
    """Return the first record of each log; None where the consumer, which gets the end of a log, finds none."""
    silent = Unavailable(f"its first record did not come within {timeout_s:g} s")
    found = {tp: first_record(answer) for tp, answer in first_answers(consumer, log_starts, timeout_s).items()}
    return dict.fromkeys(log_starts, silent) | found


def first_record(answer: Message) -> FirstRecord | Unavailable | None:
    """Return what a consumer's first answer says of a log's first record."""
    error = answer.error()
    if error is None:
        by_broker = answer.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
        return FirstRecord(timestamp_of(answer), by_broker=by_broker, offset=answer.offset())
    return None if error.code() == KafkaError._PARTITION_EOF else Unavailable(f"{error.name()}: {error.str()}")


def epoch_ends(
    consumer: Consumer, epochs: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int | Unavailable | None]:
    """Return where logs end, or begin a later epoch, after the records of these leader epochs or of earlier ones.

    None: the leader knows no such epoch. librdkafka has no call for Kafka's OffsetsForLeaderEpoch (KIP-320), but its
    consumer sends it before it continues at an offset, and reports the answer where the offset lies beyond the end. So
    this seeks to an offset beyond every log.
    """
    partitions = sorted(epochs)
    consumer.assign([ClientTopicPartition(tp.topic, tp.partition, OFFSET_END) for tp in partitions])
    for tp in partitions:
        position = ClientTopicPartition(tp.topic, tp.partition, FAR_BEYOND, leader_epoch=epochs[tp])
        tenacity.Retrying(
            retry=tenacity.retry_if_exception(is_starting),
            wait=tenacity.wait_fixed(0.01),
            stop=tenacity.stop_after_delay(timeout_s),
            reraise=True,
        )(consumer.seek, position)
    found: dict[TopicPartition, int | Unavailable | None] = {}
    for topic_partition, message in answers(consumer, timeout_s):
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            found[topic_partition] = epoch_end(error)
        if len(found) == len(epochs):
            break
    silent = Unavailable(f"its leader did not say within {timeout_s:g} s where leader epochs end")
    return dict.fromkeys(partitions, silent) | found


def is_starting(error: BaseException) -> bool:
    """Whether a consumer has not begun yet with a partition that it was given."""
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError._STATE


def epoch_end(error: KafkaError) -> int | Unavailable | None:
    """Return what an error says of the end of an epoch."""
    said = EPOCH_END.search(error.str())
    if said is None:
        return Unavailable(f"{error.name()}: {error.str()}")
    return int(said["end"]) if int(said["end"]) >= 0 else None


def answers(consumer: Consumer, timeout_s: float) -> Iterator[tuple[TopicPartition, Message]]:
    """Yield the assigned partitions' answers within the time limit, errors too; those of no partition are left out."""
    ends_at = time.monotonic() + timeout_s
    while (left := ends_at - time.monotonic()) > 0:
        message = consumer.poll(left)
        if message is not None and message.topic() is not None and message.partition() is not None:
            yield TopicPartition(str(message.topic()), int(message.partition() or 0)), message


def timestamp_of(message: Message) -> int | None:
    """Return a record's time in milliseconds; None where it has none, or there is no record."""
    kind, timestamp = message.timestamp() if message.error() is None else (0, -1)
    return timestamp if kind else None
