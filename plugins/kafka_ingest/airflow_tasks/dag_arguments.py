"""Arguments of DAGs: what differs between the versions of Airflow, besides the places of names, and fields of forms."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from inspect import signature
from typing import Any, Final, get_origin

from airflow import sdk
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import DAG, Context, Param, get_parsing_context
from airflow.utils.types import DagRunType
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kafka_ingest.errors import InvalidFeedError, InvalidRunRequestError
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files
from kafka_ingest.settings.run_request import InForm, limit_of, of_kind, type_of

MANUAL, SCHEDULED, TRIGGERED, BY_ASSETS = "manual", "scheduled", "operator_triggered", "asset_triggered"

NOT_DURABLE: dict[str, Any] = {"durable": False} if AIRFLOW_V_3_3_PLUS else {}
"""Arguments of SparkSubmitOperator, which resumes an earlier application on some clusters from 3.3 on."""

OLDER_TIMETABLES = ("airflow.timetables.assets", "airflow.timetables.trigger")
"""Where 3.1 has the timetables that are in ``airflow.sdk`` from 3.2 on."""


def timetable(name: str, *arguments: object, **more: object) -> object:
    places = (sdk, *map(import_module, () if hasattr(sdk, name) else OLDER_TIMETABLES))
    return next(getattr(place, name) for place in places if hasattr(place, name))(*arguments, **more)


def only_runs(*types: str) -> dict[str, Any]:
    """Return the argument of DAG that allows runs of these types alone; none where Airflow has no such argument (3.1).

    Before 3.3 a run that a task triggers is a manual one.
    """
    if "allowed_run_types" not in signature(DAG).parameters:
        return {}
    return {"allowed_run_types": [each.value for each in DagRunType if each.value in types]}


def check_is_no_backfill(context: Context) -> None:
    """Raise InvalidRunRequestError for a run of a backfill by dates, which Airflow 3.1 lets each DAG have."""
    if context["dag_run"].run_type == "backfill":
        raise InvalidRunRequestError(
            "expected a scheduled run or one by hand, found one of a backfill by dates. It would make a live batch: "
            "offsets know no dates. Read ranges again with DAG backfill_offsets or `kafka-ingest backfill`"
        )


NONE: Final = {"null": "none"}
"""What Airflow's form shows for an empty choice."""


def text(title: str, description: str, section: str = "", **schema: Any) -> Param:  # noqa: ANN401 - a JSON schema
    return field(["string", "null"], title, description, section, **schema)


def tick(title: str, description: str, section: str = "", *, is_on: bool = False) -> Param:
    return field("boolean", title, description, section, default=is_on)


def field(
    kind: str | list[str],
    title: str,
    description: str,
    section: str,
    *,
    default: object = None,
    **schema: Any,  # noqa: ANN401
) -> Param:
    """Return a field; without a section it is among the first ones."""
    if section:
        schema["section"] = section
    return Param(default, type=kind, title=title, description_md=description, **schema)


def params_of(*models: type[BaseModel]) -> dict[str, Param]:
    """Return the fields of forms that the fields of these models say they are."""
    return {
        name: param_of(noted, model.model_fields[name]) for model in models for name, noted in of_kind(model, InForm)
    }


def param_of(noted: InForm, info: FieldInfo) -> Param:
    shown, kind, several = (noted.title, noted.help, noted.section), type_of(info), get_origin(info.annotation)
    if kind is bool:
        return tick(*shown)
    if several is list:
        return field(["array", "null"], *shown, items={"type": "string", **noted.schema})
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        values = [each.value for each in kind]
        if info.default is None:
            return text(*shown, enum=[*values, None], values_display=NONE)
        return Param(
            info.default.value, enum=values, title=noted.title, description_md=noted.help, section=noted.section
        )
    named = "object" if several is Mapping else "integer" if kind is int else "string"
    limits: dict[str, Any] = {"minimum": limit_of(info, "ge"), "maximum": limit_of(info, "le"), **noted.schema}
    return field([named, "null"], *shown, **{key: limit for key, limit in limits.items() if limit is not None})


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
