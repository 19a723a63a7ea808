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
    ValidationError,
)

BARE_NUMBER = re.compile(r"[+-]?[0-9][0-9_.]*")
DURATION = re.compile(r"([1-9][0-9]{0,6})([smhd])")
LONGEST = timedelta(days=36_500)
DURATION_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

Offset = Annotated[int, Field(ge=0, strict=True)]
Records = Annotated[int, Field(ge=1, le=2**63 - 1, strict=True)]


def not_blank(text: str) -> str:
    """Refuse a text without anything in it."""
    if not text.strip():
        raise ValueError(f"expected a name, found {text!r}")
    return text


def is_an_instant(value: object) -> object:
    """Refuse what pydantic would take for seconds or milliseconds, whichever it guesses."""
    if isinstance(value, int | float) or (isinstance(value, str) and BARE_NUMBER.fullmatch(value.strip())):
        raise ValueError(f"expected a time with a zone, such as 2026-01-31T00:00:00Z, found {value!r}")
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
Duration = Annotated[timedelta, BeforeValidator(a_duration)]


class Settings(BaseModel):
    """A part of a feed file: unknown keys are errors, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


START_TAG = "start by "


def describe(error: ValidationError) -> list[str]:
    """Return what is wrong, one text a field: where, what was expected, what was found."""
    texts: list[str] = []
    problems = error.errors()
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        # A list whose entries are wrong counts as too short besides.
        inside = [
            place for place in places if place != problem["loc"] and place[: len(problem["loc"])] == problem["loc"]
        ]
        if problem["type"] == "too_short" and inside:
            continue
        # Positions inside a union carry the name of the alternative; the user wrote none of them.
        where = ".".join(str(part) for part in problem["loc"] if not str(part).startswith(START_TAG))
        if problem["type"] == "extra_forbidden":
            texts.append(f"{where}: unknown key")
        elif problem["type"] == "missing":
            texts.append(f"{where}: missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            # What lies in spark.conf may be a secret that was put in the wrong place.
            hidden = where.startswith("spark.conf.") or (where == "spark.conf" and isinstance(problem["input"], dict))
            found = "" if "found" in message or hidden else f", found {problem['input']!r}"
            texts.append(f"{where + ': ' if where else ''}{message[:1].lower()}{message[1:]}{found}")
    return list(dict.fromkeys(texts))
