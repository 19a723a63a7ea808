"""An Airflow connection → how to reach a store."""

import re
from collections.abc import Callable, Mapping

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.settings.connections import ConnectionFields, wrong_type

S3_EXTRAS = frozenset(
    {"endpoint_url", "region_name", "aws_session_token", "aws_access_key_id", "aws_secret_access_key"}
)


def store_access(scheme: str, fields: ConnectionFields) -> StoreAccess:
    """Return how to reach the store of a scheme."""
    return ACCESS[scheme](fields)


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
    if endpoint is not None and not re.fullmatch(r"https?://[^/@\s]+/?", str(endpoint)):
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


ACCESS: Mapping[str, Callable[[ConnectionFields], StoreAccess]] = {"s3": s3_access}
