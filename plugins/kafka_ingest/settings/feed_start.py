"""Where a feed file lets partitions begin."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Tag,
)

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
    """Return the rule of that name."""
    return Earliest() if name == "earliest" else Latest()
