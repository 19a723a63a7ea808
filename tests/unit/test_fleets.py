"""Which feeds share a DAG, and which cannot: by what Airflow knows of a DAG alone."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_ingest.settings.feed_file import FeedFile, read_feed_file
from kafka_ingest.settings.files_for_dags import files_for_dags, files_of_fleet, fleets_of


def written(folder: Path, name: str, **changes: Any) -> FeedFile:
    document = {"name": name, "kafka": {"topics": [name]}, "sink": {"format": "parquet", "path": f"/data/{name}"}}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(document | changes))
    return read_feed_file(folder / f"{name}.yaml")


def refusals(*files: FeedFile) -> list[str]:
    [fleet] = fleets_of(files)
    return [str(file.error) for file in fleet.refused]


def test_feeds_of_a_fleet_are_those_that_name_it(tmp_path: Path) -> None:
    files = [written(tmp_path, name, **of) for name, of in (("a", {"fleet": "x"}), ("b", {}), ("c", {"fleet": "y"}))]
    assert {fleet.name: [each.feed.name for each in fleet.members] for fleet in fleets_of(files)} == {
        "x": ["a"],
        "y": ["c"],
    }
    assert [file.path.stem for file in files_of_fleet("y", tmp_path)] == ["c"]


def test_a_feed_that_differs_in_what_a_dag_has_once_is_refused_by_name_and_the_others_stay(tmp_path: Path) -> None:
    first = written(tmp_path, "a", fleet="x", schedule="@daily")
    others = [
        written(tmp_path, "b", fleet="x"),
        written(tmp_path, "c", fleet="x", schedule="@daily", airflow={"pool": "small"}),
        written(tmp_path, "d", fleet="x", schedule="@daily", complete={"by": "hour"}),
    ]
    [fleet] = fleets_of([first, *others])
    assert [each.feed.name for each in fleet.members] == ["a"]
    of_schedule, of_pool, of_complete = refusals(first, *others)
    assert "feed b: expected schedule '@daily', as feed a of fleet x has it" in of_schedule
    assert "feed c: expected airflow.pool 'default_pool'" in of_pool
    assert "feed d: expected complete in a feed without a fleet" in of_complete


def test_a_fleet_that_is_called_like_a_feed_has_no_dag(tmp_path: Path) -> None:
    found = refusals(written(tmp_path, "x"), written(tmp_path, "a", fleet="x"))
    assert [("expected a fleet whose name no feed has" in each) for each in found] == [True]


def test_a_file_for_many_topics_is_in_its_fleet_or_refused_as_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(tmp_path))
    sink = {"format": "parquet", "path": "/data/{topic}"}
    document = {"for_each_topic": "a.*", "fleet": "x", "feed": {"name": "f-{topic}", "sink": sink}}
    (tmp_path / "many.yaml").write_text(yaml.safe_dump(document))
    [alone] = fleets_of(files_for_dags("x"))
    assert (alone.members, [file.path.name for file in alone.sources]) == ((), ["many.yaml"])
    assert alone.first.schedule == "@hourly"

    written(tmp_path, "a", fleet="x", schedule="@daily")
    [fleet] = fleets_of(files_for_dags("x"))
    assert ([each.feed.name for each in fleet.members], fleet.sources) == (["a"], ())
    assert "expected schedule '@daily'" in str(fleet.refused[0].error)
    [red] = files_for_dags("feed_error__many.yaml")
    assert "expected schedule '@daily'" in str(red.error)
