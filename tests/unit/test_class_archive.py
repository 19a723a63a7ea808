"""An archive of classes is found by the Java and the jars that it was made for, and by no others."""

import os
from pathlib import Path

import pytest

from kafka_ingest.submitting.class_archive import class_archive, java_binary
from kafka_ingest.submitting.installation import installation, spark_defaults


@pytest.fixture
def java(tmp_path: Path) -> Path:
    binary = tmp_path / "jdk" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    return binary


@pytest.fixture
def jars(tmp_path: Path) -> list[Path]:
    found = [tmp_path / "b.jar", tmp_path / "a.jar"]
    for jar in found:
        jar.write_bytes(b"classes")
        os.utime(jar, (1, 1))
    return found


def test_it_is_the_same_for_the_same_java_and_the_same_jars_in_any_order(java: Path, jars: list[Path]) -> None:
    assert class_archive(java, jars, Path("/jars")) == class_archive(java, reversed(jars), Path("/jars"))


def test_another_java_a_changed_jar_and_one_jar_more_need_another_archive(java: Path, jars: list[Path]) -> None:
    before = class_archive(java, jars, Path("/jars"))
    assert class_archive(java, jars[:1], Path("/jars")) != before
    os.utime(java, (2, 2))
    after_upgrade = class_archive(java, jars, Path("/jars"))
    assert after_upgrade != before
    os.utime(jars[0], (2, 2))
    assert class_archive(java, jars, Path("/jars")) not in {before, after_upgrade}


def test_java_is_the_one_that_sparks_scripts_would_start(java: Path, tmp_path: Path) -> None:
    assert java_binary({}, str(java.parent)) == java
    assert java_binary({"JAVA_HOME": str(java.parent.parent)}, str(tmp_path)) == java
    assert java_binary({}, str(tmp_path)) is None


def test_without_a_java_there_is_none_and_nothing_fails(tmp_path: Path) -> None:
    found = installation({"PATH": str(tmp_path), "SPARK_HOME": str(tmp_path), "JDK_JAVA_OPTIONS": "-XX:+UseG1GC"})
    assert found.class_archive is None
    assert found.spark_home == tmp_path
    assert "-XX:+UseG1GC" in found.java_options


def test_what_sparks_own_settings_say_of_the_drivers_java_is_a_users_choice(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.driver.memory 2g\nspark.driver.extraJavaOptions -XX:+UseZGC\n"
    )
    assert spark_defaults(None, {"SPARK_CONF_DIR": str(tmp_path)}) == "spark.driver.extraJavaOptions -XX:+UseZGC"
    assert spark_defaults(tmp_path / "nowhere", {}) == ""
