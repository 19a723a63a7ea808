"""The marks of an output topic: a topic of one partition, with a record for each batch that was published or revoked.

A mark's key is the batch's id. The topic is compacted, which deletes no mark: each is committed once.

That a batch has no mark is believed only of readings without a gap from offset 0 to a given end, before which no
transaction is open. Nothing shorter proves it. In particular Kafka does not find the first record of a time reliably:
it looks into one segment only, the first with a timestamp that is late enough, and the log cleaner leaves the
timestamps of aborted records there without the records; the answer then is that there are none, whatever later
segments hold.

They also say how long transactions took, by which is known how long a batch's may take, and how many rows it may have.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from kafka_ingest.errors import OutputConflictError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.foreign_json import ForeignJsonError, read_as_ours, read_foreign_object, said, whole
from kafka_ingest.model.batch import canonical_json, require_version
from kafka_ingest.model.topics import MARKS_SUFFIX, is_other_topic
from kafka_ingest.sinks.kafka_topic.cluster import OutputCluster, Topic
from kafka_ingest.sinks.kafka_topic.topic_rows import TOPIC_ID, LandedRange, Landing, SeenMarks, landed_in
from kafka_ingest.sinks.tables.table_format import Mark, Outcome

LEAST_S: Final = 60.0
ROWS_PER_S: Final = 20_000
BYTES_PER_S: Final = 2_000_000
"""Where none was measured: 316,000 rows of 200 bytes a second were, with one broker on the machine."""
ROW_BYTES: Final = 16_000
"""How large rows are taken to be before the first batch: it is the one that measures them, and must not be refused."""
MARGIN: Final = 4
"""So much slower than the slowest of the newest ones a transaction may be."""
TELLING_S: Final = 1.0
"""A shorter one, or one of fewer bytes than it takes at least, says nothing: it is mostly waiting for answers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one transaction has produced, in so many seconds; the bytes are nearly as ``sizes_of`` counts them."""

    rows: int
    size_bytes: int
    seconds: float


def longest_s(rows: int, size_bytes: int, earlier: Sequence[Pace]) -> float:
    """Return how long a transaction may take.

    A record counts as 200 bytes at least, so that bytes a second say how long small ones take, too.
    """
    telling = [each for each in earlier if each.seconds >= TELLING_S and each.size_bytes >= BYTES_PER_S * TELLING_S]
    slowest = min((each.size_bytes / each.seconds for each in telling), default=None)
    if slowest is not None:
        return LEAST_S + size_bytes * MARGIN / slowest
    return LEAST_S + rows / ROWS_PER_S + size_bytes / BYTES_PER_S


def most_rows(allowed_s: float, earlier: Sequence[Pace]) -> int:
    """Return how many rows a batch may have, one at least, so that its transaction lasts half the time that it may.

    Its records may thus be twice as large as the largest ones of earlier batches, on an average, were.
    """
    largest = max((pace.size_bytes / pace.rows for pace in earlier), default=ROW_BYTES)
    of_many_s = longest_s(1_000_000, round(largest * 1_000_000), earlier) - LEAST_S
    return max(1, int((allowed_s - LEAST_S) / 2 / of_many_s * 1_000_000))


MARK_VERSION: Final = 1
SETTINGS: Final = {"cleanup.policy": "compact"}
AS_THE_OUTPUT: Final = ("min.insync.replicas", "unclean.leader.election.enable")
"""What a broker's default may have weaker: a mark that was lost would have its rows written twice."""
PACE: Final = ("rows", "bytes", "milliseconds")
"""What a mark says of its transaction's time: that of the rows, which come before it."""
AT_ONCE: Final = 500
PATIENCE_S: Final = 60.0
"""So long an answer is waited for, and a transaction of another batch that hides marks."""


class KafkaMarks:
    """The marks of one output topic; the cluster remembers which were read."""

    def __init__(self, cluster: OutputCluster, topic: str) -> None:
        self.name = f"{topic}{MARKS_SUFFIX}"
        self._topic = topic
        self._cluster = cluster

    def transactional_id(self, batch_id: UUID | str) -> str:
        """Return the id of the producer that publishes or revokes a batch."""
        return f"kafka_ingest.{self._topic}.{batch_id}"

    def problems(self) -> Iterator[str]:
        """Yield why the topic that is there would not keep marks."""
        found = self._cluster.topic(self.name)
        if found is not None:
            if found.partitions != 1:
                yield f"{self.name} with {found.partitions} partitions instead of one"
            for name, value in SETTINGS.items():
                if found.setting(name) != value:
                    yield f"{self.name} with {name}={found.setting(name)} instead of {value}"

    def make(self, output: Topic) -> None:
        """Make the topic, whose records are as safe as the output's; does nothing where it is."""
        if self._cluster.topic(self.name) is None:
            alike = {name: output.settings[name] for name in AS_THE_OUTPUT if name in output.settings}
            self._cluster.make_topic(self.name, output.replicas, SETTINGS | alike)

    def seen(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark as readers see it now; None proves nothing: an open transaction may hide it."""
        return self._first_of(batch_id) if self._is_there() else None

    def before(self, end: int, batch_id: UUID) -> Mark | None:
        """Return a batch's mark at an offset before ``end``, None where there is none.

        Raises OutputUnavailableError where an earlier transaction stays open.
        """
        return self._first_of(batch_id, end)

    def newest(self, batch_id: UUID) -> tuple[Mark, str | None] | None:
        """Return the last mark of a batch until now, and the id of the topic that has its records, where it says it.

        Raises as :meth:`before` does.
        """
        found, key = None, str(batch_id).encode()
        for message in self._of(batch_id, self._cluster.end_of(self.name)) if self._is_there() else ():
            found = message if message.key() == key else found
        return (self._mark(found), topic_id_in(found)) if found is not None else None

    def paces(self) -> list[Pace]:
        """Return how long the transactions of the newest batches took, as the last reading has them."""
        if not self._cluster.seen_marks[self.name].next_offset and self._is_there():
            for message in self._messages(None):
                self._cluster.seen_marks[self.name].note(message)
        found = []
        for value in self._cluster.seen_marks[self.name].newest:
            with suppress(ForeignJsonError):  # who asks for what is marked is told
                found.append(pace_in(value))
        return [pace for pace in found if pace is not None]

    def all(self) -> dict[UUID, Mark]:
        """Return all marks that were written until now; raises OutputUnavailableError as :meth:`before` does."""
        if self._cluster.topic(self.name) is None:
            return {}
        marks = map(self._mark, self._messages(self._cluster.end_of(self.name)))
        return {mark.batch_id: mark for mark in marks}

    def landed(self, topic_id: str | None) -> dict[UUID, tuple[LandedRange, ...] | None]:
        """Return where the batches are that are published; raises as :meth:`all` does.

        Nowhere where a mark says that they are in another topic than the one of that id.
        """
        if self._cluster.topic(self.name) is None:
            return {}
        found = ((self._mark(each), each) for each in self._messages(self._cluster.end_of(self.name)))
        return {
            mark.batch_id: ()
            if is_other_topic(topic_id_in(message), topic_id)
            else landed_in(read_foreign_object(message.value() or b""))
            for mark, message in found
            if mark.outcome is Outcome.PUBLISHED
        }

    def _is_there(self) -> bool:
        """Whether there is a topic; of one that was created again nothing was read."""
        found, seen = self._cluster.topic(self.name), self._cluster.seen_marks
        if found is None or found.topic_id != seen[self.name].topic_id:
            seen[self.name] = SeenMarks(found.topic_id if found is not None else "")
        return found is not None

    def _first_of(self, batch_id: UUID, end: int | None = None) -> Mark | None:
        """Return a batch's mark."""
        # The contents of all others are left unread: there may be one for every five minutes of years.
        key = str(batch_id).encode()
        found = next((each for each in self._of(batch_id, end) if each.key() == key), None)
        return self._mark(found) if found is not None else None

    def _of(self, batch_id: UUID, end: int | None) -> Iterator[Message]:
        """Yield marks, from where that of a batch is known to be, or from where the last reading ended."""
        seen = self._cluster.seen_marks[self.name]
        for message in self._messages(end, seen.offsets.get(str(batch_id).encode(), seen.next_offset)):
            seen.note(message)
            yield message

    def produce(self, producer: Producer, mark: Mark, added: dict[str, object], of_mark: Landing) -> None:
        """Add a batch's mark to the transaction, with what is ``added`` to it; ``of_mark`` takes in where it is."""
        value = canonical_json(value_of(mark) | added)
        producer.produce(self.name, value, str(mark.batch_id), partition=0, on_delivery=of_mark.note)

    def _messages(self, end: int | None, start: int = 0) -> Iterator[Message]:
        """Yield what is committed before an offset, and perhaps more; without one, what readers see now."""
        consumer = self._cluster.reader()
        try:
            consumer.assign([TopicPartition(self.name, 0, start)])
            yield from self._from_beginning(consumer, end or 0)
        finally:
            consumer.close()

    def _from_beginning(self, consumer: Consumer, end: int) -> Iterator[Message]:
        patient_until = time.monotonic() + PATIENCE_S
        stable = -1
        while time.monotonic() < patient_until:
            # It waits until it has so many, or for so long; the end is one of them.
            for message in consumer.consume(AT_ONCE, 0.05):
                error = message.error()
                if error is None:
                    patient_until = time.monotonic() + PATIENCE_S
                    yield message
                elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                    raise OutputNotUsableError(
                        f"{self.name}: expected all records since offset 0, found that the first ones were deleted, so "
                        "which batches were published is unknown. Nothing was done. Only its compaction may delete "
                        "records of this topic; give the feed another sink.topic and sink.path."
                    )
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif (stable := message.offset() or 0) >= end:
                    return
        raise OutputUnavailableError(
            f"{self.name}: expected all records before offset {end:,} within {PATIENCE_S:,.0f} s, found "
            f"{self._found_at(stable)}. No offset was moved; then run this again."
        )

    def _found_at(self, stable: int) -> str:
        """Return what keeps readers from reading beyond an offset; the open transaction's first record is there."""
        if stable < 0:
            return "no answer. Find out whether the topic's leader is there"
        consumer = self._cluster.reader("read_uncommitted")
        try:
            consumer.assign([TopicPartition(self.name, 0, stable)])
            message = consumer.poll(self._cluster.timeout_s)
            key = (message.key() or b"") if message is not None and message.error() is None else b"unknown"
            batch = key.decode(errors="replace")
        finally:
            consumer.close()
        return (
            f"that of batch {batch} in a transaction that is open, at offset {stable:,}, with transactional.id "
            f"{self.transactional_id(batch)}. Run the commit of that batch, which ends it, or wait until the brokers do"
        )

    def _mark(self, message: Message) -> Mark:
        try:
            return mark_in(message)
        except ForeignJsonError as error:
            raise OutputConflictError(
                f"{self.name}@{message.offset()}: expected the mark of a batch, found that it cannot be used: {error}. "
                "Find what else writes to this topic."
            ) from error


def topic_id_in(message: Message) -> str | None:
    """Return the id of the topic that has a batch's records, None where its mark does not say it, as of old brokers."""
    found = read_foreign_object(message.value() or b"").get(TOPIC_ID)
    return found if isinstance(found, str) else None


def value_of(mark: Mark) -> dict[str, object]:
    """Return what a mark's record says."""
    value: dict[str, object] = {"version": MARK_VERSION, "outcome": mark.outcome.value}
    value |= {"plan_fingerprint": mark.fingerprint}
    return value | ({"proof": read_foreign_object(mark.proof)} if mark.proof else {})


@read_as_ours()
def pace_in(value: bytes) -> Pace | None:
    """Return how long a transaction took by its mark, None where that does not say it, as of earlier versions.

    Raises ForeignJsonError where it is no mark.
    """
    document = read_foreign_object(value).get("produced")
    if document is None:
        return None
    rows, size_bytes, milliseconds = (whole(document, name) for name in PACE)
    return Pace(rows, size_bytes, milliseconds / 1000) if min(rows, size_bytes, milliseconds) > 0 else None


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
