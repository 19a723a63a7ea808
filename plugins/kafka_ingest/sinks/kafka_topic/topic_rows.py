"""What the marks of an output topic say of batches. Which of its records are a batch's, no reader can tell."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.model.proof import Proof
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.sinks.tables.table_format import Mark, Outcome, OwnFiles

if TYPE_CHECKING:
    import pyarrow as pa

    from kafka_ingest.sinks.found_offsets import FoundOffsets

NO_FILES = OwnFiles(())


class KafkaRows:
    """All marks of one topic, read once: a :class:`.TableRows`."""

    own_files_of_all = NO_FILES
    are_newest_states = False

    def __init__(self, marks: Mapping[UUID, Mark]) -> None:
        self._marks = marks

    def mark(self, batch_id: UUID) -> Mark | None:
        """Return a batch's mark, None where it has none."""
        return self._marks.get(batch_id)

    def published(self) -> set[str]:
        """Return the ids of the batches that are marked as published."""
        return {str(mark.batch_id) for mark in self._marks.values() if mark.outcome is Outcome.PUBLISHED}

    def visible(self, batch_ids: set[str]) -> set[str]:
        """Return which of some batches are marked as published."""
        return batch_ids & self.published()

    def is_visible(self, batch_id: UUID) -> bool:
        """Whether a batch is marked as published."""
        return str(batch_id) in self.published()

    def was_published(self, published: PublishedReceipt) -> bool:
        """Whether a batch whose receipt is kept is marked as published."""
        return self.is_visible(published.plan.batch_id)

    def names_files_of(self, batch_id: UUID, attempt: int) -> bool:
        """Return False: readers see no files."""
        del batch_id, attempt
        return False

    def own_files(self, batch_id: UUID, attempt: int) -> set[str]:
        """Return no names: readers see no files."""
        return NO_FILES.of(batch_id, attempt)

    def count_elsewhere(self, batch_id: UUID) -> int:
        """Return how many rows a batch's transaction has added; the topic's own clean-up may have taken some since."""
        mark = self._marks.get(batch_id)
        return Proof.from_text(mark.proof).rows if mark is not None and mark.proof else 0

    def rows_elsewhere(self, batch_id: UUID) -> "Iterator[pa.Table]":
        """Yield nothing."""
        del batch_id
        return iter(())

    def holds_elsewhere(self, batch_id: UUID, topic_partition: TopicPartition, offset: int) -> bool:
        """Return False: no record says which one it was."""
        del batch_id, topic_partition, offset
        return False

    def said(self) -> Iterator[tuple[str | None, str | None]]:
        """Yield the proofs in the marks."""
        yield from ((mark.proof, None) for mark in self._marks.values() if mark.proof)

    def add_to(self, found: "FoundOffsets") -> None:
        """Hand in nothing."""
