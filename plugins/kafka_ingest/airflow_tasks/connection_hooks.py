"""What Airflow finds behind the types of connections that this package brings (:mod:`.connection_types`).

They hold the place of hooks only: tasks and the command line read a connection's fields themselves, and
``kafka-ingest doctor FEED`` tries them.
"""

from typing import ClassVar

from airflow.sdk import BaseHook


class ConnectionHook(BaseHook):
    """A hook that connects to nothing."""

    conn_name_attr = "conn_id"
    conn_type: ClassVar[str]

    def __init__(self, conn_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id


class KafkaHook(ConnectionHook):
    """Of type ``kafka``."""

    conn_type, hook_name = "kafka", "Kafka"


class SqliteHook(ConnectionHook):
    """Of type ``sqlite``."""

    conn_type, hook_name = "sqlite", "SQLite"


class PostgresHook(ConnectionHook):
    """Of type ``postgres``."""

    conn_type, hook_name = "postgres", "PostgreSQL"


class AwsHook(ConnectionHook):
    """Of type ``aws``."""

    conn_type, hook_name = "aws", "Amazon Web Services"


class GoogleCloudPlatformHook(ConnectionHook):
    """Of type ``google_cloud_platform``."""

    conn_type, hook_name = "google_cloud_platform", "Google Cloud"


class WasbHook(ConnectionHook):
    """Of type ``wasb``."""

    conn_type, hook_name = "wasb", "Azure Blob Storage"


class HttpHook(ConnectionHook):
    """Of type ``http``."""

    conn_type, hook_name = "http", "HTTP"


class IcebergHook(ConnectionHook):
    """Of type ``iceberg``."""

    conn_type, hook_name = "iceberg", "Apache Iceberg catalog"
