"""What the driver's process is given of the environment it is started from: what is named here, and no more.

A task's environment holds connections, a database's password, and whatever else a site puts there. The job needs none
of it.
"""

from collections.abc import Mapping

MORE_VARIABLE = "KAFKA_INGEST_DRIVER_ENVIRONMENT"
"""Names what a site's Spark needs beyond this list, with commas between the names."""

NAMES = frozenset(
    {
        *("HOME", "USER", "LOGNAME", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "PATH", "HOSTNAME", "PWD"),
        *("TMPDIR", "TMP", "TEMP", "LD_LIBRARY_PATH", "LD_PRELOAD", "MALLOC_ARENA_MAX", "NSS_WRAPPER_PASSWD"),
        *("JAVA_HOME", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"),
        *("KRB5CCNAME", "KRB5_CONFIG", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV"),
    }
)
PREFIXES = ("LC_", "SPARK_", "PYSPARK_", "PYTHON", "HADOOP_", "YARN_")
"""Spark's own settings by environment: bin/load-spark-env.sh, bin/spark-class, and Hadoop's configuration folders."""

OTHER_SPARK = (
    *("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_", "SPARK_API_MODE"),
    *("SPARK_TESTING", "SPARK_ANSI_SQL_MODE"),
)
"""These make another Spark of it: a client of a server elsewhere, one that tests itself, one with other SQL."""


def is_needed(name: str, environment: Mapping[str, str]) -> bool:
    """Whether the driver gets a variable of this name."""
    more = {each.strip() for each in environment.get(MORE_VARIABLE, "").split(",")}
    return (name in NAMES or name.startswith(PREFIXES) or name in more) and not name.startswith(OTHER_SPARK)


def driver_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what the driver gets of an environment."""
    return {name: value for name, value in environment.items() if is_needed(name, environment)}


def emptied(environment: Mapping[str, str]) -> dict[str, str]:
    """Return all the others, empty: for a starter that can only add to its own environment, as Airflow's hook."""
    return {name: "" for name in environment if not is_needed(name, environment)}
