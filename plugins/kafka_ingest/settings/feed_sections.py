"""Sections of a feed file: where partitions begin, what records become, alerts, and when hours are complete."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from kafka_ingest.model.alert import AlertKind, AlertRules, Notifier, Stops
from kafka_ingest.model.completion import CompletionRules, OnLate, Unit
from kafka_ingest.model.record_schema import MAX_FIELDS, MAX_NAME, RESERVED_PREFIX, read_type
from kafka_ingest.model.sql_expression import check_expression
from kafka_ingest.model.written_columns import SelectedColumn
from kafka_ingest.planning.settings import AtOffsets, AtTimestamp, Earliest, FromGroup, Latest, StartRule
from kafka_ingest.settings.setting_types import START_TAG, Duration, Instant, Offset, Records, Settings, not_blank


class ExplicitStart(Settings):
    """``start: {offsets: {orders: {0: 1200}}, otherwise: earliest}``."""

    offsets: Mapping[str, Mapping[Offset, Offset]]
    otherwise: Literal["earliest", "latest"]


class GroupStart(Settings):
    """``start: {group: old-consumer, otherwise: earliest}``."""

    group: Annotated[str, AfterValidator(not_blank)]
    otherwise: Literal["earliest", "latest"]


class TimestampStart(Settings):
    """``start: {timestamp: 2026-01-01T00:00:00Z}``."""

    timestamp: Instant


def kind_of_start(start: object) -> str | None:
    """Return which kind of start is meant, so that errors are about that kind only."""
    if isinstance(start, str):
        return f"{START_TAG}name"
    keys = start.keys() if isinstance(start, dict) else getattr(type(start), "model_fields", {}).keys()
    return next((START_TAG + key for key in ("offsets", "group", "timestamp") if key in keys), None)


Start = Annotated[
    Annotated[Literal["earliest", "latest"], Tag(f"{START_TAG}name")]
    | Annotated[ExplicitStart, Tag(f"{START_TAG}offsets")]
    | Annotated[GroupStart, Tag(f"{START_TAG}group")]
    | Annotated[TimestampStart, Tag(f"{START_TAG}timestamp")],
    Discriminator(
        kind_of_start,
        custom_error_type="start",
        custom_error_message="Expected earliest, latest, {timestamp: …}, {group: …, otherwise: …} or {offsets: …, "
        "otherwise: …}",
    ),
]


def start_rule(start: Start, topic: str | None) -> StartRule:
    """Return the planner's rule for what a feed file says, for one topic or for those that a pattern matches."""
    match start:
        case "earliest" | "latest":
            return simple_rule(start)
        case TimestampStart():
            return AtTimestamp(start.timestamp)
        case GroupStart():
            return FromGroup(start.group, simple_rule(start.otherwise))
        case ExplicitStart():
            otherwise = simple_rule(start.otherwise)
            named = start.offsets.get(topic) if topic is not None else None
            return otherwise if named is None else AtOffsets(dict(named), otherwise)


def simple_rule(name: Literal["earliest", "latest"]) -> Earliest | Latest:
    return Earliest() if name == "earliest" else Latest()


FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
LONGEST_FUNCTION = 500


def an_expression(text: str) -> str:
    check_expression(text)
    return text


def a_column(name: str) -> str:
    if len(name) > MAX_NAME or not name.isprintable() or not name.strip():
        raise ValueError(f"expected a column's name of 1 to {MAX_NAME} printable characters, found {name[:100]!r}")
    if name.lower().startswith(RESERVED_PREFIX):
        raise ValueError(
            f"expected a name that does not begin with {RESERVED_PREFIX}, as the project's own columns do, found "
            f"{name[:100]!r}"
        )
    return name


def a_function(text: str) -> str:
    if not FUNCTION.fullmatch(text) or len(text) > LONGEST_FUNCTION:
        raise ValueError(f"expected package.module:function, found {text[:100]!r}")
    return text


Expression = Annotated[str, AfterValidator(an_expression)]


class SelectSettings(Settings):
    """``{name: total, type: "decimal(12,2)", sql: "value.price * value.count"}``: one column."""

    name: Annotated[str, AfterValidator(a_column)]
    type: Annotated[str, AfterValidator(lambda text: read_type(text).ddl)]
    sql: Expression

    def column(self) -> SelectedColumn:
        return SelectedColumn(self.name, self.type, self.sql)


def each_name_once(columns: Sequence[SelectSettings]) -> Sequence[SelectSettings]:
    """Refuse columns whose names differ in nothing or in the case of their letters only: readers take them for one."""
    found: dict[str, str] = {}
    for column in columns:
        other = found.get(column.name.lower())
        if other is not None:
            raise ValueError(
                "expected names that differ in more than the case of their letters, found "
                + (f"{other!r} twice" if other == column.name else f"{other!r} and {column.name!r}")
            )
        found[column.name.lower()] = column.name
    return columns


Select = Annotated[
    tuple[SelectSettings, ...], Field(min_length=1, max_length=MAX_FIELDS), AfterValidator(each_name_once)
]
Where = Expression
Transform = Annotated[str, AfterValidator(a_function)]


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
