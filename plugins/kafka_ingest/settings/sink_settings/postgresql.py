"""``sink: {format: postgresql, path: …, conn_id: …, table: …}``."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, field_validator

from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.model.table_options import DECODED, RECORDS, OnNewColumns, TableOptions
from kafka_ingest.settings.setting_types import not_blank
from kafka_ingest.settings.sink_settings.local_directory import LocalDirectorySink

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,48}", re.ASCII)
"""What is added to a table's name has to fit into the 63 bytes of a name, too."""


class PostgresqlSink(LocalDirectorySink):
    """A table in PostgreSQL. ``conn_id``: the connection of type postgres; ``path``: what batches are staged beside."""

    not_on_object_stores: ClassVar[str] = f"batches are staged on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True

    format: Literal["postgresql"]
    conn_id: Annotated[str, AfterValidator(not_blank)]
    table: str
    mode: Literal["append"] = "append"
    on_new_columns: OnNewColumns = OnNewColumns.STOP

    @field_validator("table")
    @classmethod
    def _has_a_schema(cls, table: str) -> str:
        if not NAME.fullmatch(table):
            raise ValueError(
                "expected a schema and a table of letters, digits and '_', the table's name of up to 49 characters, "
                f"such as shop.orders, found {table!r}"
            )
        return table

    def of_copy(self, path: str) -> Mapping[str, object]:
        """Return the settings of a copy: a table in the same schema, named as the last name of its path."""
        schema = self.table.partition(".")[0]
        table = {"conn_id": self.conn_id, "table": f"{schema}.{Path(path).name}"}
        return {**super().of_copy(path), **table, "on_new_columns": self.on_new_columns}

    @property
    def address(self) -> Mapping[str, str]:
        """What the table is, for every feed."""
        return {"conn_id": self.conn_id, "table": self.table}

    @property
    def options(self) -> Mapping[str, str]:
        """How the table is reached and written, stored in each plan."""
        return {**TableOptions(self.on_new_columns).as_options(), **self.address}

    def options_of(self, *, decoded: bool) -> Mapping[str, str]:
        """Return the options of a table of raw or of decoded records."""
        return {**self.options, **({RECORDS: DECODED} if decoded else {})}
