"""Values that feed files and run requests share: read strictly, and refused with what was expected and found."""

import difflib
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Final, get_args

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic.fields import FieldInfo

from kafka_ingest.foundation.counting import counted

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


def as_text(value: object) -> object:
    """Return a number or a truth value as Kafka's clients, Spark and tables have it: all their settings are texts."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


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


MAX_PROBLEMS: Final = 20
MAX_DESCRIBED: Final = 100
BRIEF: Final = reprlib.Repr()
BRIEF.maxstring = BRIEF.maxother = 200
BRIEF.maxlong = 60

EXPECTED: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "string_type": lambda _: "text",
    "string_too_short": lambda limits: f"at least {counted(limits['min_length'], 'character')}",
    "string_too_long": lambda limits: f"at most {counted(limits['max_length'], 'character')}",
    "int_type": lambda _: "a whole number",
    "int_parsing": lambda _: "a whole number",
    "int_parsing_size": lambda _: "a smaller number",
    "int_from_float": lambda _: "a whole number",
    "greater_than_equal": lambda limits: f"a number from {limits['ge']:,} on",
    "less_than_equal": lambda limits: f"a number up to {limits['le']:,}",
    "bool_type": lambda _: "true or false",
    "bool_parsing": lambda _: "true or false",
    "literal_error": lambda choices: choices["expected"],
    "enum": lambda choices: choices["expected"],
    "dict_type": lambda _: "a mapping",
    "mapping_type": lambda _: "a mapping",
    "model_type": lambda _: "a mapping",
    "model_attributes_type": lambda _: "a mapping",
    "invalid_key": lambda _: "text as key",
    "tuple_type": lambda _: "a list",
    "list_type": lambda _: "a list",
    "too_short": lambda limits: f"at least {counted(limits['min_length'], 'entry')}",
    "too_long": lambda limits: f"at most {counted(limits['max_length'], 'entry')}",
    "timezone_aware": lambda _: A_TIME,
    "datetime_type": lambda _: A_TIME,
    "datetime_parsing": lambda _: A_TIME,
    "datetime_from_date_parsing": lambda _: A_TIME,
    "datetime_object_invalid": lambda _: A_TIME,
    "uuid_type": lambda _: "an id, as `kafka-ingest batches` lists them",
    "uuid_parsing": lambda _: "an id, as `kafka-ingest batches` lists them",
}
"""What each of pydantic's refusals expected; those that our own validators raise say so themselves."""


SourceOf = Callable[[tuple[int | str, ...]], Path | None]
"""From which file the value at a place is."""


def describe(error: ValidationError, model: type[BaseModel], source_of: SourceOf = lambda _: None) -> list[str]:
    """Return what is wrong, one text per field: where, what was expected, what was found. At most a few, and short."""
    problems = error.errors(include_url=False)
    # pydantic also reports a list whose entries are wrong as too short.
    holders = {problem["loc"][:depth] for problem in problems for depth in range(len(problem["loc"]))}
    problems = [each for each in problems if not (each["type"] == "too_short" and each["loc"] in holders)]
    # Each text looks for what is like an unknown key, and all plans of a folder read its files.
    different = list(dict.fromkeys(described(each, model, source_of) for each in problems[:MAX_DESCRIBED]))
    more = len(different) - MAX_PROBLEMS + max(0, len(problems) - MAX_DESCRIBED)
    return different[:MAX_PROBLEMS] + ([f"and {more:,} more"] if more > 0 else [])


def described(problem: Mapping[str, Any], model: type[BaseModel], source_of: SourceOf) -> str:
    # Positions inside a union carry the name of the alternative; the user wrote none of them.
    place = tuple(part for part in problem["loc"] if not str(part).startswith((START_TAG, SINK_TAG, RECORD_TAG)))
    parts, source = [str(part) for part in place], source_of(place) if place else None
    where = ".".join(cut(part, 100) for part in parts) + (f" in {source}" if source is not None else "")
    match problem["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key{did_you_mean(problem['loc'], model)}"
        case "missing":
            return f"{where}: missing"
        case kind if kind in EXPECTED:
            message = f"expected {EXPECTED[kind](problem.get('ctx', {}))}"
        case _:
            message = problem["msg"].removeprefix("Value error, ")
    # What is in spark.conf may be a secret that was put in the wrong place.
    hidden = parts[:2] == ["spark", "conf"] and (len(parts) > 2 or isinstance(problem["input"], dict))  # noqa: PLR2004
    found = "" if "found" in message or hidden else f", found {shown(problem['input'])}"
    if problem["type"] == "string_type" and isinstance(problem["input"], bool | int) and not hidden:
        found += ", as YAML reads it without quotes; write it in quotes"
    return f"{where + ': ' if where else ''}{message[:1].lower()}{message[1:]}{found}"


def did_you_mean(place: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """Return the known keys that an unknown one resembles: those at its place, or else elsewhere; or who has it."""
    *above, key = place
    here = {name: [name] for each in models_at(above, model) for name in written_names(each)}
    if key in here:
        return ", which another format has"
    elsewhere: dict[str, list[str]] = {}
    for path in known_paths(model):
        elsewhere.setdefault(path.rpartition(".")[2], []).append(path)
    for known in (here, elsewhere):
        if close := difflib.get_close_matches(str(key)[:100], known, n=1):
            paths = known[close[0]]
            # Of several places of one name the outermost are the likeliest.
            outermost = min(path.count(".") for path in paths)
            return f"; did you mean {' or '.join(path for path in paths if path.count('.') == outermost)}?"
    return ""


def models_at(place: list[int | str], model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the models that may be there; one where no union leaves it open."""
    found = [model]
    for part in place:
        if isinstance(part, int) or part.startswith((SINK_TAG, RECORD_TAG)):
            continue
        if part.startswith(START_TAG):
            found = [each for each in found if part.removeprefix(START_TAG) in each.model_fields]
        else:
            fields = [names[part] for each in found if part in (names := written_names(each))]
            found = [inner for field in fields for inner in models_in(field.annotation)]
    return found


def models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def written_names(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def known_paths(model: type[BaseModel], above: str = "") -> Iterator[str]:
    for name, field in written_names(model).items():
        yield above + name
        for inner in models_in(field.annotation):
            yield from known_paths(inner, f"{above}{name}.")


def shown(value: object) -> str:
    return (
        {None: "null", True: "true", False: "false"}[value]
        if value is None or isinstance(value, bool)
        else BRIEF.repr(value)
    )


def cut(text: str, at_most: int) -> str:
    if len(text) <= at_most:
        return text
    return f"{text[:at_most]}… ({len(text) - at_most:,} more characters)"
