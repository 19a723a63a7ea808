"""Fields of the forms that DAGs have: what Airflow shows for each, and which values it takes."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final

from airflow.sdk import Param
from pydantic.fields import FieldInfo

from kafka_ingest.verbs.request import InForm, Request, limit_of, type_of

NONE: Final = {"null": "none"}
"""What Airflow's form shows for an empty choice."""


def text(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401 - a JSON schema
    """Return a field for a text that may be left empty."""
    return field(["string", "null"], title, description, section, **schema)


def number(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401
    """Return a field for a whole number that may be left empty."""
    return field(["integer", "null"], title, description, section, **schema)


def lines(title: str, description: str, section: str | None = None, **items: Any) -> Param:  # noqa: ANN401
    """Return a field that takes one entry per line."""
    return field(["array", "null"], title, description, section, items={"type": "string", **items})


def choice(title: str, values: list[str], description: str, section: str | None = None) -> Param:
    """Return a field that takes one of some values, or none."""
    return text(title, description, section, enum=[*values, None], values_display=NONE)


def tick(title: str, description: str, section: str | None = None, *, is_on: bool = False) -> Param:
    """Return a field that is switched on or off."""
    return field("boolean", title, description, section, default=is_on)


def field(
    kind: str | list[str],
    title: str,
    description: str,
    section: str | None,
    *,
    default: object = None,
    **schema: Any,  # noqa: ANN401
) -> Param:
    """Return a field; without a section it is among the first ones."""
    if section is not None:
        schema["section"] = section
    return Param(default, type=kind, title=title, description_md=description, **schema)


def params_of(verbs: Iterable[type[Request]]) -> dict[str, Param]:
    """Return the fields that the requests of verbs have; a section stands where the first verb that it names stands."""
    places = {verb.verb: place for place, verb in enumerate(verbs)}
    found = {name: (noted, verb.model_fields[name]) for verb in verbs for name, noted in verb.in_form().items()}
    ordered = sorted(found.items(), key=lambda each: places[each[1][0].section.partition(",")[0]])
    return {name: param_of(noted, info) for name, (noted, info) in ordered}


def param_of(noted: InForm, info: FieldInfo) -> Param:
    """Return the field of the form that shows a field of a request."""
    shown, kind = (noted.title, noted.help, noted.section), type_of(info)
    if kind is bool:
        return tick(*shown)
    if kind is int:
        limits: dict[str, Any] = {"minimum": limit_of(info, "ge"), "maximum": limit_of(info, "le")}
        return number(*shown, **{name: limit for name, limit in limits.items() if limit is not None})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return choice(noted.title, [each.value for each in kind], noted.help, noted.section)
    return lines(*shown) if info.annotation == list[str] else text(*shown, **noted.schema)
