"""What an output topic shows alone: how many records of each batch readers see, where its mark says that they are.

No record says which one it was, so offsets are proved by their number: of a range with as many records as its batch has
read, all are there. Batches that were published at the same time lie among each other, and are counted together.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from kafka_ingest.foundation.counting import counted
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.proof import Evidence, HeldLog, Proof
from kafka_ingest.model.receipt import RangeCount, rows_by_partition
from kafka_ingest.sinks.contents import OutputContents
from kafka_ingest.sinks.kafka_topic.commits import KafkaTopic
from kafka_ingest.sinks.kafka_topic.topic_rows import LandedRange, Records
from kafka_ingest.sinks.tables.publisher import TableParts

Landed = Mapping[UUID, Sequence[LandedRange] | None]
"""Where the batches are that are published; None where a mark does not say it."""
UNKNOWN = -1
"""The partition of records of which no mark says where they are."""


@dataclass(slots=True)
class Count:
    """How many records of batches are not there, by batch and partition of the output; ``deleted`` by Kafka itself."""

    topic: str
    compacts: bool
    deleted: Counter[tuple[UUID, int]] = field(default_factory=Counter)
    gone: Counter[tuple[UUID, int]] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def take(self, landed: Landed, rows: Mapping[UUID, int], seen: Mapping[int, Records]) -> None:
        """Compare all records with where batches say that theirs are.

        A batch that is not in ``rows`` was published meanwhile: its records are perhaps there.
        """
        elsewhere = {number: len(records.offsets) for number, records in seen.items()}
        for number, together in side_by_side(landed):
            records = seen.get(number, Records(0, ()))
            start, end = together[0][1].start_offset, max(each.end_offset for _, each in together)
            there = bisect_left(records.offsets, end) - bisect_left(records.offsets, start)
            elsewhere[number] = elsewhere.get(number, 0) - there
            expected = [(batch, number, each.records) for batch, each in together if batch in rows]
            perhaps = sum(each.records for batch, each in together if batch not in rows)
            below = max(0, min(end, records.log_start_offset) - start)
            self._settle(f"{self.topic}-{number}[{start}, {end})", expected, there, below, perhaps)
        expected = [(batch, UNKNOWN, rows[batch]) for batch, where in landed.items() if where is None and batch in rows]
        went = {batch: rows[batch] for batch, where in landed.items() if where == () and rows.get(batch)}
        self.gone.update({(batch, UNKNOWN): number for batch, number in went.items()})
        if went:
            self.problems.append(
                f"topic {self.topic} was deleted and created again: {counted(sum(went.values()), 'record')} of "
                f"{counted(len(went), 'batch')} went with it"
            )
        below = sum(records.log_start_offset for records in seen.values())
        self._settle(f"{self.topic}, where no mark says that a batch is", expected, sum(elsewhere.values()), below)

    def _settle(
        self, where: str, expected: Sequence[tuple[UUID, int, int]], there: int, below: int, perhaps: int = 0
    ) -> None:
        """Note what is there too much, or too little: first of the batches that are first."""
        short = sum(records for _, _, records in expected) - there
        if short + perhaps < 0:
            self.problems.append(
                f"{where}: expected {counted(short + there, 'record')}, found {there:,}. Find what else writes to it"
            )
        deleted = short if self.compacts else min(short, below)
        for batch, number, records in expected:
            gone = max(0, min(records, short))
            self.gone[batch, number] += gone
            self.deleted[batch, number] += min(gone, max(0, deleted))
            short, deleted = short - gone, deleted - gone

    def notes(self) -> list[str]:
        how = "compaction, or retention, has" if self.compacts else "retention has"
        rows = self.deleted.total()
        return [f"{how} deleted {counted(rows, 'record')} of topic {self.topic}: counted as lost"] if rows else []


def side_by_side(landed: Landed) -> Iterator[tuple[int, list[tuple[UUID, LandedRange]]]]:
    """Yield batches whose ranges overlap, by partition, in the order of their starts."""
    ranges = [(batch, each) for batch, where in landed.items() for each in where or ()]
    ranges.sort(key=lambda pair: (pair[1].partition, pair[1].start_offset))
    together: list[tuple[UUID, LandedRange]] = []
    for batch, each in ranges:
        if together and (
            each.partition != together[0][1].partition or each.start_offset >= max(of.end_offset for _, of in together)
        ):
            yield together[0][1].partition, together
            together = []
        together.append((batch, each))
    if together:
        yield together[0][1].partition, together


def shared_out(
    proof: Proof, where: Sequence[LandedRange] | None, numbers: Mapping[tuple[UUID, int], int]
) -> Iterator[tuple[RangeCount, int]]:
    """Yield the ranges that a batch has read, with its share of a number by the output's partitions.

    Where each partition has as many records as were read of that number, it is that one's; otherwise anyone's.
    """
    of_source: Counter[int] = Counter()
    for count in proof.ranges or ():
        of_source[count.offset_range.partition] += count.rows
    landed = Counter({each.partition: each.records for each in where or ()})
    left = Counter({number: found for (batch, number), found in numbers.items() if batch == proof.batch_id})
    if landed != of_source:
        left = Counter({UNKNOWN: left.total()})
    for count in proof.ranges or ():
        number = count.offset_range.partition if landed == of_source else UNKNOWN
        share = min(count.rows, left[number])
        left[number] -= share
        yield count, share


class TopicContents(OutputContents):
    """Counts the records of a topic: a :class:`.Contents`."""

    def __init__(self, parts: TableParts, topic: KafkaTopic) -> None:
        super().__init__(parts.output, parts.receipts, topic.rows)
        self._parts = parts
        self._topic = topic
        self._proofs: Mapping[UUID, Proof] = {}
        self._landed: Landed = {}
        self._count = Count("", compacts=False)

    def evidence(self) -> Evidence:
        evidence, topic = super().evidence(), self._topic.topic()
        # Marks come last, so that each record that is seen has its own; what was not yet known before may be unseen.
        records, marked = self._topic.records(topic), self._topic.landed(topic)
        known = evidence.proofs.keys() - evidence.unpublished
        proofs = {batch: self._in_topic(evidence.proofs[batch]) for batch in sorted(marked) if batch in known}
        self._proofs = proofs
        self._landed = {batch: marked[batch] for batch in proofs}
        self._count = Count(topic.name, topic.is_compacted)
        self._count.take(marked, {batch: proof.rows for batch, proof in proofs.items()}, records)
        lost: Counter[tuple[UUID, TopicPartition]] = Counter(evidence.lost)
        for batch, proof in proofs.items():
            for count, share in shared_out(proof, self._landed[batch], self._count.deleted):
                lost[batch, count.offset_range.topic_partition] += share
        return replace(evidence, lost=lost, notes=self._count.notes(), of_counts=True)

    def _in_topic(self, proof: Proof) -> Proof:
        """Return what a batch has put into the topic: late rows are files."""
        receipt = self._receipts.receipt(proof.batch_id) if proof.late_rows else None
        if receipt is None:
            return proof
        late = rows_by_partition(receipt.part(late=True).files)
        ranges = [
            replace(each, rows=each.rows - late[each.offset_range.topic_partition]) for each in proof.ranges or ()
        ]
        return replace(proof, ranges=ranges, rows=proof.rows - proof.late_rows)

    def _late_rows(self, batch_id: UUID) -> "Counter[TopicPartition]":
        """Return how many late rows of a batch are there; of files that cannot be read the problems are noted."""
        from kafka_ingest.sinks.parquet_contents import look_at_named  # noqa: PLC0415 - see held

        receipt = self._receipts.receipt(batch_id)
        if receipt is None:
            self._count.problems.append(f"batch {batch_id}: expected its receipt, which says where its late rows are")
            return Counter()
        late = receipt.part(late=True)

        def path_of(name: str) -> Opened:
            return self._parts.opened(self._parts.path(late, name))

        there = self._parts.files_there(late).keys() & self._parts.late_files(late)
        look = look_at_named(path_of, there, late, closely=False)
        self._count.problems += [each.problem for each in look.problems if each.is_there]
        return Counter({each.topic_partition: each.offsets for each in look.counts})

    def held(self, evidence: Evidence) -> tuple[Sequence[HeldLog], Sequence[str], int]:
        """Return how many offsets of each range are there, as its first ones, and what is there too much."""
        del evidence  # of which the proofs are, without late rows
        # A third of a second for pyarrow, which only a count should pay.
        import numpy as np  # noqa: PLC0415
        import pyarrow as pa  # noqa: PLC0415

        from kafka_ingest.sinks.found_offsets import FoundOffsets  # noqa: PLC0415

        found = FoundOffsets()
        for batch, where in self._landed.items():
            proof = self._proofs[batch]
            late = self._late_rows(batch) if proof.late_rows else Counter[TopicPartition]()
            for count, gone in shared_out(proof, where, self._count.gone):
                span = count.offset_range
                there = count.rows - gone + late[span.topic_partition]
                offsets = np.arange(span.start_offset, span.start_offset + there)
                known = {"kafka_topic": span.topic, "kafka_partition": span.partition, "kafka_batch": str(batch)}
                known["kafka_topic_id"] = proof.topic_ids.get(span.topic)
                found.add(self._count.topic, pa.table({"kafka_offset": offsets}), known)
        return found.held(lambda *_: None), self._count.problems, 0
