"""Where this installation's parts are: the job, the JVM dependencies, the Python that runs."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from kafka_ingest.errors import InstallationError

JARS_VARIABLE = "KAFKA_INGEST_SPARK_JARS"
CONNECTOR = "spark-sql-kafka-0-10_2.13"


@dataclass(frozen=True, slots=True)
class Installation:
    """``jars`` are the Kafka connector's, ``search_path`` where ``spark-submit`` is looked for."""

    application: Path
    jars: tuple[Path, ...]
    python: Path
    search_path: str


def installation() -> Installation:
    """Return this installation; raises InstallationError naming what is missing.

    ``jobs/`` and ``.jvm/spark`` lie beside ``plugins/``; KAFKA_INGEST_SPARK_JARS names another folder of jars.
    """
    root = Path(__file__).resolve().parents[3]
    application = root / "jobs" / "write_batch.py"
    if not application.is_file():
        raise InstallationError(
            f"expected the Spark job at {application}, found no such file. Install jobs/ beside plugins/."
        )
    folder = Path(os.environ.get(JARS_VARIABLE) or root / ".jvm" / "spark")
    jars = tuple(sorted(folder.glob("*.jar")))
    if not any(jar.name.startswith(CONNECTOR) for jar in jars):
        raise InstallationError(
            f"expected Spark's Kafka connector ({CONNECTOR}) in {folder}, found {len(jars)} jars without it. "
            f"Run `make setup`, or set {JARS_VARIABLE} to the folder of its jars."
        )
    python = Path(sys.executable)
    # spark-submit is beside the Python that pyspark was installed for, also where nobody activated its environment.
    search_path = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    return Installation(application, jars, python, search_path)
