"""Feeds whose output is a topic: records that would go round are refused when the files are read."""

from pathlib import Path

import pytest
import yaml

from kafka_ingest.settings.feed_file import read_feed_file
from kafka_ingest.settings.feed_files import checked_against_others, read_feed_files


def write(folder: Path, name: str, reads: object, writes: str, conn_id: str = "kafka_default") -> Path:
    """Write a feed file from one topic, or a pattern of them, to another."""
    sink = {"format": "kafka", "path": f"/data/{name}", "conn_id": conn_id, "topic": writes}
    path = folder / f"{name}.yaml"
    kafka = reads if isinstance(reads, dict) else {"topics": [reads]}
    path.write_text(yaml.safe_dump({"name": name, "kafka": kafka, "sink": sink}))
    return path


def errors(folder: Path) -> dict[str, str]:
    return {file.path.stem: str(file.error) for file in read_feed_files(folder) if file.error is not None}


def test_a_feed_that_writes_the_topic_it_reads_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "one", "a", "a")
    assert "records that it writes to topic a come back to it" in errors(tmp_path)["one"]


def test_the_same_name_in_another_cluster_is_another_topic(tmp_path: Path) -> None:
    write(tmp_path, "one", "a", "a", "kafka_other")
    assert errors(tmp_path) == {}


@pytest.mark.parametrize("topics", ["ab", "abc", "abcdefg"])
def test_every_feed_of_a_circle_is_refused_and_none_that_only_leads_to_it(tmp_path: Path, topics: str) -> None:
    for name, writes in zip(topics, topics[1:] + topics[0], strict=True):
        write(tmp_path, f"of-{name}", name, writes)
    write(tmp_path, "into", "z", "y")
    found = errors(tmp_path)
    assert set(found) == {f"of-{name}" for name in topics}
    assert " → ".join(str(tmp_path / f"of-{name}.yaml") for name in topics) in found["of-a"]
    assert checked_against_others(read_feed_file(tmp_path / "of-a.yaml")).error is not None
    assert checked_against_others(read_feed_file(tmp_path / "into.yaml")).error is None


def test_a_circle_is_found_where_patterns_lead_through_it(tmp_path: Path) -> None:
    write(tmp_path, "clean", {"topic_pattern": "raw-.*"}, "clean")
    write(tmp_path, "back", {"topic_pattern": "clea."}, "raw-again")
    write(tmp_path, "elsewhere", {"topic_pattern": "clea.", "conn_id": "kafka_other"}, "raw-elsewhere")
    write(tmp_path, "into", {"topic_pattern": "r.*"}, "unread")
    write(tmp_path, "own", {"topic_pattern": "ow.*"}, "own")
    assert set(errors(tmp_path)) == {"clean", "back", "own"}
    for name in ("clean", "back", "own", "into"):
        found = checked_against_others(read_feed_file(tmp_path / f"{name}.yaml"))
        assert (found.error is None) == (name == "into")


def test_a_topic_belongs_to_one_feed(tmp_path: Path) -> None:
    write(tmp_path, "one", "a", "c")
    write(tmp_path, "two", "b", "c")
    assert "sink.topic 'c' is also that of" in errors(tmp_path)["one"]
    assert "sink.topic 'c'" in str(checked_against_others(read_feed_file(tmp_path / "two.yaml")).error)
