"""Which offsets are in a file, and which batch it belongs to. The contents are shown without control tables, too."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kafka_ingest.batches.known_feed import whole_plan
from kafka_ingest.errors import (
    InvalidReceiptError,
    KafkaIngestError,
    NotADataFileError,
    OutputUnavailableError,
    UnknownBatchError,
)
from kafka_ingest.foundation.foreign_json import ForeignJsonError
from kafka_ingest.model.batch import Attempt, Batch
from kafka_ingest.model.dead_letters import output_of_dead_letters
from kafka_ingest.model.documents import document_of
from kafka_ingest.model.offsets import OffsetRange, listing
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.published_output import FileContents, FilePlace, PartitionContents, partitions_that_differ
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.ports.control import ControlObserver
from kafka_ingest.ports.outputs import DataFiles, Sinks

MOST_INTERVALS = 1_000
"""A compacted topic has as many intervals as records; ``interval_count`` says how many there are."""

OF_ONE = ("topic", "partition", "smallest_offset", "largest_offset", "intervals")
"""What is said of a file's partition beside the file itself, where it holds only one."""


@dataclass(frozen=True, slots=True)
class BatchOfFile:
    """A file's batch, or one alone, in the control tables. ``attempt``: which staged a file that is not published."""

    batch: Batch
    planned: tuple[OffsetRange, ...]
    """What the batch was to read, of the file's partitions where there is one."""
    attempt: Attempt | None
    topic_ids: Mapping[str, str | None]
    one_transaction: bool | None = None
    """Whether rows and stored offsets were one transaction; None where the output does not say it, or not now."""

    def as_document(self) -> dict[str, Any]:
        batch = self.batch
        planned = self.planned[0] if len(self.planned) == 1 else None
        names = ("batch_id", "state", "planned_by", "committed_at", "committed_by", "reason", "pinned_attempt")
        return {
            **document_of(batch, *names),
            **document_of(batch.plan, "kind", "planned_at"),
            "feed": batch.feed_name,
            "output": str(batch.plan.output),
            "topic_id": self.topic_ids[planned.topic] if planned else None,
            "start_offset": planned.start_offset if planned else None,
            "end_offset": planned.end_offset if planned else None,
            "attempt_state": self.attempt.state.value if self.attempt else None,
            "folded": batch.plan.folded is not None,
            "one_transaction": self.one_transaction,
        }


@dataclass(frozen=True, slots=True)
class ExplainedFile:
    """The whole answer. ``batch`` is None where the control tables know none, or are unavailable (``control_error``).

    ``differences`` are those from the receipt; None where there is no receipt, and ``receipt_problem`` says why.
    """

    path: Path
    place: FilePlace
    contents: FileContents
    batch: BatchOfFile | None
    control_error: KafkaIngestError | None
    differences: tuple[str, ...] | None
    receipt_problem: str | None
    filtered: int | None = None
    """How many records of the file's partitions its batch has filtered, by its receipt."""

    def as_document(self) -> dict[str, Any]:
        contents, error = self.contents, self.control_error
        partitions = [partition_document(held) for held in contents.partitions]
        only = partitions[0] if contents.only else dict.fromkeys(OF_ONE) | {"intervals": []}
        return {
            "file": str(self.path),
            "batch_id": str(self.place.batch_id),
            "published": self.place.attempt is None,
            "attempt": self.place.attempt,
            **document_of(contents, "size_bytes", "rows", "distinct_offsets", "interval_count"),
            **{name: only[name] for name in OF_ONE},
            "partitions": partitions,
            "columns": [{"name": name, "type": kind} for name, kind in contents.columns],
            "batch": self.batch.as_document() if self.batch else None,
            "control_tables": {"error": {"code": error.code, "message": str(error)}} if error else None,
            "receipt": None if self.differences is None else {"differences": list(self.differences)},
            "receipt_problem": self.receipt_problem,
            "filtered": self.filtered,
        }


def partition_document(held: PartitionContents) -> dict[str, Any]:
    intervals = [document_of(interval, "start_offset", "end_offset") for interval in held.intervals]
    return document_of(held) | {"intervals": intervals}


def explain_file(
    named: Path, control_tables: Callable[[], ControlObserver], sinks: Sinks, data_files: DataFiles
) -> ExplainedFile:
    """Return what a data file holds and its batch; an error that ``control_tables`` raises becomes part of the answer.

    Raises NotADataFileError where it is no data file of an output, OutputUnavailableError where it cannot be read.
    """
    try:
        path, place = found_at(named, data_files)
        contents = data_files.contents(path, intervals=MOST_INTERVALS)
    except OSError as error:
        raise OutputUnavailableError(
            f"{named} could not be read: {error}. Run this again when its storage is available, or as a user who may "
            "read it."
        ) from error
    batch, control_error = None, None
    try:
        batch = batch_of_file(control_tables(), sinks, place, contents)
    except KafkaIngestError as error:
        control_error = error
    differences, problem, filtered = None, None, None
    try:
        receipt = receipt_of_file(sinks, place, batch)
        differences = tuple(differences_of(path, place, contents, batch, receipt))
        held = {each.topic_partition for each in contents.partitions}
        filtered = sum(each.records for each in receipt.filtered if each.topic_partition in held)
    except KafkaIngestError as error:
        problem = str(error)
    return ExplainedFile(path, place, contents, batch, control_error, differences, problem, filtered)


def found_at(named: Path, data_files: DataFiles) -> tuple[Path, FilePlace]:
    """Return a file's absolute path, symlinks followed, and the batch that its place belongs to."""
    tried = names_of(named)
    if not tried[0].exists():
        raise NotADataFileError(f"expected a data file, found nothing at {tried[1]}")
    if not tried[0].is_file():
        raise NotADataFileError(f"expected a data file, found {tried[1]}, which is not a file; name one of those in it")
    if (found := place_named(named, data_files)) is not None:
        return found
    raise NotADataFileError(
        f"expected a data file in its place, {data_files.places_in_words()}; found {tried[0]}, which "
        "belongs to no batch"
    )


def names_of(named: Path) -> tuple[Path, Path]:
    # A data file may itself be a link to elsewhere: then its own name says more than where it leads to.
    return Path(os.path.realpath(named)), Path(os.path.normpath(named.absolute()))


def place_named(named: Path, data_files: DataFiles) -> tuple[Path, FilePlace] | None:
    """Return a path, and the batch that its place belongs to, None where it is none; the file need not exist."""
    found = ((path, data_files.place_of(path)) for path in names_of(named))
    return next(((path, place) for path, place in found if place is not None), None)


def batch_of_file(
    control: ControlObserver, sinks: Sinks, place: FilePlace, contents: FileContents
) -> BatchOfFile | None:
    """Return a file's batch from the control tables, None where they know none of its id."""
    try:
        batch = control.batch(place.batch_id)
    except UnknownBatchError:
        return None
    held = {each.topic_partition for each in contents.partitions}
    explained = explain_batch(batch, sinks)
    planned = tuple(found for found in explained.planned if found.topic_partition in held)
    attempts = (found for found in control.attempts(place.batch_id) if found.attempt == place.attempt)
    return replace(explained, planned=planned, attempt=next(attempts, None))


def explain_batch(batch: Batch, sinks: Sinks) -> BatchOfFile:
    """Return a batch with all that it was to read, and what its output says of its transaction."""
    plan, one_transaction = batch.plan, None
    # Where a folded batch's receipt cannot be read, the answer says so: no range is known then.
    with contextlib.suppress(KafkaIngestError):
        plan = whole_plan(plan, sinks)
    with contextlib.suppress(KafkaIngestError):
        in_one = sinks(plan.output).in_one
        one_transaction = in_one(batch.batch_id) if in_one is not None else None
    return BatchOfFile(batch, plan.ranges, None, plan.topic_ids, one_transaction)


def receipt_of_file(sinks: Sinks, place: FilePlace, batch: BatchOfFile | None) -> Receipt:
    """Return the receipt that should name a file.

    Raises InvalidReceiptError where there is none or it cannot be used, and what the sink raises where it cannot be
    read.
    """
    # The plan's output where it is known: the file's own may be another name of it.
    target = output_of_batch(batch.batch, place) if batch is not None else place.output
    sink = sinks(target)
    if place.attempt is None:
        receipt = sink.archive.receipt(place.batch_id)
        if receipt is None:
            raise InvalidReceiptError(f"expected the receipt of batch {place.batch_id} next to {target}, found none")
        return receipt
    staging = sinks(place.output).staging
    content = staging.read_receipt(staging.attempt_directory(place.batch_id, place.attempt))
    if content is None:
        raise InvalidReceiptError(f"attempt {place.attempt} has written no receipt: it is not done, or failed")
    try:
        return Receipt.from_bytes(content)
    except ForeignJsonError as error:
        raise InvalidReceiptError(f"the receipt of attempt {place.attempt} cannot be used: {error}") from error


def output_of_batch(batch: Batch, place: FilePlace) -> OutputLocation:
    """Return which of a batch's two outputs a file belongs to: that of the data, or that of the dead letters."""
    letters = output_of_dead_letters(batch.plan.output)
    return letters if is_same_place(letters, place.output) else batch.plan.output


def is_same_place(one: OutputLocation, other: OutputLocation) -> bool:
    """Whether two outputs are one directory, perhaps by two names."""
    return os.path.realpath(one.uri) == os.path.realpath(other.uri)


def differences_of(
    path: Path, place: FilePlace, contents: FileContents, batch: BatchOfFile | None, receipt: Receipt
) -> Iterator[str]:
    output = output_of_batch(batch.batch, place) if batch is not None else None
    if output is not None and not is_same_place(output, place.output):
        yield f"the batch's output is {output}, the file is in {place.output}: a copy, or moved"
    # One task gives its files in all folders the same name, and late rows have a folder above the others'.
    named_so = [file for file in receipt.files if path.as_posix().endswith(f"/{file.name}")]
    written = max(named_so, key=lambda file: len(file.name), default=None)
    if written is None:
        named = listing(file.name for file in receipt.files)
        yield f"the receipt names no file {path.name}, but {named or 'none at all'}"
        return
    for what, expected, found in (
        ("bytes", written.size_bytes, contents.size_bytes),
        ("rows", written.rows, contents.rows),
    ):
        if expected != found:
            yield f"{what}: the receipt says {expected}, found {found}"
    yield from partitions_that_differ(written, contents)
