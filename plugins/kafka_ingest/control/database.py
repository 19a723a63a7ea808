"""The control database: opening it, checking its schema's version, upgrading it. A task never creates or migrates."""

import contextlib
import difflib
import functools
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection as SqliteConnection
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import quote, unquote

import tenacity
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, inspect, text
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from kafka_ingest.control.schema import FIRST_VERSION, SCHEMA_VERSION, VERSION_TABLE
from kafka_ingest.errors import (
    ControlAccessDeniedError,
    ControlSchemaError,
    ControlTablesUnavailableError,
    InvalidConnectionError,
)
from kafka_ingest.foundation import postgresql
from kafka_ingest.foundation.foreign_json import without_secrets

BUSY_TIMEOUT_S = 30
STATEMENT_TIMEOUT_S = 60
"""The longest that a statement of a step may take."""
TRANSACTION_TIMEOUT_S = 120
"""The longest that a transaction of a step may take, its commit included.

PostgreSQL does not limit how long a commit waits for a synchronous standby, and a hanging server enforces no limit.
"""
UPGRADE_COMMAND = "kafka-ingest db upgrade"
BY_FORM = "the action db-upgrade of the DAG operate_feed does it, too"

MOVED = "moved"
"""The version of tables whose rows are in another database since ``db copy``: no step uses them any more."""

NO_MORE_WRITES = "kafka_ingest: these control tables were copied into another database"
"""What a trigger of such tables says to a step that had begun before."""

Kind = Literal["read", "write", "rebuild", "upgrade"]
"""What a transaction does. A ``rebuild`` writes what a whole output's receipts record, years of batches at once."""
UNLIMITED: frozenset[Kind] = frozenset({"rebuild", "upgrade"})
"""Steps whose time grows with the rows to write. An operator waits for them and can interrupt them; they are atomic."""


@dataclass(frozen=True, slots=True)
class ControlDatabaseSettings:
    """Where the control tables are. The URL may hold passwords, also among its options, so it is not in the repr."""

    url: URL = field(repr=False)

    @property
    def sqlite_file(self) -> Path | None:
        """The database file, None on PostgreSQL."""
        return Path(self.url.database or "") if self.url.get_backend_name() == "sqlite" else None

    def __str__(self) -> str:
        return described(self.url)


def described(url: URL) -> str:
    """Return a database's URL for people: without its password and options, which may hold another one."""
    if url.get_backend_name() == "sqlite":
        file = url.database or ""
        return f"sqlite:///{unquote(file.removeprefix('file:')) if file.startswith('file:') else file}"
    return url.set(query={}).render_as_string(hide_password=True)


def open_database(settings: ControlDatabaseSettings, *, create: bool = False) -> Engine:
    """Return an engine on an existing database; with ``create``, a missing SQLite file is made.

    Raises ControlSchemaError where the file does not exist: silently starting from an empty one would read everything
    again.
    """
    if settings.sqlite_file is None:
        # A connection for each step: a firewall often cuts one that is kept open during hours of Spark.
        arguments = {**postgresql.limits(settings.url.query), **postgresql.OF_DRIVER}
        return create_engine(settings.url, poolclass=NullPool, connect_args=arguments)
    file = settings.sqlite_file
    if create:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ControlSchemaError(
                f"expected to be able to create the control tables in {file}, found: {error}. Correct the connection's "
                "host."
            ) from error
    elif not file.is_file():
        raise ControlSchemaError(
            f"expected the control tables in {file}, found no such file. For a first installation run "
            f"`{UPGRADE_COMMAND} --create` ({BY_FORM}); if it should be there, check the connection: starting without "
            "it would read every topic again."
        )
    # https://sqlite.org/uri.html: mode=rw never creates, whatever happens to the file after the check above.
    mode = "rwc" if create else "rw"
    engine = create_engine(
        URL.create("sqlite", database=f"file:{quote(str(file))}", query={"mode": mode, "uri": "true"}),
        # A file that was deleted or replaced in between is found by the next step, not written on unseen.
        poolclass=NullPool,
        connect_args={"timeout": BUSY_TIMEOUT_S},
    )
    event.listen(engine, "connect", _prepare_sqlite_connection)
    event.listen(engine, "begin", _begin_sqlite_transaction)
    return engine


def _prepare_sqlite_connection(connection: SqliteConnection, _record: object) -> None:
    # The driver's BEGIN is sent too late and is never IMMEDIATE; _begin_sqlite_transaction sends ours.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    write_ahead(connection)
    connection.execute("PRAGMA synchronous=FULL")


# If two processes open a new file at once, the change fails in one as "locked" at once, despite the time-out.
@tenacity.retry(
    retry=tenacity.retry_if_exception_message(match="database is locked"),
    stop=tenacity.stop_after_delay(BUSY_TIMEOUT_S),
    wait=tenacity.wait_fixed(0.01),
    reraise=True,
)
def write_ahead(connection: SqliteConnection) -> None:
    """Let readers and a writer not wait for each other (https://sqlite.org/wal.html); a no-op where they do not."""
    connection.execute("PRAGMA journal_mode=WAL")


def _begin_sqlite_transaction(connection: Connection) -> None:
    # A reader that becomes a writer gets SQLITE_BUSY at once, despite the time-out, so writers begin as writers.
    kind = connection.get_execution_options().get("kafka_ingest_kind", "read")
    if kind == "upgrade":
        # https://sqlite.org/lang_altertable.html#otheralter: a table that others refer to is copied, which fails while
        # this is on; inside a transaction it cannot be changed. `upgrade` checks the references itself.
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    connection.exec_driver_sql("BEGIN" if kind == "read" else "BEGIN IMMEDIATE")


class Store:
    """Rows of one database; each method is one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def reading(self) -> contextlib.AbstractContextManager[Connection]:
        """Return a transaction in which all that is read is of one instant."""
        return transaction(self._engine, "read")


@contextlib.contextmanager
def transaction(engine: Engine, kind: Kind) -> Iterator[Connection]:
    """Run one transaction; a database that cannot be reached or is locked raises ControlTablesUnavailableError."""
    options: dict[str, Any] = {"kafka_ingest_kind": kind}
    if kind == "read" and engine.dialect.name == "postgresql":
        # One snapshot for all queries of a read; under READ COMMITTED each query would have its own.
        options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    try:
        with engine.connect().execution_options(**options) as connection:
            if engine.dialect.name == "postgresql":
                with limited(connection, kind), connection.begin():
                    for statement in limits(engine.url, kind):
                        connection.exec_driver_sql(statement)
                    yield connection
            else:
                with connection.begin():
                    yield connection
    except DBAPIError as error:
        if NO_MORE_WRITES in str(error.orig):
            raise were_moved(described(engine.url)) from error
        if getattr(error.orig, "sqlstate", None) == postgresql.INSUFFICIENT_PRIVILEGE:
            raise ControlAccessDeniedError(
                f"the control database {described(engine.url)} refused: {cause_of(engine.url, error)}. Expected a role "
                "that may read and write all control tables; nothing was changed. Grant it the rights, or correct the "
                "connection's login."
            ) from error
        if isinstance(error, (IntegrityError, ProgrammingError, DataError)):
            raise  # a constraint did its work, or a mistake of ours: neither is about the database being there
        if getattr(error.orig, "sqlite_errorname", "") in {"SQLITE_NOTADB", "SQLITE_CORRUPT"}:
            raise ControlSchemaError(
                f"{described(engine.url)}: expected a SQLite database, found: {error.orig}. Nothing was changed; "
                "correct the connection, or restore the file from a backup."
            ) from error
        raise unavailable(engine, error) from error


P = ParamSpec("P")
R = TypeVar("R")


def reads(question: Callable[Concatenate[Connection, P], R]) -> Callable[Concatenate[Store, P], R]:
    """Return the method of a store that asks a question in a transaction of its own."""

    @functools.wraps(question)
    def method(store: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with store.reading() as connection:
            return question(connection, *args, **kwargs)

    return method


def limits(url: URL, kind: Kind) -> list[str]:
    """Return PostgreSQL's statements that limit one transaction; limits in the connection's ``options`` are kept.

    Like SQLite's busy time-out: a process that hangs in a transaction must not block the others forever. They apply to
    the transaction only, because behind a pool the session is shared.
    """
    found = {"lock_timeout": BUSY_TIMEOUT_S}
    if kind not in UNLIMITED:
        found["statement_timeout"] = STATEMENT_TIMEOUT_S
    options = str(url.query.get("options", ""))
    return [f"SET LOCAL {name} = {int(limit * 1000)}" for name, limit in found.items() if name not in options]


@contextlib.contextmanager
def limited(connection: Connection, kind: Kind) -> Iterator[None]:
    """Close a transaction's connection where it takes too long; it then fails as if its server had gone away.

    A commit in progress may still succeed, as after any lost answer: the next run checks.
    """
    driver: Any = connection.connection.driver_connection
    # A duplicate: the file descriptor may belong to another connection by the time it is used.
    with socket.socket(fileno=os.dup(driver.fileno())) as line:
        watch = threading.Timer(TRANSACTION_TIMEOUT_S, lambda: line.shutdown(socket.SHUT_RDWR))
        watch.daemon = True
        if kind not in UNLIMITED:
            watch.start()
        try:
            yield
        finally:
            watch.cancel()


def unavailable(engine: Engine, error: DBAPIError) -> ControlTablesUnavailableError:
    """Return the error that names the database and the cause, without the statement and its parameters."""
    return ControlTablesUnavailableError(
        f"the control database {described(engine.url)} could not be used: {cause_of(engine.url, error)}. Run this step "
        "again once the database answers: it then shows whether it was done, and is never done twice."
    )


def cause_of(url: URL, error: DBAPIError) -> str:
    """Return the driver's message without what the connection keeps secret."""
    return without_secrets(str(error.orig), url.password, url.query)


def found_version(engine: Engine) -> str | None:
    """Return the schema version of the database, None where there are no control tables."""
    with transaction(engine, "read") as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()  # noqa: S608 - a constant
        return str(version) if version is not None else None


def check_supported(found: str, where: str) -> None:
    """Raise ControlSchemaError where tables are newer than this code, older than all that are upgraded, or moved."""
    if found == MOVED:
        raise were_moved(where)
    if found > SCHEMA_VERSION:
        raise ControlSchemaError(
            f"{where} has control tables of version {found}, made by a newer kafka_ingest; this one supports "
            f"{SCHEMA_VERSION}. They were not changed; install the newer version here."
        )
    if found < FIRST_VERSION:
        raise ControlSchemaError(
            f"{where} has control tables of version {found}, made by a version before 0.1.0; expected {FIRST_VERSION} "
            f"or later, since earlier ones are not upgraded. They were not changed. Make new ones: let the connection "
            f"name another database, run `{UPGRADE_COMMAND} --create`, then `kafka-ingest adopt FEED --execute "
            "--reason TEXT` for each feed. That reads offsets and gaps back from the receipts beside the output; what "
            "was not committed is planned again."
        )


def were_moved(where: str) -> ControlSchemaError:
    return ControlSchemaError(
        f"{where} has control tables that `kafka-ingest db copy` has copied into another database, where feeds "
        "continue. They were not changed; let the connection name that database."
    )


def check_version(engine: Engine) -> None:
    """Raise ControlSchemaError unless the schema is exactly the one this version of the code needs."""
    found = found_version(engine)
    where = described(engine.url)
    if found is None:
        raise ControlSchemaError(
            f"{where} holds no control tables. For a first installation run `{UPGRADE_COMMAND} --create` ({BY_FORM}); "
            "otherwise check the connection: starting without the stored offsets would read every topic again."
        )
    check_supported(found, where)
    if found < SCHEMA_VERSION:
        raise ControlSchemaError(
            f"{where} has control tables of version {found}, this kafka_ingest needs {SCHEMA_VERSION}. "
            f"Run `{UPGRADE_COMMAND}`; {BY_FORM}."
        )


# Settings of Airflow's hook and of its cursors: they do not concern how the database is reached.
OF_THE_HOOK = frozenset({"cursor", "sqlalchemy_scheme", "sqlalchemy_query"})
# The hook would fetch a password that lasts minutes, which this project does not.
LOGINS = frozenset({"iam", "redshift", "redshift-serverless", "aws_conn_id", "azure_conn_id"})
# The connection has fields for these.
FIELDS = {"host": "host", "port": "port", "dbname": "schema", "user": "login", "password": "password"}


def postgresql_options(conn_id: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """Return libpq's parameters from a connection's extra; raises InvalidConnectionError naming what is not one.

    https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-PARAMKEYWORDS: the installed libpq reports which ones
    there are.
    """
    from psycopg.pq import Conninfo  # noqa: PLC0415 - only where the tables are in PostgreSQL

    known = {option.keyword.decode() for option in Conninfo.get_defaults()} - FIELDS.keys()
    options: dict[str, str] = {}
    for key, value in extra.items():
        if value is None or key in OF_THE_HOOK or (key in LOGINS and not value):
            continue
        if key in FIELDS:
            raise InvalidConnectionError(
                f"connection {conn_id!r}: expected {FIELDS[key]} as a field of the connection, found {key!r} in its "
                "extra; move it there"
            )
        if key in LOGINS:
            raise InvalidConnectionError(
                f"connection {conn_id!r}: expected a login with a password or a certificate, found {key!r} in its "
                "extra, which this project does not have"
            )
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            raise InvalidConnectionError(
                f"connection {conn_id!r}: expected parameters of PostgreSQL's client library in its extra, found "
                f"{key!r}" + (f"; did you mean {close[0]!r}?" if close else f". It knows {', '.join(sorted(known))}")
            )
        # libpq's switches are 0 and 1.
        options[key] = str(int(value)) if isinstance(value, bool) else str(value)
    return options
