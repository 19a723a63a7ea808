"""Which Java the write job gets, beside what the site chose: compiler and collector go by how much there is to read."""

import os
import re
import shlex
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


SMALL_BATCH_RECORDS = 1_000_000
"""Up to here what compiles fast beats fast code: 1 million records took 10.6 and 11.6 s, 2 million 16.1 and 13.2 s."""

SMALL = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
LARGE = (
    "-XX:+UseParallelGC",
    # Ten times the defaults: what is called now and then stays as it is, and its compiling takes nothing from the
    # tasks.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
)
STEADY = (
    # What it takes in the end, it has from the beginning: by itself it grows until it is full of what may go.
    *("-Xms224m", "-Xmn96m", "-XX:+AlwaysPreTouch"),
    # What a larger attempt has made it grow by, it gives back with the next full collection.
    *("-XX:MinHeapFreeRatio=20", "-XX:MaxHeapFreeRatio=40", "-XX:-ShrinkHeapInSteps"),
    # Of what lives as long as an attempt, less gets among what stays.
    "-XX:SurvivorRatio=4",
)
"""The heap of a small driver that writes many attempts, one after the other, for ``-XX:+UseSerialGC``.

Spark starts with no less than 450 MB as its largest size.
"""
LAUNCHER = (*SMALL, "-XX:-UsePerfData")
"""Spark's scripts start another Java only to put the real command together."""

LAUNCHER_JAR = "spark-launcher_*.jar"
"""Java looks here first: along its class path it would open all jars whose names come before this one's, for 60 ms."""

MAPPED_IN_PLACE = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")
"""An archive's pages stay shared, and are read when they are needed.

Since JDK-8294323 Java puts an archive at a random address and corrects all pointers in it at each start: 85 ms for
this one.
"""

MEANING = (
    "-Duser.timezone=UTC -Duser.language=en -Duser.country=US -Duser.region=US -Duser.language.format=en "
    "-Duser.country.format=US -Dfile.encoding=UTF-8"
)
"""What values mean to Java: upper and lower case, how numbers and times are written, and text without a named charset.

``user.region`` stands above ``user.country``, ``user.script`` and ``user.variant`` (``java.util.Locale``).
"""

MEANING_OF_JAVA = re.compile(
    r"-D(user\.(timezone|language|country|region|script|variant|extensions)|file\.encoding)\S*"
)

COLLECTOR = re.compile(r"-XX:[+-]Use\w*GC\b")
COMPILER = re.compile(r"-XX:(TieredStopAtLevel|Tier4\w+Threshold|[+-]TieredCompilation)|-Xint\b|-Xcomp\b")
ARCHIVE = re.compile(r"-Xshare:|-XX:(SharedArchiveFile|ArchiveClassesAtExit|SharedClassListFile|\+VerifySharedSpaces)")
PLACE = re.compile(r"-XX:ArchiveRelocationMode=")


def with_fixed_meaning(chosen_last: str = "") -> dict[str, str]:
    """Return environment variables by which values mean the same to Java and Python, wherever they run.

    File names are UTF-8 by the locale alone. The variable for Java's options stands above JAVA_TOOL_OPTIONS, Spark's
    settings, and a feed's.
    """
    return {"LC_ALL": "C.UTF-8", "TZ": "UTC", LAST_WORD: joined([chosen_last, MEANING])}


def java_options(records: int, archive: Path | None, chosen: str) -> str:
    """Return options for the Java that reads at most ``records``; ``chosen`` are those that it gets from elsewhere.

    What a user has chosen is kept: with two collectors Java does not start.
    """
    options = SMALL if records <= SMALL_BATCH_RECORDS else LARGE
    if archive is not None and not ARCHIVE.search(chosen):
        options = (*options, *using(archive))
    # Spark splits such a text as a shell would.
    return shlex.join(left_to_us(options, chosen))


def steady(options: str) -> str:
    """Return options for a driver of many attempts, made of those for one."""
    return joined([options, *STEADY]) if SMALL[-1] in options.split() else options


def using(archive: Path) -> tuple[str, ...]:
    """Return the options by which Java starts from an archive of classes; where it fits no more, it starts as without.

    A file system may lose pages in a crash: what does not add up is left alone then, instead of run. It takes 0.1 s.
    """
    return (*MAPPED_IN_PLACE, "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}")


def launcher_options(chosen: ChosenJavaOptions, spark_home: Path) -> str:
    """Return options for the short-lived Java of Spark's scripts, its own included."""
    # The script splits its options at every blank.
    jars = [jar for jar in (spark_home / "jars").glob(LAUNCHER_JAR) if not re.search(r"\s", str(jar))]
    options = (*LAUNCHER, *(f"-Xbootclasspath/a:{jar}" for jar in jars[:1]))
    return joined([chosen.launcher, *left_to_us(options, joined([chosen.every, chosen.launcher]))])


def left_to_us(options: tuple[str, ...], chosen: str) -> list[str]:
    """Return the options for which the site has not chosen another one."""
    taken = [kind for kind in (COLLECTOR, COMPILER, PLACE) if kind.search(chosen)]
    return [option for option in options if not any(kind.match(option) for kind in taken)]
