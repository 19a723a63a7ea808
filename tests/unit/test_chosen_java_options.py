"""What Java gets from elsewhere: found wherever Spark's launcher would find it, kept, and never contradicted."""

from pathlib import Path

import pytest

from kafka_ingest.spark_launch.java_options import ChosenJavaOptions, chosen_java_options, launcher_options


@pytest.fixture
def spark(tmp_path: Path) -> Path:
    (tmp_path / "conf").mkdir()
    return tmp_path


def test_nothing_is_chosen_where_no_one_chose_anything(spark: Path) -> None:
    assert chosen_java_options(None, {}) == ChosenJavaOptions()
    assert chosen_java_options(spark, {}) == ChosenJavaOptions()


def test_the_variables_that_every_java_reads_are_every_javas() -> None:
    variables = {"JDK_JAVA_OPTIONS": "-Da=1", "JAVA_TOOL_OPTIONS": "-Db=2", "_JAVA_OPTIONS": "-Dc=3"}
    assert chosen_java_options(None, variables).every == "-Da=1 -Db=2 -Dc=3"


def test_options_for_the_driver_come_from_a_variable_a_file_of_options_and_sparks_defaults(spark: Path) -> None:
    (spark / "conf" / "java-opts").write_text("-Dfrom=file\n")
    (spark / "conf" / "spark-defaults.conf").write_text(
        "# spark.driver.extraJavaOptions -Dcommented=out\nspark.driver.memory 2g\nspark.driver.extraJavaOptions  "
        "-Dextra=1\n"
    )
    found = chosen_java_options(spark, {"SPARK_SUBMIT_OPTS": "-Dfrom=variable"})
    assert found.driver == "-Dfrom=variable -Dfrom=file -Dextra=1"


@pytest.mark.parametrize("separator", [" ", "\t", "=", " = ", ": "])
def test_the_sites_defaults_for_the_driver_are_distinguished_however_they_are_written(
    spark: Path, separator: str
) -> None:
    (spark / "conf" / "spark-defaults.conf").write_text(f"spark.driver.defaultJavaOptions{separator}-Dsite=a=b \n")
    assert chosen_java_options(spark, {}) == ChosenJavaOptions(driver_defaults="-Dsite=a=b")


def test_executors_options_are_not_the_drivers(spark: Path) -> None:
    (spark / "conf" / "spark-defaults.conf").write_text(
        "spark.executor.extraJavaOptions -XX:+UseG1GC\nspark.executor.defaultJavaOptions -Dsite=1\n"
    )
    assert chosen_java_options(spark, {}) == ChosenJavaOptions(executor_defaults="-Dsite=1")


def test_another_folder_of_settings_takes_the_place_of_sparks_own(spark: Path, tmp_path: Path) -> None:
    (spark / "conf" / "java-opts").write_text("-Dunread=1")
    assert chosen_java_options(spark, {"SPARK_CONF_DIR": str(tmp_path / "absent")}) == ChosenJavaOptions()


def test_what_is_chosen_for_sparks_scripts_stays_in_front_of_ours(spark: Path) -> None:
    options = launcher_options(ChosenJavaOptions(launcher="-Dmine=1 -XX:+UseG1GC"), spark).split()
    assert options[:2] == ["-Dmine=1", "-XX:+UseG1GC"]
    assert "-XX:TieredStopAtLevel=1" in options
    assert "-XX:+UseSerialGC" not in options
