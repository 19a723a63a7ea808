"""Who may read a feed on the page: who may read its DAG, which is the fleet's where a file for many topics made it."""

from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import HTTPException

from kafka_ingest.page import app as access
from kafka_ingest.page.app import check_may_read, readable_of
from kafka_ingest.page.sources import Sources
from kafka_ingest.settings.feed_file import FeedFile

FLEETS = {"orders": None, "shop-orders": "shop", "pay-orders": "pay"}


class Manager:
    """An auth manager whose user may read the DAGs ``shop`` and ``orders``."""

    def get_authorized_dag_ids(self, **_: object) -> set[str]:
        """Return them, as far as Airflow has them."""
        return {"shop", "orders"}

    def filter_authorized_dag_ids(self, *, dag_ids: set[str], **_: object) -> set[str]:
        """Return those of them, which Airflow does not have."""
        return dag_ids & {"shop", "orders"}

    def is_authorized_dag(self, *, details: Any, **_: object) -> bool:
        """Whether it is one of them."""
        return details.id in {"shop", "orders"}


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Sources:
    """The page's sources, with a feed of its own file and one of a topic in each of two fleets."""
    monkeypatch.setattr(access, "get_auth_manager", Manager)
    monkeypatch.setattr(access.DagModel, "get_team_name", lambda _: None)
    files = {name: FeedFile(SimpleNamespace(), None, fleet=fleet) for name, fleet in FLEETS.items()}  # type: ignore[arg-type]
    monkeypatch.setattr(Sources, "_read_feed_files", lambda _: files)
    return Sources()


def may_read(sources: Sources, name: str) -> bool:
    """Whether a view of the feed is shown."""
    request: Any = SimpleNamespace(app=SimpleNamespace(state=SimpleNamespace(sources=sources)))
    try:
        return check_may_read(request, name, None) == name
    except HTTPException:
        return False


def test_a_feed_of_a_topic_is_shown_to_who_may_read_its_fleets_dag(
    sources: Sources, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [name for name in (*FLEETS, "gone") if may_read(sources, name)] == ["orders", "shop-orders"]

    monkeypatch.setattr(access, "create_session", _Session)
    assert readable_of(sources.dags_of([*FLEETS, "gone"]), None) == {"orders", "shop-orders"}


class _Session:
    """Airflow's database, without a DAG."""

    def __enter__(self) -> Any:
        return SimpleNamespace(scalars=lambda _: [])

    def __exit__(self, *_: object) -> None:
        pass
