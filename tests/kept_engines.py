"""Engines that keep what tests would otherwise make anew for every step: connections, and compiled statements.

The product opens a connection for each step, and each of its processes compiles its statements once. A test that calls
a hundred steps would spend most of its time on both. Whether a step finds its database replaced or gone is tested with
the product's own engines.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from sqlalchemy import Dialect, Engine, QueuePool, create_engine

from kafka_ingest import assembly
from kafka_ingest.control import database
from kafka_ingest.control.database import ControlDatabaseSettings, open_database

_SERVERS: dict[str, Dialect] = {}
_COMPILED: dict[Any, Any] = {}


def open_kept(settings: ControlDatabaseSettings) -> Engine:
    """Return an engine like the product's that keeps its connections and shares compiled statements.

    Its connections end with `dispose()`.
    """
    with patch.object(database, "NullPool", QueuePool):
        engine = open_database(settings)
    if engine.dialect.name != "sqlite":
        engine.connect().close()
    return sharing_statements(engine)


@contextmanager
def keeping_connections() -> Iterator[None]:
    """Let the commands that run inside keep their connections to SQLite, and share compiled statements."""
    opened: list[Engine] = []

    def open_it(settings: ControlDatabaseSettings, *, create: bool = False) -> Engine:
        if create or settings.sqlite_file is None:
            return open_database(settings, create=create)
        opened.append(open_kept(settings))
        return opened[-1]

    with patch.object(assembly, "open_database", open_it):
        try:
            yield
        finally:
            for engine in opened:
                engine.dispose()


def sharing_statements(engine: Engine) -> Engine:
    """Let an engine use the statements that others have compiled, and the other way round.

    They belong to a dialect, which knows its database once an engine has connected. All servers of these tests are the
    same.
    """
    name = engine.dialect.name
    engine.dialect = sqlite_dialect() if name == "sqlite" else _SERVERS.setdefault(name, engine.dialect)
    engine.update_execution_options(compiled_cache=_COMPILED)
    return engine


@cache
def sqlite_dialect() -> Dialect:
    engine = create_engine("sqlite://")
    engine.connect().close()
    engine.dispose()
    return engine.dialect
