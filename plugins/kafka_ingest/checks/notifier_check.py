"""Whether a notifier that a feed file names is one of Airflow's: it is imported and made, but not called."""

import importlib
from typing import Any

from kafka_ingest.errors import InvalidNotifierError, KafkaIngestError
from kafka_ingest.model.alert import Notifier
from kafka_ingest.model.offsets import listing


def made(notifier: Notifier) -> Any:  # noqa: ANN401 - Airflow's BaseNotifier, which only a task has imported
    """Return the notifier; raises InvalidNotifierError."""
    kind = notifier_class(notifier.path)
    try:
        return kind(**notifier.arguments)
    except Exception as error:
        raise InvalidNotifierError(
            f"{notifier.path} cannot be made with the arguments {listing(sorted(notifier.arguments)) or '(none)'}: "
            f"{type(error).__name__}: {error}. Correct alerts.notify in the feed file."
        ) from error


def notifier_class(path: str) -> type[Any]:
    """Return the class of that dotted path; raises InvalidNotifierError where there is none, or it does not notify."""
    from airflow.sdk import BaseNotifier  # noqa: PLC0415 - seconds, and only for those who need it

    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidNotifierError(
            f"expected a notifier at {path}, found that it cannot be imported: {type(error).__name__}: {error}. "
            "Correct alerts.notify in the feed file, or install its provider wherever Airflow runs tasks."
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise InvalidNotifierError(
            f"expected a class that is an airflow.sdk.BaseNotifier at {path}, found something else. Correct "
            "alerts.notify in the feed file."
        )
    if kind.notify is BaseNotifier.notify:
        raise InvalidNotifierError(
            f"expected {path} to have a method notify, found none: it can notify from Airflow's triggerer alone. Name "
            "another notifier in alerts.notify of the feed file."
        )
    return kind


def notifiers(found: tuple[Notifier, ...]) -> str:
    """Return what was checked; raises the error of the first notifier that cannot be used."""
    problems = []
    for notifier in found:
        try:
            made(notifier)
        except KafkaIngestError as error:
            problems.append(str(error))
    if problems:
        raise InvalidNotifierError(" ".join(problems))
    return listing([notifier.path for notifier in found]) or "none: alerts are shown on the page alone"
