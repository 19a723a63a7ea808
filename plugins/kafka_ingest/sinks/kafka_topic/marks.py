"""The marks of an output topic: a topic of one partition, with a record for each batch that was published or revoked.

A mark's key is the batch's id, and its timestamp the time in that id. So looking for one batch reads only what was
written of batches since, however many there were. The topic is compacted, which deletes no mark: each key is written
once.
"""

import time
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafka_ingest.errors import OutputConflictError, OutputUnavailableError
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours, read_foreign_object, said
from kafka_ingest.model.batch import canonical_json, require_version
from kafka_ingest.model.dated_ids import DATED, milliseconds_of
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster, Topic
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

MARK_VERSION: Final = 1
SUFFIX: Final = ".kafka-ingest"
SETTINGS: Final = {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
SURE_WITHIN_S: Final = 60.0
"""So long a transaction of another batch that hides marks is waited for."""


class KafkaMarks:
    """The marks of one output topic."""

    def __init__(self, cluster: OutputCluster, topic: str) -> None:
        self.name = f"{topic}{SUFFIX}"
        self._cluster = cluster

    def problems(self) -> Iterator[str]:
        """Yield why the topic that is there would not keep marks."""
        found = self._cluster.topic(self.name)
        if found is not None:
            if found.partitions != 1:
                yield f"{self.name} with {found.partitions} partitions instead of one"
            for name, value in SETTINGS.items():
                if found.settings[name] != value:
                    yield f"{self.name} with {name}={found.settings[name]} instead of {value}"

    def make(self, output: Topic) -> None:
        """Make the topic, with as many replicas as the output's; does nothing where it is."""
        if self._cluster.topic(self.name) is None:
            self._cluster.make_topic(self.name, output.replicas, SETTINGS)

    def of(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark as readers see it now, None where they see none."""
        return next((mark for mark in self._read(batch_id) if mark.batch_id == batch_id), None)

    def for_sure(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark once none of its transactions is under way: None means that there is none.

        An open transaction of another batch hides what was committed behind it. So all is read that was written until
        now, committed or not. Raises OutputUnavailableError where another transaction stays open.
        """
        end = self._cluster.end_of(self.name)
        return next((mark for mark in self._read(batch_id, end) if mark.batch_id == batch_id), None)

    def all(self) -> dict[UUID, Mark]:
        """Return all marks."""
        return {mark.batch_id: mark for mark in self._read()}

    def produce(self, producer: Producer, mark: Mark) -> None:
        """Add a batch's mark to the transaction."""
        value: dict[str, object] = {"version": MARK_VERSION, "outcome": mark.outcome.value}
        value |= {"plan_fingerprint": mark.fingerprint}
        if mark.proof:
            value["proof"] = read_foreign_object(mark.proof)
        when = milliseconds_of(mark.batch_id) if mark.batch_id.version == DATED else 0
        producer.produce(self.name, canonical_json(value), str(mark.batch_id), partition=0, timestamp=when)

    def _read(self, since: UUID | None = None, end: int = 0) -> Iterator[Mark]:
        """Yield the marks of batches from an id on, and perhaps others, up to the last stable offset.

        That has to reach ``end``, an offset.
        """
        if self._cluster.topic(self.name) is None:
            if end:  # a broker that does not know the topic yet proves nothing
                raise OutputUnavailableError(f"{self.name}: expected the topic of marks, found none. Run this again.")
            return
        first: int | None = OFFSET_BEGINNING
        if since is not None and since.version == DATED:
            first = self._cluster.first_since(self.name, milliseconds_of(since))
        if first is None:
            return
        consumer = self._cluster.reader()
        try:
            consumer.assign([TopicPartition(self.name, 0, first)])
            yield from map(self._mark, self._messages(consumer, end))
        finally:
            consumer.close()

    def _messages(self, consumer: Consumer, end: int) -> Iterator[Message]:
        patient_until = time.monotonic() + max(SURE_WITHIN_S, self._cluster.timeout_s)
        silent_until = time.monotonic() + self._cluster.timeout_s
        while True:
            message = consumer.poll(0.2)
            now = time.monotonic()
            if message is None:
                if now > (patient_until if end else silent_until):
                    raise OutputUnavailableError(
                        f"{self.name}: expected its committed records"
                        f"{f' up to offset {end:,}' if end else ''}, found no answer or a transaction that has been "
                        "open for long. No offset was moved; run this again, the transaction's time-out ends it."
                    )
                continue
            silent_until = now + self._cluster.timeout_s
            error = message.error()
            if error is None:
                yield message
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif (message.offset() or 0) >= end:
                return

    def _mark(self, message: Message) -> Mark:
        try:
            return mark_in(message)
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"{self.name}@{message.offset()}: expected the mark of a batch, found that it cannot be used: {error}. "
                "Find what else writes to this topic."
            ) from error


@read_as_ours()
def mark_in(message: Message) -> Mark:
    """Return the mark in a record; raises ForeignJsonError where it is none."""
    document = read_foreign_object(message.value() or b"")
    require_version(document, MARK_VERSION, "mark")
    proof = document.get("proof")
    return Mark(
        UUID((message.key() or b"").decode()),
        Outcome(said(document, "outcome")),
        said(document, "plan_fingerprint"),
        canonical_json(proof).decode() if proof is not None else "",
    )
