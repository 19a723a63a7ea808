"""Which feed file a DAG's id stands for.

The same one that reading all files gives it to, whatever the files are called.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from kafka_ingest.settings import feed_file, feed_files, plain_yaml
from kafka_ingest.settings.feed_file import error_id
from kafka_ingest.settings.feed_files import checked_against_others, feed_file_named, read_feed_files
from kafka_ingest.settings.files_for_dags import files_for_dags


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of feed files."""
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(tmp_path))
    return tmp_path


def write(path: Path, *, name: str = "orders", group: str | None = None, output: str | None = None) -> Path:
    """Write a feed file."""
    kafka = {"topics": ["t"]} | ({"group": group} if group else {})
    sink = {"format": "parquet", "path": output or f"/data/{name}"}
    path.write_text(yaml.safe_dump({"name": name, "kafka": kafka, "sink": sink}))
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of all feed files that are opened from now on."""
    names: list[str] = []

    def counted(path: Path, read: Callable[[Path], str] = plain_yaml.text_of) -> str:
        names.append(path.name)
        return read(path)

    monkeypatch.setattr(feed_file, "text_of", counted)
    monkeypatch.setattr(feed_files, "text_of", counted)
    return names


def the_file_of(name: str) -> str | None:
    """Return the name of the file that is found for a DAG."""
    return next((file.path.name for file in files_for_dags(name)), None)


def by_reading_all(name: str, folder: Path) -> str | None:
    """Return the name of the file whose DAG it is, when all DAGs are built."""
    files = read_feed_files(folder)
    return next((file.path.name for file in files if (f := file.feed or file.contested) and f.name == name), None)


def test_no_other_file_is_opened_for_a_feed_whose_file_is_called_after_it(folder: Path, opened: list[str]) -> None:
    for name in ("orders", "refunds", "returns"):
        write(folder / f"{name}.yaml", name=name)
    (folder / "broken.yaml").write_text("name: [")

    [file] = files_for_dags("refunds")

    assert file.feed is not None
    assert file.feed.name == "refunds"
    assert opened == ["refunds.yaml"]


def test_nor_for_a_file_that_cannot_be_used(folder: Path, opened: list[str]) -> None:
    write(folder / "orders.yaml")
    (folder / "broken.yaml").write_text("name: [")

    [file] = files_for_dags("feed_error__broken.yaml")

    assert "cannot be read as YAML" in str(file.error)
    assert opened == ["broken.yaml"]


def test_a_plan_compares_its_feed_with_all_other_files_as_they_are_now(folder: Path) -> None:
    for number in range(20):
        write(folder / f"feed{number}.yaml", name=f"feed{number}", group=f"g{number}")
    [file] = files_for_dags("feed7")
    assert checked_against_others(file).error is None

    write(folder / "copy.yaml", name="copy", group="g7")

    assert "kafka.group 'g7' is also that of" in str(checked_against_others(file).error)
    assert feed_file_named("feed3", folder).path.name == "feed3.yaml"


LAYOUTS: dict[str, dict[str, str]] = {
    "called after it": {"orders.yaml": "orders", "a.yaml": "a"},
    "the other ending": {"orders.yml": "orders"},
    "called otherwise": {"team.yaml": "orders", "a.yaml": "a"},
    "called otherwise, and another is called after it": {"team.yaml": "orders", "orders.yaml": "refunds"},
    "called otherwise, and a broken one is called after it": {"team.yaml": "orders", "orders.yaml": ""},
    "copied": {"orders.yaml": "orders", "copy.yaml": "orders"},
    "copied with the other ending": {"orders.yaml": "orders", "orders.yml": "orders"},
    "the other ending is another's": {"orders.yaml": "orders", "orders.yml": "refunds"},
    "two called otherwise": {"first.yaml": "orders", "second.yaml": "orders"},
    "gone": {"a.yaml": "a"},
    "broken": {"orders.yaml": ""},
    "none at all": {},
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_file_is_the_one_that_reading_all_files_gives_the_dag_to(folder: Path, layout: dict[str, str]) -> None:
    for file_name, feed in layout.items():
        if feed:
            write(folder / file_name, name=feed, output=f"/data/{file_name}")
        else:
            (folder / file_name).write_text("name: orders\nkafka: [")

    assert the_file_of("orders") == by_reading_all("orders", folder)


def test_a_file_that_was_renamed_since_dag_files_were_read_is_found_under_its_new_name(folder: Path) -> None:
    write(folder / "orders.yaml").rename(folder / "team-a.yaml")
    assert the_file_of("orders") == "team-a.yaml"


@pytest.mark.parametrize("dag_id", ["maintain_feeds", "../secret", "another_projects_dag", "feed_error__gone.yaml", ""])
def test_an_id_that_is_no_feeds_has_no_file(folder: Path, dag_id: str) -> None:
    write(folder / "orders.yaml")
    assert files_for_dags(dag_id) == []


@pytest.mark.parametrize("name", ["a b.yaml", "a_b.yaml", "é.yml", os.fsdecode(b"\xe9.yaml")])
def test_a_broken_file_is_found_by_its_dags_id_whatever_it_is_called(folder: Path, name: str) -> None:
    for each in {"a b.yaml", "a_b.yaml", name}:
        (folder / each).write_text("name: [")
    [file] = files_for_dags(error_id(folder / name))
    assert file.path == folder / name


def test_a_folder_that_cannot_be_read_is_its_red_dag_and_no_feed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = folder / "absent"
    monkeypatch.setenv("KAFKA_INGEST_FEEDS", str(absent))

    [red] = files_for_dags(None)

    assert "expected a folder of feed files" in str(red.error)
    assert [file.path for file in files_for_dags(error_id(absent))] == [absent]
    assert files_for_dags("orders") == []


def test_a_red_dag_of_a_contested_file_says_what_it_shares_when_its_task_runs(folder: Path) -> None:
    write(folder / "a.yaml", name="a", group="g")
    write(folder / "b.yaml", name="b", group="g")

    [file] = files_for_dags("feed_error__a.yaml")

    assert file.contested is not None
    assert "kafka.group 'g' is also that of" in str(checked_against_others(file).error)
    (folder / "b.yaml").unlink()
    assert checked_against_others(file).error is None


@pytest.mark.parametrize("name", ["orders", "a", "b", "off", "broken"])
def test_one_feed_is_found_with_the_same_error_as_among_all(folder: Path, name: str) -> None:
    write(folder / "orders.yaml")
    write(folder / "a.yaml", name="a", group="g")
    write(folder / "b.yaml", name="b", group="g", output="/data/orders/below")
    write(folder / "off1.yaml", name="off")
    write(folder / "off2.yaml", name="off")
    (folder / "broken.yaml").write_text("name: [")
    with_all = {file.path: file for file in read_feed_files(folder)}
    file = feed_file_named(name, folder)
    assert (file.feed, file.contested, str(file.error), set(map(str, file.rivals))) == (
        with_all[file.path].feed,
        with_all[file.path].contested,
        str(with_all[file.path].error),
        set(map(str, with_all[file.path].rivals)),
    )
