"""The Spark job: attempt document → read → staged files → receipt."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.foundation.storage import Opened, opened, read_whole, remove_tree, write_new, write_unsynced
from kafka_ingest.foundation.stores.kinds import access_from_json
from kafka_ingest.model.attempt_directory import (
    DATA,
    DOCUMENT,
    FAILURE,
    RECEIPT,
)
from kafka_ingest.model.batch import AttemptDocument, BatchPlan, DataNeeds
from kafka_ingest.model.dead_letters import staged_dead_letters
from kafka_ingest.model.job_settings import JobSettings
from kafka_ingest.model.offsets import OffsetRange, TopicPartition
from kafka_ingest.model.place import Place, RemotePlace, place_of
from kafka_ingest.model.receipt import Filtered, Receipt
from kafka_ingest.writing.dead_letter_records import dead_letter_records
from kafka_ingest.writing.kafka_records import drivers_consumer, jvm_of
from kafka_ingest.writing.read_ranges import READ_DEFAULTS, is_about_timestamps, read_ranges
from kafka_ingest.writing.rounds import Staged, read_in_rounds, remove_from_disk
from kafka_ingest.writing.session import spark_session
from kafka_ingest.writing.stage_decoded import DeadLetterPlaces, Read, Storage, stage_decoded
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

    def at(place: Place) -> Opened:
        return opened(place, access)

    def remove(place: Place) -> None:
        if isinstance(place, RemotePlace):
            remove_tree(at(place))
        else:
            remove_from_disk(place)

    storage = Storage(at, remove)
    letters = None if document.decode.takes_all else DeadLetterPlaces(staged_dead_letters(directory), data, at)
    try:
        with spark_session(hadoop, document.decode.settings) as spark:
            staged = read_and_stage(spark, document, settings.kafka, data, storage, letters)
            files, columns = storage.files_in(data), document.columns
            if document.decode.shape.transform is not None and files:
                columns = columns_in(spark, data / files[0].name)
            application_id = spark.sparkContext.applicationId
    except Exception as error:
        # The submitter asks Kafka for the cause; some causes only Spark knows.
        write_unsynced(opened(directory / FAILURE, access), (str(error) or repr(error)).encode())
        raise
    receipt = Receipt(
        batch_id=document.plan.batch_id,
        attempt=document.attempt,
        plan_fingerprint=document.plan.fingerprint,
        document_sha256=options.document_sha256,
        rows_read=staged.rows_read,
        files=tuple(files),
        written_at=datetime.now(UTC),
        written_by=f"spark {application_id}",
        left_out=staged.left_out,
        dead_letters=tuple(storage.files_in(letters.place)) if letters is not None and letters.has_any else (),
        filtered=tuple(starmap(Filtered, sorted(letters.filtered.items()))) if letters is not None else (),
        in_any_order=document.decode.shape.transform is not None or (letters is not None and letters.in_any_order),
        columns=columns,
        never_found=letters.never_found if letters is not None else (),
    )
    if problems := receipt.contradictions(document.plan) or receipt.not_replayed(document.plan):
        sys.exit(f"batch {document.plan.batch_id}: what was written is not what was planned: {'; '.join(problems)}")
    write_new(opened(directory / RECEIPT, access), receipt.as_bytes())


def read_and_stage(
    spark: SparkSession,
    document: AttemptDocument,
    kafka: Mapping[str, str],
    data: Place,
    storage: Storage,
    letters: DeadLetterPlaces | None,
) -> Staged:
    """Stage the records of the plan's ranges below ``data``, in the form that the sink needs."""
    plan = document.plan

    def remove_all(place: Place) -> None:
        storage.remove(place)
        if letters is not None:
            storage.remove(letters.of(place))

    def stage_some(ranges: Sequence[OffsetRange], here: Place) -> int:
        def stage(read: Read) -> int:
            if letters is None:
                return stage_raw(read(ranges), ranges, plan, here, document.data, storage)
            letters.now(here)
            staged = stage_decoded(read, ranges, document, letters.places(here), storage)
            letters.filtered, letters.in_any_order = staged.filtered, staged.in_any_order
            letters.never_found = staged.never_found
            return staged.rows_read

        if not plan.kind.reads_kafka:
            return stage(lambda _ranges: dead_letter_records(spark, document))
        needs = document.data if letters is None else replace(document.data, without=())
        return read_once(spark, plan, kafka, needs, stage, lambda: remove_all(here))

    staged = read_in_rounds(plan, data, stage_some, lambda ranges: log_starts(spark, ranges, kafka), remove_all)
    if letters is not None:
        letters.settle()
    return staged


def read_once(
    spark: SparkSession,
    plan: BatchPlan,
    kafka: Mapping[str, str],
    needs: DataNeeds,
    stage: Callable[[Read], int],
    discard: Callable[[], None],
) -> int:
    """Let ``stage`` read ranges of the plan and stage their records, and return how many Spark counted.

    Spark's own source is tried first, since it starts faster; ``discard`` removes what was staged before a timestamp
    that it cannot read.
    """

    def read(*, any_timestamp: bool) -> Read:
        return lambda ranges: read_ranges(spark, plan, ranges, kafka, needs, any_timestamp=any_timestamp)

    try:
        return stage(read(any_timestamp=False))
    except (Py4JJavaError, PySparkException) as error:
        if not is_about_timestamps(error):
            raise
    sys.stderr.write("Spark's own source cannot take a record's timestamp: all is read again, by another way.\n")
    discard()
    return stage(read(any_timestamp=True))


def stage_raw(
    records: DataFrame,
    ranges: Sequence[OffsetRange],
    plan: BatchPlan,
    data: Place,
    needs: DataNeeds,
    storage: Storage,
) -> int:
    """Stage records of ranges as they are in the form that the sink needs, and return how many Spark counted."""
    if not needs.partition_by:
        return stage_files(records, data)
    divided = with_own_columns(records, needs.partition_by) if needs.own_columns else records
    return stage_partitioned(
        lambda: divided, ranges, data, needs.partition_by, plan.planned_at, storage.at, storage.remove
    )
