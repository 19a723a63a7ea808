"""An output topic. One transaction adds a batch's records and its mark, or the mark alone to revoke it.

1. A new producer with the batch's own ``transactional.id``: ``init_transactions`` ends what an earlier one of the batch
   has begun, committed or not, and fences it.
2. The rows, then the mark, whose offset the brokers answer. All marks before that offset are read: where the batch has
   one, the transaction is aborted, and all is done. So what is read ends where all in-sync replicas have written: no
   broker that is behind can hide a mark.
3. The commit. If its outcome is unknown, the producer is thrown away, and it begins again. librdkafka has no KIP-890: a
   late EndTxn of the same producer may end its next transaction (its issue 5423), but one of a fenced producer is
   refused.
4. The broker answers once the commit is decided, and then ends the transaction in one partition after the other. The
   next producer of the same id begins only when that is done, so that readers see what is called published.
"""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cached_property
from typing import Any, Final
from uuid import UUID

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_ingest.errors import (
    OutputConflictError,
    OutputNotUsableError,
    StagedOutputUnusableError,
    TopicRecreatedError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.batch import canonical_json
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.read_again import ReplacedRange
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.model.topics import MARKS_SUFFIX, is_other_topic
from kafka_ingest.model.written_columns import WrittenColumns
from kafka_ingest.sinks.kafka_topic import TOPIC
from kafka_ingest.sinks.kafka_topic.cluster import DENIED, REFUSED, FindKafka, OutputCluster, Topic, code_of
from kafka_ingest.sinks.kafka_topic.marks import LEAST_S, PACE, KafkaMarks, Pace, longest_s, most_rows, value_of
from kafka_ingest.sinks.kafka_topic.topic_rows import TOPIC_ID, KafkaRows, LandedRange, Landing, Records
from kafka_ingest.sinks.tables.table_format import CleanUp, Mark, Outcome, ReplacedFile, Staged

TRIES: Final = 3
ANSWER_S: Final = 60.0
"""So long the beginning and the end of a transaction are waited for."""
QUEUE_KBYTES: Final = 65_536
LEAST_REQUEST_BYTES, LARGEST_REQUEST_BYTES = 1_000_000, 1_000_000_000
"""Of librdkafka's message.max.bytes: room for a mark, and what it takes at most."""
CONN_ID, PARTITIONS, BY_KEY = "conn_id", "partitions", "by_key"
"""Options of an output besides the topic's name: the id of the cluster's connection, how records get a partition."""
KEEPS_TIMES: Final = ("message.timestamp.type", "CreateTime")
FENCED: Final = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED, KafkaError._FATAL}
)
"""Another process has taken over the batch, as far as the producer can know."""


class KafkaTopic:
    """One topic by its connection and name, which is asked for when it is first needed.

    A :class:`.TableFormat`, and its own commits; batches are staged beside ``output``.
    """

    own_columns = False
    data_folder = None

    def __init__(self, output: OutputLocation, find_kafka: FindKafka, options: TableOptions = NO_TABLE_OPTIONS) -> None:
        self.output = output.place
        self.options = options
        self._address: Mapping[str, str] = dict(output.options)
        self._name = self._address.get(TOPIC, "")
        self._same_partitions = self._address.get(PARTITIONS) != BY_KEY
        self._find_kafka = find_kafka

    @property
    def commits(self) -> "KafkaTopic":
        return self

    @cached_property
    def _cluster(self) -> OutputCluster:
        if missing := [name for name in (CONN_ID, TOPIC) if name not in self._address]:
            raise OutputNotUsableError(
                f"expected to know which topic has the batches of {self.output}, found no {' and no '.join(missing)}: "
                "its path alone does not say it. Ask by the feed or the batch instead."
            )
        return self._find_kafka(self._address[CONN_ID])

    @cached_property
    def marks(self) -> KafkaMarks:
        return KafkaMarks(self._cluster, self._name)

    @property
    def says(self) -> str:
        return f"the marks in topic {self.marks.name} say"

    def check_installed(self) -> None:
        """Do nothing: the client is there, it reads Kafka."""

    def one_reading(self) -> AbstractContextManager[None]:
        """Spare nothing: a look reads those marks only that were not read before."""
        return nullcontext()

    def check_usable(self) -> None:
        topic = self.topic()
        name, value = KEEPS_TIMES
        found = topic.setting(name)
        wrong = [] if found == value else [f"{topic.name} with {name}={found} instead of {value}"]
        wrong += [f"{topic.name}, which has the marks of another topic"] if topic.name.endswith(MARKS_SUFFIX) else []
        with self._cluster.named_errors(self.marks.name):
            wrong += self.marks.problems()
        if wrong:
            raise OutputNotUsableError(
                f"expected topics that keep records and marks as they are written, found {listing(wrong)}. Nothing was "
                "written. Correct their settings, or give the feed another sink.topic."
            )

    def published(self) -> set[str]:
        return self.rows().published()

    def lacks(self, batch_id: UUID) -> str:
        """Return why this topic cannot be the one that a batch was published in; an empty text if it has its mark.

        Raises TopicRecreatedError where it is another one under the same name.
        """
        name, value = self.marks.name, canonical_json(value_of(Mark(batch_id, Outcome.PUBLISHED))).decode()
        by_hand = f"produce a record with key {batch_id} and value {value} to {name}"
        with self._cluster.named_errors(name):
            mark, topic_id = self.marks.newest(batch_id) or (None, None)
        if mark is None or mark.outcome is not Outcome.PUBLISHED:
            return (
                f"topic {name}, reached through connection {self._address[CONN_ID]!r}, has no mark of it. Do {CONN_ID} "
                "and sink.topic lead where they led? Correct them; a topic that is to be a new one needs another "
                f"sink.path, too. If the cluster has lost it, {by_hand}"
            )
        if is_other_topic(topic_id, found := self.topic().topic_id):
            raise TopicRecreatedError(
                f"topic {self._name!r} was deleted and created again: expected topic id {topic_id}, to which batch "
                f"{batch_id} was published, found {found}. What was published before is not in it. Nothing was read, "
                f"written or moved. If the output is to continue in the new topic, {by_hand}: `reset FEED` back to "
                "earlier offsets then reads their records again. Or give the feed another sink.topic and sink.path."
            )
        return ""

    def columns_left_out(self) -> tuple[str, ...]:
        return ()  # files have all of a record

    def columns(self, written: WrittenColumns) -> WrittenColumns:
        del written
        return {}

    def misfits(self, written: WrittenColumns) -> Iterator[str]:
        del written
        yield from ()  # raw records have the columns that they have

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark as readers see it now; that there is none, only :meth:`land` finds out for sure."""
        with self._cluster.named_errors(self.marks.name):
            return self.marks.seen(batch_id)

    def rows(self) -> KafkaRows:
        with self._cluster.named_errors(self.marks.name):
            return KafkaRows(self.marks.all())

    def landed(self, topic: Topic) -> dict[UUID, tuple[LandedRange, ...] | None]:
        """Return where the records of the batches are that are published; None where a mark does not say it."""
        with self._cluster.named_errors(self.marks.name):
            return self.marks.landed(topic.topic_id)

    def records(self, topic: Topic) -> dict[int, Records]:
        """Return which records readers see in each partition; a transaction that is open ends them."""
        with self._cluster.named_errors(self._name):
            return self._cluster.records(topic)

    def clean_up(self) -> CleanUp:
        """Return that no other program takes staged files, which lie in a folder of their own."""
        return CleanUp("no program", float("inf"))

    def check_can_remove(self, *, replacing: bool = False) -> None:
        """Raise OutputNotUsableError: a record of a topic stays until the topic's own clean-up takes it."""
        del replacing
        raise OutputNotUsableError(f"topic {self._name}: its records cannot be taken out, or be replaced")

    def replaced_files(self, replaced: Sequence[ReplacedRange]) -> Iterator[ReplacedFile]:
        """Yield nothing: see :meth:`check_can_remove`."""
        del replaced
        yield from ()

    def delete_rows(self, batch_id: UUID) -> None:
        del batch_id
        self.check_can_remove()

    def make_durable(self) -> None:
        """Do nothing: a transaction that was answered is on as many brokers as the topic's settings say."""

    def check_files(self, staged: Staged) -> None:
        # A third of a second for pyarrow, which only a commit should pay.
        from kafka_ingest.sinks.kafka_topic.produced_rows import check_rows  # noqa: PLC0415

        topic, receipt = self.topic(), staged.receipt
        numbers = [held.topic_partition.partition for file in receipt.files for held in file.partitions]
        if self._same_partitions and numbers and max(numbers) >= topic.partitions:
            raise OutputNotUsableError(
                f"topic {self._name}: expected the partitions that the feed reads, up to number {max(numbers)}, found "
                f"{counted(topic.partitions, 'partition')}. Nothing was published and no offset was moved. Add "
                "partitions to it, or abandon the batch and set sink.partitions: by_key."
            )
        size_bytes = check_rows(staged, topic)
        allowed_s, earlier = self._time()
        needed_s = longest_s(receipt.rows, size_bytes, earlier)
        if needed_s > allowed_s:
            raise OutputNotUsableError(
                f"topic {self._name}: {counted(receipt.rows, 'row')} may take {needed_s:,.0f} s in one transaction, "
                f"and the brokers allow {allowed_s:,.0f} s. Nothing was published and no offset was moved. Set the "
                "brokers' transaction.max.timeout.ms, and run the commit again; or abandon the batch and set "
                f"limits.max_records to {max(1, int(receipt.rows * allowed_s / needed_s / 2)):,}."
            )

    def most_rows(self) -> int:
        allowed_s, earlier = self._time()
        if allowed_s <= LEAST_S:
            raise OutputNotUsableError(
                f"topic {self._name}: expected brokers that allow transactions of more than {LEAST_S:.0f} s, found "
                f"{allowed_s:,.0f} s. Nothing was planned. Set the brokers' transaction.max.timeout.ms."
            )
        return most_rows(allowed_s, earlier)

    def _time(self) -> tuple[float, list[Pace]]:
        """Return how long a transaction may take, and how long earlier ones took."""
        with self._cluster.named_errors(self._name):
            return self._cluster.longest_transaction_s(), self.marks.paces()

    def topic(self) -> Topic:
        """Return the output topic; raises OutputNotUsableError where there is none."""
        with self._cluster.named_errors(self._name):
            found = self._cluster.topic(self._name)
        if found is None:
            raise OutputNotUsableError(
                f"topic {self._name}: expected it in the cluster of sink.conn_id, found none. Nothing was written. "
                "Make it, with the partitions and settings that its readers need, or correct sink.topic."
            )
        return found

    def land(self, mark: Mark, staged: Staged | None = None, replaced: Sequence[ReplacedRange] = ()) -> Mark:
        del replaced
        topic = self.topic()
        with self._cluster.named_errors(self.marks.name):
            self.marks.make(topic)
        for last in (*[False] * (TRIES - 1), True):
            try:
                return self.try_once(mark, staged, topic)
            except KafkaException as error:
                # Landed, another process's, or neither: that is for the next producer to find out.
                found = self._wait(mark.batch_id, patience_s(staged) if code_of(error, FENCED) else 0)
                if found is not None:
                    return found
                if last or code_of(error, DENIED | REFUSED):
                    raise self._cluster.named(f"topic {self._name}", error) from None
        raise OutputConflictError(f"topic {self._name}: batch {mark.batch_id} was not tried")

    def _wait(self, batch_id: UUID, patience_s: float) -> Mark | None:
        """Return a batch's mark, which another process may be about to write."""
        until = time.monotonic() + patience_s
        while (found := self.mark(batch_id)) is None and time.monotonic() < until:
            time.sleep(0.5)
        return found

    def try_once(self, mark: Mark, staged: Staged | None, topic: Topic) -> Mark:
        """Run the transaction that decides; after an error it is unknown whether it landed."""
        receipt = staged.receipt if staged is not None else None
        landing, of_mark = Landing(), Landing()
        allowed_s = self._cluster.longest_transaction_s()
        own: dict[str, Any] = {
            # All that is allowed: how many bytes the rows have, their files do not say.
            "transaction.timeout.ms": int(allowed_s * 1000),
            # Without it, a broker that says nothing is waited for as long; a longer one no producer takes.
            "socket.timeout.ms": min(self._cluster.socket_timeout_ms, int(allowed_s * 1000)),
            "partitioner": "murmur2_random",
            "message.max.bytes": min(max(topic.largest_record_bytes, LEAST_REQUEST_BYTES), LARGEST_REQUEST_BYTES),
            "batch.size": min(topic.largest_record_bytes, 1_000_000),
            "linger.ms": 20,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 200_000,
            # Of one record that the queue cannot hold, the client would say for ever that it is full.
            "queue.buffering.max.kbytes": max(QUEUE_KBYTES, topic.largest_record_bytes // 1024 + 1),
        }
        transactional_id = self.marks.transactional_id(mark.batch_id)
        with fatal_errors(), self._cluster.producer(transactional_id, own) as producer:
            producer.init_transactions(ANSWER_S)
            with aborting(producer):
                began = time.monotonic()
                produced, size_bytes = self._produce(producer, staged, topic, landing)
                if receipt is not None and produced.total() != receipt.rows:
                    raise StagedOutputUnusableError(
                        f"topic {self._name}: expected to add {counted(receipt.rows, 'row')}, "
                        f"found {produced.total():,}"
                    )
                producer.flush(allowed_s)
                pace = (produced.total(), size_bytes, int((time.monotonic() - began) * 1000))
                places = landing.as_document(produced if self._same_partitions else None)
                said: dict[str, object] = {"landed": places} if places is not None else {}
                said |= {TOPIC_ID: topic.topic_id} if topic.topic_id is not None else {}
                self.marks.produce(producer, mark, {**said, "produced": dict(zip(PACE, pace, strict=True))}, of_mark)
                producer.flush(allowed_s)
                if not (at := of_mark.as_document()):  # one that was sent again may be answered without its offset
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                found = self.marks.before(at[0][1], mark.batch_id)
            if found is not None:
                producer.abort_transaction(ANSWER_S)
                return found
            producer.commit_transaction(ANSWER_S)
        with fatal_errors(), self._cluster.producer(transactional_id, own) as producer:
            producer.init_transactions(ANSWER_S)  # it waits until all partitions have the transaction's end
        return mark

    def _produce(
        self, producer: Producer, staged: Staged | None, topic: Topic, landing: Landing
    ) -> tuple[Counter[int], int]:
        if staged is None or not staged.receipt.files:
            return Counter(), 0
        # A third of a second for pyarrow, which only a commit should pay.
        from kafka_ingest.sinks.kafka_topic.produced_rows import produce_rows  # noqa: PLC0415

        return produce_rows(producer, staged, topic, landing.note, same_partitions=self._same_partitions)


@contextmanager
def aborting(producer: Producer) -> Iterator[None]:
    """Begin a transaction, and abort it after an error. Once its end was asked for that is never done."""
    producer.begin_transaction()
    try:
        yield
    except Exception:
        failed = why_failed(producer)
        with suppress(KafkaException, SystemError):
            producer.abort_transaction(ANSWER_S)
        if failed is not None:
            raise failed from None
        raise


def why_failed(producer: Producer) -> KafkaException | None:
    """Return the error of the first record that was not taken, None where all were.

    Of a transaction that can only be aborted, the client answers with what made it so, whatever it is asked to do.
    """
    try:
        with fatal_errors():
            producer.begin_transaction()
    except KafkaException as error:
        return None if code_of(error, {KafkaError._STATE}) else error
    return None


@contextmanager
def fatal_errors() -> Iterator[None]:
    """Raise a fatal error as such: the client runs callbacks while it raises one, and Python takes that for a bug."""
    try:
        yield
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def patience_s(staged: Staged | None) -> float:
    """Return how long the process is waited for that has taken a batch over."""
    files = staged.receipt.files if staged is not None else ()
    return longest_s(staged.receipt.rows if staged is not None else 0, sum(file.size_bytes for file in files), ())
