"""The table formats as tests on real parts meet them: the feed's sink, the step that decides, and other programs."""

import hashlib
import json
import warnings
from base64 import b64decode
from collections import Counter
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, LiteralString, Protocol

import polars as pl
import psycopg
from deltalake import DeltaTable
from psycopg import sql
from psycopg.rows import dict_row
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.project import Project
from tests.quick_project import QuickProject

from embedded_postgresql import EmbeddedPostgresql
from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.commits import IcebergCommits
from kafka_ingest.sinks.postgresql.commits import PostgresqlCommits

BY_POSITION = ("kafka_topic", "kafka_partition", "kafka_offset")


class TableKind(Protocol):
    """One format. ``land`` of ``landing`` is the step that makes a batch visible."""

    name: ClassVar[str]
    sink: ClassVar[dict[str, str]]
    landing: ClassVar[type[Any]]
    guarantee: ClassVar[str]

    def connect(self, project: QuickProject) -> None:
        """Give a project the connections that the sink names."""

    def rows(self, project: Project, path: str = "orders") -> list[dict[str, Any]]:
        """Return all rows as Polars reads the table, by position."""

    def compact(self, project: Project) -> None:
        """Rewrite the files as another program does, where a batch can expire afterwards."""

    def clean_up(self, project: Project) -> None:
        """Delete what the newest version does not name, as another program does."""


class Delta:
    """A Delta table in the project's output."""

    name = "delta"
    sink: ClassVar = {"format": "delta", "path": "orders"}
    landing = TableLog
    guarantee = "one commit to its log"

    def connect(self, project: QuickProject) -> None:
        pass

    def place(self, project: Project, path: str = "orders") -> Path:
        return project.output / path

    def table(self, project: Project) -> DeltaTable:
        return DeltaTable(str(self.place(project)))

    def rows(self, project: Project, path: str = "orders") -> list[dict[str, Any]]:
        return pl.read_delta(str(self.place(project, path))).sort(*BY_POSITION).to_dicts()

    def compact(self, project: Project) -> None:
        self.table(project).optimize.compact()

    def clean_up(self, project: Project) -> None:
        self.table(project).vacuum(full=True, retention_hours=0, enforce_retention_duration=False, dry_run=False)


class Iceberg:
    """An Iceberg table in a catalog in SQLite, in the project's directory."""

    name = "iceberg"
    sink: ClassVar = {"format": "iceberg", "path": "orders", "catalog": "lake", "table": "shop.orders"}
    landing = IcebergCommits
    guarantee = "in one snapshot of the table"

    def connect(self, project: QuickProject) -> None:
        catalog = {"conn_type": "sqlite", "host": str(project.home / "catalog.db")}
        project.environment["AIRFLOW_CONN_LAKE"] = json.dumps(catalog)

    def table(self, project: Project, path: str = "orders") -> Table:
        return load_catalog("lake", type="sql", uri=f"sqlite:///{project.home}/catalog.db").load_table(f"shop.{path}")

    def rows(self, project: Project, path: str = "orders") -> list[dict[str, Any]]:
        try:
            table = self.table(project, path)
        except NoSuchTableError:
            return []
        with warnings.catch_warnings(action="ignore", category=pl.exceptions.PerformanceWarning):
            return pl.scan_iceberg(table).sort(*BY_POSITION).collect().to_dicts()

    def compact(self, project: Project) -> None:
        """Do nothing: a batch in a file with other batches' rows cannot expire."""

    def clean_up(self, project: Project) -> None:
        later = datetime.now() + timedelta(days=1)  # noqa: DTZ005 - as the library compares it
        self.table(project).maintenance.expire_snapshots().older_than(later).commit()


class Postgresql:
    """A table in a PostgreSQL of this process, in a schema of its own for each project."""

    name = "postgresql"
    sink: ClassVar = {"format": "postgresql", "path": "orders", "conn_id": "warehouse", "table": "shop.orders"}
    landing = PostgresqlCommits
    guarantee = "one transaction adds its rows"

    def connect(self, project: QuickProject) -> None:
        url = running_postgresql().create_database(database_of(project))
        fields = {"conn_type": "postgres", "host": url.query["host"], "schema": url.database, "login": url.username}
        project.environment["AIRFLOW_CONN_WAREHOUSE"] = json.dumps(fields)
        self._run(project, "CREATE SCHEMA shop")

    def rows(self, project: Project, path: str = "orders") -> list[dict[str, Any]]:
        try:
            rows = self._run(project, "SELECT * FROM {} ORDER BY kafka_topic, kafka_partition, kafka_offset", path)
        except psycopg.errors.UndefinedTable:
            return []
        return [row | {"kafka_batch": str(row["kafka_batch"]), "kafka_headers": headers_in(row)} for row in rows]

    def compact(self, project: Project) -> None:
        self._run(project, "VACUUM FULL {}", "orders")

    def clean_up(self, project: Project) -> None:
        self._run(project, "VACUUM {}", "orders")

    def _run(self, project: Project, statement: LiteralString, table: str = "") -> list[dict[str, Any]]:
        url = running_postgresql().url(database_of(project)).set(drivername="postgresql")
        with psycopg.connect(url.render_as_string(), autocommit=True, row_factory=dict_row) as connection:
            found = connection.execute(sql.SQL(statement).format(sql.Identifier("shop", table)))
            return found.fetchall() if found.description else []


@cache
def running_postgresql() -> EmbeddedPostgresql:
    """Return a server that ends with this process."""
    return EmbeddedPostgresql(settings=("fsync = off",))


def database_of(project: Project) -> str:
    """Return the name of a project's database."""
    return f"of_{hashlib.sha256(str(project.home).encode()).hexdigest()[:12]}"


def headers_in(row: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return a record's headers as files have them: in JSON bytes are text."""
    found = row["kafka_headers"]
    return found and [each | {"value": each["value"] and b64decode(each["value"])} for each in found]


def lands(landing: type[Any]) -> str:
    """Return the call that makes a batch visible, as a held process is told."""
    return f"{landing.__module__}:{landing.__name__}.land"


def batches_seen(kind: TableKind, project: Project, path: str = "orders") -> dict[str, int]:
    """Return how many rows readers see of each batch."""
    return dict(Counter(row["kafka_batch"] for row in kind.rows(project, path)))
