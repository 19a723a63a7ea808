"""A job of its own for ``doctor``: does Spark start as a run would start it, and on what? It reads no record."""

import json
import platform
import sys
from pathlib import Path

from kafka_ingest.writing.kafka_records import jvm_of
from kafka_ingest.writing.session import spark_session


def main() -> None:
    """Write what the driver runs on into the file that stands after ``--check``; with ``--workers``, start one."""
    with spark_session() as spark:
        java = jvm_of(spark).java
        found = {
            "Spark": spark.version,
            "Python": platform.python_version(),
            "Java": java.lang.System.getProperty("java.version"),
            "file names": java.lang.System.getProperty("sun.jnu.encoding"),
            "time zone": java.util.TimeZone.getDefault().getID(),
            "language": java.util.Locale.getDefault().toString(),
        }
        if "--workers" in sys.argv:
            spark.sparkContext.parallelize([1], 1).map(abs).collect()
    Path(sys.argv[sys.argv.index("--check") + 1]).write_text(json.dumps(found), encoding="utf-8")
