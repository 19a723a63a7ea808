"""The Spark job: attempt document → read → staged files → receipt."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.storage import opened, read_whole, remove_tree, write_new, write_unsynced
from kafka_ingest.model.attempt_directory import (
    DATA,
    DOCUMENT,
    FAILURE,
    KAFKA_SETTINGS_VARIABLE,
    RECEIPT,
    STORE_SETTINGS_VARIABLE,
)
from kafka_ingest.model.batch import AttemptDocument, BatchPlan, DataNeeds
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import Place, RemotePlace, place_of
from kafka_ingest.model.receipt import Receipt
from kafka_ingest.writing.log_starts import log_starts
from kafka_ingest.writing.read_ranges import is_about_timestamps, read_ranges
from kafka_ingest.writing.rounds import Remove, Staged, read_in_rounds, remove_from_disk
from kafka_ingest.writing.session import spark_session
from kafka_ingest.writing.stage_files import stage_files, staged_files
from kafka_ingest.writing.table_partitions import stage_partitioned, with_own_columns


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job that ``jobs/write_batch.py`` was submitted with."""
    parser = argparse.ArgumentParser(description="Read a plan's offset ranges from Kafka and stage them as Parquet.")
    parser.add_argument(
        "--attempt", type=place_of, required=True, help=f"the attempt's directory, with {DOCUMENT} in it"
    )
    parser.add_argument(
        "--document-sha256", required=True, help=f"the SHA-256 of {DOCUMENT}, so that it is the one meant"
    )
    parser.add_argument("--package", help="the package, where it is not in the attempt's directory")
    options = parser.parse_args(arguments)
    directory: Place = options.attempt
    access = store_access()
    document = AttemptDocument.from_bytes(read_whole(opened(directory / DOCUMENT, access)), options.document_sha256)
    data = document.data.place or directory / DATA
    hadoop = access.for_hadoop(data.bucket) if isinstance(data, RemotePlace) and access is not None else {}

    def remove(place: Place) -> None:
        if isinstance(place, RemotePlace):
            remove_tree(opened(place, access))
        else:
            remove_from_disk(place)

    try:
        with spark_session(hadoop) as spark:
            staged = read_and_stage(spark, document.plan, data, document.data, remove)
            application_id = spark.sparkContext.applicationId
    except Exception as error:
        # The submitter asks Kafka for the cause; some causes only Spark knows.
        write_unsynced(opened(directory / FAILURE, access), str(error).encode())
        raise
    receipt = Receipt(
        batch_id=document.plan.batch_id,
        attempt=document.attempt,
        plan_fingerprint=document.plan.fingerprint,
        document_sha256=options.document_sha256,
        rows_read=staged.rows_read,
        files=tuple(staged_files(opened(data, access))),
        written_at=datetime.now(UTC),
        written_by=f"spark {application_id}",
        left_out=staged.left_out,
    )
    if problems := receipt.contradictions(document.plan):
        sys.exit(f"batch {document.plan.batch_id}: what was written is not what was planned: {'; '.join(problems)}")
    write_new(opened(directory / RECEIPT, access), receipt.as_bytes())


def read_and_stage(
    spark: SparkSession,
    plan: BatchPlan,
    data: Place,
    needs: DataNeeds,
    remove: Remove = remove_from_disk,
) -> Staged:
    """Stage the records of the plan's ranges below ``data``, in the form that the sink needs."""
    kafka = kafka_settings()

    def stage_some(ranges: Sequence[OffsetRange], here: Place) -> int:
        return read_once(spark, plan, ranges, kafka, here, remove, needs)

    return read_in_rounds(plan, data, stage_some, lambda ranges: log_starts(spark, ranges, kafka), remove)


def read_once(
    spark: SparkSession,
    plan: BatchPlan,
    ranges: Sequence[OffsetRange],
    kafka: Mapping[str, str],
    data: Place,
    remove: Remove,
    needs: DataNeeds,
) -> int:
    """Stage the records of some of the plan's ranges below ``data``, and return how many Spark counted.

    Spark's own source is tried first, since it starts faster; what it staged before a timestamp that it cannot read is
    discarded.
    """
    try:
        return stage(read_ranges(spark, plan, ranges, kafka, needs, any_timestamp=False), plan, data, needs, remove)
    except (Py4JJavaError, PySparkException) as error:
        if not is_about_timestamps(error):
            raise
    sys.stderr.write("Spark's own source cannot take a record's timestamp: all is read again, by another way.\n")
    remove(data)
    return stage(read_ranges(spark, plan, ranges, kafka, needs, any_timestamp=True), plan, data, needs, remove)


def stage(records: DataFrame, plan: BatchPlan, data: Place, needs: DataNeeds, remove: Remove) -> int:
    """Stage records in the form that the sink needs, and return how many Spark counted."""
    if not needs.partition_by:
        return stage_files(records, data)
    divided = with_own_columns(records, needs.partition_by) if needs.own_columns else records
    return stage_partitioned(divided, data, needs.partition_by, plan.planned_at, remove)


def store_access() -> S3Access | None:
    """Return how to reach the output's store, and forget it, since it may hold a secret; None where it is on a disk."""
    text = os.environ.pop(STORE_SETTINGS_VARIABLE, None)
    return S3Access.from_json(text) if text else None


def kafka_settings() -> dict[str, str]:
    """Return the Java client's settings, and forget them: they may hold a secret."""
    text = os.environ.pop(KAFKA_SETTINGS_VARIABLE, None)
    if text is None:
        sys.exit(f"expected the Kafka client's settings as JSON in {KAFKA_SETTINGS_VARIABLE}, found nothing")
    settings: dict[str, str] = json.loads(text)
    return settings
