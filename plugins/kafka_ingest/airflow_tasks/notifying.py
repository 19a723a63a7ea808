"""Notifications: given by Airflow's notifiers, with a time limit for each."""

import html
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from airflow.sdk import Context

from kafka_ingest.alerting.life import Notice
from kafka_ingest.checks.notifier_check import made

NOTIFY_TIMEOUT_S: Final = 60.0
"""The longest that one notifier may take: with a claim that expires later, no other process takes its place."""

log = logging.getLogger(__name__)


def notify_with(context: Context, timeout_s: float = NOTIFY_TIMEOUT_S) -> Callable[[Notice], None]:
    """Return what gives notices in a task; templates in a notifier's arguments find the notice as ``alert``."""

    def notify(notice: Notice) -> None:
        document = notice.as_document()
        # Texts may hold anything, and Airflow's templates escape nothing.
        document["html"] = html.escape(notice.text).replace("\n", "<br>")
        log.info("%s: %s", notice.notifier.path, notice.title)
        # Its import and its constructor are anyone's code as well. Notifiers put their own fields into what they get.
        within(timeout_s, lambda: made(notice.notifier)({**context, "alert": document}))

    return notify


def within(timeout_s: float, call: Callable[[], Any]) -> None:
    """Call something in a thread of its own; raises what it raises, or TimeoutError where it takes too long.

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
        raise TimeoutError(f"no end within {timeout_s:g} s")
    if raised:
        error = raised[0]
        raise error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__}: {error}")
