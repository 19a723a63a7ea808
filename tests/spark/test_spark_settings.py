"""Every SQL setting that this Spark knows is decided: left to feed and site, fixed, or Spark's own default."""

import json
import os
import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.spark.test_session import run_job

from kafka_ingest.model.spark_settings import FIXED, LEFT, SQL, changes_values, is_left
from kafka_ingest.spark_launch.java_options import with_fixed_meaning

DEFAULTS = Path(__file__).with_name("settings_that_change_values.txt")
"""The versions of Spark that have it, and each with Spark's own default, without ``spark.sql.``."""
VERSION = ".".join(pyspark.__version__.split(".")[:2])
FIXED_SINCE_4_1 = ("execution.pyspark.binaryAsBytes", "legacy.truncateForEmptyRegexSplit")
LEFT_SINCE_4_1 = {
    *("classic.shuffleDependency.*", "parser.*Cache*", "unionOutputPartitioning"),
    *("nameResolutionLog.*", "pyspark.worker.logging.*", "connect.*", "pipelines.*"),
}


HOSTILE = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Tokyo",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.exponentLiteralAsDecimal.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
    "spark.sql.extensions": "there.is.no.such.Extension",
    "spark.sql.shuffle.partitions": "7",
}
"""What ``spark-defaults.conf`` of a site may say."""


ASKED = {
    "found": f"{{name: spark.conf.get(name, None) for name in {list(HOSTILE)}}}",
    "types": """dict(spark.range(1).selectExpr("timestamp'2026-01-01' as at", "1e3 as number").dtypes)""",
    "known": (
        "{each.key(): each.defaultValueString() for each in getattr(getattr(spark._jvm.org.apache.spark.sql.internal, "
        "'SQLConf$'), 'MODULE$').getConfigEntries().toArray()}"
    ),
}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a job says whose site has settings of its own."""
    home = tmp_path_factory.mktemp("job")
    done = run_job(home, conf=HOSTILE, asked=ASKED, SPARK_ANSI_SQL_MODE="false")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_java_makes_the_context_before_python_has_imported_pyspark(answer: dict[str, Any]) -> None:
    how = {name: answer[name] for name in ("imported", "made", "rows", "stopped")}
    assert how == {"imported": False, "made": True, "rows": 3, "stopped": True}


def test_sql_means_the_same_whatever_a_site_says(answer: dict[str, Any]) -> None:
    assert answer["found"] == {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.legacy.sizeOfNull": None,  # as Spark has it by itself
        "spark.sql.legacy.exponentLiteralAsDecimal.enabled": None,
        "spark.sql.files.ignoreCorruptFiles": None,
        "spark.sql.optimizer.excludedRules": None,
        "spark.sql.extensions": "there.is.no.such.Extension",  # said, but not loaded: there is none
        "spark.sql.shuffle.partitions": "7",  # changes no value
    }
    assert answer["types"] == {"at": "timestamp", "number": "double"}


@pytest.fixture
def known_settings(answer: dict[str, Any]) -> dict[str, str]:
    """Spark's own list, internal settings included, with their defaults.

    Of a Spark of its own: what other tests use adds settings when it is first used.
    """
    return {name: default for name, default in sorted(answer["known"].items()) if name.startswith(SQL)}


def test_somebody_has_decided_each_setting_that_spark_has_and_its_default_is_what_it_was(
    known_settings: dict[str, str],
) -> None:
    """Where a new Spark has others: read what they do, and add them to LEFT, to FIXED, or to the file."""
    found = known_settings

    assert len(found) > 500
    others = [f"{name.removeprefix(SQL)} = {found[name]}" for name in found if changes_values(name)]
    decided = [line.partition(" ") for line in DEFAULTS.read_text().splitlines()]
    assert [each for each in others if f"{SQL}{each.partition(' ')[0]}" not in FIXED] == [
        setting for versions, _, setting in decided if VERSION in versions.split(",")
    ]
    assert {name for name in FIXED if is_left(name) or name not in found} == (
        {f"{SQL}{each}" for each in FIXED_SINCE_4_1} if VERSION == "4.0" else set()
    )


def test_each_pattern_of_what_is_left_alone_names_a_setting(known_settings: dict[str, str]) -> None:
    names = [name.removeprefix(SQL) for name in known_settings]
    unknown = {"iceberg.*"}  # another project's
    if VERSION == "4.0":
        unknown |= LEFT_SINCE_4_1
    assert {each for each in LEFT if not any(fnmatchcase(name, each) for name in names)} == unknown


def test_time_zone_language_and_character_sets_of_java_are_the_same_whatever_is_said_elsewhere() -> None:
    hostile = "-Duser.timezone=Asia/Tokyo -Duser.language=tr -Duser.region=TR -Duser.language.format=de"
    told = {"TZ": "Asia/Tokyo", "LANG": "tr_TR.ISO-8859-9", "LC_ALL": "C", "JAVA_TOOL_OPTIONS": hostile}
    environment = {**os.environ, **told, **with_fixed_meaning(f"{hostile} -Dfile.encoding=ISO-8859-9 -Dshop=ours")}

    asked = ["java", *shlex.split(hostile), "-XshowSettings:all", "-version"]
    said = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stderr

    found = dict(re.findall(r"^ +([\w. ]+?) = (.*)$", said, re.MULTILINE))
    assert {name: found.get(name) for name in ("user.timezone", "file.encoding", "sun.jnu.encoding", "shop")} == {
        "user.timezone": "UTC",
        "file.encoding": "UTF-8",
        "sun.jnu.encoding": "UTF-8",
        "shop": "ours",  # the site's other options stay
    }
    assert (found["default locale"], found["default format locale"]) == ("English (United States)",) * 2
