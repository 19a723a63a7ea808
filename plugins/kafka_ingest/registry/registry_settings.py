"""How to reach a schema registry: the settings of a connection, and their secrets kept out of sight."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """``urls`` are asked in turn. Basic auth (``user``) or a bearer token, or neither."""

    conn_id: str
    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    certificate: tuple[str, str] | None = None
    """A client's certificate and its key, as files."""
