"""Which of Spark's SQL settings a job fixes, so that values mean the same on each machine, and which it leaves alone.

A setting comes from a feed, a site (``spark-defaults.conf``), the environment (``SPARK_ANSI_SQL_MODE``), or Spark. The
job sets :data:`FIXED`, and gives every other ``spark.sql.*`` Spark's own default, except for what :data:`LEFT` names. A
test holds this against Spark's own list.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from kafka_ingest.model.parquet_settings import FIXED_PARQUET_SETTINGS

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
}
"""What gives values, types and names their meaning, frozen with each attempt."""

LEFT: Final = (
    # How fast, with how much memory, in how many tasks and files.
    *("adaptive.[!o]*", "adaptive.optimize[!r]*", "autoBroadcast*", "broadcast*", "bucketing.*", "cache.*"),
    *("cartesianProductExec.*", "cbo.*", "codegen.*", "columnVector.*", "constraintPropagation.*", "defaultCache*"),
    *("exchange.*", "execution.[!ap]*", "execution.arrow.[!u]*", "execution.pandas.udf.*"),
    *("execution.pyspark.*", "execution.python.*", "execution.pythonUDF.arrow.concurrency.level"),
    *("files.max*", "files.min*", "files.openCostInBytes"),
    *("filesourceTable*", "inMemory*", "join.*", "leafNodeDefaultParallelism", "limit.*", "max[!M]*", "maxMeta*"),
    *("objectHashAggregate.*", "optimizer.[!e]*", "optimizer.enable*", "optimizer.expression*", "planner.*"),
    *("requireAllClusterKeys*", "resultQueryStage.*", "session.localRelationCacheThreshold", "sessionWindow.*"),
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
class SparkSettings:
    """What an attempt freezes of Spark's settings: those that are fixed, and the feed's own ``spark.conf``."""

    fixed: Mapping[str, str] = field(default_factory=lambda: FIXED)
    feed: Mapping[str, str] = field(default_factory=dict)

    def to_forget(self, found: Iterable[str]) -> list[str]:
        """Return which of the settings that Spark has found get Spark's own default."""
        return [name for name in found if changes_values(name) and name not in self.fixed]

    def as_document(self) -> dict[str, Any]:
        """Return the settings as JSON-able data."""
        return {"fixed": dict(self.fixed), "feed": dict(self.feed)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "SparkSettings":
        """Read the settings back."""
        return cls(document["fixed"], document["feed"])


OUR_SETTINGS: Final = SparkSettings()
