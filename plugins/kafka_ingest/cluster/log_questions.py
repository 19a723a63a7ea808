"""Questions about partitions' logs, in bulk: where they begin and end, where a time is, whether records can be read."""

import math
import re
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import tenacity
from confluent_kafka import OFFSET_END, Consumer, IsolationLevel, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientTopicPartition
from confluent_kafka.admin import OffsetSpec

from kafka_ingest.cluster.first_answers import MEMORY_BYTES, FirstAnswer
from kafka_ingest.cluster.kafka_client import ACCESS_ERRORS, NO_LEADER_KNOWN, KafkaClient, Questions, unavailable
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import FirstRecord, Isolation, LogBounds, NewestRecord, TopicPartition, Unavailable


def list_offsets(
    client: KafkaClient,
    specs: Mapping[TopicPartition, OffsetSpec],
    isolation: IsolationLevel,
    leaders: Mapping[str, Mapping[int, bool] | KafkaError] | None = None,
) -> dict[TopicPartition, Future[Any]]:
    """Ask one bulk ListOffsets request; the answers are futures, by partition. ``leaders``: where they were asked."""
    if not specs:
        return {}
    leaders = client.leaders({tp.topic for tp in specs}) if leaders is None else leaders
    failed = {tp: error for tp in specs if (error := why_not(leaders[tp.topic], tp.partition)) is not None}
    asked = {ClientTopicPartition(tp.topic, tp.partition): spec for tp, spec in specs.items() if tp not in failed}
    futures = (
        client.admin.list_offsets(asked, isolation_level=isolation, request_timeout=client.request_timeout_s)
        if asked
        else {}
    )
    answers = {TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
    for tp, error in failed.items():
        answers[tp] = Future()
        answers[tp].set_exception(KafkaException(error))
    return answers


def why_not(leaders: Mapping[int, bool] | KafkaError, partition: int) -> KafkaError | None:
    """Return why a partition cannot be asked, in the words in which its leader would say it."""
    if isinstance(leaders, KafkaError):
        return leaders
    if partition not in leaders:
        return KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    return None if leaders[partition] else KafkaError(KafkaError.LEADER_NOT_AVAILABLE)


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
            # Once for all three: of a topic that does not say its leaders, the client remembers nothing.
            leaders = self._client.leaders({tp.topic for tp in topic_partitions}) if topic_partitions else {}
            answers = [
                list_offsets(self._client, dict.fromkeys(topic_partitions, spec), isolation, leaders)
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


NO_SUCH_OFFSET = -1
"""ListOffsets' answer where no record is of that time or later (KIP-79)."""

CANNOT_SAY = frozenset({KafkaError._UNSUPPORTED_FEATURE, KafkaError.UNSUPPORTED_VERSION})
"""A broker before 3.0 is asked for its newest timestamp (KIP-734)."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OffsetsAtTime(LogQuestions):
    """The first offsets of a time or later."""

    def offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return each partition's first offset whose record is of that time or later; None where there is none.

        Also records of an open transaction count: the answer is a place in the log, not a promise that it can be read.
        "None is" is believed only where Kafka's other answers agree, see _no_offsets_at.
        """
        with self._client.time_limited(f"the offsets at a time of {counted(len(timestamps), 'partition')}"):
            found = self._offsets_at(timestamps)
            none = {tp: timestamp for tp, timestamp in timestamps.items() if found[tp] is None}
            return found | self._no_offsets_at(none) if none else found

    def _offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        specs = {tp: OffsetSpec.for_timestamp(milliseconds(timestamp)) for tp, timestamp in timestamps.items()}
        futures = list_offsets(self._client, specs, IsolationLevel.READ_UNCOMMITTED)
        return {topic_partition: self._offset_at(future) for topic_partition, future in sorted(futures.items())}

    def _offset_at(self, future: Future[Any]) -> int | Unavailable | None:
        try:
            offset = int(self._client.result(future).offset)
        except KafkaException as error:
            return unavailable(error)
        if offset < NO_SUCH_OFFSET:
            return NO_LEADER_KNOWN
        return None if offset == NO_SUCH_OFFSET else offset

    def _no_offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return the offsets of partitions for which Kafka found no record of a time or later, which may be wrong.

        The broker looks into the first segment that ever held such a record. While that one only holds what was
        deleted (DeleteRecords and retention move the log start minutes before the file goes), it finds none, and looks
        no further.
        """
        newest = self._newest_records(timestamps)
        bounds = self.log_bounds(timestamps)
        agreed: dict[TopicPartition, int | Unavailable | None] = {}
        doubted: dict[TopicPartition, int] = {}
        for tp, timestamp in timestamps.items():
            log, last = bounds[tp], newest[tp]
            if isinstance(log, Unavailable):
                agreed[tp] = log
            elif isinstance(last, Unavailable):
                agreed[tp] = last
            elif log.is_empty or (last is not None and last.timestamp_ms < milliseconds(timestamp)):
                agreed[tp] = None
            else:
                doubted[tp] = log.log_start_offset
        return agreed | self._doubted_offsets_at({tp: timestamps[tp] for tp in doubted}, doubted)

    def _doubted_offsets_at(
        self, timestamps: Mapping[TopicPartition, datetime], log_starts: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | Unavailable | None]:
        """Return the offsets again: a record may have come since, or the first one of the log may be of that time."""
        if not timestamps:
            return {}
        found = self._offsets_at(timestamps)
        not_found = {tp: log_starts[tp] for tp, offset in found.items() if offset is None}
        for tp, first in self.first_records(not_found).items():
            if isinstance(first, FirstRecord) and (first.timestamp_ms or 0) >= milliseconds(timestamps[tp]):
                found[tp] = first.offset
        return {
            tp: Unavailable(contradiction(timestamps[tp])) if offset is None else offset for tp, offset in found.items()
        }

    def records_from(
        self, timestamps: Mapping[TopicPartition, datetime]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        """Return the first record of that time or later with its own time, without reading it; None where none is."""
        specs = {tp: OffsetSpec.for_timestamp(milliseconds(timestamp)) for tp, timestamp in timestamps.items()}
        with self._client.time_limited(f"the records from a time on of {counted(len(timestamps), 'partition')}"):
            futures = list_offsets(self._client, specs, IsolationLevel.READ_UNCOMMITTED)
            return {topic_partition: self._newest_record(future) for topic_partition, future in futures.items()}

    def newest_records(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        with self._client.time_limited(f"the newest records of {counted(len(topic_partitions), 'partition')}"):
            return self._newest_records(topic_partitions)

    def _newest_records(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, NewestRecord | Unavailable | None]:
        specs = dict.fromkeys(topic_partitions, OffsetSpec.max_timestamp())
        futures = list_offsets(self._client, specs, IsolationLevel.READ_UNCOMMITTED)
        return {topic_partition: self._newest_record(future) for topic_partition, future in futures.items()}

    def _newest_record(self, future: Future[Any]) -> NewestRecord | Unavailable | None:
        try:
            found = self._client.result(future)
        except KafkaException as error:
            if error.args[0].code() in CANNOT_SAY:
                return None
            return unavailable(error)
        return NewestRecord(int(found.offset), int(found.timestamp)) if found.timestamp >= 0 else None


def contradiction(timestamp: datetime) -> str:
    """Return why "no record is of that time or later" is not believed."""
    return (
        f"NO_OFFSET_AT_TIME: Kafka finds no record of {timestamp.isoformat()} or later, but does not say that its "
        "newest one is older. Deleted records that are still in its files hide others: wait until it has removed "
        "them (log.retention.check.interval.ms, file.delete.delay.ms), or name offsets. Brokers before 3.0 cannot "
        "say it (KIP-734)"
    )


def milliseconds(timestamp: datetime) -> int:
    """Return a time as Kafka counts it; a fraction of a millisecond is rounded up, so that no earlier time matches."""
    return -((EPOCH - timestamp) // timedelta(milliseconds=1))
