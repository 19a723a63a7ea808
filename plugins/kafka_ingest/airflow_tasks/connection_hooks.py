"""What Airflow finds behind the types of connections that this package brings (:mod:`.connection_types`).

They hold the place of hooks only: tasks and the command line read a connection's fields themselves, and
``kafka-ingest doctor FEED`` tries them.
"""

from typing import ClassVar

from airflow.sdk import BaseHook

from kafka_ingest.airflow_tasks.connection_types import FORMS, hook_class


class ConnectionHook(BaseHook):
    """A hook that connects to nothing."""

    conn_name_attr = "conn_id"
    conn_type: ClassVar[str]

    def __init__(self, conn_id: str) -> None:
        super().__init__()
        self.conn_id = conn_id


# Airflow imports each by its name: KafkaHook, AwsHook, …
for _type, _form in FORMS.items():
    vars()[hook_class(_type)] = type(
        hook_class(_type),
        (ConnectionHook,),
        {
            "conn_type": _type,
            "hook_name": _form["hook-name"],
            "__module__": __name__,
            "__doc__": f"Of type ``{_type}``.",
        },
    )
