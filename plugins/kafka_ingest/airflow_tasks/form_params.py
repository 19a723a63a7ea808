"""Fields of the forms that DAGs have: what Airflow shows for each, and which values it takes."""

from collections.abc import Sequence
from typing import Any, Final

from airflow.sdk import Param, get_parsing_context

from kafka_ingest.errors import InvalidFeedError
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files

NONE: Final = {"null": "none"}
"""What Airflow's form shows for an empty choice."""


def text(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401 - a JSON schema
    return field(["string", "null"], title, description, section, **schema)


def number(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401
    """Return a field for a whole number that may be left empty."""
    return field(["integer", "null"], title, description, section, **schema)


def lines(title: str, description: str, section: str | None = None, **items: Any) -> Param:  # noqa: ANN401
    return field(["array", "null"], title, description, section, items={"type": "string", **items})


def choice(title: str, values: list[str], description: str, section: str | None = None) -> Param:
    return text(title, description, section, enum=[*values, None], values_display=NONE)


def tick(title: str, description: str, section: str | None = None, *, is_on: bool = False) -> Param:
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


def files_for_form() -> list[FeedFile]:
    """Return all feed files.

    None where a task is started: it needs no form, and fails itself where its run's feed is unknown.
    """
    if get_parsing_context().task_id is not None:
        return []
    try:
        return read_feed_files(feeds_directory())
    except (InvalidFeedError, OSError):
        return []


def are_all(files: Sequence[FeedFile]) -> bool:
    """Whether no other feed can be named: which feeds topics became only the control tables know."""
    return all(file.topics is None for file in files)
