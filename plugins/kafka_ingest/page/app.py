"""The page's routes. Each only reads; users who are not signed in to Airflow get none of them.

There is no OpenAPI document: what is not a view is not offered. A path that does not exist is refused to strangers
like any other.
"""

import logging
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final
from uuid import UUID

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import get_user
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import Depends, FastAPI, HTTPException, Query, Request, status
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from sqlalchemy import select

from kafka_ingest.errors import KafkaIngestError, UnknownBatchError
from kafka_ingest.page.all_feeds import all_feeds
from kafka_ingest.page.feed_view import coverage_view
from kafka_ingest.page.kept_answers import Turns
from kafka_ingest.page.offers import Offer, acknowledge, offers_of, offers_of_batch, read_again
from kafka_ingest.page.one_batch import one_batch
from kafka_ingest.page.one_feed import FeedAsked, one_feed
from kafka_ingest.page.rendering import STATIC, page, static_file
from kafka_ingest.page.sources import BACKFILL_DAG, OPERATE_DAG, DagNow, Sources, sources_of_server

READS: Final = ["GET", "HEAD"]
METHODS: Final = [*READS, "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]

WHAT_HAPPENED: Final = {
    status.HTTP_401_UNAUTHORIZED: "You are not signed in to Airflow.",
    status.HTTP_403_FORBIDDEN: "Your sign-in is not valid here. Sign in to Airflow again.",
    status.HTTP_404_NOT_FOUND: "Nothing exists at this address.",
    status.HTTP_405_METHOD_NOT_ALLOWED: "This page only reads.",
    status.HTTP_503_SERVICE_UNAVAILABLE: "Too many requests at once, or slow control tables. Try again soon.",
}

log = logging.getLogger(__name__)


def build_app(sources: Sources | None = None) -> FastAPI:
    sources = sources or sources_of_server()
    app = FastAPI(title="Kafka offsets", dependencies=[signed_in], openapi_url=None, docs_url=None, redoc_url=None)
    app.state.sources = sources
    add_views(app, sources)
    add_errors(app)

    @app.api_route("/static/{name}", methods=READS)
    def static(name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(status.HTTP_404_NOT_FOUND)
        return static_file(name)

    # Last: FastAPI refuses strangers on its own routes only, and answers on others before it has asked who calls.
    @app.api_route("/{path:path}", methods=METHODS)
    def nothing(request: Request) -> Response:
        reads = request.method in READS
        raise HTTPException(status.HTTP_404_NOT_FOUND if reads else status.HTTP_405_METHOD_NOT_ALLOWED)

    return app


def add_views(app: FastAPI, sources: Sources) -> None:
    turn = [Depends(Turns())]

    @app.api_route("/", methods=READS, dependencies=turn)
    def feeds(request: Request, user: User, q: str = "", p: Annotated[int, Query(alias="page")] = 1) -> Response:
        view = all_feeds(sources, lambda names: readable_of(sources.dags_of(names), user), search=q, page=p)
        dag_ids = sources.dags_of([row.line.name for row in view.rows.items])
        now = dags_now(set(dag_ids.values()))
        dags = {name: now[dag_id] for name, dag_id in dag_ids.items() if dag_id in now}
        return page(request, "feeds.html", view=view, dags=dags)

    @app.api_route("/feeds/{dag_id}", methods=READS, dependencies=turn)
    def feed(request: Request, dag_id: ReadableFeed, user: User, asked: Annotated[FeedAsked, Query()]) -> Response:
        view = one_feed(sources, dag_id, asked, lambda names: readable_of(sources.dags_of(names), user))
        if view is None:
            return page(request, "no_feed.html", status_code=status.HTTP_404_NOT_FOUND, name=dag_id)
        again: dict[UUID, Offer] = {}
        stays: dict[UUID, Offer] = {}
        offers: list[Offer] = []
        open_gaps = [gap for gap in view.gaps.items if gap.is_open]
        if open_gaps and may("POST", BACKFILL_DAG, user):
            again = {gap.gap_id: read_again(view.name, gap) for gap in open_gaps}
        if may("POST", OPERATE_DAG, user):
            offers = offers_of(view.status, view.file_error)
            stays = {gap.gap_id: acknowledge(view.name, gap) for gap in open_gaps if gap.gap_id not in view.decided}
        shown: dict[str, Any] = {
            "again": again,
            "stays": stays,
            "offers": offers,
            "dag_id": sources.dags_of([dag_id])[dag_id],
        }
        dags = dags_now([shown["dag_id"], BACKFILL_DAG, OPERATE_DAG])
        return page(request, "feed.html", view=view, asked=asked, dags=dags, **shown)

    @app.api_route("/feeds/{dag_id}/coverage", methods=READS, dependencies=turn)
    def coverage(request: Request, dag_id: ReadableFeed, p: Annotated[int, Query(alias="page")] = 1) -> Response:
        view = coverage_view(sources, dag_id, p)
        if view is None:
            return page(request, "no_feed.html", status_code=status.HTTP_404_NOT_FOUND, name=dag_id)
        return page(request, "coverage.html", view=view)

    @app.api_route("/feeds/{dag_id}/batches/{batch_id}", methods=READS, dependencies=turn)
    def batch(
        request: Request, dag_id: ReadableFeed, user: User, batch_id: UUID, p: Annotated[int, Query(alias="page")] = 1
    ) -> Response:
        with_logs = any(may_read_logs(each, user) for each in {dag_id, sources.dags_of([dag_id])[dag_id]})
        view = one_batch(sources, dag_id, batch_id, page=p, with_logs=with_logs)
        offers = list(offers_of_batch(view)) if may("POST", OPERATE_DAG, user) else []
        return page(request, "batch.html", view=view, offers=offers, dags=dags_now([OPERATE_DAG]))


def add_errors(app: FastAPI) -> None:
    """Show errors as pages: named ones in their own words, which hold no secret, and of others nothing."""

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        known = WHAT_HAPPENED.get(error.status_code, "The request was refused.")
        what = NO_RIGHT if error.detail == NO_RIGHT else known
        return page(request, "error.html", status_code=error.status_code, what=what)

    @app.exception_handler(RequestValidationError)
    def not_understood(request: Request, _error: RequestValidationError) -> Response:
        what = "The address holds something that this page does not know."
        return page(request, "error.html", status_code=status.HTTP_400_BAD_REQUEST, what=what)

    @app.exception_handler(UnknownBatchError)
    def unknown(request: Request, error: UnknownBatchError) -> Response:
        return page(request, "error.html", status_code=status.HTTP_404_NOT_FOUND, what=str(error))

    @app.exception_handler(KafkaIngestError)
    def named(request: Request, error: KafkaIngestError) -> Response:
        what = f"{error.code}: {error}"
        return page(request, "error.html", status_code=status.HTTP_503_SERVICE_UNAVAILABLE, what=what)

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> Response:
        log.error("the page Kafka offsets failed at %s", request.url.path, exc_info=error)
        what = "An unexpected error. The API server's log says which."
        return page(request, "error.html", status_code=status.HTTP_500_INTERNAL_SERVER_ERROR, what=what)


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
