"""Notifications: given by Airflow's notifiers, with a time limit for each."""

import contextlib
import html
import logging
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import mask_secret, redact
from airflow.sdk import Context

from kafka_ingest.foundation.foreign_json import storable
from kafka_ingest.observing.alert_life import NotGivenError, Notice, StillBeingGivenError
from kafka_ingest.settings.connections import FindConnection, find_connection_in_task
from kafka_ingest.verbs.check_airflow import made

NOTIFY_TIMEOUT_S: Final = 60.0
"""The longest that one notifier may take: with a claim that expires later, no other process takes its place."""
LONGEST_REASON: Final = 500
LOGIN_IN_URL: Final = re.compile(r"://[^/\s@]*@")

log = logging.getLogger(__name__)


def notify_with(
    context: Context, timeout_s: float = NOTIFY_TIMEOUT_S, find_connection: FindConnection = find_connection_in_task
) -> Callable[[Notice], None]:
    """Return what gives notices in a task; templates in a notifier's arguments find the notice as ``alert``."""

    def notify(notice: Notice) -> None:
        document = notice.as_document()
        # Texts may hold anything, and Airflow's templates escape nothing.
        document["html"] = html.escape(notice.text).replace("\n", "<br>")
        log.info("%s: %s", notice.notifier.path, notice.title)
        fields = dict(notice.notifier.arguments)

        def give() -> None:
            notifier = made(notice.notifier)
            fields.update(vars(notifier))
            given, raised = notifier.notify, []

            def kept(context: Context) -> None:
                try:
                    given(context)
                except Exception as error:  # noqa: BLE001 - raised below
                    raised.append(error)

            # Airflow itself would log what it raises, which nothing has masked yet.
            notifier.notify = kept
            # Notifiers put their own fields into what they get.
            notifier({**context, "alert": document})
            for error in raised:
                raise error

        try:
            # Its import and its constructor are anyone's code as well.
            within(timeout_s, give)
        except StillBeingGivenError:
            raise
        except Exception as error:  # noqa: BLE001 - a notifier is anyone's code; what it raises is reported
            mask_connections(fields, find_connection)
            raise NotGivenError(shown(error)) from None

    return notify


def shown(error: Exception) -> str:
    """Return what a notifier raised, with nothing in it that Airflow masks, as it can be stored: in a short text."""
    text = LOGIN_IN_URL.sub("://***@", str(redact(f"{type(error).__name__}: {error}")))
    # Cut at last: half a secret would not be recognised.
    return storable(text)[:LONGEST_REASON]


def mask_connections(fields: Mapping[str, object], find_connection: FindConnection) -> None:
    """Let Airflow mask the secrets of the connections that a notifier has the ids of, its own defaults included.

    Airflow itself masks a connection's password, and its extra only as a whole.
    """
    for name, conn_id in fields.items():
        # What cannot be looked up has given the notifier no secret.
        with contextlib.suppress(Exception):
            if name.endswith("conn_id") and isinstance(conn_id, str):
                found = find_connection(conn_id)
                mask_secret(dict(found.extra))
                # Of a webhook's URL, errors name the path alone.
                mask_secret([found.password or "", urlsplit(found.password or "").path])


def within(timeout_s: float, call: Callable[[], Any]) -> None:
    """Call something in a thread of its own; raises what it raises, or StillBeingGivenError where it takes too long.

    Not by a signal, which might interrupt what the task says to its supervisor.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            raised.append(error)

    thread = threading.Thread(target=run, name="kafka_ingest notifies", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if thread.is_alive():
        raise StillBeingGivenError(f"no end within {timeout_s:g} s, so it may arrive yet; tried again in ten minutes")
    if raised:
        error = raised[0]
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
