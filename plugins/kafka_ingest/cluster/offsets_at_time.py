"""The question where a time is in a log, whose plain answer may be wrong, and what a log's newest time is."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from kafka_ingest.cluster.kafka_client import NO_LEADER_KNOWN, unavailable
from kafka_ingest.cluster.log_questions import LogQuestions, list_offsets
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.offsets import FirstRecord, NewestRecord, TopicPartition, Unavailable

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
