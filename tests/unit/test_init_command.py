"""What ``kafka-ingest init`` makes, and what it leaves alone."""

from pathlib import Path

import pytest

from kafka_ingest.cli.set_up import DAG_FILE, files, make_project
from kafka_ingest.errors import WrongUseError
from kafka_ingest.settings.feed_file import read_feed_file


def test_an_empty_folder_gets_a_dag_file_of_three_lines_and_a_feed_that_can_be_used(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert make_project(tmp_path) == list(files())
    file = read_feed_file(tmp_path / "dags" / "feeds" / "clicks.yaml")
    assert file.feed is not None, file.error
    assert (file.feed.name, file.feed.sink.path) == ("clicks", "clicks")
    assert len(DAG_FILE.splitlines()) == 3
    # Airflow looks into files that have both words.
    assert b"airflow" in DAG_FILE.lower().encode()
    assert b"dag" in DAG_FILE.lower().encode()


def test_a_second_run_and_one_after_a_crash_make_what_is_missing(tmp_path: Path) -> None:
    make_project(tmp_path / "new")
    assert make_project(tmp_path / "new") == []
    (tmp_path / "new" / "dags" / "feeds" / "clicks.yaml").unlink()
    assert make_project(tmp_path / "new") == ["dags/feeds/clicks.yaml"]


@pytest.mark.parametrize("theirs", ["notes.txt", "dags/other.py", "dags/feeds/clicks.yaml"])
def test_a_folder_with_other_files_is_refused_and_stays_as_it_is(tmp_path: Path, theirs: str) -> None:
    (tmp_path / theirs).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / theirs).write_text("mine")
    with pytest.raises(WrongUseError, match=rf"expected an empty folder .*found {theirs}\. Nothing was changed"):
        make_project(tmp_path)
    assert [each.name for each in tmp_path.rglob("*") if each.is_file()] == [Path(theirs).name]
    assert (tmp_path / theirs).read_text() == "mine"


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WrongUseError, match="that this user can write"):
        make_project(tmp_path / "file")
