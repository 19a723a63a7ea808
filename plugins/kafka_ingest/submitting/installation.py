"""Where this installation's parts are: the job, the JVM dependencies, Spark, the Python and the Java that run."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kafka_ingest.errors import InstallationError
from kafka_ingest.submitting.class_archive import ArchivePlace, java_binary

JARS_VARIABLE = "KAFKA_INGEST_SPARK_JARS"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""From these every Java takes options, whoever starts it."""


@dataclass(frozen=True, slots=True)
class Installation:
    """``jars`` are the Kafka connector's, ``search_path`` where ``spark-submit`` is looked for.

    ``class_archive`` is the archive of classes that fits this Java and these jars, None where none was made.
    ``java_options`` are those that Java gets from the environment, and Spark's driver from Spark's own settings.
    """

    application: Path
    jars: tuple[Path, ...]
    python: Path
    search_path: str
    spark_home: Path | None = None
    class_archive: Path | None = None
    java_options: str = ""


def installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """Return this installation; raises InstallationError naming what is missing.

    ``jobs/`` and ``.jvm/spark`` lie beside ``plugins/``; KAFKA_INGEST_SPARK_JARS names another folder of jars.
    """
    root = Path(__file__).resolve().parents[3]
    application = root / "jobs" / "write_batch.py"
    if not application.is_file():
        raise InstallationError(
            f"expected the Spark job at {application}, found no such file. Install jobs/ beside plugins/."
        )
    folder = Path(environment.get(JARS_VARIABLE) or root / ".jvm" / "spark")
    jars = tuple(sorted(folder.glob("*.jar")))
    if not any(jar.name.startswith(CONNECTOR) for jar in jars):
        raise InstallationError(
            f"expected Spark's Kafka connector ({CONNECTOR}) in {folder}, found {len(jars)} jars without it. "
            f"Run `make setup`, or set {JARS_VARIABLE} to the folder of its jars."
        )
    python = Path(sys.executable)
    # spark-submit is beside the Python that pyspark was installed for, also where nobody activated its environment.
    search_path = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
    spark = spark_home(environment, python)
    place = archive_place(jars, search_path, spark, environment)
    return Installation(
        application,
        jars,
        python,
        search_path,
        spark_home=spark,
        class_archive=place.archive() if place is not None else None,
        java_options=" ".join(
            [*(environment.get(name, "") for name in JAVA_VARIABLES), spark_defaults(spark, environment)]
        ),
    )


def archive_place(
    jars: Iterable[Path], search_path: str, spark: Path | None, environment: Mapping[str, str]
) -> ArchivePlace | None:
    """Return where an archive of classes lies or would lie, beside the connector's jars; None without a Java or a Spark."""
    java = java_binary(environment, search_path)
    folder = next(iter(jars)).parent
    return ArchivePlace.of(java, [*jars, *(spark / "jars").glob("*.jar")], folder) if java and spark else None


def spark_home(environment: Mapping[str, str], python: Path) -> Path | None:
    """Return where Spark is: as SPARK_HOME says, or inside the pyspark whose ``spark-submit`` is beside Python."""
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    pyspark = find_spec("pyspark") if python.with_name("spark-submit").is_file() else None
    return Path(pyspark.origin).parent if pyspark is not None and pyspark.origin else None


def spark_defaults(spark: Path | None, environment: Mapping[str, str]) -> str:
    """Return the lines of ``spark-defaults.conf`` that have options for the driver's Java; mostly there is no such file."""
    folder = environment.get("SPARK_CONF_DIR") or (spark / "conf" if spark is not None else None)
    file = Path(folder) / "spark-defaults.conf" if folder is not None else None
    if file is None or not file.is_file():
        return ""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    return " ".join(line for line in lines if line.lstrip().startswith("spark.driver.") and "JavaOptions" in line)
