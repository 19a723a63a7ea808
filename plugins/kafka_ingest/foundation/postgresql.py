"""How each session with PostgreSQL begins, with control tables as with outputs. SQLAlchemy is theirs to import."""

from collections.abc import Container
from typing import Final

CONNECT_S: Final = 30
INSUFFICIENT_PRIVILEGE: Final = "42501"  # https://www.postgresql.org/docs/18/errcodes-appendix.html

IN_UTF8: Final = {"client_encoding": "UTF8"}
"""As texts are sent. By default the server takes them to be in the role's encoding, or its own, and changes them."""

OF_DRIVER: Final = {**IN_UTF8, "prepare_threshold": None}
"""Behind a transaction pool another server process, which lacks what was prepared, may serve the next transaction
(https://www.pgbouncer.org/features.html)."""


def limits(given: Container[str]) -> dict[str, str]:
    """Return how long to wait for a server that does not answer, where the connection has not ``given`` it.

    https://www.postgresql.org/docs/18/libpq-connect.html
    """
    found = {"connect_timeout": CONNECT_S, "tcp_user_timeout": CONNECT_S * 1000}
    found |= {"keepalives_idle": CONNECT_S, "keepalives_interval": CONNECT_S // 3, "keepalives_count": 3}
    return {name: str(limit) for name, limit in found.items() if name not in given}
