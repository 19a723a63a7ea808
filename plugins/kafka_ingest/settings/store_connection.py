"""Airflow connections → how to reach stores and Iceberg catalogs, these by PyIceberg's own properties."""

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.azure import BLOBS, AzureAccess
from kafka_ingest.foundation.stores.gcs import GcsAccess
from kafka_ingest.foundation.stores.kinds import HOST_OF_ACCOUNTS
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.place import RemotePlace
from kafka_ingest.settings.connections import ConnectionFields, checked_host, control_database, wrong_type
from kafka_ingest.settings.setting_types import as_text
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, KINDS, REST, SQL, CatalogSettings

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


TYPES = ("wasb", "adls")
OLD_AZURE_PREFIX = re.compile("^extra__(wasb|adls)__")
"""Before the names of fields, in connections that older versions of Airflow made."""
KEYS = ("shared_access_key", "account_key")
EXTRAS = frozenset({*KEYS, "sas_token", "tenant_id", "managed_identity_client_id", "account_name"})
OTHER_SERVER = re.compile(r"https?://[^/@\s]+:\d+/([a-z0-9]+)/?")
NOT_REPEATED = "which is not repeated since it may hold a secret"


def azure_access(fields: ConnectionFields, bucket: str, environment: Mapping[str, str] = os.environ) -> AzureAccess:
    """Return how to reach an account, from a connection as Airflow's Azure provider has it.

    Without a key, a token or a secret there the environment may name an application with its secret; otherwise each
    client uses the identity of the machine. What only some of the three clients could do is refused by name.
    """
    if fields.conn_type not in TYPES:
        raise wrong_type(fields, " or ".join(TYPES))
    account = bucket.rpartition("@")[2].removesuffix(f".{HOST_OF_ACCOUNTS}")
    extra = own_extra(fields)
    if unknown := sorted(extra.keys() - EXTRAS):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected in its extra at most {', '.join(sorted(EXTRAS))}, found "
            f"{', '.join(unknown)}. The three clients do not all know it: use a key of the account, a SAS token, an "
            "application's client id and secret with tenant_id, or give the machine an identity of its own."
        )
    tenant_id = extra.get("tenant_id")
    of_account = [fields.password if tenant_id is None else None, *(extra.get(name) for name in KEYS)]
    keys = [key for key in of_account if key]
    named = (extra.get("account_name"), None if tenant_id is not None else fields.login)
    if wrong := [name for name in named if name and name != account]:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected one to the account {account}, which sink.path names, found "
            f"{', '.join(map(repr, wrong))}"
        )
    if len(keys) > 1 or (keys and not is_key(keys[0])):
        found = "more than one" if len(keys) > 1 else f"another text, {NOT_REPEATED}"
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected one key of the account, in base64 as Azure shows it, "
            f"found {found}"
        )
    try:
        access = AzureAccess(
            fields.conn_id,
            account,
            endpoint_url=other_server(fields, account),
            account_key=keys[0] if keys else None,
            sas_token=sas_token(fields.conn_id, extra.get("sas_token")),
            tenant_id=tenant_id,
            client_id=fields.login if tenant_id is not None else extra.get("managed_identity_client_id"),
            client_secret=fields.password or None if tenant_id is not None else None,
        )
        return access if access.has_credentials else replace(access, **application_in(environment))
    except ValueError as error:
        raise InvalidConnectionError(f"connection {fields.conn_id!r}: {error}") from None


def application_in(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the application that the environment names, as Azure's clients look for it first; {} where it does not.

    Here and not in the job: Spark's driver is not given what else is in a task's environment.
    """
    names = {"tenant_id": "AZURE_TENANT_ID", "client_id": "AZURE_CLIENT_ID", "client_secret": "AZURE_CLIENT_SECRET"}
    found = {field: environment.get(name, "") for field, name in names.items()}
    return found if all(found.values()) else {}


def own_extra(fields: ConnectionFields) -> dict[str, str]:
    given = {key: value for key, value in fields.extra.items() if value not in (None, "", {}, False)}
    return {OLD_AZURE_PREFIX.sub("", key): str(value) for key, value in given.items()}


def is_key(text: str) -> bool:
    """Whether a text is in base64: Hadoop repeats one that is not in its error."""
    try:
        return bool(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return False


def sas_token(conn_id: str, text: str | None) -> str | None:
    """Return a shared access signature without what stands before it in URLs."""
    if text is None:
        return None
    token = text.removeprefix("?")
    if "sig=" not in token or token.startswith(("http:", "https:")):
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected a sas_token such as sv=…&sig=…, found another text, {NOT_REPEATED}"
        )
    return token


def other_server(fields: ConnectionFields, account: str) -> str | None:
    """Return the address of another server than Azure's, None for Azure's own, by its host or by the account's name."""
    host = (fields.host or "").rstrip("/")
    own = {f"{account}.{suffix}" for suffix in (BLOBS, HOST_OF_ACCOUNTS)}
    if host.removeprefix("https://") in {"", account, *own}:
        return None
    found = OTHER_SERVER.fullmatch(host)
    if found is None or found[1] != account:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected as its host https://{account}.{BLOBS}, or another server's "
            f"http://HOST:PORT/{account}, found another text, {NOT_REPEATED}"
        )
    return host


ACCESS: Mapping[str, Callable[[ConnectionFields, str], StoreAccess]] = {
    "s3": lambda fields, _: s3_access(fields),
    "gs": lambda fields, _: gcs_access(fields),
    "abfss": azure_access,
}
"""By the schemes of URIs; of the place the bucket's name."""


NAME = "catalog_name"
"""The key in a connection's extra by which a SQL catalog's rows are found; other engines have to use the same."""

OWN_CLASS = "py-catalog-impl"
MAPPINGS = frozenset({"ssl", "auth"})
"""Properties that are no texts."""
LOGINS = ("noop", "basic", "legacyoauth2", "oauth2", "google", "entra")
"""The library's own; it imports any other name as a class."""
MAPPING = '{"ssl": {"cabundle": "/etc/ssl/ca.pem"}}'

KINDS_BY_URI = {"http": REST, "thrift": "hive", "sqlite": SQL, "postgresql": SQL}
REFUSED = {
    "hive": (
        "its commits in PyIceberg 0.12.0 are kept apart by a lock that ends after some minutes and is not renewed, and "
        "do not compare what they replace: a slow writer could undo a published batch"
    ),
    "dynamodb": "PyIceberg 0.12.0 cannot commit to it",
    "bigquery": "PyIceberg 0.12.0 cannot commit to it",
    "in-memory": "it ends with the task",
    OWN_CLASS: "nothing is known about the commits of a class of your own",
}


def catalog_settings(fields: ConnectionFields) -> CatalogSettings:
    """Return how to reach a catalog: a database by its fields, any other by PyIceberg's properties in the extra."""
    extra = {key: value for key, value in fields.extra.items() if value is not None}
    name = str(extra.pop(NAME, fields.conn_id))
    match fields.conn_type:
        case "sqlite" | "postgres":
            url = control_database(replace(fields, extra=extra)).url
            if (url.host or "").startswith("/"):  # a socket's folder, which a URI has no place for before its path
                url = url.update_query_dict({"host": url.host or ""}).set(host="")
            return CatalogSettings(
                fields.conn_id, name, {"type": "sql", "uri": url.render_as_string(hide_password=False)}
            )
        case "iceberg":
            properties = properties_of(fields, extra)
            return CatalogSettings(fields.conn_id, name, properties, kind_of(fields.conn_id, properties))
        case _:
            raise wrong_type(fields, "iceberg, sqlite or postgres")


def properties_of(fields: ConnectionFields, extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties in a connection's extra, with the uri and the credential of its fields.

    The fields are used as by Airflow's own provider for Iceberg: the host is the catalog's URI, login and password are
    the client's id and secret.
    """
    found: dict[str, Any] = {key: str(as_text(value)) for key, value in extra.items() if key not in MAPPINGS}
    for key in MAPPINGS & extra.keys():
        if not isinstance(extra[key], Mapping):
            raise InvalidConnectionError(
                f"connection {fields.conn_id!r}: expected {key!r} in its extra to be an object, such as {MAPPING}, "
                "found none. docs/sinks.md has examples."
            )
        found[key] = dict(extra[key])
    if "auth" in found and found["auth"].get("type") not in LOGINS:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected auth.type to be one of {', '.join(LOGINS)}, found "
            f"{found['auth'].get('type')!r}. A class of your own is not imported; docs/sinks.md has examples."
        )
    if fields.host and "uri" not in found:
        host = checked_host(fields)
        found["uri"] = f"{host}:{fields.port}" if fields.port else host
    if fields.login and fields.password and "credential" not in found:
        found["credential"] = f"{fields.login}:{fields.password}"
    if not found.keys() & {"type", "uri", OWN_CLASS}:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected the properties of an Iceberg catalog as its extra, such as "
            '{"type": "rest", "uri": "https://…"}, found none that says which catalog. docs/sinks.md has examples.'
        )
    return found


def kind_of(conn_id: str, properties: Mapping[str, Any]) -> str:
    """Return which kind of catalog it is; raises InvalidConnectionError for one that nothing can be published through.

    As the library has it: the type, or what the beginning of the uri says.
    """
    uri = str(properties.get("uri", ""))
    by_uri = (kind for start, kind in KINDS_BY_URI.items() if uri.startswith(start))
    found = OWN_CLASS if OWN_CLASS in properties else properties.get("type", next(by_uri, "")).lower()
    if found not in KINDS:
        why = REFUSED.get(found)
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected an Iceberg catalog of type {', '.join(KINDS)}, found "
            f"{found or 'a uri without type, and of no known scheme'}{f': {why}' if why else ''}. Use one of those "
            "catalogs for the table; docs/sinks.md says how."
        )
    if found != GLUE and not uri:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected the uri of an Iceberg catalog of type {found} in its extra, found none."
        )
    return found
