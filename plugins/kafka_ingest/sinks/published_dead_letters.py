"""Find the dead letters of a batch again, in a directory of Parquet files or in a store."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from uuid import UUID

from kafka_ingest.errors import BatchStateError, OutputUnavailableError
from kafka_ingest.foundation.storage import Opened
from kafka_ingest.model.offset_sets import union
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import Place
from kafka_ingest.model.replayed import ReplayedLetters
from kafka_ingest.ports.outputs import ReceiptArchive
from kafka_ingest.sinks.storage_errors import storage_errors


class PublishedDeadLetters:
    """Finds and counts them by the receipts that are kept beside the output.

    ``place_of``: where the files of a batch are; ``opened`` is what reads a place.
    """

    def __init__(
        self, archive: ReceiptArchive, place_of: Callable[[UUID], Place], opened: Callable[[Place], Opened]
    ) -> None:
        self._archive = archive
        self._place_of = place_of
        self._opened = opened

    def files(self, batch_id: UUID) -> tuple[Place, ...]:
        """Return where readers find the files of a batch's dead letters, all that its receipt names."""
        target = self._place_of(batch_id)
        with storage_errors(target):
            if (removal := self._archive.removal(batch_id)) is not None:
                raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
            receipt = self._archive.receipt(batch_id)
            if receipt is None:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected the receipt of its dead letters beside {target.parent}, "
                    "found none: is its storage mounted?"
                )
            found = tuple(target / file.name for file in receipt.files)
            if missing := [path for path in found if not self._opened(path).is_file()]:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected its dead letters in {missing[0]}, found no file there. Restore it "
                    "from a backup; or give the letters up, for good: `kafka-ingest dead-letters FEED --batch "
                    f"{batch_id} --give-up --reason …`."
                )
        return found

    def count(self, batch_id: UUID, ranges: Sequence[OffsetRange]) -> Mapping[OffsetRange, Mapping[str, int]]:
        """Return how many letters of a batch there are in each range, by the names of their causes."""
        # A third of a second for pyarrow, which only a replay should pay.
        from kafka_ingest.sinks.dead_letter_files import count_in_ranges  # noqa: PLC0415

        files = self.files(batch_id)
        found: dict[OffsetRange, Counter[str]] = {each: Counter() for each in ranges}
        for path in files:
            with storage_errors(path):
                for offset_range, counts in count_in_ranges(self._opened(path), ranges).items():
                    found[offset_range].update(counts)
        return found

    def offsets(self, batch_id: UUID, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
        """Return the offsets of some of a batch's letters, merged and sorted."""
        from kafka_ingest.sinks.dead_letter_files import offsets_of  # noqa: PLC0415

        found: list[OffsetRange] = []
        for path in self.files(batch_id):
            with storage_errors(path):
                found += offsets_of(self._opened(path), letters)
        return union(found)
