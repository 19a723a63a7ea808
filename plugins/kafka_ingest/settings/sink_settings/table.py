"""What all outputs that are tables have in common."""

from collections.abc import Mapping

from pydantic import field_validator

from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class TableSink(LocalDirectorySink):
    """A table of an engine.

    ``on_new_columns``: what happens where an existing one lacks columns that are written. ``partition_by``: how a new
    one is partitioned, and an existing one must be.
    """

    on_new_columns: OnNewColumns = OnNewColumns.STOP
    partition_by: tuple[str, ...] = ()

    @field_validator("partition_by")
    @classmethod
    def _are_terms(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(str(term) for term in terms_of(texts))

    @property
    def table_options(self) -> TableOptions:
        """How records go into the table."""
        return TableOptions(self.on_new_columns, terms_of(self.partition_by))

    @property
    def options(self) -> Mapping[str, str]:
        """How records go into the table, stored in each plan."""
        return {**super().options, **self.table_options.as_options()}

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table that is written in the same way."""
        written = {"on_new_columns": self.on_new_columns, "partition_by": self.partition_by}
        return {**super().of_copy(path), **written}
