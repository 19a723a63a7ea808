"""The Airflow plugin: where the page and the metrics are served, and where Airflow links to the page.

Every component of Airflow imports this module, each task's process too: what serves the page is imported only when the
first request comes.
"""

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from kafka_ingest.page.first_request import AppOnFirstRequest

PREFIX = "kafka-offsets"
METRICS_PREFIX = "kafka-ingest"
"""Apart from the page, whose routes all need Airflow's sign-in: who scrapes metrics has a token of its own."""

OFFERED = {
    "name": "Kafka offsets",
    "icon": f"{PREFIX}/static/icon.svg",
    "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg",
}


class KafkaOffsetsPlugin(AirflowPlugin):
    """The page in Airflow's navigation, and a tab on each DAG."""

    name = "kafka_offsets"
    fastapi_apps: list[Any] = [  # noqa: RUF012 - Airflow declares it so
        {
            "name": "Kafka offsets",
            "url_prefix": f"/{PREFIX}",
            "app": AppOnFirstRequest("kafka_ingest.page.app"),
        },
        {
            "name": "Metrics of Kafka feeds",
            "url_prefix": f"/{METRICS_PREFIX}",
            "app": AppOnFirstRequest("kafka_ingest.page.metrics_app"),
        },
    ]
    # Without a slash in front: below the path of `[api] base_url`, which Airflow's own page names as its base.
    external_views: list[Any] = [  # noqa: RUF012 - Airflow declares it so
        OFFERED | {"destination": "nav", "href": f"{PREFIX}/", "url_route": PREFIX},
        OFFERED | {"destination": "dag", "href": f"{PREFIX}/feeds/{{DAG_ID}}", "url_route": f"{PREFIX}-of-feed"},
    ]
