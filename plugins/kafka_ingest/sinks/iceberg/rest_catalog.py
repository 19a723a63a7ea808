"""PyIceberg's REST catalog with time limits, and with what the server offers beside a table.

Importing this imports pyiceberg and requests, for which the plans of other catalogs need not wait.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Response, Session

from kafka_ingest.sinks.iceberg.catalog_files import Files

CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
"""Between two pieces of an answer. Without a limit, a server that answers nothing would hold a task for ever."""


class PatientRestCatalog(RestCatalog):
    """A REST catalog that is waited for as long as its time limits allow."""

    def __init__(self, name: str, files: Files, properties: Mapping[str, Any]) -> None:
        self._files = files
        self._offered: Mapping[str, str] = {}
        super().__init__(name, **properties)

    def _config_headers(self, session: Session) -> None:
        """Set the headers of a session, before its first request; and the limits of all of them."""
        super()._config_headers(session)
        vars(session)["request"] = partial(patient_request, session)

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        """Return a table. What the server offers is in its answer, beside the table's own properties."""
        credentials = self._resolve_storage_credentials(
            table_response.storage_credentials, table_response.metadata_location
        )
        self._offered = {**table_response.config, **credentials}
        return super()._response_to_table(identifier_tuple, table_response)

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return self._files.io(properties, location, offered=self._offered)


def patient_request(session: Session, method: str, url: str | bytes, **named: object) -> Response:
    """Make a request within the time limits.

    Where the environment names certificates (``REQUESTS_CA_BUNDLE``), requests takes them before the session's own.
    """
    limits: dict[str, Any] = {"timeout": (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S), "verify": session.verify}
    return Session.request(session, method, url, **(limits | named))
