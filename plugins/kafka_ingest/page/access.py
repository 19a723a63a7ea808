"""Who may see what: Airflow's own users and their rights on DAGs.

A feed is its DAG, which carries its name; that of its fleet, where a file for many topics made it.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends, HTTPException, Request, status
from sqlalchemy import select

from kafka_ingest.page.sources import DagNow

signed_in = Depends(get_user)
"""Refuses users who are not signed in to Airflow; on every route, those that do not exist included."""

User = Annotated[Any, signed_in]

NO_RIGHT: Final = "You may not see this. Ask for the right to read the feed's DAG."


def check_may_read(request: Request, dag_id: str, user: User) -> str:
    """Return the feed's name; refuse a user who may not read its DAG, whether there is such a feed or not."""
    if not may("GET", dag_id, user) and not may("GET", request.app.state.sources.dags_of([dag_id])[dag_id], user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, NO_RIGHT)
    return dag_id


ReadableFeed = Annotated[str, Depends(check_may_read)]


def may(
    method: Any,  # noqa: ANN401 - Airflow's own literal
    dag_id: str,
    user: Any,  # noqa: ANN401 - each auth manager has its own users
    entity: DagAccessEntity | None = None,
) -> bool:
    """Whether a user may read a DAG (GET), or trigger it (POST); with an entity, that part of it, as Airflow has it."""
    details = DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id))
    manager = get_auth_manager()
    return bool(manager.is_authorized_dag(method=method, access_entity=entity, details=details, user=user))


def may_read_logs(dag_id: str, user: Any) -> bool:  # noqa: ANN401 - each auth manager has its own users
    """Whether a user may read the logs of a DAG's tasks, and so what Spark said in them."""
    return may("GET", dag_id, user, DagAccessEntity.TASK_LOGS)


def readable_of(dags: Mapping[str, str], user: Any) -> set[str]:  # noqa: ANN401 - each auth manager has its own users
    """Return which feeds a user may read; ``dags`` are their DAGs.

    Also of feeds without a DAG, such as those whose file was removed: to those who may read a DAG of that name.
    """
    manager = get_auth_manager()
    wanted = {*dags, *dags.values()}
    readable = wanted & manager.get_authorized_dag_ids(user=user, method="GET")
    if rest := wanted - readable:
        with create_session() as session:
            rest -= set(session.scalars(select(DagModel.dag_id)))
        readable |= manager.filter_authorized_dag_ids(dag_ids=rest, user=user, method="GET")
    return {name for name, dag_id in dags.items() if name in readable or dag_id in readable}


def dags_now(names: Collection[str]) -> dict[str, DagNow]:
    asked = select(DagModel.dag_id, DagModel.is_paused, DagModel.next_dagrun_create_after)
    with create_session() as session:
        found = session.execute(asked.where(DagModel.dag_id.in_(names), ~DagModel.is_stale))
        return {dag_id: DagNow(is_paused, next_run_at) for dag_id, is_paused, next_run_at in found}
