"""The options that Java gets from outside a feed: from the environment, and from Spark's own settings."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LAST_WORD = "_JAVA_OPTIONS"
"""What it has counts more than all others, those on a command line included."""

JAVA_VARIABLES = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", LAST_WORD)
"""Every Java process reads options from these."""

DRIVER_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
"""Spark puts these before spark.driver.extraJavaOptions, which are the user's."""

SETTINGS_VARIABLE = "SPARK_CONF_DIR"
"""Names the folder of Spark's own settings; without it they are in ``conf`` of Spark's home."""

EXECUTOR_JAVA_OPTIONS = "spark.executor.defaultJavaOptions"
"""The same, for executors."""

SETTING = re.compile(r"\s*(spark\.(?:driver|executor)\.(?:default|extra)JavaOptions)[\s=:]+(.*)")


@dataclass(frozen=True, slots=True)
class ChosenJavaOptions:
    """Each a text of options: for every Java, for Spark's driver, and for the Java of Spark's scripts.

    ``last`` are those for every Java that count most.
    ``driver_defaults`` and ``executor_defaults`` are what the site has set under the names that this project uses, too.
    """

    every: str = ""
    last: str = ""
    driver: str = ""
    driver_defaults: str = ""
    executor_defaults: str = ""
    launcher: str = ""


def chosen_java_options(spark: Path | None, environment: Mapping[str, str]) -> ChosenJavaOptions:
    """Return the chosen options, as Spark's launcher finds them (``AbstractCommandBuilder``, ``bin/spark-class``)."""
    folder = environment.get(SETTINGS_VARIABLE) or (spark / "conf" if spark is not None else None)
    defaults = dict(filter(None, map(setting, lines_of(folder, "spark-defaults.conf"))))
    return ChosenJavaOptions(
        every=joined(environment.get(name) for name in JAVA_VARIABLES),
        last=environment.get(LAST_WORD, ""),
        driver=joined(
            [
                environment.get("SPARK_SUBMIT_OPTS"),
                *lines_of(folder, "java-opts"),
                defaults.get("spark.driver.extraJavaOptions"),
            ]
        ),
        driver_defaults=defaults.get(DRIVER_JAVA_OPTIONS, ""),
        executor_defaults=defaults.get(EXECUTOR_JAVA_OPTIONS, ""),
        launcher=environment.get("SPARK_LAUNCHER_OPTS", ""),
    )


def lines_of(folder: str | os.PathLike[str] | None, name: str) -> list[str]:
    """Return the lines of one of Spark's files of settings; mostly there is no such file."""
    file = Path(folder) / name if folder is not None else None
    return (
        file.read_text(encoding="utf-8", errors="replace").splitlines() if file is not None and file.is_file() else []
    )


def setting(line: str) -> tuple[str, str] | None:
    """Return name and value where a line of ``spark-defaults.conf`` has options for the Java of driver or executors."""
    found = SETTING.fullmatch(line)
    return (found[1], found[2].strip()) if found is not None else None


def joined(options: Iterable[str | None]) -> str:
    return " ".join(filter(None, options))
