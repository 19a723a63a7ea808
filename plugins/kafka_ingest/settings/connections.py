"""Airflow connections → settings. Airflow itself is imported only where the environment cannot answer.

Those of schema registries have the keys of Confluent's own client.
"""

import configparser
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.control.database import ControlDatabaseSettings, postgresql_options
from kafka_ingest.errors import InvalidConnectionError, MissingConnectionError
from kafka_ingest.schemas import RegistrySettings
from kafka_ingest.settings.setting_types import as_text
from kafka_ingest.sinks.postgresql.database import DatabaseSettings
from kafka_ingest.spark_launch.spark_submission import SparkMaster

CONTROL_CONN_ID = "kafka_ingest"
SPARK_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


@dataclass(frozen=True, slots=True)
class ConnectionFields:
    """The fields of an Airflow connection; password and extra may be secret, so they are not in the repr."""

    conn_id: str
    conn_type: str
    host: str | None = None
    port: int | None = None
    schema: str | None = None
    login: str | None = None
    password: str | None = field(default=None, repr=False)
    extra: Mapping[str, Any] = field(default_factory=dict, repr=False)


FindConnection = Callable[[str], ConnectionFields]
"""Finds a connection by its id; raises MissingConnectionError."""


def find_connection_from_shell(conn_id: str) -> ConnectionFields:
    """Find a connection as Airflow would from a shell: secrets backend, environment, database.

    The environment is read here in the one case where it is sure to be what Airflow would answer, JSON form and no
    secrets backend before it, because importing Airflow takes seconds.
    """
    text = os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", "")
    if text.lstrip().startswith("{") and not secrets_backend_is_configured():
        return fields_from_json(conn_id, text)

    from airflow.models.connection import Connection  # noqa: PLC0415 - seconds, and only for those who need it
    from airflow.providers.common.compat.sdk import AirflowException, AirflowNotFoundException  # noqa: PLC0415

    try:
        return fields_of(Connection.get_connection_from_secrets(conn_id))
    except AirflowNotFoundException as error:
        # Airflow looks elsewhere after what it cannot read in the environment, and then knows of none.
        raise (unreadable(conn_id, error) if text else missing(conn_id)) from error
    except (AirflowException, ValueError, TypeError) as error:
        raise unreadable(conn_id, error) from None


def find_connection_in_task(conn_id: str) -> ConnectionFields:
    from airflow.providers.common.compat.sdk import AirflowNotFoundException  # noqa: PLC0415
    from airflow.sdk import Connection  # noqa: PLC0415 - only tasks come here, and they have imported it

    try:
        connection = Connection.get(conn_id)
    except AirflowNotFoundException as error:
        raise missing(conn_id) from error
    try:
        return fields_of(connection)
    except (ValueError, TypeError) as error:
        raise unreadable(conn_id, error) from None


def kafka_settings(fields: ConnectionFields) -> KafkaClientSettings:
    """Return how to reach Kafka: the connection's extra is librdkafka configuration."""
    if fields.conn_type != "kafka":
        raise wrong_type(fields, "kafka")
    # Fields of a form may be left empty.
    given = {key: str(as_text(value)) for key, value in fields.extra.items() if value not in (None, "")}
    return KafkaClientSettings(fields.conn_id, given)


def control_database(fields: ConnectionFields) -> ControlDatabaseSettings:
    """Return where the control tables are. The URL is built from the fields: Airflow's own form is not SQLAlchemy's."""
    if fields.conn_type == "sqlite":
        file = fields.host or fields.schema
        if not file or not Path(file).is_absolute():
            raise InvalidConnectionError(
                f"connection {fields.conn_id!r}: expected the absolute path of the SQLite file as its host, found "
                f"{file!r}"
            )
        return ControlDatabaseSettings(URL.create("sqlite", database=file))
    if fields.conn_type in {"postgres", "postgresql"}:
        missing_fields = [name for name in ("host", "schema", "login") if not getattr(fields, name)]
        if missing_fields:
            raise InvalidConnectionError(
                f"connection {fields.conn_id!r}: expected host, schema (the database's name) and login, "
                f"missing: {', '.join(missing_fields)}"
            )
        return ControlDatabaseSettings(
            URL.create(
                "postgresql+psycopg",
                username=fields.login,
                password=fields.password,
                host=checked_host(fields),
                port=fields.port,
                database=fields.schema,
                query=postgresql_options(fields.conn_id, fields.extra),
            )
        )
    raise wrong_type(fields, "sqlite or postgres")


def database_settings(fields: ConnectionFields) -> DatabaseSettings:
    if fields.conn_type not in {"postgres", "postgresql"}:
        raise wrong_type(fields, "postgres")
    return DatabaseSettings(fields.conn_id, control_database(fields).url)


def spark_master(fields: ConnectionFields) -> SparkMaster:
    """Return the master that the provider's hook would submit to (SparkSubmitHook._resolve_connection)."""
    if fields.conn_type not in {"spark", "local", "yarn", "k8s"}:
        raise wrong_type(fields, "spark")
    host = checked_host(fields)
    if fields.conn_type == "spark" and host and ("://" in host or not fields.port):
        master = host
    else:
        master = f"{fields.conn_type}://{host}"
    if fields.port:
        master = f"{master}:{fields.port}"
    if not host:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected a Spark master as its host, such as local[*] or "
            "spark://host:7077; found none"
        )
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected a master local[*], spark://…, yarn or k8s://… as its host, found "
            "another one. Spark Connect (sc://), Livy, EMR, Dataproc and Databricks cannot be used (docs/support.md)"
        )
    if fields.extra.get("spark-home"):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: spark-home in its extra is refused by Airflow's Spark provider; put "
            "spark-submit on the PATH instead"
        )
    binary = fields.extra.get("spark-binary", SPARK_BINARIES[0])
    if binary not in SPARK_BINARIES:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected spark-binary in its extra to be one of "
            f"{', '.join(SPARK_BINARIES)}, as Airflow's Spark provider allows, found another value"
        )
    deploy_mode = fields.extra.get("deploy-mode")
    if deploy_mode not in {None, "", "client", "cluster"}:
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected deploy-mode client in its extra, found another value"
        )
    return SparkMaster(
        conn_id=fields.conn_id,
        master=master,
        deploy_mode=deploy_mode,
        spark_binary=binary,
        queue=fields.extra.get("queue"),
        namespace=fields.extra.get("namespace"),
    )


def fields_from_json(conn_id: str, text: str) -> ConnectionFields:
    try:
        document = json.loads(text)
        extra = document.get("extra") or {}
        extra = json.loads(extra) if isinstance(extra, str) else extra
        return ConnectionFields(
            conn_id=conn_id,
            conn_type=normalized_type(document["conn_type"]),
            host=document.get("host"),
            port=int(document["port"]) if document.get("port") else None,
            schema=document.get("schema"),
            login=document.get("login"),
            password=document.get("password"),
            extra=dict(extra.items()),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The text is not repeated: it may hold a password.
        raise InvalidConnectionError(
            f"AIRFLOW_CONN_{conn_id.upper()}: expected a JSON object with conn_type and the connection's fields, and "
            f"an object as its extra; found one that cannot be read ({type(error).__name__})"
        ) from None


def fields_of(connection: Any) -> ConnectionFields:  # noqa: ANN401 - Airflow has two classes of this name, one shape
    return ConnectionFields(
        conn_id=connection.conn_id,
        conn_type=normalized_type(connection.conn_type),
        host=connection.host,
        port=connection.port,
        schema=connection.schema,
        login=connection.login,
        password=connection.password,
        extra=connection.extra_dejson,
    )


def normalized_type(conn_type: str) -> str:
    return {"postgresql": "postgres"}.get(conn_type, conn_type)


def secrets_backend_is_configured() -> bool:
    """Whether Airflow asks something else before the environment."""
    # Prefixes: a setting may also come as …_CMD or …_SECRET.
    if any(key.startswith(("AIRFLOW__SECRETS__BACKEND", "AIRFLOW__WORKERS__SECRETS_BACKEND")) for key in os.environ):
        return True
    home = Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser()
    file = Path(os.environ.get("AIRFLOW_CONFIG", home / "airflow.cfg"))
    settings = configparser.ConfigParser(interpolation=None, strict=False, allow_no_value=True)
    try:
        settings.read(file)
    except configparser.Error:
        return True  # let Airflow judge its own file
    return bool(
        settings.get("secrets", "backend", fallback="") or settings.get("workers", "secrets_backend", fallback="")
    )


def missing(conn_id: str) -> MissingConnectionError:
    return MissingConnectionError(
        f"expected an Airflow connection {conn_id!r}, found none. Define it: in Airflow (Admin → Connections), in your "
        f"secrets backend, or as the environment variable AIRFLOW_CONN_{conn_id.upper()}."
    )


def unreadable(conn_id: str, error: Exception) -> InvalidConnectionError:
    """Return the error of a connection that Airflow cannot parse; Airflow's own message may repeat the password."""
    return InvalidConnectionError(
        f"connection {conn_id!r}: expected a URI or JSON as Airflow's connections have it, found one that Airflow "
        f"cannot read ({type(error).__name__}; it is not repeated, since it may hold a password). Define it again."
    )


def checked_host(fields: ConnectionFields) -> str:
    """Return the host, which errors name; refuse what may be a whole URL with its password, without repeating it."""
    host = fields.host or ""
    if "@" in host or any(character.isspace() for character in host):
        raise InvalidConnectionError(
            f"connection {fields.conn_id!r}: expected a host's name or address as its host, found a text with '@' or "
            "blanks. User and password belong in the login and password fields."
        )
    return host


def wrong_type(fields: ConnectionFields, expected: str) -> InvalidConnectionError:
    return InvalidConnectionError(
        f"connection {fields.conn_id!r}: expected one of type {expected}, found type {fields.conn_type!r}"
    )


REGISTRY_URL: Final = re.compile(r"https?://[^/@\s,?#]+(?:/[^@\s,?#]*)?")
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
    if not urls or not all(REGISTRY_URL.fullmatch(each) for each in urls):
        raise invalid(
            fields,
            "expected a registry's URL such as https://schemas.example.com:8081, found another form, which is not "
            "repeated since it may hold a password; user and password belong in the login and password fields",
        )
    return urls


def invalid(fields: ConnectionFields, what: str) -> InvalidConnectionError:
    return InvalidConnectionError(f"connection {fields.conn_id!r}: {what}. docs/feed-files.md has examples.")
