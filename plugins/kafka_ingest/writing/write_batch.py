"""The Spark job: attempt document → read → staged files → receipt."""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.foundation.storage import (
    access_from_json,
    is_folder,
    opened,
    read_whole,
    remove_tree,
    write_new,
    write_unsynced,
)
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.tried import Tried, each_tried, tried
from kafka_ingest.model.batch import AttemptDocument
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import BEGUN, DATA, DOCUMENT, FAILURE, RECEIPT, JobSettings, Place, RemotePlace, place_of
from kafka_ingest.model.receipt import Filtered, Receipt
from kafka_ingest.writing.kafka_records import drivers_consumer, jvm_of
from kafka_ingest.writing.read_ranges import READ_DEFAULTS, dead_letter_records, is_about_timestamps, read_ranges
from kafka_ingest.writing.rounds import Staged, move_on_disk, read_in_rounds, remove_from_disk
from kafka_ingest.writing.session import say, spark_session
from kafka_ingest.writing.side_by_side import SparkGoneError, Step, attempts_at_once, own_session, side_by_side
from kafka_ingest.writing.stage_decoded import Places, Read, StagedRecords, Storage, stage_decoded
from kafka_ingest.writing.stage_files import stage_files
from kafka_ingest.writing.table_partitions import stage_partitioned, with_own_columns
from kafka_ingest.writing.transform import columns_in

ANSWER_WITHIN_S = 30
"""The default of Kafka's own clients (``default.api.timeout.ms`` is a minute): a new leader is found by then."""

CLOSE_WITHIN_S = 5


def log_starts(
    spark: SparkSession, ranges: Sequence[OffsetRange], kafka: Mapping[str, str]
) -> dict[TopicPartition, int]:
    """Return the log starts of ranges (ListOffsets, with the right that reading them needs); empty without an answer.

    ``kafka`` holds the Java client's settings.
    """
    jvm = jvm_of(spark)
    wanted = jvm.java.util.ArrayList()
    for offset_range in ranges:
        wanted.add(jvm.org.apache.kafka.common.TopicPartition(offset_range.topic, offset_range.partition))
    try:
        with drivers_consumer(jvm, {**READ_DEFAULTS, **kafka}, CLOSE_WITHIN_S) as consumer:
            found = consumer.beginningOffsets(wanted, jvm.java.time.Duration.ofSeconds(ANSWER_WITHIN_S))
            return {TopicPartition(each.topic(), each.partition()): int(found.get(each)) for each in found.keySet()}
    except (Py4JError, TypeError) as error:
        say(f"Kafka did not say where the logs start: {error}")
        return {}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Read a plan's offset ranges from Kafka and stage them as Parquet.")
    several: dict[str, Any] = {"action": "append", "required": True}
    parser.add_argument(
        "--attempt", type=place_of, **several, help=f"an attempt's directory, with {DOCUMENT} in it; may be repeated"
    )
    parser.add_argument(
        "--document-sha256", **several, help=f"the SHA-256 of its {DOCUMENT}, so that it is the one meant"
    )
    parser.add_argument("--package", help="where this package is, for what was submitted")
    parser.add_argument("--settings", type=Path, required=True, help="a file with settings that may be secret")
    options = parser.parse_args(arguments)
    settings = JobSettings.take(options.settings)
    access = access_from_json(settings.store) if settings.store else None
    attempts = [
        SubmittedAttempt(*each, access)
        for each in zip(options.attempt, options.document_sha256, settings.kafka, strict=True)
    ]
    # A driver that dies leaves what it had begun: which attempts it may have died of.
    begun = options.settings.with_name(BEGUN) if settings.limits_s else None
    left = dict(enumerate(attempts))

    def ended(place: int, result: Tried[None]) -> None:
        attempt = left.pop(place)
        if result.error is not None:
            failed.append(attempt)
            attempt.failed(result.error)

    failed: list[SubmittedAttempt] = []
    try:
        write_attempts(attempts, settings.limits_s, begun, ended)
    except SparkGoneError as error:
        say(f"{error}: the attempts that were at work, or not begun, are left to the submitter")
        sys.exit(os.EX_UNAVAILABLE)
    except Exception as error:
        for attempt in left.values():
            attempt.note_failure(error)
        raise
    if failed:
        sys.exit(1)


def write_attempts(
    attempts: Sequence["SubmittedAttempt"],
    limits_s: Sequence[float],
    begun: Path | None,
    ended: Callable[[int, Tried[None]], None],
) -> None:
    """Write attempts by one Spark; ``ended`` is called after each, with its place among them."""
    documents: dict[int, AttemptDocument] = {}
    for place, read in enumerate(each_tried(SubmittedAttempt.document, attempts)):
        if read.result is None:
            ended(place, Tried(error=read.error))
        else:
            documents[place] = read.result
    if not documents:
        return
    hadoop = {name: value for place in documents for name, value in attempts[place].hadoop(documents[place]).items()}
    settings = next(iter(documents.values())).decode.settings
    with spark_session(hadoop, settings) as spark:
        if begun is None:
            ended(0, tried(partial(attempts[0].write, documents[0]), spark))
            return
        context, places = spark.sparkContext, list(documents)
        at_once = attempts_at_once(context, len(places))

        def write(place: int) -> None:
            with begun.open("a", encoding="utf-8") as file:
                file.write(f"{place}\n")
            document = documents[place]
            attempts[place].write(document, own_session(spark, document.decode.settings, at_once))

        steps = [Step(named(documents[place]), partial(write, place), limits_s[place]) for place in places]
        side_by_side(context, steps, at_once, lambda number, result: ended(places[number], result))


@dataclass(frozen=True, slots=True)
class SubmittedAttempt:
    """One attempt as it was submitted; ``kafka`` are its Java client's settings, ``access`` leads to its store."""

    directory: Place
    document_sha256: str
    kafka: Mapping[str, str] = field(repr=False)
    access: StoreAccess | None

    def document(self) -> AttemptDocument:
        """Return its document; raises where it is not the one that was meant."""
        return AttemptDocument.from_bytes(
            read_whole(opened(self.directory / DOCUMENT, self.access)), self.document_sha256
        )

    def data(self, document: AttemptDocument) -> Place:
        return document.data.place or self.directory / DATA

    def hadoop(self, document: AttemptDocument) -> Mapping[str, str]:
        """Return Hadoop's settings for that place, which no log may show."""
        data = self.data(document)
        return self.access.for_hadoop(data.bucket) if isinstance(data, RemotePlace) and self.access is not None else {}

    def write(self, document: AttemptDocument, spark: SparkSession) -> None:
        """Read the plan's ranges, stage their records, and write the receipt."""
        data, storage = self.data(document), storage_of(self.access)
        job, decodes = Job(spark, document, self.kafka, self.directory, data, storage), not document.decode.takes_all
        letters, staged = job.letters_beside(data), read_and_stage(job)
        files, columns = storage.files_in(data), document.columns
        if document.decode.shape.transform is not None and files:
            columns = columns_in(spark, data / files[0].name)
        records = staged.records
        receipt = Receipt(
            batch_id=document.plan.batch_id,
            attempt=document.attempt,
            plan_fingerprint=document.plan.fingerprint,
            document_sha256=self.document_sha256,
            rows_read=records.rows_read,
            files=tuple(files),
            written_at=datetime.now(UTC),
            written_by=f"spark {spark.sparkContext.applicationId}",
            left_out=staged.left_out,
            dead_letters=tuple(storage.files_in(letters)) if decodes and is_folder(storage.at(letters)) else (),
            filtered=tuple(starmap(Filtered, sorted(records.filtered.items()))),
            in_any_order=document.decode.shape.transform is not None or records.in_any_order,
            columns=columns,
            never_found=records.never_found,
        )
        if problems := receipt.contradictions(document.plan) or receipt.not_replayed(document.plan):
            raise NotAsPlannedError(
                f"batch {document.plan.batch_id}: what was written is not what was planned: {'; '.join(problems)}"
            )
        write_new(opened(self.directory / RECEIPT, self.access), receipt.as_bytes())

    def failed(self, error: Exception) -> None:
        say(f"attempt in {self.directory} failed:\n{''.join(traceback.format_exception(error))}")
        self.note_failure(error)

    def note_failure(self, error: Exception) -> None:
        """Leave why it failed beside it: the submitter asks Kafka for the cause, and some causes only Spark knows.

        Where that cannot be written, the others' reasons are noted, and their work continues.
        """
        with Tried[None]() as noting:
            write_unsynced(opened(self.directory / FAILURE, self.access), (str(error) or repr(error)).encode())
        if noting.error is not None:
            say(f"why the attempt in {self.directory} failed could not be written: {noting.error}")


def named(document: AttemptDocument) -> str:
    return f"{document.plan.feed_name} {document.plan.batch_id} {document.attempt}"


class NotAsPlannedError(Exception):
    """What an attempt has written contradicts its plan."""


def storage_of(access: StoreAccess | None) -> Storage:

    def remove(place: Place) -> None:
        if isinstance(place, RemotePlace):
            remove_tree(opened(place, access))
        else:
            remove_from_disk(place)

    return Storage(partial(opened, access=access), remove)


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt in Spark: ``directory`` is its own, ``data`` where the rows go, ``kafka`` the Java client's settings.

    A raw feed has no dead letters.
    """

    spark: SparkSession
    document: AttemptDocument
    kafka: Mapping[str, str]
    directory: Place
    data: Place
    storage: Storage

    def read(self, ranges: Sequence[OffsetRange], *, any_timestamp: bool) -> DataFrame:
        """Return the records of ranges of the plan; see :func:`read_ranges`."""
        needs = self.document.data if self.document.decode.takes_all else replace(self.document.data, without=())
        return read_ranges(self.spark, self.document.plan, ranges, self.kafka, needs, any_timestamp=any_timestamp)

    def discard(self, here: Place) -> None:
        """Remove what was staged to a place, and beside it."""
        self.storage.remove(here)
        if not self.document.decode.takes_all:
            self.storage.remove(self.letters_beside(here))

    def letters_beside(self, here: Place) -> Place:
        """Return where the dead letters go whose good records go to ``here``; ``data``, if none of a range is lost.

        In a store nothing can be renamed: those of a later round stay in a folder of their own.
        """
        letters = staged_dead_letters(self.directory)
        if here == self.data:
            return letters / DATA
        return (letters if isinstance(letters, Path) else letters / DATA) / here.name


def read_and_stage(job: Job) -> Staged[StagedRecords]:
    """Stage the records of the plan's ranges below the job's data, in the form that the sink needs."""
    log_starts_now = partial(log_starts, job.spark, kafka=job.kafka)
    staged = read_in_rounds(job.document.plan, job.data, partial(stage_ranges, job), log_starts_now, job.discard)
    move_on_disk(job.letters_beside(staged.place), job.letters_beside(job.data), job.storage.remove)
    return staged


def stage_ranges(job: Job, ranges: Sequence[OffsetRange], here: Place) -> StagedRecords:
    """Read ranges of the plan, and stage their records.

    Spark's own source is tried first, since it starts faster; what was staged before a timestamp that it cannot read is
    removed.
    """
    if not job.document.plan.kind.reads_kafka:
        return stage(job, lambda _ranges: dead_letter_records(job.spark, job.document), ranges, here)
    try:
        return stage(job, partial(job.read, any_timestamp=False), ranges, here)
    except (Py4JJavaError, PySparkException) as error:
        if not is_about_timestamps(error):
            raise
    say("Spark's own source cannot take a record's timestamp: all is read again, by another way.")
    job.discard(here)
    return stage(job, partial(job.read, any_timestamp=True), ranges, here)


def stage(job: Job, read: Read, ranges: Sequence[OffsetRange], here: Place) -> StagedRecords:
    """Stage the records of ranges: raw ones as they are, others decoded, with those that cannot be beside them."""
    document, needs = job.document, job.document.data
    if not document.decode.takes_all:
        # Rows that a function is passed are in the attempt's directory: whatever removes that takes them along.
        before, after = (job.directory / f"{here.name}-{when}-transform" for when in ("before", "after"))
        places = Places(here, job.letters_beside(here), before, after)
        return stage_decoded(read, ranges, document, places, job.storage)
    records = read(ranges)
    if not needs.terms:
        return StagedRecords(stage_files(records, here))
    divided = with_own_columns(records, needs.partition_by) if needs.own_columns else records
    rows = stage_partitioned(
        lambda: divided, ranges, here, needs.terms, document.plan.planned_at, job.storage.at, job.storage.remove
    )
    return StagedRecords(rows)
