"""What is in a batch's output and staging: its files, and what Spark said where an attempt failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafka_ingest.batches.pin_receipt import valid_receipt
from kafka_ingest.foundation.storable_text import storable
from kafka_ingest.model.batch import Attempt, Batch, BatchState
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.ports.outputs import Sinks

FILES_SHOWN: Final = 100
FAILURES_SHOWN: Final = 3
END_OF_FAILURE: Final = 64 * 1024
"""How many bytes of Spark's output are read and shown: the cause is at its end."""


@dataclass(frozen=True, slots=True)
class LastWords:
    """The end of what Spark said of an attempt that failed. ``is_cut``: it said more before that."""

    text: str
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class BatchFiles:
    """The first of a batch's files, how many there are, and what the newest failed attempts said, by their number.

    ``is_lost``: the batch is committed, and no receipt beside its output says which files are its own.
    """

    files: Sequence[WrittenFile]
    total: int
    failures: Mapping[int, LastWords]
    is_lost: bool = False


def batch_files(batch: Batch, attempts: Sequence[Attempt], sinks: Sinks) -> BatchFiles:
    """Look at a batch's receipt and its attempts' directories; raises OutputUnavailableError, InvalidReceiptError."""
    sink = sinks(batch.plan.output)
    receipt: Receipt | None = None
    if batch.state is BatchState.COMMITTED:
        receipt = sink.archive.receipt(batch.batch_id)
    else:
        pinned = next((each for each in attempts if each.attempt == batch.pinned_attempt), None)
        content = sink.staging.read_receipt(pinned.directory) if pinned is not None else None
        receipt = valid_receipt(batch.plan, pinned, content) if pinned is not None and content is not None else None
    failures: dict[int, LastWords] = {}
    for each in reversed(attempts):
        if each.cleaned_at is not None or each.attempt == batch.pinned_attempt or len(failures) == FAILURES_SHOWN:
            continue
        if said := sink.staging.end_of_failure(each.directory, END_OF_FAILURE):
            text, is_cut = said
            failures[each.attempt] = LastWords(storable(text), is_cut)
    files = receipt.files if receipt is not None else ()
    return BatchFiles(
        files[:FILES_SHOWN], len(files), failures, is_lost=receipt is None and batch.state is BatchState.COMMITTED
    )
