"""How Parquet is written, as settings of Spark's; others that a job finds are a feed's or a cluster's own."""

from collections.abc import Iterable, Mapping
from typing import Final

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


def are_ours(settings: Iterable[tuple[str, str]]) -> bool:
    """Whether all of Spark's settings that may say how files are written are this project's own."""
    ours = {**FIXED_PARQUET_SETTINGS, **PARQUET_SETTINGS}
    return all(ours.get(name) == value for name, value in settings if name.startswith(_PREFIXES))
