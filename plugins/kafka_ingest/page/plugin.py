"""The Airflow plugin: where the page and the metrics are served, and where Airflow links to the page.

Every component of Airflow imports this module, each task's process too: what serves the page is imported only when the
first request comes.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from importlib import import_module
from typing import Any, cast

from airflow.plugins_manager import AirflowPlugin

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

HEADERS = {
    # Scripts, styles and pictures are files of the page's own; nothing inline runs, whatever a topic is called.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'self'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""On every answer, errors included. Airflow shows the page in a frame of its own origin; no other page may."""


class AppOnFirstRequest:
    """An ASGI application that builds the real one at its first request, by ``build_app`` of a module."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._app: App | None = None
        self._building = threading.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                set_here = {name.lower() for name, _ in message.get("headers", ())}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                kept = [(name, value) for name, value in more if name not in set_here]
                message["headers"] = [*message.get("headers", ()), *kept]
            await send(message)

        app = self._app if self._app is not None else await asyncio.to_thread(self._build)
        await app(scope, receive, send_with_headers)

    def _build(self) -> App:
        with self._building:
            app = self._app
            if app is None:
                app = self._app = cast("App", import_module(self._module).build_app())
        return app


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
        {"name": "Kafka offsets", "url_prefix": f"/{PREFIX}", "app": AppOnFirstRequest("kafka_ingest.page.app")},
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
