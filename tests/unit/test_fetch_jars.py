"""Jars are fetched whole and with the right sum, or not at all."""

import hashlib
import threading
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from environment import ROOT
from kafka_ingest.errors import InstallationError, JarsUnavailableError
from kafka_ingest.spark_launch.fetch_jars import fetch_jars, from_folder, from_repository, jars_for, known_jars
from kafka_ingest.spark_launch.installation import jars_root

PATH = "org/example/a_2.13/2.0/a_2.13-2.0.jar"
CONTENT = b"jar" * 100_000
WANTED = {"spark": {PATH: hashlib.sha256(CONTENT).hexdigest()}}


def files(root: Path) -> list[str]:
    return sorted(each.name for each in root.rglob("*") if each.is_file())


@pytest.mark.parametrize("place", ["a_2.13-2.0.jar", PATH])
def test_jars_come_from_a_folder_side_by_side_or_as_maven_lays_them_out(tmp_path: Path, place: str) -> None:
    (tmp_path / "from" / place).parent.mkdir(parents=True)
    (tmp_path / "from" / place).write_bytes(CONTENT)
    source = from_folder(tmp_path / "from")
    assert fetch_jars(WANTED, tmp_path / "jars", source) == {"spark": ["a_2.13-2.0.jar"]}
    assert (tmp_path / "jars" / "spark" / "a_2.13-2.0.jar").read_bytes() == CONTENT
    assert fetch_jars(WANTED, tmp_path / "jars", from_folder(tmp_path / "gone")) == {"spark": []}, "not fetched again"


def test_other_versions_and_what_a_killed_call_left_are_removed_and_other_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    folder.mkdir()
    for name in ("a_2.13-1.0.jar", ".a_2.13-2.0.jar.0123.tmp", "own-1.0.jar", "classes.jsa"):
        (folder / name).write_bytes(b"old")
    fetch_jars(WANTED, tmp_path, lambda _: [CONTENT])
    assert files(folder) == ["a_2.13-2.0.jar", "classes.jsa", "own-1.0.jar"]


def test_a_jar_with_another_sum_is_refused_and_one_that_was_damaged_is_fetched_again(tmp_path: Path) -> None:
    with pytest.raises(InstallationError, match=r"expected a_2.13-2.0.jar with SHA-256 .*It was not kept"):
        fetch_jars(WANTED, tmp_path, lambda _: [b"another"])
    assert files(tmp_path) == []
    (tmp_path / "spark" / "a_2.13-2.0.jar").write_bytes(b"damaged")
    assert fetch_jars(WANTED, tmp_path, lambda _: [CONTENT])["spark"] == ["a_2.13-2.0.jar"]


def test_a_download_that_ends_early_leaves_nothing(tmp_path: Path) -> None:
    def broken(_: str) -> Iterator[bytes]:
        yield CONTENT[:1000]
        raise JarsUnavailableError("gone")

    with pytest.raises(JarsUnavailableError):
        fetch_jars(WANTED, tmp_path, broken)
    assert files(tmp_path) == []


def test_of_two_calls_at_once_the_second_waits_and_fetches_nothing(tmp_path: Path) -> None:
    asked: list[str] = []
    begun = threading.Event()

    def slow(path: str) -> Iterator[bytes]:
        asked.append(path)
        begun.wait(0.3)
        yield CONTENT

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: fetch_jars(WANTED, tmp_path, slow), range(2)))
    assert asked == [PATH]


def test_a_repository_that_refuses_or_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_request(self, *_: object) -> None:
            """Print nothing."""

        log_error = log_request

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://me:s3cret@127.0.0.1:{server.server_port}/maven2"
    with pytest.raises(JarsUnavailableError, match=r"from 127.0.0.1, found 404") as refused:
        fetch_jars(WANTED, tmp_path, from_repository(address))
    server.shutdown()
    server.server_close()
    with pytest.raises(JarsUnavailableError, match=r"found ConnectionError.*--from") as absent:
        fetch_jars(WANTED, tmp_path, from_repository(address))
    assert "s3cret" not in str(refused.value) + str(absent.value)


def test_the_folder_of_jars_is_named_or_the_environments_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path / "env"))
    (tmp_path / "env").mkdir()
    home = {"HOME": str(tmp_path / "home")}
    assert jars_root({**home, "KAFKA_INGEST_JARS": str(tmp_path)}) == tmp_path
    assert jars_root(home) == tmp_path / "env" / "share" / "kafka-ingest" / "jars"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert jars_root(home) == tmp_path / "home" / ".local" / "share" / "kafka-ingest" / "jars"


def test_a_spark_or_a_store_that_is_not_known_is_named() -> None:
    with pytest.raises(InstallationError, match=r"4\.0\.2.*found 3\.5\.1"):
        jars_for("3.5.1", ("spark",))
    with pytest.raises(InstallationError, match=r"found gcs\. Install a Spark .*\(4\.0\.0.*4\.1\.1\)"):
        jars_for("4.2.0", ("spark", "gcs"))


@pytest.mark.parametrize("extra", ["", "s3", "gcs", "azure"])
def test_the_wheel_takes_each_spark_whose_jars_are_known_and_none_newer_than_these(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"].get(extra, ())]
    known = [version for version, names in known_jars()["versions"].items() if {"spark", extra or "spark"} <= {*names}]
    *others, last = known[-1].split(".")
    for package in ("pyspark", "pyspark-client"):
        taken = [Requirement(each).specifier for each in asked if Requirement(each).name == package]
        assert [version for version in known if not all(version in each for each in taken)] == []
        assert not all(f"{'.'.join(others)}.{int(last) + 1}" in each for each in taken)
