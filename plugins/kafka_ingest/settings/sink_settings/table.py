"""What all outputs that are tables have in common."""

from collections.abc import Mapping

from kafka_ingest.model.table_options import OnNewColumns, TableOptions
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink


class TableSink(LocalDirectorySink):
    """A table of an engine. ``on_new_columns``: what happens where an existing one lacks columns that are written."""

    on_new_columns: OnNewColumns = OnNewColumns.STOP

    @property
    def table_options(self) -> TableOptions:
        """How records go into the table."""
        return TableOptions(self.on_new_columns)

    @property
    def options(self) -> Mapping[str, str]:
        """How records go into the table, stored in each plan."""
        return {**super().options, **self.table_options.as_options()}

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table that is written in the same way."""
        return {**super().of_copy(path), "on_new_columns": self.on_new_columns}
