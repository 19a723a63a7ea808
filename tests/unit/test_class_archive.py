"""An archive of classes is found whole, by the Java and the jars that it was made for, and by no others."""

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from confluent_kafka import KafkaError, KafkaException

import archive_broker
import archive_classes
from java_command import JavaMissingError
from kafka_ingest.spark_launch.installation import CONNECTOR, JARS_VARIABLE, ArchivePlace, installation, java_binary
from kafka_ingest.spark_launch.java_options import java_options
from kafka_ingest.verbs import check_installation


@pytest.fixture
def java(tmp_path: Path) -> Path:
    return java_in(tmp_path / "jdk")


def java_in(home: Path) -> Path:
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "jars"
    folder.mkdir()
    found = [folder / "b.jar", folder / f"{CONNECTOR}.jar"]
    for jar in found:
        jar.write_bytes(b"classes")
        os.utime(jar, (1, 1))
    return found


@pytest.fixture
def place(java: Path, jars: list[Path]) -> ArchivePlace:
    return ArchivePlace.of(java, jars, jars[0].parent)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    archive = tmp_path / "made.jsa"
    archive.write_bytes(b"archive")
    return archive


@pytest.fixture
def set_up(java: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch) -> ArchivePlace:
    """Have the made-up Java and jars be the ones that are installed."""
    monkeypatch.setenv(JARS_VARIABLE, str(jars[0].parent))
    monkeypatch.setenv("JAVA_HOME", str(java.parent.parent))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    place = installation().archive_place
    assert place is not None
    return place


def test_it_is_the_same_for_the_same_java_and_the_same_jars_in_any_order(java: Path, jars: list[Path]) -> None:
    folder = Path("/jars")
    assert ArchivePlace.of(java, jars, folder) == ArchivePlace.of(java, reversed(jars), folder)


def test_another_java_a_changed_jar_and_one_jar_more_need_another_archive(java: Path, jars: list[Path]) -> None:
    folder = Path("/jars")
    before = ArchivePlace.of(java, jars, folder)
    assert ArchivePlace.of(java, jars[:1], folder) != before
    os.utime(java, (2, 2))
    after_upgrade = ArchivePlace.of(java, jars, folder)
    assert after_upgrade != before
    os.utime(jars[0], (2, 2))
    assert ArchivePlace.of(java, jars, folder) not in {before, after_upgrade}


def test_a_container_image_that_keeps_whole_seconds_only_finds_its_archive(java: Path, jars: list[Path]) -> None:
    os.utime(jars[0], ns=(0, 1_999_999_999))
    before = ArchivePlace.of(java, jars, Path("/jars"))
    os.utime(jars[0], ns=(0, 1_000_000_000))
    assert ArchivePlace.of(java, jars, Path("/jars")) == before


def test_half_an_archive_is_not_used_and_the_next_set_up_replaces_it(place: ArchivePlace, made: Path) -> None:
    archive_classes.keep(made, place)
    archive = place.archive()
    assert archive is not None
    assert archive.read_bytes() == made.read_bytes()
    assert place.damaged() is None

    os.truncate(archive, 3)
    assert place.archive() is None
    assert place.damaged() == archive

    made.write_bytes(b"a larger archive")
    archive_classes.keep(made, place)
    assert place.damaged() is None
    assert place.archive() == place.file(len(b"a larger archive"))


@pytest.mark.parametrize("kind", ["a link to itself", "a link to nothing", "a directory"])
def test_what_is_no_file_is_no_archive_and_nothing_fails(kind: str, place: ArchivePlace) -> None:
    archive = place.file(7)
    if kind == "a directory":
        archive.mkdir()
        archive.rename(place.file(archive.stat().st_size))
    else:
        archive.symlink_to(archive.name if kind == "a link to itself" else "absent")

    assert (place.archive(), place.damaged()) == (None, None)


def test_an_archive_is_built_on_the_one_of_javas_own_classes(java: Path, jars: list[Path]) -> None:
    own = java.parents[1] / "lib" / "server" / "classes.jsa"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"one")
    before = ArchivePlace.of(java, jars, jars[0].parent)
    own.write_bytes(b"another")

    after = ArchivePlace.of(java, jars, jars[0].parent)
    assert (after.owner == before.owner, after.key == before.key) == (True, False)


def test_where_a_folder_of_settings_is_before_the_jars_there_is_no_archive_and_doctor_says_why(
    set_up: ArchivePlace, made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive_classes.keep(made, set_up)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    assert installation().class_archive is None
    assert (
        f"none while SPARK_CONF_DIR is set: Spark puts {tmp_path} before its jars" in check_installation.class_archive()
    )


def test_java_checks_an_archive_before_it_runs_what_is_in_it(place: ArchivePlace) -> None:
    options = java_options(1, place.file(1), "").split()
    assert options[-2:] == ["-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={place.file(1)}"]


def test_a_new_archive_replaces_those_of_its_own_java_and_leaves_those_of_others(
    java: Path, jars: list[Path], tmp_path: Path, made: Path
) -> None:
    folder = jars[0].parent
    another_javas = ArchivePlace.of(java_in(tmp_path / "another"), jars, folder)
    before = ArchivePlace.of(java, jars, folder)
    for place in (another_javas, before):
        archive_classes.keep(made, place)
    before.failed_log.write_text("why")
    before.file(1).with_suffix(".partial").write_text("interrupted")
    os.utime(jars[0], (2, 2))
    after = ArchivePlace.of(java, jars, folder)

    archive_classes.keep(made, after)

    assert another_javas.archive() is not None
    assert set(folder.glob("classes-*")) == {another_javas.archive(), after.archive()}


def failing(error: BaseException) -> Callable[..., None]:
    def run_one_batch(_directory: Path, _archive: Path, log: Path, _jars: Path) -> None:
        log.write_text("what was said before\n")
        raise error

    return run_one_batch


@pytest.mark.parametrize("error", [KafkaException(KafkaError(KafkaError._TIMED_OUT)), JavaMissingError("no java")])
def test_a_failed_set_up_says_so_keeps_what_was_there_and_is_not_tried_again_while_its_log_is_there(
    set_up: ArchivePlace,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    former = ArchivePlace(set_up.folder, set_up.owner, "former")
    archive_classes.keep(made, former)
    monkeypatch.setattr(archive_classes, "run_one_batch", failing(error))

    archive_classes.archive_classes()

    assert str(set_up.failed_log) in capsys.readouterr().out
    assert set_up.failed_log.read_text() == f"what was said before\n{error}\n"
    assert former.archive() is not None
    assert str(set_up.failed_log) in check_installation.class_archive()
    monkeypatch.setattr(archive_classes, "run_one_batch", failing(AssertionError("tried again")))
    archive_classes.archive_classes()


def test_an_interrupted_set_up_leaves_nothing_and_the_next_one_tries_again(
    set_up: ArchivePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_classes, "run_one_batch", failing(KeyboardInterrupt()))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            archive_classes.archive_classes()
    assert list(set_up.folder.glob("classes-*")) == []


def test_of_two_set_ups_at_once_one_makes_the_archive_and_the_other_waits_for_it(place: ArchivePlace) -> None:
    both, made = threading.Barrier(2), []

    def set_up() -> None:
        both.wait()
        archive_classes.make_archive(place, "Archiving", make)

    def make(_directory: Path, archive: Path, _log: Path, _jars: Path) -> None:
        made.append(archive)
        time.sleep(0.05)  # for the other one to come by; where it does not, it finds the archive
        archive.write_bytes(b"archive")

    others = [threading.Thread(target=set_up) for _ in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()

    assert len(made) == 1
    assert place.archive() == place.file(len(b"archive"))


def test_a_broker_that_had_to_be_killed_leaves_no_archive(
    place: ArchivePlace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broker(MagicMock):
        def stop(self, _timeout_s: float) -> bool:
            return False

    def broker(directory: Path, *, jars: Path, jvm_flags: Sequence[str]) -> Broker:
        assert jars == place.folder
        [flag] = [flag for flag in jvm_flags if "ArchiveClassesAtExit" in flag]
        Path(flag.partition("=")[2]).write_bytes(b"half of it")
        return Broker(log=directory)

    monkeypatch.setattr(archive_broker, "EmbeddedBroker", broker)
    monkeypatch.setattr(archive_broker, "produce", lambda _servers: None)
    monkeypatch.setattr(archive_broker, "archive_place", lambda: place)

    archive_broker.archive_broker()

    assert place.archive() is None
    assert "expected the broker to end within 300 s" in place.failed_log.read_text()
    assert str(place.failed_log) in capsys.readouterr().out


def test_the_archive_is_named_for_what_the_archived_run_gets_whatever_the_shell_has(
    set_up: ArchivePlace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:+UseZGC")

    archive_classes.forget_other_installations()

    found = installation()
    assert found.archive_place == set_up
    assert "UseZGC" not in found.java_options.every


def test_doctor_reports_what_it_finds_and_what_to_do(
    set_up: ArchivePlace, made: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert "`make setup` makes one" in check_installation.class_archive()
    archive_classes.keep(made, set_up)
    archive = set_up.archive()
    assert archive is not None
    assert check_installation.class_archive() == str(archive)
    os.truncate(archive, 3)
    assert f"{archive} is damaged" in check_installation.class_archive()
    assert "`make setup` makes a new one" in check_installation.class_archive()
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert f"none for the Spark in SPARK_HOME, {tmp_path}" in check_installation.class_archive()


def test_java_is_the_one_that_sparks_scripts_would_start(java: Path, tmp_path: Path) -> None:
    assert java_binary({}, str(java.parent)) == java
    assert java_binary({"JAVA_HOME": str(java.parent.parent)}, str(tmp_path)) == java
    assert java_binary({}, str(tmp_path)) is None


def test_without_a_java_there_is_none_and_nothing_fails(tmp_path: Path) -> None:
    found = installation({"PATH": str(tmp_path), "SPARK_HOME": str(tmp_path), "JDK_JAVA_OPTIONS": "-XX:+UseG1GC"})
    assert found.class_archive is None
    assert found.spark_home == tmp_path
    assert found.java_options.every == "-XX:+UseG1GC"
