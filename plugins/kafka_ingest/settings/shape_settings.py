"""Where a feed file lets partitions begin, and which columns and rows records become by select, where and transform."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from kafka_ingest.model.record_schema import MAX_FIELDS, MAX_NAME, RESERVED_PREFIX, read_type
from kafka_ingest.model.shape import SelectedColumn
from kafka_ingest.model.sql_expression import check_expression
from kafka_ingest.planning.start_rules import AtOffsets, AtTimestamp, Earliest, FromGroup, Latest, StartRule
from kafka_ingest.settings.setting_types import START_TAG, Instant, Offset, Settings, not_blank


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


def a_type(text: str) -> str:
    return read_type(text).ddl


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
    type: Annotated[str, AfterValidator(a_type)]
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
