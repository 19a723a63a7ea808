"""Airflow connections → Iceberg catalogs, by PyIceberg's own properties."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.settings.connections import ConnectionFields, checked_host, control_database, wrong_type
from kafka_ingest.sinks.iceberg.catalog_settings import CatalogSettings

NAME = "catalog_name"
"""The key in a connection's extra by which a SQL catalog's rows are found; other engines have to use the same."""


def catalog_settings(fields: ConnectionFields) -> CatalogSettings:
    """Return how to reach a catalog: a database by its fields, any other by PyIceberg's properties in the extra."""
    extra = {key: value for key, value in fields.extra.items() if value is not None}
    name = str(extra.pop(NAME, fields.conn_id))
    match fields.conn_type:
        case "sqlite" | "postgres":
            url = control_database(replace(fields, extra=extra)).url.render_as_string(hide_password=False)
            return CatalogSettings(fields.conn_id, name, {"type": "sql", "uri": url})
        case "iceberg":
            return CatalogSettings(fields.conn_id, name, properties_of(fields, extra))
        case _:
            raise wrong_type(fields, "iceberg, sqlite or postgres")


def properties_of(fields: ConnectionFields, extra: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties in a connection's extra, with the uri and the credential of its fields.

    The fields are used as by Airflow's own provider for Iceberg: the host is the catalog's URI, login and password are
    the client's id and secret.
    """
    found = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in extra.items()}
    if fields.host and "uri" not in found:
        host = checked_host(fields)
        found["uri"] = f"{host}:{fields.port}" if fields.port else host
    if fields.login and fields.password and "credential" not in found:
        found["credential"] = f"{fields.login}:{fields.password}"
    if not found.keys() & {"type", "uri", "py-catalog-impl"}:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected the properties of an Iceberg catalog as its extra, such as "
            '{"type": "rest", "uri": "https://…"}, found none that says which catalog. docs/sinks.md has examples.'
        )
    return found
