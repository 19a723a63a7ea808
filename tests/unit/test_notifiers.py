"""Airflow's notifiers: found by their dotted path, made, and called with a time limit."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import BaseNotifier, Context

from kafka_ingest.airflow_tasks.notifying import notify_with, within
from kafka_ingest.errors import InvalidNotifierError
from kafka_ingest.model.alert import AlertKind, Change
from kafka_ingest.observing.alert_life import NotGivenError, Notice, StillBeingGivenError
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.feed_sections import Notify
from kafka_ingest.verbs.check_airflow import made, notifiers

HERE = __name__


class Mail(BaseNotifier):
    def __init__(self, to: str) -> None:
        super().__init__()
        self.to = to

    def notify(self, context: Any) -> None: ...


class OnlyInTheTriggerer(BaseNotifier):
    async def async_notify(self, context: Any) -> None: ...


@pytest.fixture(autouse=True)
def _found_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "of_this_test", sys.modules[HERE])


def test_a_notifier_is_made_with_its_arguments_and_not_called() -> None:
    notifier = Notify(notifier="of_this_test.Mail", arguments={"to": "ops"}).as_notifier()
    assert made(notifier).to == "ops"
    assert notifiers((notifier,)) == "of_this_test.Mail"


@pytest.mark.parametrize(
    ("path", "arguments", "error"),
    [
        ("no_such_package.Mail", {}, "cannot be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        ("of_this_test.Chat", {}, "cannot be imported: AttributeError"),
        ("of_this_test.HERE", {}, "expected a class that is an airflow.sdk.BaseNotifier"),
        ("threading.Thread", {}, "expected a class that is an airflow.sdk.BaseNotifier"),
        ("of_this_test.OnlyInTheTriggerer", {}, "expected of_this_test.OnlyInTheTriggerer to have a method notify"),
        ("of_this_test.Mail", {"cc": "x"}, "cannot be made with the arguments cc: TypeError"),
    ],
)
def test_what_is_no_notifier_is_refused_with_the_reason(path: str, arguments: Any, error: str) -> None:
    with pytest.raises(InvalidNotifierError, match=r"alerts\.notify") as refused:
        notifiers((Notify(notifier=path, arguments=arguments).as_notifier(),))
    assert error in str(refused.value)


def test_airflows_own_notifier_for_mail_can_be_named() -> None:
    path = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
    arguments = {"to": "ops@shop.example", "smtp_conn_id": "mail", "subject": "{{ alert.title }}"}
    assert made(Notify(notifier=path, arguments=arguments).as_notifier()).subject == "{{ alert.title }}"


def test_what_a_notifier_raises_is_raised_and_what_would_end_the_task_is_not() -> None:
    def failing(error: BaseException) -> Callable[[], None]:
        def fail() -> None:
            raise error

        return fail

    with pytest.raises(OSError, match="no route"):
        within(60, failing(OSError("no route")))
    with pytest.raises(RuntimeError, match="SystemExit: 1"):
        within(60, failing(SystemExit(1)))


def test_a_notifier_that_hangs_is_left_behind() -> None:
    let_go = threading.Event()
    with pytest.raises(StillBeingGivenError, match=r"no end within 0\.01 s"):
        within(0.01, let_go.wait)
    let_go.set()


class Leaves(BaseNotifier):
    def __init__(self, **_: object) -> None:
        raise SystemExit(3)

    def notify(self, context: Any) -> None: ...


def test_a_notifier_that_ends_its_process_where_it_is_made_ends_no_check() -> None:
    notifier = Notify(notifier="of_this_test.Leaves").as_notifier()
    with pytest.raises(NotGivenError, match="SystemExit: 3"):
        notify_with(Context())(Notice(notifier, Change.BEGUN, AlertKind.LAG, ()))


WEBHOOK = "https://chat.example/services/T0001/B0001/"


class Raises(BaseNotifier):
    def __init__(self, chat_conn_id: str = "chat") -> None:
        super().__init__()
        self.chat_conn_id = chat_conn_id

    def notify(self, context: Any) -> None:  # noqa: ARG002 - Airflow's signature
        path = WEBHOOK.removeprefix("https://chat.example") + self.chat_conn_id
        secret = f"s3cr3t-of-{self.chat_conn_id}"
        raise OSError(f"no answer\x00 at {path} by {secret} and https://ops:hunter2@proxy:3128 " + "x" * 1_000)


@pytest.mark.parametrize("arguments", [{"chat_conn_id": "other_chat"}, {}], ids=["named", "its own default"])
def test_what_a_notifier_raises_is_kept_without_the_secrets_of_its_connection_and_short(arguments: Any) -> None:
    notifier = Notify(notifier="of_this_test.Raises", arguments=arguments).as_notifier()

    def chat(conn_id: str) -> ConnectionFields:
        extra = {"api_token": f"s3cr3t-of-{conn_id}"}
        return ConnectionFields(conn_id, "http", password=f"{WEBHOOK}{conn_id}", extra=extra)

    give = notify_with(Context(), find_connection=chat)
    with pytest.raises(NotGivenError) as refused:
        give(Notice(notifier, Change.BEGUN, AlertKind.LAG, ()))
    text = str(refused.value)
    assert text.startswith("OSError: no answer\\x00 at *** by *** and https://***@proxy:3128 xxx")
    assert len(text) == 500
