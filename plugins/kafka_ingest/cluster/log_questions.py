"""Questions about partitions' logs, in bulk: where they begin and end, and whether their records can be read."""

import math
import re
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import Any, Final

import tenacity
from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_ingest.cluster.first_answers import MEMORY_BYTES, FirstAnswer
from kafka_ingest.cluster.kafka_client import ACCESS_ERRORS, NO_LEADER_KNOWN, KafkaClient, Questions, unavailable
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import FirstRecord, Isolation, LogBounds, TopicPartition, Unavailable


def list_offsets(
    client: KafkaClient, specs: Mapping[TopicPartition, OffsetSpec], isolation: IsolationLevel
) -> dict[TopicPartition, Future[Any]]:
    """Ask one bulk ListOffsets request; the answers are futures, by partition."""
    if not specs:
        return {}
    futures = client.admin.list_offsets(
        {ClientTopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items()},
        isolation_level=isolation,
        request_timeout=client.request_timeout_s,
    )
    return {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}


FAR_BEYOND: Final = 2**62
"""An offset that no log reaches."""

EPOCH_END: Final = re.compile(r"broker end offset is (?P<end>-?[0-9]+) \(offset leader epoch (?P<epoch>-?[0-9]+)\)")
"""librdkafka's answer in words: rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c."""


def epoch_ends(
    consumer: Consumer, epochs: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, int | Unavailable | None]:
    """Return where logs end, or begin a later epoch, after the records of these leader epochs or of earlier ones.

    None: the leader knows no such epoch. librdkafka has no call for Kafka's OffsetsForLeaderEpoch (KIP-320), but its
    consumer sends it before it continues at an offset, and reports the answer where the offset is beyond the end. So
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
    said = EPOCH_END.search(error.str())
    if said is None:
        return Unavailable(f"{error.name()}: {error.str()}")
    return int(said["end"]) if int(said["end"]) >= 0 else None


LEADER_CHANGED = Unavailable("FENCED_LEADER_EPOCH: its leader changed while it was asked")
"""Where the log ends and its leader epoch have to belong together."""

DAMAGED = frozenset(
    {
        KafkaError._BAD_MSG,  # its checksum is wrong, or it does not follow the format
        KafkaError._BAD_COMPRESSION,
        KafkaError.INVALID_MSG,
        KafkaError.INVALID_MSG_SIZE,
        KafkaError.INVALID_RECORD,
    }
)
"""Errors that mean a damaged record, rather than no answer from the brokers."""

PAST_READING = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})
"""There is no such record: the log ends there, or begins later; the log's bounds say what that means."""


class LogQuestions(Questions):
    """What there is in each log."""

    def log_bounds(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogBounds | Unavailable]:
        """Return each partition's bounds from three bulk ListOffsets requests, or why Kafka cannot say them now.

        The last stable offset is asked last: where a log grows in between, it would look held back by a transaction.
        """
        questions = {
            "log start offset": (OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED),
            "high watermark": (OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED),
            "last stable offset": (OffsetSpec.latest(), IsolationLevel.READ_COMMITTED),
        }
        with self._client.time_limited(f"the log bounds of {counted(len(topic_partitions), 'partition')}"):
            answers = [
                list_offsets(self._client, dict.fromkeys(topic_partitions, spec), isolation)
                for spec, isolation in questions.values()
            ]
            return {
                topic_partition: self._bounds([answer[topic_partition] for answer in answers])
                for topic_partition in sorted(topic_partitions)
            }

    def _bounds(self, futures: list[Future[Any]]) -> LogBounds | Unavailable:
        try:
            log_start, high_watermark, last_stable = (self._client.result(future) for future in futures)
        except KafkaException as error:
            return unavailable(error)
        if min(log_start.offset, last_stable.offset, high_watermark.offset) < 0:
            return NO_LEADER_KNOWN
        if high_watermark.leader_epoch != last_stable.leader_epoch:
            return LEADER_CHANGED
        # The three answers are moments apart; a log that grows between them must not look inconsistent.
        return LogBounds(
            log_start_offset=log_start.offset,
            last_stable_offset=max(log_start.offset, last_stable.offset),
            high_watermark=max(log_start.offset, last_stable.offset, high_watermark.offset),
            leader_epoch=high_watermark.leader_epoch,
        )

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | Unavailable | None]:
        with (
            self._client.time_limited(f"the ends of leader epochs in {counted(len(epochs), 'partition')}"),
            self._client.consumer("kafka_ingest looks for logs that were cut off") as consumer,
        ):
            return epoch_ends(consumer, epochs, self._client.request_timeout_s)

    def first_records(
        self, log_starts: Mapping[TopicPartition, int], isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[TopicPartition, FirstRecord | Unavailable | None]:
        # By default: also a record that its transaction has not committed says when the log began.
        answers = self._client.first_answers(
            log_starts,
            f"the first records of {counted(len(log_starts), 'partition')}",
            {"isolation.level": isolation.value},
        )
        silent = Unavailable(f"its first record did not come within {self._client.request_timeout_s:g} s")
        return dict.fromkeys(log_starts, silent) | {tp: first_record(answer) for tp, answer in answers.items()}

    def unreadable_at(
        self, offsets: Mapping[TopicPartition, int], at_most_bytes: int | None = None
    ) -> dict[TopicPartition, str | Unavailable]:
        """Try to read at each offset, with a consumer's checks; return where the record is damaged, and how.

        A record batch that takes too much memory counts as damaged, unless a record may be as large. No answer in time,
        or one about the brokers, says nothing of a record: Unavailable.
        """
        most = math.inf if at_most_bytes is None else at_most_bytes
        answers = self._client.first_answers(offsets, "records that could not be read before", {"check.crcs": True})
        failed: dict[TopicPartition, str | Unavailable] = {}
        for topic_partition, offset in sorted(offsets.items()):
            answer = answers.get(topic_partition)
            if answer is not None and answer.code in ACCESS_ERRORS:
                refused = KafkaError(answer.code, answer.error)
                raise self._client.no_access(f"the record at {topic_partition}, offset {offset:,}", refused)
            if answer is None:
                failed[topic_partition] = Unavailable(f"no record within {self._client.request_timeout_s:g} s")
            elif answer.is_too_large:
                if at_most_bytes is None or at_most_bytes < MEMORY_BYTES:
                    failed[topic_partition] = answer.error
            elif answer.code in DAMAGED:
                failed[topic_partition] = answer.error
            elif answer.size > most:
                failed[topic_partition] = f"it has {answer.size:,} bytes"
            elif answer.code is not None and answer.code not in PAST_READING:
                failed[topic_partition] = Unavailable(answer.error)
        return failed


def first_record(answer: FirstAnswer) -> FirstRecord | Unavailable | None:
    """Return what a consumer's first answer says of a log's first record; None where the log ends there."""
    if answer.code == KafkaError._PARTITION_EOF:
        return None
    if answer.error:
        return Unavailable(answer.error)
    return FirstRecord(answer.timestamp_ms, by_broker=answer.by_broker, offset=answer.offset)
