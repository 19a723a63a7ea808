"""Which of Spark's SQL settings a job fixes, so that values mean the same on each machine, and which it leaves alone.

A setting comes from a feed, a site (``spark-defaults.conf``), the environment (``SPARK_ANSI_SQL_MODE``), or Spark. The
job sets :data:`FIXED`, and gives every other ``spark.sql.*`` Spark's own default, except for what :data:`LEFT` names. A
test holds this against Spark's own list.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from kafka_ingest.model.documents import Documented
from kafka_ingest.model.offsets import TopicPartition

_PREFIXES: Final = ("spark.sql.parquet.", "spark.hadoop.parquet.", "spark.sql.files.")

FIXED_PARQUET_SETTINGS: Final[Mapping[str, str]] = {
    # INT96, the default, is refused by the table formats.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

PARQUET_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.parquet.compression.codec.zstd.level": "1",
    # One topic and one batch a file: looking up the only value for each record was an eighth of the writing, and zstd
    # leaves as little of it.
    "spark.hadoop.parquet.enable.dictionary#kafka_topic": "false",
    "spark.hadoop.parquet.enable.dictionary#kafka_topic_id": "false",
    "spark.hadoop.parquet.enable.dictionary#kafka_batch": "false",
    # Looking each record's key up takes longer than writing it out, for 50 keys as for 5,000; zstd leaves nearly as
    # little of it.
    "spark.hadoop.parquet.enable.dictionary#key": "false",
    # Hardly any of these values comes twice: a dictionary is built, found too large and dropped, in each row group.
    "spark.hadoop.parquet.enable.dictionary#kafka_offset": "false",
    "spark.hadoop.parquet.enable.dictionary#kafka_timestamp": "false",
    "spark.hadoop.parquet.enable.dictionary#kafka_timestamp_ms": "false",
    "spark.hadoop.parquet.enable.dictionary#value": "false",
    # No reader filters raw bytes by a range.
    "spark.hadoop.parquet.column.statistics.enabled#key": "false",
    "spark.hadoop.parquet.column.statistics.enabled#value": "false",
    # A page is full at 1 MiB; 20,000 rows, the default, are far less in the narrow columns.
    "spark.hadoop.parquet.page.row.count.limit": "100000",
    # How large page and row group are is looked at once these many records are in them, and then again when they may
    # be half full. By default it is 100: a hundred megabytes, or gigabytes, where a record is one megabyte or ten.
    "spark.hadoop.parquet.page.size.row.check.min": "4",
    "spark.hadoop.parquet.block.size.row.check.min": "4",
    # What a row group holds is in memory until it is full: 128 MiB, the default, are seven million compressible
    # records.
    "spark.hadoop.parquet.block.size": str(32 * 1024 * 1024),
}
"""Overridable defaults."""


COMMITTER: Final = "spark.sql.parquet.output.committer.class"
"""Each submission decides it: it says how files get their names, not how they are written."""


def are_ours(settings: Iterable[tuple[str, str]]) -> bool:
    """Whether all of Spark's settings that may say how files are written are this project's own."""
    ours = {**FIXED_PARQUET_SETTINGS, **PARQUET_SETTINGS}
    return all(ours.get(name) == value for name, value in settings if name.startswith(_PREFIXES) and name != COMMITTER)


SQL: Final = "spark.sql."
EXTENSIONS: Final = "spark.sql.extensions"
"""A feed may name them, for functions of its own; a site's are not loaded."""

FIXED: Final[Mapping[str, str]] = {
    # Where Spark's own default comes from the environment, or another one is needed.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    # Texts of schemas and a feed's expressions are parts of the SQL: what is in the driver's environment is not theirs.
    "spark.sql.variable.substitute": "false",
    **FIXED_PARQUET_SETTINGS,
    # The defaults of Spark 4 that the types of written files rest on: another Spark shall write the same.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.caseSensitive": "false",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    # What expressions and a transform's Python functions give as in Spark 4.0, where 4.1 and 4.2 have other defaults.
    # To 4.0, the first two are unknown, and change nothing.
    "spark.sql.execution.pyspark.binaryAsBytes": "false",
    "spark.sql.legacy.truncateForEmptyRegexSplit": "true",
    "spark.sql.execution.pandas.convertToArrowArraySafely": "false",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.sql.execution.pythonUDTF.arrow.enabled": "false",
}
"""What gives values, types and names their meaning, frozen with each attempt."""

LEFT: Final = (
    # How fast, with how much memory, in how many tasks and files.
    *("adaptive.[!o]*", "adaptive.optimize[!r]*", "autoBroadcast*", "broadcast*", "bucketing.*", "cache.*"),
    *("cartesianProductExec.*", "cbo.*", "codegen.*", "columnVector.*", "constraintPropagation.*", "defaultCache*"),
    *("exchange.*", "execution.[!ap]*", "execution.arrow.[!u]*", "execution.pandas.udf.*"),
    *("execution.pyspark.[!b]*", "execution.python.*", "execution.pythonUDF.arrow.concurrency.level"),
    *("files.max*", "files.min*", "files.openCostInBytes"),
    *("filesourceTable*", "inMemory*", "join.*", "leafNodeDefaultParallelism", "limit.*", "max[!M]*", "maxMeta*"),
    *("objectHashAggregate.*", "optimizer.[!e]*", "optimizer.enable*", "optimizer.expression*", "planner.*"),
    *("requireAllClusterKeys*", "resultQueryStage.*", "session.localRelation*", "sessionWindow.*"),
    *("shuffle*", "sort*", "subexpressionElimination.*", "subquery.*", "windowExec.*"),
    *("parquet.compression.codec", "parquet.enable*", "parquet.filterPushdown*", "parquet.columnar*"),
    *("parquet.pushdown.*", "parquet.aggregatePushdown", "parquet.recordLevelFilter.*"),
    *("sources.bucketing.*", "sources.fileCompressionFactor", "sources.ignoreDataLocality", "sources.parallel*"),
    *("sources.useListFiles*", "sources.v2.*", "statistics.*"),
    # What is logged and shown.
    *("dataframeCache.logLevel", "debug*", "event.truncate.length", "expressionTreeChangeLog.*", "planChange*"),
    *("lightweightPlanChangeValidation", "queryExecutionListeners", "redaction.*", "stackTraces*", "ui.*"),
    *("extendedExplainProviders", "pyspark.udf.profiler"),
    # Where a feed's transform finds other tables, classes and functions; of extensions only the feed's own are loaded.
    *("extensions*", "legacy.sessionInitWithConfigDefaults", "sources.disabledJdbc*", "sources.schemaString*"),
    *("artifact.*", "catalog.*", "catalogImplementation", "defaultCatalog", "defaultUrlStreamHandlerFactory.*"),
    *("globalTempDatabase", "hive.*", "iceberg.*", "maven.*", "metadataCacheTTLSeconds", "warehouse.dir"),
    # What no batch that reads Kafka and writes Parquet meets.
    *("cli.*", "csv.*", "orc.*", "pyspark.plotting.*", "repl.*", "scriptTransformation.*", "streaming.*"),
    *("thriftServer.*", "thriftserver.*", "truncateTable.*", "view.*"),
    # Of Spark 4.1 and later: tasks and memory; logs; Spark Connect and declarative pipelines.
    *("classic.shuffleDependency.*", "parser.*Cache*", "unionOutputPartitioning"),
    *("nameResolutionLog.*", "pyspark.worker.logging.*", "connect.*", "pipelines.*"),
    # Each submission decides these.
    *("parquet.output.committer.class", "sources.commitProtocolClass", "sources.useV1SourceList"),
)
"""Patterns of names, without ``spark.sql.``, of settings that change no value."""


def is_left(name: str) -> bool:
    """Whether a SQL setting of this name stays as feed and site have it."""
    return any(fnmatchcase(name.removeprefix(SQL), pattern) for pattern in LEFT)


def changes_values(name: str) -> bool:
    """Whether a setting of this name may change what a value means, so that no feed may have it."""
    return name.startswith(SQL) and not is_left(name)


@dataclass(frozen=True, slots=True)
class SparkSettings(Documented):
    """What an attempt freezes of Spark's settings: those that are fixed, and the feed's own ``spark.conf``."""

    fixed: Mapping[str, str] = field(default_factory=lambda: FIXED)
    feed: Mapping[str, str] = field(default_factory=dict)

    def to_forget(self, found: Iterable[str]) -> list[str]:
        """Return which of the settings that Spark has found get Spark's own default."""
        return [name for name in found if changes_values(name) and name not in self.fixed]


OUR_SETTINGS: Final = SparkSettings()


MIB = 1024 * 1024

DEFAULT_HEAP = "1g"
"""Spark's own, of a driver and of an executor."""

OF_A_RECORD = 10
"""So many times its largest record takes a task, and …"""

OF_ELEMENTS = 10
"""… so many times more where it is decoded: in ``[{},{}]`` an element of three bytes is a row with all columns."""

TASKS = 10

SIZE = re.compile(r"(\d+)\s*(?:([kmgtp])i?b?|b)?", re.IGNORECASE)
UNITS = {"k": 1 / 1024, "m": 1, "g": 1024, "t": 1024**2, "p": 1024**3}


def heap_bytes(text: str) -> int:
    """Return a size as Spark writes that of a heap, MiB where it has no unit; its default where it is none."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        return heap_bytes(DEFAULT_HEAP)
    return int(int(found[1]) * UNITS[(found[2] or "m").lower()] * MIB)


@dataclass(frozen=True, slots=True)
class Heap:
    """The memory of the tasks of a Spark: the setting, what it says, and whether records are decoded in it."""

    setting: str
    size: str
    decodes: bool

    @property
    def records_at_once(self) -> int:
        """As many times a record is never to blame where the heap is too small."""
        return TASKS * OF_A_RECORD * (OF_ELEMENTS if self.decodes else 1)

    @property
    def surely_fits(self) -> int:
        """How many bytes a record may have that is not to blame."""
        return heap_bytes(self.size) // self.records_at_once

    def size_for(self, record: int) -> str:
        """Return the size in which a record of so many bytes surely fits, as Spark's settings say it."""
        return f"{math.ceil(record * self.records_at_once / MIB)}m"


@dataclass(frozen=True, slots=True)
class LargeRecord:
    """Where a record is, and the bytes of its key, value and headers.

    ``of_batch``: no process of ours can read the record batch that begins there: it takes more than ``size`` in memory.
    """

    offset: int
    size: int
    of_batch: bool = False

    def __str__(self) -> str:
        if self.of_batch:
            return f"the record batch at offset {self.offset:,}, which takes more than {self.size:,} bytes"
        return f"the record at offset {self.offset:,}, which has {self.size:,} bytes"


def too_large(found: Mapping[TopicPartition, Sequence[LargeRecord]], at_most: int) -> dict[TopicPartition, LargeRecord]:
    """Return of each partition the first record to blame for a lack of memory, where there is one.

    Such a record has more bytes than ``at_most``, and at least half as many as the largest of all: where one of a
    gigabyte was too much, one of 20 MB in another partition may well have been read before. ``found``: of each
    partition the records larger than all before.
    """
    largest = max((record.size for records in found.values() for record in records), default=0)
    blamed: dict[TopicPartition, LargeRecord] = {}
    for topic_partition, records in found.items():
        for record in records:
            if record.size > at_most and record.size >= largest / 2:
                blamed.setdefault(topic_partition, record)
    return blamed
