"""The Spark job: attempt document → read → staged files → receipt."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import starmap
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.foundation.storage import is_folder, opened, read_whole, remove_tree, write_new, write_unsynced
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import access_from_json
from kafka_ingest.model.attempt_directory import (
    DATA,
    DOCUMENT,
    FAILURE,
    RECEIPT,
)
from kafka_ingest.model.batch import AttemptDocument
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.job_settings import JobSettings
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place, RemotePlace, place_of
from kafka_ingest.model.receipt import Filtered, Receipt
from kafka_ingest.writing.dead_letter_records import dead_letter_records
from kafka_ingest.writing.kafka_records import drivers_consumer, jvm_of
from kafka_ingest.writing.read_ranges import READ_DEFAULTS, is_about_timestamps, read_ranges
from kafka_ingest.writing.rounds import Staged, move_on_disk, read_in_rounds, remove_from_disk
from kafka_ingest.writing.session import spark_session
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
        sys.stderr.write(f"Kafka did not say where the logs start: {error}\n")
        return {}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that ``jobs/write_batch.py`` was submitted with."""
    parser = argparse.ArgumentParser(description="Read a plan's offset ranges from Kafka and stage them as Parquet.")
    parser.add_argument(
        "--attempt", type=place_of, required=True, help=f"the attempt's directory, with {DOCUMENT} in it"
    )
    parser.add_argument(
        "--document-sha256", required=True, help=f"the SHA-256 of {DOCUMENT}, so that it is the one meant"
    )
    parser.add_argument("--package", help="where this package is, for what was submitted")
    parser.add_argument("--settings", type=Path, required=True, help="a file with settings that may be secret")
    options = parser.parse_args(arguments)
    directory: Place = options.attempt
    settings = JobSettings.take(options.settings)
    access = access_from_json(settings.store) if settings.store else None
    document = AttemptDocument.from_bytes(read_whole(opened(directory / DOCUMENT, access)), options.document_sha256)
    data = document.data.place or directory / DATA
    hadoop = access.for_hadoop(data.bucket) if isinstance(data, RemotePlace) and access is not None else {}
    storage = storage_of(access)
    letters, decodes = letters_beside(directory, data, data), not document.decode.takes_all
    try:
        with spark_session(hadoop, document.decode.settings) as spark:
            staged = read_and_stage(Job(spark, document, settings.kafka, directory, data, storage))
            files, columns = storage.files_in(data), document.columns
            if document.decode.shape.transform is not None and files:
                columns = columns_in(spark, data / files[0].name)
            application_id = spark.sparkContext.applicationId
    except Exception as error:
        # The submitter asks Kafka for the cause; some causes only Spark knows.
        write_unsynced(opened(directory / FAILURE, access), (str(error) or repr(error)).encode())
        raise
    records = staged.records
    receipt = Receipt(
        batch_id=document.plan.batch_id,
        attempt=document.attempt,
        plan_fingerprint=document.plan.fingerprint,
        document_sha256=options.document_sha256,
        rows_read=records.rows_read,
        files=tuple(files),
        written_at=datetime.now(UTC),
        written_by=f"spark {application_id}",
        left_out=staged.left_out,
        dead_letters=tuple(storage.files_in(letters)) if decodes and is_folder(storage.at(letters)) else (),
        filtered=tuple(starmap(Filtered, sorted(records.filtered.items()))),
        in_any_order=document.decode.shape.transform is not None or records.in_any_order,
        columns=columns,
        never_found=records.never_found,
    )
    if problems := receipt.contradictions(document.plan) or receipt.not_replayed(document.plan):
        sys.exit(f"batch {document.plan.batch_id}: what was written is not what was planned: {'; '.join(problems)}")
    write_new(opened(directory / RECEIPT, access), receipt.as_bytes())


def storage_of(access: StoreAccess | None) -> Storage:
    """Return what opens and removes the places of an attempt."""

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
            self.storage.remove(letters_beside(self.directory, self.data, here))


def letters_beside(directory: Place, data: Place, here: Place) -> Place:
    """Return where the dead letters go whose good records go to ``here``; ``data`` is where these go if none is lost.

    In a store nothing can be renamed: those of a later round stay in a folder of their own.
    """
    letters = staged_dead_letters(directory)
    if here == data:
        return letters / DATA
    return (letters if isinstance(letters, Path) else letters / DATA) / here.name


def read_and_stage(job: Job) -> Staged[StagedRecords]:
    """Stage the records of the plan's ranges below the job's data, in the form that the sink needs."""
    log_starts_now = partial(log_starts, job.spark, kafka=job.kafka)
    staged = read_in_rounds(job.document.plan, job.data, partial(stage_ranges, job), log_starts_now, job.discard)
    of_round, letters = (letters_beside(job.directory, job.data, place) for place in (staged.place, job.data))
    move_on_disk(of_round, letters, job.storage.remove)
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
    sys.stderr.write("Spark's own source cannot take a record's timestamp: all is read again, by another way.\n")
    job.discard(here)
    return stage(job, partial(job.read, any_timestamp=True), ranges, here)


def stage(job: Job, read: Read, ranges: Sequence[OffsetRange], here: Place) -> StagedRecords:
    """Stage the records of ranges: raw ones as they are, others decoded, with those that cannot be beside them."""
    document, needs = job.document, job.document.data
    if not document.decode.takes_all:
        # Rows that a function is passed are in the attempt's directory: whatever removes that takes them along.
        before, after = (job.directory / f"{here.name}-{when}-transform" for when in ("before", "after"))
        places = Places(here, letters_beside(job.directory, job.data, here), before, after)
        return stage_decoded(read, ranges, document, places, job.storage)
    records = read(ranges)
    if not needs.partition_by:
        return StagedRecords(stage_files(records, here))
    divided = with_own_columns(records, needs.partition_by) if needs.own_columns else records
    rows = stage_partitioned(
        lambda: divided,
        ranges,
        here,
        needs.partition_by,
        document.plan.planned_at,
        job.storage.at,
        job.storage.remove,
    )
    return StagedRecords(rows)
