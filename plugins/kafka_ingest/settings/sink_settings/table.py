"""What all outputs that are tables have in common, and what a Delta and an Iceberg table have besides."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, field_validator

from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.model.dead_letters import SUFFIX
from kafka_ingest.model.partition_term import EXPECTED, terms_of
from kafka_ingest.model.table_options import DECODED, RECORDS, OnNewColumns, TableOptions
from kafka_ingest.settings.setting_types import as_text, not_blank
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink

PROPERTY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
LONGEST_VALUE = 1_000
SECRETS = re.compile(r"secret|password|credential|token|access[-_.]?key", re.IGNORECASE)


class TableSink(LocalDirectorySink):
    """A table of an engine."""

    reserved_properties: ClassVar[re.Pattern[str]]
    """Those that a feed does not set: batches could not be committed to the table, or its marks would be lost."""

    on_new_columns: OnNewColumns = OnNewColumns.STOP
    partition_by: tuple[str, ...] = ()
    table_properties: Mapping[str, str] = {}

    @field_validator("partition_by")
    @classmethod
    def _are_terms(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        terms = terms_of(texts)
        if any(term.name for term in terms):
            raise ValueError(f"expected {EXPECTED}, found {', '.join(texts)}: a table's columns have names")
        return tuple(map(str, terms))

    @field_validator("table_properties", mode="before", json_schema_input_type=Mapping[str, str | int | float | bool])
    @classmethod
    def _are_texts(cls, properties: object) -> object:
        if not isinstance(properties, Mapping):
            return properties
        return {name: as_text(value) for name, value in properties.items()}

    @field_validator("table_properties")
    @classmethod
    def _are_for_feeds_to_set(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in properties.items():
            if not PROPERTY.fullmatch(name):
                raise ValueError(f"expected names of letters, digits, '.', '_' and '-', found {name[:200]!r}")
            if not value.isprintable() or len(value) > LONGEST_VALUE:
                raise ValueError(f"expected a printable text of up to {LONGEST_VALUE} characters for {name}")
            if SECRETS.search(name):
                raise ValueError(f"expected no secret, found {name}: every reader of the table and of plans sees it")
            if cls.reserved_properties.match(name):
                raise ValueError(
                    f"expected no {name}: a table with it could not be written, or not by this project alone"
                )
        return properties

    @property
    def table_options(self) -> TableOptions:
        properties = tuple(sorted(self.table_properties.items()))
        return TableOptions(self.on_new_columns, terms_of(self.partition_by), properties)

    @property
    def options(self) -> Mapping[str, str]:
        """How records go into the table, stored in each plan."""
        return {**super().options, **self.table_options.as_options()}

    def options_of(self, *, decoded: bool) -> Mapping[str, str]:
        return {**self.options, **({RECORDS: DECODED} if decoded else {})}

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table that is written in the same way."""
        written = {
            "on_new_columns": self.on_new_columns,
            "partition_by": self.partition_by,
            "table_properties": self.table_properties,
        }
        return {**super().of_copy(path), **written}


INTERVALS = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
"""With less than an hour, what is not committed yet may be deleted, and what is read at the moment."""
HOURS_OR_MORE = re.compile(r"(?:interval )?[1-9][0-9]{0,5} (?:hour|day|week)s?")
CHECKPOINTS = "delta.checkpointInterval"
SETTABLE = (
    *("checkpointInterval", "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration"),
    *("enableExpiredLogCleanup", "logRetentionDuration", "targetFileSize", "tuneFileSizesForRewrites"),
)
"""Delta's own properties that change nothing about how a table is written; all others may need a table feature."""


class DeltaSink(TableSink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = f"Delta tables are written on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True
    reserved_properties: ClassVar[re.Pattern[str]] = re.compile(
        rf"(?!delta\.)(?i:delta)\.|delta\.(?!(?:{'|'.join(SETTABLE)}|autoOptimize\.\w+)$)|kafka_ingest"
    )

    format: Literal["delta"]

    @field_validator("table_properties")
    @classmethod
    def _can_be_read(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        for name in INTERVALS:
            if not HOURS_OR_MORE.fullmatch(found := properties.get(name, "1 day")):
                raise ValueError(
                    f"expected hours, days or weeks for {name}, such as 'interval 7 days', found {found!r}"
                )
        if not re.fullmatch(r"[1-9][0-9]{0,8}", found := properties.get(CHECKPOINTS, "1")):
            raise ValueError(f"expected a whole number for {CHECKPOINTS}, found {found!r}")
        return properties


# What every catalog takes, quoted or not; Hive and Glue have no upper case.
NAME = re.compile(r"[A-Za-z0-9_-]{1,100}(\.[A-Za-z0-9_-]{1,100})+")

RESERVED = re.compile(
    r"format-version$|location$|(?:previous_)?metadata_location$|table_type$|EXTERNAL$|kafka_ingest|schema\.|"
    r"encryption\.|py-|io-|(?:s3|gcs|adls|client|rest|hdfs)\.|"
    r"write\.(?:data\.path|metadata\.path|folder-storage|object-storage|location-provider|py-|metadata\.metrics|avro|"
    r"summary)"
)
"""Where files are and how they are reached, what finds columns and batches, what this project or a catalog notes."""
READ_BY_THE_LIBRARY = re.compile(r"(?:commit|history|write\.metadata)\.")
"""A value that it cannot read would fail each commit."""
METADATA_CODEC = "write.metadata.compression-codec"
"""The library reads metadata of either codec and writes none; other engines, and REST catalogs, do as it says."""


class IcebergSink(TableSink):
    """An Iceberg table."""

    not_on_object_stores: ClassVar[str] = f"Iceberg tables are written on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True
    reserved_properties: ClassVar[re.Pattern[str]] = RESERVED

    format: Literal["iceberg"]
    catalog: Annotated[str, AfterValidator(not_blank)]
    table: str

    @field_validator("table")
    @classmethod
    def _has_a_namespace(cls, table: str) -> str:
        if not NAME.fullmatch(table):
            raise ValueError(
                f"expected a namespace and a table of letters, digits, '_', '-', such as lake.orders, found {table!r}"
            )
        return table

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table in the same namespace, named as the last name of its path."""
        namespace = self.table.rpartition(".")[0]
        return {**super().of_copy(path), "catalog": self.catalog, "table": f"{namespace}.{Path(path).name}"}

    @field_validator("table_properties")
    @classmethod
    def _can_be_read(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in properties.items():
            form, words = r"[0-9]{1,18}", "a whole number"
            if name.endswith(".enabled"):
                form, words = r"true|false", "true or false"
            elif name == METADATA_CODEC:
                form, words = r"none|gzip", "none or gzip"
            if READ_BY_THE_LIBRARY.match(name) and not re.fullmatch(form, value):
                raise ValueError(f"expected {words} for {name}, found {value!r}")
        return properties

    @property
    def address(self) -> Mapping[str, str]:
        return {"catalog": self.catalog, "table": self.table}

    def addresses(self, *, letters: bool, late: bool) -> list[Mapping[str, str]]:
        del late  # files
        added = ("", SUFFIX) if letters else ("",)
        return [{**self.address, "table": f"{self.table}{each}"} for each in added]

    @property
    def options(self) -> Mapping[str, str]:
        """How the table is reached and written, stored in each plan."""
        return {**super().options, **self.address}
