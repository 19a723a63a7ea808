"""Control tables to measure with, each new and empty: SQLite files, and databases of a PostgreSQL of our own."""

import contextlib
import itertools
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from sqlalchemy import URL

from embedded_postgresql import EmbeddedPostgresql
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.control.upgrade import upgrade

NewDatabase = Callable[[], URL]
"""Makes another database with empty control tables. Both kinds keep their own defaults for what is durable."""

DATABASES = ("sqlite", "postgresql")


@contextlib.contextmanager
def control_databases(kinds: Collection[str], directory: Path) -> Iterator[Mapping[str, NewDatabase]]:
    """Yield what makes new control tables, by kind of database; everything lies under ``directory``."""
    makers: dict[str, NewDatabase] = {}
    with contextlib.ExitStack() as stack:
        if "sqlite" in kinds:
            makers["sqlite"] = sqlite_files(directory / "sqlite")
        if "postgresql" in kinds:
            makers["postgresql"] = stack.enter_context(postgresql_server(directory))
        yield makers


def sqlite_files(directory: Path) -> NewDatabase:
    """Return what makes SQLite files."""
    template = URL.create("sqlite", database=str(directory / "template.db"))
    migrate(template)
    numbers = itertools.count(1)

    def new() -> URL:
        file = directory / f"control-{next(numbers)}.db"
        shutil.copy(str(template.database), file)
        return URL.create("sqlite", database=str(file))

    return new


@contextlib.contextmanager
def postgresql_server(directory: Path) -> Iterator[NewDatabase]:
    """Run a PostgreSQL server; yield what makes databases in it."""
    numbers = itertools.count(1)
    with EmbeddedPostgresql(directory) as server:
        migrate(server.create_database("template_of_all"))
        yield lambda: server.create_database(f"control_{next(numbers)}", "template_of_all")


def migrate(url: URL) -> None:
    """Make the control tables."""
    engine = open_database(ControlDatabaseSettings(url), create=True)
    upgrade(engine, create=True)
    engine.dispose()
