"""What all outputs that are tables have in common."""

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import field_validator

from kafka_ingest.model.partition_term import EXPECTED, terms_of
from kafka_ingest.model.table_options import DECODED, RECORDS, OnNewColumns, TableOptions
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink

PROPERTY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
LONGEST_VALUE = 1_000
SECRETS = re.compile(r"secret|password|credential|token|access[-_.]?key", re.IGNORECASE)


class TableSink(LocalDirectorySink):
    """A table of an engine.

    ``on_new_columns``: what happens where an existing one lacks columns that are written. ``partition_by``: how a new
    one is partitioned, and an existing one must be. ``table_properties``: those of the engine that a new one gets.
    """

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
        return {name: _as_text(value) for name, value in properties.items()}

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
        """How records go into the table."""
        properties = tuple(sorted(self.table_properties.items()))
        return TableOptions(self.on_new_columns, terms_of(self.partition_by), properties)

    @property
    def options(self) -> Mapping[str, str]:
        """How records go into the table, stored in each plan."""
        return {**super().options, **self.table_options.as_options()}

    def options_of(self, *, decoded: bool) -> Mapping[str, str]:
        """Return the options of a table of raw or of decoded records."""
        return {**self.options, **({RECORDS: DECODED} if decoded else {})}

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table that is written in the same way."""
        written = {
            "on_new_columns": self.on_new_columns,
            "partition_by": self.partition_by,
            "table_properties": self.table_properties,
        }
        return {**super().of_copy(path), **written}


def _as_text(value: object) -> object:
    """Return a number or a truth value as tables have it: all of their properties are texts."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
