"""A feed whose pool gives it no slot is named by check_feeds."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_ingest.airflow_tasks.dags import checking_dag as module
from kafka_ingest.airflow_tasks.dags.checking_dag import waiting_for_pools
from kafka_ingest.settings.feed_files import read_feed_files

NOW = datetime(2026, 3, 1, 12, 20, 30, tzinfo=UTC)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked of Airflow, where the plan of each feed waits."""
    questions: list[dict[str, Any]] = []

    class Instance:
        @staticmethod
        def get_ti_count(**question: Any) -> int:
            questions.append(question)
            return 1

    monkeypatch.setattr(module, "RuntimeTaskInstance", Instance)
    common = {"kafka": {"topics": ["orders"]}, "sink": {"format": "parquet"}}
    feeds = {
        "waits": {"schedule": "@hourly", "airflow": {"pool": "nowhere"}},
        "by_hand": {"schedule": None, "airflow": {"pool": "nowhere"}},
        "of_all": {"schedule": "@hourly"},
    }
    for name, more in feeds.items():
        feed = {"name": name, **common, "sink": {"format": "parquet", "path": f"/data/{name}"}, **more}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(feed))
    return questions


def test_a_plan_that_should_have_begun_and_waits_for_a_slot_names_its_pool(
    asked: list[dict[str, Any]], tmp_path: Path
) -> None:
    [said] = waiting_for_pools(read_feed_files(tmp_path), NOW)

    assert "feed waits: expected its plan to begin" in said
    assert "pool 'nowhere', which may not exist" in said
    [question] = asked
    assert (question["dag_id"], question["task_ids"], question["states"]) == ("waits", ["plan"], ["scheduled"])
    assert question["logical_dates"][:2] == [
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 1, 11, tzinfo=UTC),
    ]
    assert len(question["logical_dates"]) == 50


def test_a_run_that_was_due_a_moment_ago_has_its_time(asked: list[dict[str, Any]], tmp_path: Path) -> None:
    list(waiting_for_pools(read_feed_files(tmp_path), NOW.replace(minute=5)))

    assert asked[0]["logical_dates"][0] == datetime(2026, 3, 1, 11, tzinfo=UTC)
