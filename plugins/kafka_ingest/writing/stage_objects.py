"""Stage JSON objects by way of Python's workers, where Spark runs on this machine.

Arrow reads and writes objects in less than half of the time that Spark's expressions and its Parquet writer take
(bench/README.md). What certainly fits, the workers write themselves; the others they hand back, and Spark decodes and
writes these in the same pass, as it does without any of this: there is one place that says what is dead, and why. What
is for a store they write to this machine's disk, from which it is copied.
"""

import shutil
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import mkdtemp
from uuid import uuid4

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from kafka_ingest.foundation.storage import copy_file, files_below
from kafka_ingest.model.batch import AttemptDocument, BatchPlan
from kafka_ingest.model.decoding import Columns, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.place import Place
from kafka_ingest.model.record_schema import RecordType, Struct, kinds_in, quoted, read_schema
from kafka_ingest.model.spark_settings import PARQUET_SETTINGS, are_ours
from kafka_ingest.model.written_columns import BATCH_COLUMN
from kafka_ingest.writing.decode import with_steps
from kafka_ingest.writing.decoded_part import named, once
from kafka_ingest.writing.for_workers import for_workers
from kafka_ingest.writing.kafka_records import hadoop_settings
from kafka_ingest.writing.object_batches import FOLDER, IS_LARGE, EitherOf, SentObjects, in_task
from kafka_ingest.writing.plain_objects import arrow_type, done_by_workers, with_constants
from kafka_ingest.writing.schema_ids import HEAD_BYTES, readable
from kafka_ingest.writing.session import is_local
from kafka_ingest.writing.stage_files import processors_of
from kafka_ingest.writing.table_partitions import OpenPlace, folder_at_once, with_own_columns

MIB = 1024 * 1024

LARGE_BYTES = 8 * 1024
"""Of a record's key, value and headers. Larger ones are read again, by Spark alone."""

BATCH_RECORDS = 2_000
"""With the limit above, 16 MB at most. A limit of bytes would have Spark measure the batch at each record."""

ROW_GROUP_BYTES = 256 * MIB
"""Of all workers together; one of them keeps 8 to 64 MiB of rows, as Arrow has them, until it writes these."""

NO_LIMIT = str(2**31 - 1)
"""Spark's own word for it (ARROW_EXECUTION_MAX_BYTES_PER_BATCH): only then it measures nothing."""

WRITTEN_ALIKE = frozenset({"string", "boolean", "int", "bigint", "double"})
"""The types that Arrow stores in Parquet as Spark does, and reads from JSON."""

ENCRYPTS = "parquet.crypto.factory.class"
"""A site's configuration of Hadoop has it where Parquet is encrypted."""

NO_STATISTICS = "spark.hadoop.parquet.column.statistics.enabled#"
NO_DICTIONARY = "spark.hadoop.parquet.enable.dictionary#"
WITHOUT_DICTIONARY, WITHOUT_STATISTICS = (
    frozenset(name.removeprefix(prefix) for name in PARQUET_SETTINGS if prefix in name)
    for prefix in (NO_DICTIONARY, NO_STATISTICS)
)
"""The columns that have none, but for those of one value: their dictionaries cost nothing here."""

HELD = ("key", "value", "kafka_headers")
"""The columns of whatever size; null in what workers are sent of a large record."""

# Spark compiles no function over an array's elements, and then nothing around it: so it is the length of the text.
IS_LARGE_RECORD = (
    "coalesce(length(key), 0) + coalesce(length(value), 0) + "
    f"coalesce(octet_length(cast(kafka_headers as string)), 0) > {LARGE_BYTES}"
)

SUFFIX = "-objects.zstd.parquet"
"""How the names of the workers' files end."""

COPIES_AT_ONCE = 8

Add = Callable[[DataFrame], None]
"""Decodes records, and adds them to what is staged."""


def objects_for_workers(
    raw: DataFrame, ranges: Sequence[OffsetRange], document: AttemptDocument, place: Place, at: OpenPlace
) -> "ObjectsOfWorkers | None":
    """Return what stages the records of ranges so; None where Spark has to decode all of them."""
    value, key, context = document.decode.value, document.decode.key, raw.sparkSession.sparkContext
    if (
        value.format is not Format.JSON
        or value.schema is None
        or value.required
        or (document.decode.max_record_bytes or LARGE_BYTES) < LARGE_BYTES
        or value.unknown_fields is UnknownFields.KEEP
        or key.format not in {Format.RAW, Format.STRING}
        or document.decode.shape
        or (value.has_ids and not heads_of(value))
        or not is_local(raw.sparkSession)
        or not are_ours(context.getConf().getAll())
        or hadoop_settings(raw.sparkSession).get(ENCRYPTS) is not None
        or not is_written_alike(schema := read_schema(value.schema))
    ):
        return None
    terms = document.data.terms
    folder = folder_at_once(ranges, terms, document.plan.planned_at, processors_of(raw)) if terms else ""
    return None if folder is None else ObjectsOfWorkers(raw, document, place, at, schema, folder)


def heads_of(value: FieldDecoding) -> list[bytes]:
    """Return how values begin that can be read: with a byte 0 and a number."""
    writers = [each for each in readable(value) if not each.is_other]
    return [each.schema_id.to_bytes(HEAD_BYTES, "big") for each in writers if isinstance(each.schema_id, int)]


def is_written_alike(kind: RecordType) -> bool:
    """Whether Arrow reads and stores all values of a type as Spark does."""
    return all(isinstance(each, Struct) or each.ddl in WRITTEN_ALIKE for each in kinds_in(kind))


class ObjectsOfWorkers:
    """The records of a batch that workers write below ``place`` where they certainly fit.

    ``folder``: an expression for that of a record's partition; empty where there are none.
    """

    def __init__(
        self, raw: DataFrame, document: AttemptDocument, place: Place, at: OpenPlace, schema: Struct, folder: str
    ) -> None:
        self._raw, self._place, self._at, self._folder = raw, place, at, folder
        self._here = place if isinstance(place, Path) else Path(mkdtemp(dir=SparkFiles.getRootDirectory()))
        context, constants = raw.sparkSession.sparkContext, constants_of(document.plan, raw.columns)
        self._own_columns = document.data.partition_by if document.data.own_columns else ()
        own_names = (term.own_column for term in self._own_columns if term.is_of_time)
        self._sent = SentObjects(
            file_prefix=str(self._here / "part-"),
            file_suffix=f"-{uuid4()}{SUFFIX}",
            fields=pa.schema(list(arrow_type(schema))),
            may_have_unknown=document.decode.value.unknown_fields is UnknownFields.IGNORE,
            heads=heads_of(document.decode.value),
            given=[name for name in raw.columns if name not in constants],
            constants=constants,
            columns=[*(name for name in raw.columns if name not in document.data.without), *own_names],
            required=frozenset(field.name for field in raw.schema.fields if not field.nullable),
            without_dictionary=WITHOUT_DICTIONARY,
            without_statistics=WITHOUT_STATISTICS,
            row_group_bytes=min(max(ROW_GROUP_BYTES // context.defaultParallelism, 8 * MIB), 64 * MIB),
            flatten=document.decode.columns is Columns.FLATTEN,
            key_is_text=document.decode.key.format is Format.STRING,
            written=context.accumulator(0),
            large=context.accumulator(0),
            found=context.accumulator(0, EitherOf()),
        )

    @property
    def found(self) -> int:
        """Which fields of the objects have a value in some row that the workers wrote, as bits in their order."""
        return int(self._sent.found.value)

    def stage(self, add: Add) -> int | None:
        """Let workers write what fits, and ``add`` the other records; return how many the workers wrote.

        None where they failed; the reason is on stderr. What they have left has to be removed then, at the end too: a
        worker may not know yet that its task has failed.
        """
        if not done_by_workers(lambda: add(self._handed_back()), "write"):
            return None
        if self._sent.large.value:
            add(self._raw.where(IS_LARGE_RECORD))
        if self._here != self._place:
            place, names = self._at(self._place), files_below(self._here)
            with ThreadPoolExecutor(COPIES_AT_ONCE) as copies:
                list(copies.map(lambda name: copy_file(self._here / name, place / name), names))
            shutil.rmtree(self._here)
        return int(self._sent.written.value)

    def remove(self) -> None:
        for file in self._here.rglob(f"*{self._sent.file_suffix}"):
            file.unlink()

    def _handed_back(self) -> DataFrame:
        """Return the records that the workers hand back, in the columns that all have."""
        raw, sent = self._raw, self._sent
        settings = raw.sparkSession.conf
        settings.set("spark.sql.execution.arrow.maxBytesPerBatch", NO_LIMIT)
        settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_RECORDS))
        few = raw.drop(*sent.constants)
        held = {name: f"if({IS_LARGE}, null, {quoted(name)})" for name in HELD}
        more = {IS_LARGE: once(IS_LARGE_RECORD)} | ({FOLDER: once(self._folder)} if self._folder else {})
        given = with_own_columns(raw, self._own_columns)
        given = with_steps(given, more).drop(*sent.constants)
        given = given.selectExpr(*(named(held.get(name, quoted(name)), name) for name in given.columns))
        write = for_workers(lambda batches: in_task(batches, sent), in_task.__module__)
        handed_back = given.mapInArrow(write, StructType(list(few.schema.fields)))
        return with_constants(handed_back, sent.constants, raw)


def constants_of(plan: BatchPlan, columns: Collection[str]) -> dict[str, str | None]:
    """Return the columns that have the same value in all records, so that they need not be sent."""
    constants: dict[str, str | None] = {BATCH_COLUMN: str(plan.batch_id)} if BATCH_COLUMN in columns else {}
    topics = {each.topic for each in plan.ranges}
    if len(topics) == 1:
        [topic] = topics
        constants |= {"kafka_topic": topic, "kafka_topic_id": plan.topic_ids[topic]}
    return constants
