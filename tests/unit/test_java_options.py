"""Which Java reads a batch: what fits its size, and never against what a user has chosen."""

import shlex
from pathlib import Path

import pytest

from kafka_ingest.spark_launch.java_options import (
    SMALL_BATCH_RECORDS,
    ChosenJavaOptions,
    java_options,
    launcher_options,
)

ARCHIVE = Path("/jars/classes-0123.jsa")


def test_a_small_batch_gets_the_compiler_and_the_collector_that_start_fast() -> None:
    assert java_options(SMALL_BATCH_RECORDS, None, "").split() == ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


def test_a_large_batch_gets_the_compiler_that_makes_fast_code_and_a_collector_that_uses_all_processors() -> None:
    collector, *compiler = java_options(SMALL_BATCH_RECORDS + 1, None, "").split()

    assert collector == "-XX:+UseParallelGC"
    assert {option.partition("Threshold=")[0] for option in compiler} == {
        f"-XX:Tier4{kind}" for kind in ("Invocation", "MinInvocation", "Compile", "BackEdge")
    }


@pytest.mark.parametrize("records", [1, 10_000_000])
def test_an_archive_of_classes_serves_every_batch(records: int) -> None:
    assert f"-XX:SharedArchiveFile={ARCHIVE}" in java_options(records, ARCHIVE, "").split()


@pytest.mark.parametrize("records", [1, 10_000_000])
def test_an_archive_is_mapped_as_it_is_instead_of_being_corrected_for_another_address(records: int) -> None:
    options = java_options(records, ARCHIVE, "").split()
    # Java refuses a diagnostic option before the option that unlocks them.
    assert options.index("-XX:+UnlockDiagnosticVMOptions") < options.index("-XX:ArchiveRelocationMode=0")
    assert "Relocation" not in java_options(records, None, "")


def test_a_chosen_place_of_the_archive_stays() -> None:
    options = java_options(1, ARCHIVE, "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=1")
    assert "Relocation" not in options
    assert f"-XX:SharedArchiveFile={ARCHIVE}" in options


def test_an_archive_in_a_folder_with_a_blank_in_its_name_is_one_option() -> None:
    options = shlex.split(java_options(1, Path("/my jars/classes.jsa"), ""))
    assert options[-1] == "-XX:SharedArchiveFile=/my jars/classes.jsa"


@pytest.mark.parametrize("records", [1, 10_000_000])
@pytest.mark.parametrize("chosen", ["-XX:+UseG1GC", "-Xlog:gc -XX:+UseZGC -Dkey=value", "-XX:+UseSerialGC"])
def test_where_a_collector_is_chosen_no_other_one_is_named_since_java_would_not_start(
    records: int, chosen: str
) -> None:
    assert "GC" not in java_options(records, ARCHIVE, chosen)


@pytest.mark.parametrize("chosen", ["-XX:TieredStopAtLevel=4", "-XX:-TieredCompilation", "-Xint", "-Xcomp"])
def test_a_chosen_compiler_stays(chosen: str) -> None:
    assert java_options(1, None, chosen) == "-XX:+UseSerialGC"


@pytest.mark.parametrize(
    "chosen", ["-Xshare:off", "-XX:SharedArchiveFile=/mine.jsa", "-XX:ArchiveClassesAtExit=/new.jsa"]
)
def test_a_chosen_archive_stays_alone(chosen: str) -> None:
    assert java_options(1, ARCHIVE, chosen) == java_options(1, None, "")


def test_other_options_change_nothing() -> None:
    chosen = "-Dsun.security.useGC=x -XX:MaxGCPauseMillis=10 -Xmx4g"
    assert java_options(1, ARCHIVE, chosen) == java_options(1, ARCHIVE, "")


def test_the_java_that_only_puts_the_command_together_starts_fast_too(tmp_path: Path) -> None:
    assert "-XX:TieredStopAtLevel=1" in launcher_options(ChosenJavaOptions(), tmp_path)
    assert "UseSerialGC" not in launcher_options(ChosenJavaOptions(every="-XX:+UseG1GC"), tmp_path)


def jar_of_the_launcher(spark: Path) -> Path:
    jar = spark / "jars" / "spark-launcher_2.13-4.0.2.jar"
    jar.parent.mkdir(parents=True)
    jar.touch()
    return jar


def test_it_finds_its_one_jar_without_opening_all_of_sparks(tmp_path: Path) -> None:
    jar = jar_of_the_launcher(tmp_path)
    assert f"-Xbootclasspath/a:{jar}" in launcher_options(ChosenJavaOptions(), tmp_path).split(" ")
    assert "bootclasspath" not in launcher_options(ChosenJavaOptions(), tmp_path / "another")


def test_a_name_with_a_blank_which_the_script_would_take_apart_is_not_handed_to_it(tmp_path: Path) -> None:
    jar_of_the_launcher(tmp_path / "my spark")
    assert "bootclasspath" not in launcher_options(ChosenJavaOptions(), tmp_path / "my spark")
