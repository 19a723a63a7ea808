"""Values that feed files and run requests share: read strictly, and refused with what was expected."""

import re
from datetime import datetime, timedelta
from typing import Annotated

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
)

BARE_NUMBER = re.compile(r"[+-]?[0-9][0-9_.]*")
DURATION = re.compile(r"([1-9][0-9]{0,6})([smhd])")
A_TIME = "a time with a zone, such as 2026-01-31T00:00:00Z"
LONGEST = timedelta(days=36_500)
# Kafka's own rule, as for LONGEST_TOPIC: org.apache.kafka.common.internals.Topic.
TOPIC = re.compile(r"[A-Za-z0-9._-]+")
LONGEST_TOPIC = 249
DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

OF_DIGITS = {"type": ["integer", "string"], "pattern": "^[0-9][0-9_]*$"}
"""In a schema: to an editor that reads YAML 1.2, 5_000_000 is a text."""
Offset = Annotated[int, Field(ge=0, strict=True), WithJsonSchema({**OF_DIGITS, "minimum": 0})]
Records = Annotated[int, Field(ge=1, le=2**63 - 1, strict=True), WithJsonSchema({**OF_DIGITS, "minimum": 1})]


def not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError(f"expected a name, found {text!r}")
    return text


def is_topic_name(name: str, longest: int = LONGEST_TOPIC) -> bool:
    """Whether Kafka takes a topic's name, which may have ``longest`` characters."""
    return TOPIC.fullmatch(name) is not None and len(name) <= longest and name not in {".", ".."}


def is_an_instant(value: object) -> object:
    """Refuse what pydantic would take for seconds or milliseconds, whichever it guesses."""
    if isinstance(value, int | float) or (isinstance(value, str) and BARE_NUMBER.fullmatch(value.strip())):
        raise ValueError(f"expected {A_TIME}, found {value!r}")
    return value


def after_1970(value: datetime) -> datetime:
    """Refuse a time that Kafka cannot express: it counts milliseconds since 1970."""
    if value.timestamp() < 0:
        raise ValueError(f"expected a time after 1970, found {value.isoformat()}")
    return value


def a_duration(value: object) -> object:
    """Read ``90s``, ``30m``, ``2h`` or ``7d``."""
    found = DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"expected a duration such as 90s, 30m, 2h or 7d, found {value!r}")
    duration = timedelta(**{DURATION_UNITS[found[2]]: int(found[1])})
    if duration > LONGEST:
        raise ValueError(f"expected a duration of at most {LONGEST.days}d, found {value!r}")
    return duration


Instant = Annotated[AwareDatetime, BeforeValidator(is_an_instant), AfterValidator(after_1970)]
Duration = Annotated[
    timedelta,
    BeforeValidator(a_duration, json_schema_input_type=Annotated[str, Field(pattern=f"^{DURATION.pattern}$")]),
]


class Settings(BaseModel):
    """A part of a feed file: unknown keys are errors, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


START_TAG = "start by "
SINK_TAG = "sink by "
RECORD_TAG = "records by "
"""Each begins the names of one setting's alternatives in pydantic's errors."""
