"""PyIceberg's REST catalog with time limits, and with bounds to what the server may decide.

A server answers where its tables are and which credentials reach them. Which classes are imported, and where the
connection's credentials are sent, is the connection's alone. Importing this imports pyiceberg and requests, for which
the plans of other catalogs need not wait.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import StagedTable, Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Response, Session
from requests.exceptions import InvalidURL

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.sinks.iceberg.table_io import Files, check_chooses_nothing

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
"""Between two pieces of an answer. Without a limit, a server that answers nothing would hold a task for ever."""
TAKEN = frozenset({"prefix", "warehouse", "namespace-separator", "view-endpoints-supported"})
"""What of a server's configuration says how it is asked. The rest names classes, hosts, credentials and headers."""


class BoundedRestCatalog(RestCatalog):
    """A REST catalog that is waited for as long as its time limits allow, and asked where the connection says."""

    def __init__(self, name: str, files: Files, properties: Mapping[str, Any]) -> None:
        self._files = files
        self._offered: Mapping[str, str] = {}
        super().__init__(name, **properties)

    def _fetch_config(self) -> None:
        """Ask for the server's configuration, and take of it how the server is asked."""
        own = self.properties
        super()._fetch_config()
        self.properties = {**own, **{name: value for name, value in self.properties.items() if name in TAKEN}}
        if origin(str(self.uri)) != origin(own["uri"]):
            raise InvalidConnectionError(
                f"catalog {self.name}: expected {own['uri']} to serve its tables, found that its configuration leads "
                f"to {self.uri}. Nothing was sent there. If that server is the right one, name it in the connection."
            )

    def _config_headers(self, session: Session) -> None:
        """Set the headers of a session, before its first request; and the limits of all of them."""
        super()._config_headers(session)
        vars(session)["request"] = partial(patient_request, session)
        vars(session)["get_redirect_target"] = partial(redirect_within, session)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """Return a table. What the server offers is in its answer, beside the table's own properties."""
        check_chooses_nothing(table_response.metadata.properties)
        credentials = self._resolve_storage_credentials(
            table_response.storage_credentials, table_response.metadata_location
        )
        self._offered = {**table_response.config, **credentials}
        return super()._response_to_table(identifier_tuple, table_response)

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        check_chooses_nothing(table_response.metadata.properties)
        return super()._response_to_staged_table(identifier_tuple, table_response)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        del properties, location  # the table's and the server's, which say nothing about it
        return load_file_io(self._files.properties(self._offered))


def origin(uri: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(uri)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def redirect_within(session: Session, answer: Response) -> str | None:
    """Return where a server sends a request on to; raises InvalidURL for another one, which must get no credentials."""
    target: str | None = Session.get_redirect_target(session, answer)
    if target is not None and origin(urljoin(answer.url, target)) != origin(answer.url):
        raise InvalidURL(f"expected {answer.url} to answer, found that it redirects to another server: {target}")
    return target


def patient_request(session: Session, method: str, url: str | bytes, **named: object) -> Response:
    """Make a request within the time limits.

    Where the environment names certificates (``REQUESTS_CA_BUNDLE``), requests takes them before the session's own.
    """
    limits: dict[str, Any] = {"timeout": (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S), "verify": session.verify}
    return Session.request(session, method, url, **(limits | named))
