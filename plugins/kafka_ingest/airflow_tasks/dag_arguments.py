"""Arguments of DAGs: what differs between the versions of Airflow, besides the places of names, and fields of forms."""

from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Any, Final

from airflow import sdk
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_3_PLUS
from airflow.sdk import DAG, Context, Param, get_parsing_context
from airflow.utils.types import DagRunType

from kafka_ingest.errors import InvalidFeedError, InvalidRunRequestError
from kafka_ingest.settings.feed_file import FeedFile
from kafka_ingest.settings.feed_files import feeds_directory, read_feed_files

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


def text(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401 - a JSON schema
    return field(["string", "null"], title, description, section, **schema)


def number(title: str, description: str, section: str | None = None, **schema: Any) -> Param:  # noqa: ANN401
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
