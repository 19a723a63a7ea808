"""A database that is reached through a connection: its transactions, and its errors by name.

Behind a pool such as PgBouncer a session lasts for one transaction. So nothing is set, prepared or locked for longer.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, func, select, text
from sqlalchemy.dialects.postgresql.base import RESERVED_WORDS
from sqlalchemy.exc import DBAPIError

from kafka_ingest.errors import OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.foreign_json import without_secrets
from kafka_ingest.foundation.postgresql import IN_UTF8, INSUFFICIENT_PRIVILEGE, OF_DRIVER, limits

# SQLAlchemy 2.0 knows PostgreSQL's older words, and quotes no others, such as a field's name.
RESERVED_WORDS.update({"collation", "concurrently", "lateral", "system_user", "tablesample"})

LOCK_TIMEOUT_S: Final = 60
"""So long a statement waits for a lock, such as that of a rival who publishes the same batch."""
TOO_MANY_COLUMNS: Final = "54011"
LOCK_NOT_AVAILABLE: Final = "55P03"
DISK_FULL: Final = "53100"
NEXT_STEP: Final = {
    DISK_FULL: "free space on the server, then run this again",
    **dict.fromkeys(
        ("57014", "25P03", "25P04", "57P05"), "where a limit has ended it, raise that for the role; run this again"
    ),
}
"""What to do after some errors: of a limit of time, too, that the role, the database or the server has."""
DURABLE: Final = (
    "SELECT set_config('lock_timeout', :lock_timeout, true), set_config('synchronous_commit', "
    "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, "
    "true), set_config('quote_all_identifiers', 'off', true)"
)
"""For one transaction. Offsets move after a commit, so it has to be on the disk, whatever the role's default is.

Names of types are compared, which are never quoted.
"""
QUOTES: Final = text(
    "SELECT format('ALTER ROLE %I IN DATABASE %I SET quote_all_identifiers = off', session_user, current_database()) "
    "FROM pg_settings WHERE name = 'quote_all_identifiers' AND reset_val = 'on'"
)
"""What to run where it is on by default, nothing where it is off."""


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """How a database is reached. The URL may hold passwords, also among its options, and is in no repr."""

    conn_id: str
    url: URL = field(repr=False)

    @property
    def parameters(self) -> dict[str, str]:
        """What libpq calls its parameters, the password among them. A URL could not name a socket's directory."""
        url = self.url
        fields = {"host": url.host, "port": url.port, "dbname": url.database}
        found = {**fields, "user": url.username, "password": url.password, **limits(url.query), **url.query, **IN_UTF8}
        return {name: str(value) for name, value in found.items() if value}

    def without_quotes(self) -> "DatabaseSettings":
        """Return the same with names that the server never quotes; not for each session, as poolers know it not."""
        options = self.url.query.get("options", "")
        return replace(self, url=self.url.update_query_dict({"options": f"{options} -c quote_all_identifiers=off"}))

    def without_secrets(self, message: str) -> str:
        return without_secrets(message, self.url.password, self.url.query)


FindDatabase = Callable[[str], DatabaseSettings]
"""Finds a database's settings by the id of its connection; raises MissingConnection- or InvalidConnectionError."""


class Database:
    """Transactions in one database."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self.settings = settings

    @cached_property
    def _engine(self) -> Engine:
        arguments = {**limits(self.settings.url.query), **OF_DRIVER}
        return create_engine(self.settings.url, poolclass=NullPool, connect_args=arguments)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run one transaction; it is durable when this ends. After an error of the connection its end is unknown."""
        engine = self._engine.execution_options(isolation_level="READ COMMITTED")
        with engine.begin() as connection:
            connection.execute(text(DURABLE), {"lock_timeout": f"{LOCK_TIMEOUT_S}s"})
            yield connection

    @contextmanager
    def named_transaction(self, what: str) -> Iterator[Connection]:
        """Run one transaction on a table, whose errors get names, without what statements and parameters hold."""
        try:
            with self.transaction() as connection:
                yield connection
        except DBAPIError as error:
            raise self.named(what, error) from None

    @contextmanager
    def one_at_a_time(self, what: str) -> Iterator[Connection]:
        """Run a named transaction while no other one on this table runs."""
        with self.named_transaction(what) as connection:
            connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(f"kafka_ingest {what}", 0))))
            yield connection

    def named(self, what: str, error: DBAPIError) -> OutputNotUsableError | OutputUnavailableError:
        found = f"{what} could not be used through connection {self.settings.conn_id!r}: {self.cause(error)}."
        state = getattr(error.orig, "sqlstate", None)
        if state == INSUFFICIENT_PRIVILEGE:
            return OutputNotUsableError(
                f"{found} Expected a role that may use the schema and create tables there, and select, insert, update "
                "and delete rows of the table; its columns are added by its owner alone. No offset was moved; grant it "
                "the rights, or correct the connection."
            )
        if state == TOO_MANY_COLUMNS:
            return OutputNotUsableError(
                f"{found} No offset was moved; let select put fields together in a struct, which is one column."
            )
        if state == LOCK_NOT_AVAILABLE:
            return OutputUnavailableError(
                f"{found} Another session has held a lock for more than {LOCK_TIMEOUT_S} s: pg_stat_activity and "
                "pg_blocking_pids() name it. No offset was moved; run this again once it has ended."
            )
        if state in NEXT_STEP:
            return OutputUnavailableError(f"{found} No offset was moved; {NEXT_STEP[state]}.")
        return OutputUnavailableError(
            f"{found} No offset was moved; run this again when the database answers: the batch's mark in it then says "
            "whether it was done."
        )

    def cause(self, error: DBAPIError) -> str:
        """Return the driver's message without secrets."""
        return self.settings.without_secrets(str(error.orig).partition("\n")[0].rstrip("."))
