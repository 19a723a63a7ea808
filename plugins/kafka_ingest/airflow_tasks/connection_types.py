"""The types of connections that feeds need, for Airflow's form: entry point ``apache_airflow_provider``.

Airflow reads this in each of its components, so it imports nothing of this package or of Airflow. A type that an
installed provider brings is left to that provider.
"""

from importlib.util import find_spec
from typing import Any, Final

PACKAGE: Final = "kafka-ingest"
HOOKS: Final = "kafka_ingest.airflow_tasks.connection_hooks"

PROVIDERS: Final = {
    "kafka": "airflow.providers.apache.kafka",
    "sqlite": "airflow.providers.sqlite",
    "postgres": "airflow.providers.postgres",
    "aws": "airflow.providers.amazon",
    "google_cloud_platform": "airflow.providers.google",
    "wasb": "airflow.providers.microsoft.azure",
    "http": "airflow.providers.http",
    "iceberg": "airflow.providers.apache.iceberg",
}
"""Which providers bring the types themselves."""


def text(label: str, description: str, **more: str) -> dict[str, Any]:
    """Return a field of text, which is kept in the connection's extra under its own name."""
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], **more}}


ALL_BUT_EXTRA: Final = ("host", "port", "schema", "login", "password")

FORMS: Final[dict[str, dict[str, Any]]] = {
    "kafka": {
        "hook-name": "Kafka",
        "hidden-fields": ALL_BUT_EXTRA,
        "conn-fields": {
            "bootstrap.servers": text("Bootstrap servers", "broker-1:9092,broker-2:9092"),
            "security.protocol": text("Security protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL"),
            "sasl.mechanism": text("SASL mechanism", "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512"),
            "sasl.username": text("User", "Of SASL."),
            "sasl.password": text("Password", "Of SASL.", format="password"),
            "ssl.ca.location": text("Certificate authority", "A file of the machines that run tasks."),
        },
    },
    "sqlite": {
        "hook-name": "SQLite",
        "hidden-fields": ("port", "schema", "login", "password", "extra"),
        "relabeling": {"host": "Absolute path of the file"},
        "placeholders": {"host": "/data/kafka_ingest/control.db"},
    },
    "postgres": {
        "hook-name": "PostgreSQL",
        "relabeling": {"schema": "Database"},
        "placeholders": {"port": "5432", "extra": '{"sslmode": "verify-full"}'},
    },
    "aws": {
        "hook-name": "Amazon Web Services",
        "hidden-fields": ("host", "port", "schema"),
        "relabeling": {"login": "Access key ID", "password": "Secret access key"},
        "placeholders": {"login": "empty: the machine's or the container's role"},
        "conn-fields": {
            "region_name": text("Region", "Such as eu-central-1."),
            "endpoint_url": text("Endpoint", "Of another store than Amazon's: https://minio.example.com:9000"),
        },
    },
    "google_cloud_platform": {
        "hook-name": "Google Cloud",
        "hidden-fields": ALL_BUT_EXTRA,
        "conn-fields": {
            "project": text("Project", "Only where the key is of another one."),
            "key_path": text("Keyfile path", "Absolute; empty, and no JSON: the machine's own account"),
            "keyfile_dict": text("Keyfile JSON", "The key of a service account.", format="password"),
        },
    },
    "wasb": {
        "hook-name": "Azure Blob Storage",
        "hidden-fields": ("port", "schema"),
        "relabeling": {
            "host": "Account URL",
            "login": "Account name, or client ID with a tenant",
            "password": "Account key, or client secret with a tenant",
        },
        "placeholders": {
            "host": "empty: the account that sink.path names",
            "password": "empty, and no SAS token: the machine's own identity",
        },
        "conn-fields": {
            "sas_token": text("SAS token", "sv=…&sig=…", format="password"),
            "tenant_id": text("Tenant ID", "Of an application's client ID and secret."),
            "managed_identity_client_id": text("Managed identity client ID", "Where the machine has several."),
        },
    },
    "http": {
        "hook-name": "HTTP",
        "relabeling": {"schema": "Protocol"},
        "placeholders": {
            "host": "schemas.example.com, a schema registry",
            "schema": "https",
            "extra": '{"ssl.ca.location": "/etc/ssl/own-ca.pem"}',
        },
    },
    "iceberg": {
        "hook-name": "Apache Iceberg catalog",
        "hidden-fields": ("port", "schema"),
        "relabeling": {"host": "URI of the catalog", "login": "Client ID", "password": "Client secret"},
        "placeholders": {"host": "https://catalog.example.com", "extra": '{"type": "rest", "warehouse": "lake"}'},
    },
}


def get_provider_info() -> dict[str, Any]:
    return {
        "package-name": PACKAGE,
        "name": "kafka_ingest",
        "description": "Batches of Kafka records over explicit offset ranges, committed once.",
        "connection-types": [
            connection_type(name, form) for name, form in FORMS.items() if not is_installed(PROVIDERS[name])
        ],
    }


def connection_type(name: str, form: dict[str, Any]) -> dict[str, Any]:
    return {
        "connection-type": name,
        "hook-class-name": f"{HOOKS}.{hook_class(name)}",
        "hook-name": form["hook-name"],
        "conn-fields": form.get("conn-fields", {}),
        "ui-field-behaviour": {
            "hidden-fields": list(form.get("hidden-fields", ())),
            "relabeling": form.get("relabeling", {}),
            "placeholders": form.get("placeholders", {}),
        },
    }


def hook_class(conn_type: str) -> str:
    return f"{conn_type.title().replace('_', '')}Hook"


def is_installed(provider: str) -> bool:
    """Whether a provider is installed; a package above it may not be."""
    try:
        return find_spec(provider) is not None
    except ModuleNotFoundError:
        return False
