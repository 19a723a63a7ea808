"""Find the dead letters of a batch again in a Parquet directory."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from kafka_ingest.errors import BatchStateError, OutputUnavailableError
from kafka_ingest.model.offset_sets import union
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.replayed import ReplayedLetters
from kafka_ingest.sinks.parquet.directory import ParquetDirectory
from kafka_ingest.sinks.storage_errors import storage_errors


class ParquetDeadLetters:
    """Finds and counts them by the receipts that are kept beside the output."""

    def __init__(self, directory: ParquetDirectory) -> None:
        self._directory = directory

    def files(self, batch_id: UUID) -> tuple[Path, ...]:
        """Return where readers find the files of a batch's dead letters, all that its receipt names."""
        target = self._directory.batches.directory(batch_id)
        with storage_errors(target):
            if (removal := self._directory.archive.removal(batch_id)) is not None:
                raise BatchStateError(f"batch {batch_id}: its dead letters were given up: {removal}")
            receipt = self._directory.archive.receipt(batch_id)
            if receipt is None:
                raise OutputUnavailableError(
                    f"batch {batch_id}: expected the receipt of its dead letters beside {self._directory.output}, "
                    "found none: is its storage mounted?"
                )
            found = tuple(target / file.name for file in receipt.files)
            if missing := [path for path in found if not path.is_file()]:
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
                for offset_range, counts in count_in_ranges(path, ranges).items():
                    found[offset_range].update(counts)
        return found

    def offsets(self, batch_id: UUID, letters: Collection[ReplayedLetters]) -> list[OffsetRange]:
        """Return the offsets of some of a batch's letters, merged and sorted."""
        from kafka_ingest.sinks.dead_letter_files import offsets_of  # noqa: PLC0415

        found: list[OffsetRange] = []
        for path in self.files(batch_id):
            with storage_errors(path):
                found += offsets_of(path, letters)
        return union(found)
