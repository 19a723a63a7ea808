"""Gives Airflow the page "Kafka offsets" where the package lies in the plugins folder and is not installed.

Installed with pip, the package brings the page itself (entry point ``airflow.plugins``), and Airflow would report a
second plugin of that name as an error.
"""

from importlib.metadata import entry_points

PAGE = "kafka_ingest.page.plugin"

if not any(each.module == PAGE for each in entry_points(group="airflow.plugins")):
    from kafka_ingest.page.plugin import KafkaOffsetsPlugin

    __all__ = ["KafkaOffsetsPlugin"]
