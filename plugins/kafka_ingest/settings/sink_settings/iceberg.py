"""``sink: {format: iceberg, path: …, catalog: …, table: …}``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, field_validator

from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.settings.setting_types import not_blank
from kafka_ingest.settings.sink_settings.table import TableSink

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
    """An Iceberg table. ``catalog``: the id of the connection that leads to its catalog."""

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
        """What the table is, for every feed."""
        return {"catalog": self.catalog, "table": self.table}

    @property
    def options(self) -> Mapping[str, str]:
        """How the table is reached and written, stored in each plan."""
        return {**super().options, **self.address}
