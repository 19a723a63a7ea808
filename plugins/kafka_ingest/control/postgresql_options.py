"""What the extra of a PostgreSQL connection may hold: libpq's parameters, as Airflow's PostgreSQL hook passes them."""

import difflib
from collections.abc import Mapping
from typing import Any

from kafka_ingest.errors import InvalidConnectionError

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
