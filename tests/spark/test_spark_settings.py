"""Every SQL setting that this Spark knows is decided: left to feed and site, fixed, or Spark's own default."""

import os
import re
import shlex
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_ingest.model.spark_settings import FIXED, LEFT, SQL, changes_values, is_left
from kafka_ingest.spark_launch.java_options import with_fixed_meaning

DEFAULTS = Path(__file__).with_name("settings_that_change_values.txt")
"""Each with Spark's own default, without ``spark.sql.``."""


def known_settings(spark: SparkSession) -> dict[str, str]:
    """Return Spark's own list, internal settings included, with their defaults."""
    module = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$")
    found = getattr(module, "MODULE$").getConfigEntries().iterator()
    entries = []
    while found.hasNext():
        entry = found.next()
        entries.append((entry.key(), entry.defaultValueString()))
    return {name: default for name, default in sorted(entries) if name.startswith(SQL)}


def test_somebody_has_decided_each_setting_that_spark_has_and_its_default_is_what_it_was(spark: SparkSession) -> None:
    """Where a new Spark has others: read what they do, and add them to LEFT, to FIXED, or to the file."""
    found = known_settings(spark)

    assert len(found) > 500
    others = [f"{name.removeprefix(SQL)} = {found[name]}" for name in found if changes_values(name)]
    assert [
        each for each in others if f"{SQL}{each.partition(' ')[0]}" not in FIXED
    ] == DEFAULTS.read_text().splitlines()
    assert [name for name in FIXED if is_left(name) or name not in found] == []


def test_each_pattern_of_what_is_left_alone_names_a_setting(spark: SparkSession) -> None:
    names = [name.removeprefix(SQL) for name in known_settings(spark)]
    unknown = {"iceberg.*"}  # another project's
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
