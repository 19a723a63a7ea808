"""Which records of a feed could not be decoded, by cause, with samples."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka_ingest.errors import KafkaIngestError
from kafka_ingest.foundation.counting import grouped
from kafka_ingest.model.batch import Batch
from kafka_ingest.model.control_rows import CoverageRows
from kafka_ingest.model.dead_letters import (
    PREVIEW_BYTES,
    DeadLetter,
    DeadLettersOfFile,
    DecodingError,
    output_of_dead_letters,
)
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.read_again import ReplayedLetters
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.ports.outputs import Sinks
from kafka_ingest.ports.parts import role_of


@dataclass(frozen=True, slots=True)
class Cause:
    """All dead letters of one cause, and the newest samples."""

    error: DecodingError
    records: int
    samples: tuple[DeadLetter, ...]

    def as_document(self, *, show_values: bool = True) -> dict[str, Any]:
        return {
            **document_of(self.error, "part", "error_class"),
            "records": self.records,
            "samples": [sample_document(each, show_values=show_values) for each in self.samples],
        }


@dataclass(frozen=True, slots=True)
class DeadLettersOfBatch:
    """What is in the files of one batch. ``counted`` is what the control tables have of it, without what was replayed.

    ``problem`` is why the files cannot be read.
    """

    batch_id: UUID
    counted: int
    files: tuple[DeadLettersOfFile, ...]
    problem: str | None = None


def sample_document(letter: DeadLetter, *, show_values: bool = True) -> dict[str, Any]:
    """Return a dead letter as ``--json`` shows it, with the beginnings of key and value as text.

    Without ``show_values`` it is where and of when the record is: its error may quote it.
    """
    where = document_of(letter, "topic_partition", "offset", "timestamp")
    if not show_values:
        return where
    return where | {"error": letter.error, "key": preview(letter.key), "value": preview(letter.value)}


def preview(content: bytes | None) -> str | None:
    """Return the beginning of some bytes as text that is safe to print."""
    if content is None:
        return None
    text = content[:PREVIEW_BYTES].decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text) + (
        "…" if len(content) > PREVIEW_BYTES else ""
    )


def dead_letters_of(
    rows: CoverageRows,
    control: ControlObserver,
    sinks: Sinks,
    *,
    samples: int,
    only: UUID | None = None,
) -> Iterator[DeadLettersOfBatch]:
    """Yield the dead letters of a feed's committed batches that no replay has decoded; newest first, or of one batch.

    A batch whose dead letters cannot be read is yielded with the reason.
    """
    left = grouped((each.batch_id, each.left) for each in rows.dead_letters if each.left)
    counted = {batch_id: sum(numbers) for batch_id, numbers in left.items()}
    replayed = grouped((each.letters.batch_id, each.letters) for each in rows.replays if not each.is_open)
    for batch_id in sorted(counted, reverse=True):
        if only is not None and batch_id != only:
            continue
        try:
            without = replayed.get(batch_id, ())
            found = tuple(letters_of_batch(control.batch(batch_id), sinks, samples, without))
        except (KafkaIngestError, OSError) as error:
            yield DeadLettersOfBatch(batch_id, counted[batch_id], (), str(error))
        else:
            yield DeadLettersOfBatch(batch_id, counted[batch_id], found)


def letters_of_batch(
    batch: Batch, sinks: Sinks, samples: int, without: Sequence[ReplayedLetters] = ()
) -> Iterator[DeadLettersOfFile]:
    """Yield what each file of a batch's dead letters holds; ``without`` are those that were replayed."""
    output = output_of_dead_letters(batch.plan.output)
    sink = sinks(output)
    if sink.archive.removal(batch.batch_id) is not None:
        return
    reader = role_of(output, sink.dead_letters, "be asked for dead letters")
    yield from reader.of_batch(batch.batch_id, samples=samples, without=without)


def by_cause(batches: Iterable[DeadLettersOfBatch], samples: int) -> list[Cause]:
    """Return the dead letters of all batches by cause, the most frequent first; samples are of the first batches."""
    counts: Counter[DecodingError] = Counter()
    found: dict[DecodingError, list[DeadLetter]] = defaultdict(list)
    for file in (each for batch in batches for each in batch.files):
        counts.update(file.counts)
        for letter in file.samples:
            if len(found[letter.cause]) < samples:
                found[letter.cause].append(letter)
    return [Cause(error, number, tuple(found[error])) for error, number in counts.most_common()]
