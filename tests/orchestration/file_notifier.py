"""A notifier that writes to a file what it is given, and one that raises."""

import json
from pathlib import Path
from typing import Any

from airflow.sdk import BaseNotifier, Connection, Context


class FileNotifier(BaseNotifier):
    """Appends a line of JSON; its secret comes from a connection, as those of mail and chat do."""

    template_fields = ("text", "html")

    def __init__(self, path: str, text: str, html: str, conn_id: str) -> None:
        super().__init__()
        self.path, self.text, self.html, self.conn_id = path, text, html, conn_id

    def notify(self, context: Context) -> None:
        alert: dict[str, Any] = context["alert"]  # type: ignore[typeddict-item]
        login = Connection.get(self.conn_id).login
        line = {"text": self.text, "html": self.html, "change": alert["change"], "login": login}
        with Path(self.path).open("a") as file:
            file.write(json.dumps(line | {"task": context["ti"].task_id}) + "\n")


class RaisingNotifier(BaseNotifier):
    """Raises, as a mail server does that is not there; with a connection, in words that hold its secret."""

    def __init__(self, conn_id: str | None = None) -> None:
        super().__init__()
        self.conn_id = conn_id

    def notify(self, context: Context) -> None:  # noqa: ARG002 - Airflow's signature
        to = f" to {Connection.get(self.conn_id).password}" if self.conn_id else ""
        raise OSError(f"no route{to or ' to host'}")
