"""PyIceberg's catalogs, apart from two things: what reads and writes files, and how long an answer may take.

Importing this imports pyiceberg.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.rest import RestCatalog, TableResponse
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.table import Table
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Response, Session

from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.sinks.iceberg.catalog_settings import REST, CatalogSettings
from kafka_ingest.sinks.iceberg.store_io import in_store

ON_DISK = {"py-io-impl": "kafka_ingest.sinks.iceberg.durable_io.DurableFileIO"}
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 60.0
"""Between two pieces of an answer. Without a limit, a server that answers nothing would hold a task for ever."""


def catalog_of(settings: CatalogSettings, access: S3Access | None) -> Catalog:
    """Return the catalog of tables on a disk, or in the store that ``access`` leads to."""
    files = Files(settings.properties, access)
    own = files.properties(EMPTY_DICT)
    if settings.kind == REST:
        return PatientRestCatalog(settings.name, files, own)
    catalog = load_catalog(settings.name, **own)
    vars(catalog)["_load_file_io"] = files.io
    return catalog


@dataclass(frozen=True, slots=True)
class Files:
    """What reads and writes files.

    The library lets properties of a table, or of a server, name the class that does so. It would be imported, and
    nothing would be flushed, or put with the store's credentials. Here the own properties win.
    """

    own: Mapping[str, Any]
    access: S3Access | None

    def properties(self, offered: Mapping[str, str]) -> dict[str, Any]:
        """Return the own properties; credentials that a catalog offers are used where the store's have no key."""
        if self.access is None:
            return ON_DISK | dict(self.own)
        access, key, secret = self.access, offered.get("s3.access-key-id"), offered.get("s3.secret-access-key")
        if access.access_key is None and key and secret:
            token = offered.get("s3.session-token") or None
            access = replace(access, access_key=key, secret_key=secret, session_token=token)
        return in_store(access) | dict(self.own)

    def io(
        self,
        properties: Properties = EMPTY_DICT,
        location: str | None = None,
        *,
        offered: Mapping[str, str] = EMPTY_DICT,
    ) -> FileIO:
        """Return what reads and writes a table's files. The first two parameters are those of the library's method."""
        return load_file_io({**properties, **self.properties(offered)}, location)


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
