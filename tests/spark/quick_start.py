"""Spark for tests of parts of the job: its Java starts as that of a small batch does, from the archive of its classes.

Without that, Java compiles for a long life and loads each class anew: ten seconds of CPU instead of four.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from tests.kept_spark import ROOM_FOR_CODE

from environment import ROOT
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.java_options import java_options, launcher_options

JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def conf_of_quick_start() -> dict[str, str]:
    """Return Spark's settings for it."""
    installed = installation()
    return {
        JAVA_OPTIONS: java_options(1, installed.class_archive, ""),
        # The archive fits no other class path.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, installed.jars)),
        "spark.ui.enabled": "false",
    }


def builder_of_quick_start() -> SparkSession.Builder:
    """Return what makes such a Spark for this process, and for hundreds of queries."""
    conf = conf_of_quick_start()
    conf[JAVA_OPTIONS] += f" {ROOM_FOR_CODE}"
    return SparkSession.builder.master("local[1]").config(map=conf)


def run_script(
    script: Path, *arguments: str, master: str, conf: Mapping[str, str] | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Submit a script that may import the package, from its own folder; ``conf`` are further settings."""
    installed = installation()
    home = installed.spark_home
    assert home is not None
    settings = conf_of_quick_start() | dict(conf or {})
    return subprocess.run(
        [
            *("spark-submit", "--master", master),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            *(script, *arguments),
        ],
        env=os.environ
        | {
            "PATH": installed.search_path,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "plugins"),
            "SPARK_HOME": str(home),
            "SPARK_LAUNCHER_OPTS": launcher_options(installed.java_options, home),
        }
        | environment,
        cwd=script.parent,
        capture_output=True,
        text=True,
        check=False,
    )
