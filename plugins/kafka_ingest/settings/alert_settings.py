"""What a feed asks to be notified of, by which of Airflow's notifiers, and when its hours or days are complete."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from kafka_ingest.model.alert import AlertKind, AlertRules, Notifier, Stops
from kafka_ingest.model.completion import CompletionRules, OnLate, Unit
from kafka_ingest.settings.setting_types import Duration, Offset, Records, Settings

DOTTED_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
SECRET_NAMES: Final = re.compile(r"password|secret|token|jaas|credential|access.?key|webhook.?url", re.IGNORECASE)
LOGIN_IN_URL: Final = re.compile(r"://[^/\s@]*:[^/\s@]*@")
MOST_NOTIFIERS: Final = 20


class Notify(Settings):
    """One notifier: a class that is an Airflow ``BaseNotifier``, by its dotted path, and what it is made with.

    Whether there is such a class is checked by ``doctor`` and by the check itself: reading a feed file imports no
    one's code.
    """

    notifier: str
    arguments: Mapping[str, Any] = Field(default_factory=dict)

    @field_validator("notifier")
    @classmethod
    def _is_a_dotted_path(cls, path: str) -> str:
        if len(path) > 500 or not DOTTED_PATH.fullmatch(path):  # noqa: PLR2004 - no class has such a name
            raise ValueError(
                "expected a class by its dotted path, such as airflow.providers.smtp.notifications.smtp.SmtpNotifier, "
                f"found {path[:200]!r}"
            )
        return path

    @field_validator("arguments")
    @classmethod
    def _no_secret(cls, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        for name in arguments:
            if not isinstance(name, str) or not name.isidentifier():
                raise ValueError(f"expected names of the notifier's arguments, found {name!r}")
        for name, value in named_values(arguments):
            if SECRET_NAMES.search(name) or (isinstance(value, str) and LOGIN_IN_URL.search(value)):
                raise ValueError(
                    f"{name!r} looks like a secret; what was found is not shown. A feed file holds none: notifiers "
                    "take an Airflow connection's id instead, such as smtp_conn_id"
                )
        return arguments

    def as_notifier(self) -> Notifier:
        """Return the notifier; others of its class, or with other arguments, have another key."""
        text = json.dumps([self.notifier, self.arguments], sort_keys=True)
        return Notifier(self.notifier, self.arguments, hashlib.sha256(text.encode()).hexdigest()[:32])


class Alerts(Settings):
    """What is an alert, and who is notified; without ``notify`` the page alone shows it."""

    lag: Records | None = None
    behind: Duration | None = None
    headroom: Duration | None = None
    open_batch: Duration | None = None
    held: Annotated[bool, Field(strict=True)] = False
    gap: Annotated[bool, Field(strict=True)] = False
    stopped: Annotated[bool, Field(strict=True)] = False
    filtered_percent: Annotated[int, Field(ge=0, le=99, strict=True)] | None = None
    dead_letters: Offset | None = None
    notify: Annotated[tuple[Notify, ...], Field(max_length=MOST_NOTIFIERS)] = ()

    @field_validator("notify")
    @classmethod
    def _each_notifier_once(cls, notify: tuple[Notify, ...]) -> tuple[Notify, ...]:
        if len({each.as_notifier().key for each in notify}) < len(notify):
            raise ValueError("expected each notifier once, found one twice with the same arguments")
        return notify

    @model_validator(mode="after")
    def _there_is_something_to_say(self) -> "Alerts":
        if not self.rules(Stops()).kinds - {AlertKind.UNUSABLE}:
            names = [name for name in type(self).model_fields if name != "notify"]
            raise ValueError(f"expected at least one of {', '.join(names)}, found none: nothing would be an alert")
        return self

    def rules(self, stops: Stops) -> AlertRules:
        return AlertRules(**self.model_dump(exclude={"notify"}), stops=stops)

    def notifiers(self) -> tuple[Notifier, ...]:
        return tuple(each.as_notifier() for each in self.notify)


def named_values(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Yield all values within arguments, each by the name next above it; raises ValueError on keys that are no text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ValueError(f"expected text as keys of {name!r}, found {key!r}; write it in quotes")  # noqa: TRY004 - pydantic collects ValueErrors
            yield from named_values(inner, key)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from named_values(inner, name)
    else:
        yield name, value


class Complete(Settings):
    """Hours or days by the records' timestamps, in UTC; ``delay`` and ``idle_after`` begin at the end of each."""

    by: Unit
    delay: Duration = timedelta(minutes=10)
    idle_after: Duration = timedelta(hours=1)
    on_late: OnLate = OnLate.ANNOUNCE
    success_file: Annotated[bool, Field(strict=True)] | Literal["in_output"] = False

    def rules(self) -> CompletionRules:
        return CompletionRules(**self.model_dump())
