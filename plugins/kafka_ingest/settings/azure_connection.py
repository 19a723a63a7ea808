"""An Airflow connection → how to reach Azure Data Lake Storage."""

import base64
import binascii
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.stores.azure import BLOBS, HOST_OF_ACCOUNTS, AzureAccess
from kafka_ingest.settings.connections import ConnectionFields, wrong_type

TYPES = ("wasb", "adls")
OLD_PREFIX = re.compile("^extra__(wasb|adls)__")
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
    """Return the fields of a connection's extra that are filled in, all of them texts."""
    given = {key: value for key, value in fields.extra.items() if value not in (None, "", {}, False)}
    return {OLD_PREFIX.sub("", key): str(value) for key, value in given.items()}


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
