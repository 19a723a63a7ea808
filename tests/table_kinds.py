"""The table formats as tests on real parts meet them: the feed's sink, the step that decides, and other programs."""

import json
import warnings
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol

import polars as pl
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from tests.project import Project
from tests.quick_project import QuickProject

from kafka_ingest.sinks.delta.table_log import TableLog
from kafka_ingest.sinks.iceberg.commits import IcebergCommits

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


def lands(landing: type[Any]) -> str:
    """Return the call that makes a batch visible, as a held process is told."""
    return f"{landing.__module__}:{landing.__name__}.land"


def batches_seen(kind: TableKind, project: Project, path: str = "orders") -> dict[str, int]:
    """Return how many rows readers see of each batch."""
    return dict(Counter(row["kafka_batch"] for row in kind.rows(project, path)))
