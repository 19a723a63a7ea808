"""The control tables' implementations, each empty and fresh for every test; one PostgreSQL server serves them all."""

import copy
import itertools
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol
from unittest.mock import patch

import pyiceberg.catalog.sql
import pytest
from sqlalchemy import Connection, Engine, insert, select, text, update
from sqlalchemy.engine import URL
from tests.contract.builders import ORDERS_FEED
from tests.contract.lives import Feeds, feeds_in, lake_folder
from tests.kept_engines import open_kept, sharing_statements
from tests.object_store import ObjectStore

from embedded_postgresql import EMPTY, EmbeddedPostgresql
from kafka_ingest.control import schema
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database, transaction
from kafka_ingest.control.upgrade import upgrade
from kafka_ingest.model.gap import Event, Gap
from kafka_ingest.model.offsets import TopicPartition
from kafka_ingest.ports.control import OperatorTables

Dump = dict[str, Any]


class Store(Protocol):
    """Where control tables are kept, and what a database client can do to them past the protocol's steps."""

    def connect(self) -> OperatorTables:
        """Return another client of the same control tables, as another task or an operator would have."""

    def dump(self) -> Dump:
        """Return everything that is stored."""

    def reset_by_hand(self, topic_partition: TopicPartition, next_offset: int) -> None:
        """Move a stored offset of the feed ``orders`` past all locks."""

    def recreate_by_hand(self, topic_partition: TopicPartition, topic_id: str | None) -> None:
        """Give a stored offset of the feed ``orders`` another topic id."""

    def events(self, kind: str) -> list[Event]:
        """Return the events of a kind of the feed ``orders``, newest first."""

    def gaps(self) -> list[Gap]:
        """Return the gaps of the feed ``orders``, by partition and offset."""


class SqlStore:
    """Control tables in a database."""

    def __init__(self, settings: ControlDatabaseSettings) -> None:
        self.settings = settings
        self._engines: list[Engine] = []
        self._by_hand: Engine | None = None

    def open(self) -> Engine:
        """Return another engine on the database; it is closed with the test."""
        engine = open_kept(self.settings)
        self._engines.append(engine)
        return engine

    def connect(self) -> SqlControlTables:
        engine = self.open()
        self._by_hand = self._by_hand or engine
        return SqlControlTables(engine)

    def connect_for_each_step(self) -> SqlControlTables:
        """Return another client that opens a connection for each step, as the product does."""
        engine = open_database(self.settings)
        self._engines.append(engine)
        return SqlControlTables(engine)

    def by_hand(self) -> AbstractContextManager[Connection]:
        """Open a write transaction past the protocol."""
        self._by_hand = self._by_hand or self.open()
        return transaction(self._by_hand, "write")

    def execute(self, statement: str, **values: object) -> int:
        """Run one statement by hand and return how many rows it met."""
        with self.by_hand() as connection:
            return connection.execute(text(statement), values).rowcount

    def dump(self) -> Dump:
        with self.by_hand() as connection:
            return {
                table.name: sorted(repr(tuple(row)) for row in connection.execute(select(table)))
                for table in schema.metadata.sorted_tables
            }

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return a table's rows."""
        with self.by_hand() as connection:
            query = select(schema.metadata.tables[table])
            return [dict(row) for row in connection.execute(query).mappings()]

    def insert(self, table: str, **values: object) -> None:
        """Write a row by hand."""
        with self.by_hand() as connection:
            connection.execute(insert(schema.metadata.tables[table]).values(**values))

    def reset_by_hand(self, topic_partition: TopicPartition, next_offset: int) -> None:
        self._change_stored_offset(topic_partition, next_offset=next_offset)

    def recreate_by_hand(self, topic_partition: TopicPartition, topic_id: str | None) -> None:
        self._change_stored_offset(topic_partition, topic_id=topic_id)

    def events(self, kind: str) -> list[Event]:
        return self.connect().journal(ORDERS_FEED, kinds=[kind], limit=100)

    def gaps(self) -> list[Gap]:
        return self.connect().gaps(ORDERS_FEED)

    def _change_stored_offset(self, topic_partition: TopicPartition, **values: object) -> None:
        table = schema.stored_offset
        with self.by_hand() as connection:
            changed = connection.execute(
                update(table)
                .where(table.c.topic == topic_partition.topic, table.c.partition == topic_partition.partition)
                .values(**values)
            ).rowcount
        assert changed == 1

    def close(self) -> None:
        for engine in self._engines:
            engine.dispose()


class MemoryStore:
    """Control tables in memory."""

    def __init__(self) -> None:
        from tests.fakes import InMemoryControlTables

        self._tables = InMemoryControlTables()

    def connect(self) -> OperatorTables:
        return self._tables

    def dump(self) -> Dump:
        return {name: copy.copy(rows) for name, rows in vars(self._tables.state).items()}

    def reset_by_hand(self, topic_partition: TopicPartition, next_offset: int) -> None:
        self._change_stored_offset(topic_partition, next_offset=next_offset)

    def recreate_by_hand(self, topic_partition: TopicPartition, topic_id: str | None) -> None:
        self._change_stored_offset(topic_partition, topic_id=topic_id)

    def events(self, kind: str) -> list[Event]:
        return self._tables.journal(ORDERS_FEED, kinds=[kind], limit=100)

    def gaps(self) -> list[Gap]:
        return self._tables.gaps(ORDERS_FEED)

    def _change_stored_offset(self, topic_partition: TopicPartition, **values: Any) -> None:
        with self._tables.transaction() as state:
            state.stored[ORDERS_FEED, topic_partition] = replace(state.stored[ORDERS_FEED, topic_partition], **values)


class PostgresqlServer(EmbeddedPostgresql):
    """A real PostgreSQL, with a database that holds the migrated schema as a template for all the others."""

    # The power does not fail in these tests: creating a database takes 20 ms instead of 200.
    SETTINGS = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")

    def __init__(self) -> None:
        super().__init__(settings=self.SETTINGS)
        self._numbers = itertools.count(1)
        self._finished: deque[str | None] = deque()
        migrated = open_database(ControlDatabaseSettings(self.create_database("template_of_all")))
        upgrade(migrated, create=True)
        migrated.dispose()

    def control_database(self, template: str = "template_of_all") -> ControlDatabaseSettings:
        return ControlDatabaseSettings(self.create_database(f"test_{next(self._numbers)}", template))

    def drop_database(self, settings: ControlDatabaseSettings) -> None:
        """Drop a database some tests later, when the server has seen its last connections end.

        Now it would wait for them.
        """
        self._finished.append(settings.url.database)
        if len(self._finished) > 5:
            self.execute(f"DROP DATABASE {self._finished.popleft()} WITH (FORCE)")


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[PostgresqlServer]:
    with PostgresqlServer() as server:
        yield server


@contextmanager
def sqlite_store(template: Path, file: Path) -> Iterator[SqlStore]:
    shutil.copy(template, file)
    store = SqlStore(ControlDatabaseSettings(URL.create("sqlite", database=str(file))))
    yield store
    store.close()


@contextmanager
def postgresql_store(server: PostgresqlServer) -> Iterator[SqlStore]:
    settings = server.control_database()
    store = SqlStore(settings)
    yield store
    store.close()
    server.drop_database(settings)


@pytest.fixture
def sqlite(migrated_sqlite_file: Path) -> Iterator[SqlStore]:
    with (
        tempfile.TemporaryDirectory(prefix="kafka-ingest-sqlite-") as directory,
        sqlite_store(migrated_sqlite_file, Path(directory) / "control.db") as store,
    ):
        yield store


@pytest.fixture
def postgresql(postgresql_server: PostgresqlServer) -> Iterator[SqlStore]:
    with postgresql_store(postgresql_server) as store:
        yield store


@pytest.fixture
def object_store(object_store: ObjectStore) -> Iterator[ObjectStore]:
    """A server that speaks S3's protocol, which is empty after each test."""
    yield object_store
    object_store.empty()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def shared_database(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    migrated_sqlite_file: Path,
) -> Iterator[SqlStore]:
    """Control tables for a module whose tests leave nothing behind."""
    if request.param == "sqlite":
        shared = sqlite_store(migrated_sqlite_file, tmp_path_factory.mktemp("shared") / "control.db")
    else:
        shared = postgresql_store(request.getfixturevalue("postgresql_server"))
    with shared as store:
        yield store


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    """A database without control tables; on SQLite there is not even a file."""
    server: PostgresqlServer | None = None
    if request.param == "postgresql":
        server = request.getfixturevalue("postgresql_server")
    if server is None:
        settings = ControlDatabaseSettings(URL.create("sqlite", database=str(tmp_path / "new" / "control.db")))
    else:
        settings = server.control_database(EMPTY)
    store = SqlStore(settings)
    yield store
    store.close()
    if server is not None:
        server.drop_database(settings)


@pytest.fixture
def in_memory() -> MemoryStore:
    return MemoryStore()


KINDS = {"store": ["sqlite", "postgresql", "in_memory"], "database": ["sqlite", "postgresql"]}
"""The fixtures that are control tables of several kinds, and the fixtures of those kinds."""


def may_differ_on_postgresql(test: pytest.Item) -> bool:
    """Whether PostgreSQL could answer a test otherwise than SQLite.

    Every test may, except those of modules that say ``sqlite_is_enough``; there those may that say ``postgresql_too``.
    """
    return test.get_closest_marker("sqlite_is_enough") is None or test.get_closest_marker("postgresql_too") is not None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with every kind of control tables that may answer it differently."""
    for fixture, kinds in KINDS.items():
        if fixture in metafunc.fixturenames:
            chosen = [kind for kind in kinds if kind != "postgresql" or may_differ_on_postgresql(metafunc.definition)]
            metafunc.parametrize(fixture, chosen, indirect=True)


@pytest.fixture
def database(request: pytest.FixtureRequest) -> SqlStore:
    """Control tables in a database: SQLite, and PostgreSQL where it may differ."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Control tables of every kind; in PostgreSQL where it may differ."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def control(store: Store) -> OperatorTables:
    """A client of control tables of every kind."""
    return store.connect()


@pytest.fixture
def sql_control(database: SqlStore) -> SqlControlTables:
    """A client of control tables in a database, with the questions only the command line asks."""
    return database.connect()


@pytest.fixture(scope="session", autouse=True)
def _catalogs_share_statements() -> Iterator[None]:
    """Of Iceberg's catalogs in SQLite a test opens many, and each would compile the same statements."""
    create: Callable[..., Engine] = pyiceberg.catalog.sql.create_engine

    def create_sharing(url: str, **options: Any) -> Engine:
        engine = create(url, **options)
        return sharing_statements(engine) if engine.dialect.name == "sqlite" else engine

    with patch.object(pyiceberg.catalog.sql, "create_engine", create_sharing):
        yield


# ── Whole feeds ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def lake() -> Iterator[Path]:
    with lake_folder() as directory:
        yield directory


@pytest.fixture(params=["in_memory", "sqlite"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which control tables."""
    return str(request.param)


@pytest.fixture
def feeds(kind: str, request: pytest.FixtureRequest, lake: Path) -> Iterator[Feeds]:
    with feeds_in(kind, request, lake) as made:
        yield made
