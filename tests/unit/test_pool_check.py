"""Whether Airflow has the pool that a feed names."""

from types import SimpleNamespace
from typing import Any

import pytest
from airflow.models.pool import Pool
from sqlalchemy.exc import OperationalError

from kafka_ingest.errors import MissingPoolError
from kafka_ingest.verbs.check_airflow import pool


def answering(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def get_pool(_name: str) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Pool, "get_pool", get_pool)


def test_a_pool_that_airflow_has_not_is_named_before_a_task_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    answering(monkeypatch, None)
    with pytest.raises(MissingPoolError, match=r"expected a pool 'kafka' in Airflow.*airflow pools set kafka"):
        pool("kafka")
    answering(monkeypatch, SimpleNamespace(slots=3))
    assert pool("kafka") == "kafka, 3 slots"


@pytest.mark.parametrize("error", [OperationalError("SELECT", {}, Exception()), RuntimeError("not in a task")])
def test_where_airflow_cannot_be_asked_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    answering(monkeypatch, error)
    assert "cannot be asked" in pool("kafka")
