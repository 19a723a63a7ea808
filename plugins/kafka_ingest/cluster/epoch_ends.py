"""Where leader epochs end, which only a consumer can ask. It never joins a group, reads no record, commits nothing."""

import re
import time
from collections.abc import Mapping
from typing import Final

import tenacity
from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition

from kafka_ingest.model.offsets import TopicPartition, Unavailable

FAR_BEYOND: Final = 2**62
"""An offset that no log reaches."""

EPOCH_END: Final = re.compile(r"broker end offset is (?P<end>-?[0-9]+) \(offset leader epoch (?P<epoch>-?[0-9]+)\)")
"""librdkafka's answer in words: rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c."""


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
    ends_at = time.monotonic() + timeout_s
    while len(found) < len(epochs) and (left_s := ends_at - time.monotonic()) > 0:
        message = consumer.poll(left_s)
        error = message.error() if message is not None else None
        if message is None or error is None or error.code() == KafkaError._PARTITION_EOF:
            continue
        if message.topic() is not None and message.partition() is not None:
            found[TopicPartition(str(message.topic()), int(message.partition() or 0))] = epoch_end(error)
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
