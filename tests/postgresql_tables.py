"""Tables in PostgreSQL for tests: each output's is in a schema of its own, in one database of one server."""

import hashlib
import os
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import make_url

from embedded_postgresql import EmbeddedPostgresql
from kafka_ingest.model.place import OutputLocation
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.sinks.choose import SinkConnections
from kafka_ingest.sinks.postgresql.database import DatabaseSettings

CONN_ID = "warehouse"
URL_VARIABLE = "TESTS_POSTGRESQL_URL"
"""Where other processes of a test find the server."""


def schema_of(path: Path) -> str:
    """Return the name of an output's schema."""
    return f"of_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"


def make_schema(server: EmbeddedPostgresql, path: Path) -> None:
    """Make an output's schema in a server."""
    os.environ[URL_VARIABLE] = server.url("postgres").render_as_string(hide_password=False)
    server.execute(f"CREATE SCHEMA IF NOT EXISTS {schema_of(path)}")


def postgresql_at(path: Path, options: TableOptions = NO_TABLE_OPTIONS) -> OutputLocation:
    """Return the output that is staged beside a path."""
    named = {"conn_id": CONN_ID, "table": f"{schema_of(path)}.{path.name}"}
    return OutputLocation.at("postgresql", str(path), named | options.as_options())


def connections_to_postgresql() -> SinkConnections:
    """Return how a sink finds the server."""
    return SinkConnections(database=lambda conn_id: DatabaseSettings(conn_id, make_url(os.environ[URL_VARIABLE])))


def connect() -> psycopg.Connection[Any]:
    """Return another program's connection, which commits each statement."""
    url = make_url(os.environ[URL_VARIABLE]).set(drivername="postgresql")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)


def new_role(name: str) -> None:
    """Make a role that may log in and has no rights yet."""
    role = sql.Identifier(name)
    with connect() as connection:
        connection.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(role))
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(role))


def execute(path: Path, statement: LiteralString, **named: sql.Composable) -> list[Any]:
    """Run a statement about an output's table, which it names ``{}``, and its schema ``{schema}``."""
    schema = schema_of(path)
    composed = sql.SQL(statement).format(sql.Identifier(schema, path.name), schema=sql.Identifier(schema), **named)
    with connect() as connection:
        found = connection.execute(composed)
        return found.fetchall() if found.description else []


def rows_in_postgresql(path: Path, columns: LiteralString = "*") -> list[Any]:
    """Return the rows of an output's table; none where there is no table."""
    try:
        return execute(path, "SELECT {columns} FROM {}", columns=sql.SQL(columns))
    except psycopg.errors.UndefinedTable:
        return []
