"""An Airflow connection → how to reach a store."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.gcs import GcsAccess
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.settings.azure_connection import azure_access
from kafka_ingest.settings.connections import ConnectionFields, wrong_type

ENDPOINT = re.compile(r"https?://[^/@\s]+/?")
GCS_ENDPOINT = "gcs.endpoint"
"""As Airflow's Google provider calls it, where it opens an ObjectStoragePath."""
GCS_EXTRAS = frozenset({"key_path", "keyfile_dict", "project", GCS_ENDPOINT})
OLD_PREFIX = "extra__google_cloud_platform__"
"""Before the names of fields, in connections that older versions of Airflow made."""
OF_KEY = ("client_email", "private_key", "private_key_id", "token_uri")
S3_EXTRAS = frozenset(
    {"endpoint_url", "region_name", "aws_session_token", "aws_access_key_id", "aws_secret_access_key"}
)


def store_access(place: RemotePlace, fields: ConnectionFields) -> StoreAccess:
    """Return how to reach a place in a store."""
    return ACCESS[place.scheme](fields, place.bucket)


def s3_access(fields: ConnectionFields) -> S3Access:
    """Return how to reach S3, from a connection as Airflow's Amazon provider has it.

    Without a key each client uses the machine's or the container's role. What only some of the three clients could do
    is refused by name.
    """
    if fields.conn_type != "aws":
        raise wrong_type(fields, "aws")
    extra = {key: value for key, value in fields.extra.items() if value not in (None, "", {})}
    for_s3 = (extra.pop("service_config", None) or {}).get("s3", {})
    if unknown := sorted((extra.keys() - S3_EXTRAS) | (for_s3.keys() - {"endpoint_url", "region_name"})):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected in its extra at most {', '.join(sorted(S3_EXTRAS))} and "
            f"service_config, found {', '.join(unknown)}. A role is not assumed here: give the machine or the "
            "container that role and leave login and password empty, or store temporary keys with their token."
        )
    endpoint = for_s3.get("endpoint_url") or extra.get("endpoint_url")
    if endpoint is not None and not ENDPOINT.fullmatch(str(endpoint)):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected an endpoint_url such as https://minio.example.com:9000, found "
            "another form, which is not repeated since it may hold a password"
        )
    try:
        return S3Access(
            fields.conn_id,
            endpoint_url=str(endpoint).rstrip("/") if endpoint is not None else None,
            region=for_s3.get("region_name") or extra.get("region_name"),
            access_key=fields.login or extra.get("aws_access_key_id"),
            secret_key=fields.password or extra.get("aws_secret_access_key"),
            session_token=extra.get("aws_session_token"),
        )
    except ValueError as error:
        raise InvalidConnectionError(f"connection {fields.conn_id!r}: {error}") from None


def gcs_access(fields: ConnectionFields) -> GcsAccess:
    """Return how to reach Google Cloud Storage, from a connection as Airflow's Google provider has it.

    Without a key each client uses the application default credentials. What only some of the three clients could do is
    refused by name.
    """
    if fields.conn_type != "google_cloud_platform":
        raise wrong_type(fields, "google_cloud_platform")
    extra = {
        key.removeprefix(OLD_PREFIX): value for key, value in fields.extra.items() if value not in (None, "", {}, False)
    }
    extra.pop("num_retries", None)  # the form fills it in, and each client has its own number
    if unknown := sorted(extra.keys() - GCS_EXTRAS):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected in its extra at most {', '.join(sorted(GCS_EXTRAS))}, found "
            f"{', '.join(unknown)}. The three clients do not all know it: use the key of a service account, or give "
            "the machine an account of its own and leave the connection without a key."
        )
    endpoint = extra.get(GCS_ENDPOINT)
    if endpoint is not None and not ENDPOINT.fullmatch(str(endpoint)):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected a {GCS_ENDPOINT} such as https://storage.googleapis.com, found "
            "another form, which is not repeated since it may hold a password"
        )
    path = extra.get("key_path")
    if path is not None and "keyfile_dict" in extra:
        raise InvalidConnectionError(f"connection {fields.conn_id!r}: expected key_path or keyfile_dict, found both")
    return GcsAccess(
        fields.conn_id,
        endpoint_url=str(endpoint).rstrip("/") if endpoint is not None else None,
        project=extra.get("project"),
        key=key_of_account(fields.conn_id, path, extra.get("keyfile_dict")),
        key_path=path,
    )


def key_of_account(conn_id: str, path: str | None, key: object) -> str | None:
    """Return the key of a service account, out of a file or of the connection itself; None where there is none."""
    if path is not None:
        if not Path(path).is_absolute():
            raise InvalidConnectionError(f"connection {conn_id!r}: expected an absolute key_path, found {path!r}")
        try:
            key = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidConnectionError(
                f"connection {conn_id!r}: expected the key of a service account in key_path, found none: {error}"
            ) from None
    if key is None:
        return None
    try:
        found = json.loads(key) if isinstance(key, str) else key
    except ValueError:
        found = None
    fields = found if isinstance(found, dict) else {}
    kind = fields.get("type")
    if kind != "service_account" or not all(isinstance(fields.get(name), str) for name in OF_KEY):
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected the JSON key of a service account with {', '.join(OF_KEY)}, found "
            f"{f'type {kind!r}' if isinstance(kind, str) else 'another text'}, which is not repeated since it may be a "
            "secret"
        )
    return json.dumps(fields)


ACCESS: Mapping[str, Callable[[ConnectionFields, str], StoreAccess]] = {
    "s3": lambda fields, _: s3_access(fields),
    "gs": lambda fields, _: gcs_access(fields),
    "abfss": azure_access,
}
"""By the schemes of URIs; of the place the bucket's name."""
