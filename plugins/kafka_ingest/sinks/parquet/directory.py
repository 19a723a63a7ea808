"""The parts of a Parquet directory that its roles share."""

from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.sinks.beside_output import beside
from kafka_ingest.sinks.kept_receipts import KeptReceipts
from kafka_ingest.sinks.parquet.listed_output import ListedOutput
from kafka_ingest.sinks.parquet.published_batches import PublishedBatches
from kafka_ingest.sinks.receipt_archive import ArchivedReceipts
from kafka_ingest.sinks.staged_files import StagedFiles


@dataclass(frozen=True, slots=True)
class ParquetDirectory:
    """What readers see, and the folder beside it."""

    output: Path
    beside: Path
    staging: StagedFiles
    receipts: KeptReceipts
    archive: ArchivedReceipts
    batches: PublishedBatches
    listed: ListedOutput

    @classmethod
    def at(cls, output: Path) -> "ParquetDirectory":
        """Return the parts of the output in a directory."""
        folder = beside(output)
        staging = StagedFiles(folder / "staging")
        receipts = KeptReceipts(folder / "receipts")
        batches = PublishedBatches(output, folder)
        archive = ArchivedReceipts(receipts, staging.check_mounted, batches.is_there)
        return cls(output, folder, staging, receipts, archive, batches, ListedOutput(output, folder / "listed.json"))
