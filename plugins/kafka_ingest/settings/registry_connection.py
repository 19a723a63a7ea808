"""Airflow connections → schema registries, by the keys of Confluent's own client."""

import re
from typing import Final

from kafka_ingest.errors import InvalidConnectionError
from kafka_ingest.registry import RegistrySettings
from kafka_ingest.settings.connections import ConnectionFields, checked_host, wrong_type

URL: Final = re.compile(r"https?://[^/@\s,?#]+(?:/[^@\s,?#]*)?")
CA, CERTIFICATE, KEY = "ssl.ca.location", "ssl.certificate.location", "ssl.key.location"
USER, TOKEN = "basic.auth.user.info", "bearer.auth.token"
KNOWN: Final = ("url", USER, TOKEN, CA, CERTIFICATE, KEY)


def registry_settings(fields: ConnectionFields) -> RegistrySettings:
    """Return how to reach a schema registry, from a connection of type http.

    Its fields are used as by Airflow's own provider: host, port, and the scheme in ``schema``; login and password are
    for basic auth. The extra has the keys of Confluent's client; ``url`` may name several, with commas between them.
    """
    if fields.conn_type not in {"http", "https"}:
        raise wrong_type(fields, "http")
    extra = {key: value for key, value in fields.extra.items() if value not in (None, "")}
    if unknown := sorted(extra.keys() - {*KNOWN}):
        raise invalid(fields, f"expected in its extra at most {', '.join(KNOWN)}, found {', '.join(unknown)}")
    if not_text := sorted(key for key, value in extra.items() if not isinstance(value, str)):
        raise invalid(fields, f"expected texts in its extra, found something else as {', '.join(not_text)}")
    user, password = login_of(fields, extra.get(USER))
    token = extra.get(TOKEN)
    if token is not None and user is not None:
        raise invalid(fields, f"expected either a login or {TOKEN}, found both")
    if token is not None and not re.fullmatch("[!-~]+", token):
        raise invalid(fields, f"expected printable ASCII without blanks as {TOKEN}, found other characters")
    if (CERTIFICATE in extra) != (KEY in extra):
        raise invalid(fields, f"expected {CERTIFICATE} and {KEY} together, found one of them")
    return RegistrySettings(
        fields.conn_id,
        urls_of(fields, extra.get("url"), has_secret=user is not None or token is not None),
        user,
        password,
        token,
        extra.get(CA),
        (extra[CERTIFICATE], extra[KEY]) if KEY in extra else None,
    )


def login_of(fields: ConnectionFields, info: str | None) -> tuple[str | None, str | None]:
    if info is None:
        return fields.login or None, fields.password
    if fields.login:
        raise invalid(fields, f"expected either a login or {USER}, found both")
    user, colon, password = info.partition(":")
    if not colon or not user:
        raise invalid(fields, f"expected USER:PASSWORD as {USER}, found another form")
    return user, password


def urls_of(fields: ConnectionFields, several: str | None, *, has_secret: bool) -> tuple[str, ...]:
    """Return the URLs to ask in turn; none of them may hold a password, since errors name them.

    A secret is sent over plain HTTP only where the connection says http itself.
    """
    if several is None:
        host = checked_host(fields)
        if has_secret and "://" not in host and not fields.schema:
            raise invalid(
                fields,
                f"expected https or http in the schema field or before the host {host}, as a login goes with it, found "
                "neither: https keeps it secret",
            )
        several = host if "://" in host else f"{fields.schema or 'http'}://{host}"
        several = f"{several.rstrip('/')}:{fields.port}" if fields.port else several
    elif fields.host:
        raise invalid(fields, "expected either a host or url in its extra, found both")
    urls = tuple(each.strip().rstrip("/") for each in several.split(",") if each.strip())
    if not urls or not all(URL.fullmatch(each) for each in urls):
        raise invalid(
            fields,
            "expected a registry's URL such as https://schemas.example.com:8081, found another form, which is not "
            "repeated since it may hold a password; user and password belong in the login and password fields",
        )
    return urls


def invalid(fields: ConnectionFields, what: str) -> InvalidConnectionError:
    return InvalidConnectionError(f"connection {fields.conn_id!r}: {what}. docs/feed-files.md has examples.")
