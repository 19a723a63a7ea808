"""Airflow's notifiers: found by their dotted path, made, and called with a time limit."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import BaseNotifier, Context

from kafka_ingest.airflow_tasks.notifying import notify_with, within
from kafka_ingest.alerting.life import Notice
from kafka_ingest.checks.notifier_check import made, notifiers
from kafka_ingest.errors import InvalidNotifierError
from kafka_ingest.model.alert import AlertKind, Change
from kafka_ingest.settings.alert_settings import Notify

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
    with pytest.raises(TimeoutError, match=r"no end within 0\.01 s"):
        within(0.01, let_go.wait)
    let_go.set()


class Leaves(BaseNotifier):
    def __init__(self, **_: object) -> None:
        raise SystemExit(3)

    def notify(self, context: Any) -> None: ...


def test_a_notifier_that_ends_its_process_where_it_is_made_ends_no_check() -> None:
    notifier = Notify(notifier="of_this_test.Leaves").as_notifier()
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        notify_with(Context())(Notice(notifier, Change.BEGUN, AlertKind.LAG, ()))
