"""Airflow connections → Iceberg catalogs, by PyIceberg's own properties."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.settings.connections import ConnectionFields, checked_host, control_database, wrong_type
from kafka_ingest.sinks.iceberg.catalog_settings import GLUE, KINDS, REST, SQL, CatalogSettings

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
    found: dict[str, Any] = {key: text_of(value) for key, value in extra.items() if key not in MAPPINGS}
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


def text_of(value: Any) -> str:  # noqa: ANN401 - whatever JSON has
    return str(value).lower() if isinstance(value, bool) else str(value)
