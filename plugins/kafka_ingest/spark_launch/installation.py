"""Where this installation's parts are: the job, the JVM dependencies, Spark, the Python and the Java that run.

One is an archive of the classes that the write job loads, so that Java need not read and verify them again in each
batch: Java calls it application class-data sharing (JEP 350). It is made at set-up, for one Java and one class path;
without a matching archive, classes are loaded as usual.
"""

import hashlib
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from kafka_ingest.errors import InstallationError
from kafka_ingest.spark_launch.java_options import SETTINGS_VARIABLE, ChosenJavaOptions, chosen_java_options
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES

OWNER_LENGTH = 8
KEY_LENGTH = 16

JAVAS_OWN = Path("lib", "server", "classes.jsa")
"""The archive of Java's own classes, on which another one is built: it fits no other."""


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """Where the archive for one Java and one class path is, or would be: ``classes-OWNER-KEY-SIZE.jsa``.

    ``owner`` identifies where Java and its jars are, ``key`` their versions: after an upgrade a new archive replaces
    the former one. The size shows that an archive is complete: Java maps a truncated one unchecked, and crashes
    (SIGBUS).
    """

    folder: Path
    owner: str
    key: str

    @classmethod
    def of(cls, java: Path, jars: Iterable[Path], folder: Path) -> "ArchivePlace":
        """Return the place in a folder. It depends on what Java compares: paths, sizes, and times of change in seconds.

        A container's image keeps no finer times.
        """
        jars = sorted(jars)
        folders = sorted({str(jar.parent) for jar in jars})
        return cls(
            folder,
            owner=short_hash([str(java), *folders], OWNER_LENGTH),
            key=short_hash(described([java, java.parents[1] / JAVAS_OWN, *jars]), KEY_LENGTH),
        )

    @property
    def failed_log(self) -> Path:
        """The log of a failed try to make an archive; it exists only after such a failure."""
        return self.folder / f"{self._prefix}.log"

    def file(self, size: int) -> Path:
        return self.folder / f"{self._prefix}-{size}.jsa"

    def archive(self) -> Path | None:
        return next((file for file, found in self._archives() if file == self.file(found.st_size)), None)

    def damaged(self) -> Path | None:
        return next((file for file, found in self._archives() if file != self.file(found.st_size)), None)

    def former_files(self, archive: Path) -> list[Path]:
        """Return the files that an archive replaces: the owner's other archives, logs, and an interrupted set-up's."""
        return [file for file in self.folder.glob(f"classes-{self.owner}-*") if file != archive]

    @property
    def _prefix(self) -> str:
        return f"classes-{self.owner}-{self.key}"

    def _archives(self) -> Iterator[tuple[Path, os.stat_result]]:
        found = stats(sorted(self.folder.glob(f"{self._prefix}-*.jsa")))
        return ((file, status) for file, status in found if stat.S_ISREG(status.st_mode))


def java_binary(environment: Mapping[str, str], search_path: str) -> Path | None:
    """Return the Java that Spark's own scripts start: JAVA_HOME's, or the first on the search path."""
    if home := environment.get("JAVA_HOME"):
        found: str | None = str(Path(home) / "bin" / "java")
    else:
        found = shutil.which("java", path=search_path)
    return Path(found).resolve() if found is not None else None


def described(files: Iterable[Path]) -> list[str]:
    return [f"{file} {found.st_size} {int(found.st_mtime)}" for file, found in stats(files)]


def short_hash(lines: Iterable[str], length: int) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:length]


def stats(files: Iterable[Path]) -> Iterator[tuple[Path, os.stat_result]]:
    for file in files:
        try:
            yield file, file.stat()
        except OSError:  # removed, or a dangling link: everything works without it
            continue


ROOT_VARIABLE = "KAFKA_INGEST_JARS"
CONNECTOR_FOLDER, AVRO_FOLDER = "spark", "avro"
JARS_VARIABLE = "KAFKA_INGEST_SPARK_JARS"
AVRO_JARS_VARIABLE = "KAFKA_INGEST_AVRO_JARS"
APPLICATION = Path(__file__).resolve().parents[1] / "writing" / "main" / "write_batch.py"
AVRO_JAR = "spark-avro_"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
UNABLE = re.compile(r"spark-sql_2\.13-4\.2\..*jar")
"""Of the Sparks that do not write to each store."""


@dataclass(frozen=True, slots=True)
class Installation:
    """``jars`` are the Kafka connector's, ``search_path`` where ``spark-submit`` is looked for.

    ``archive_place`` is where the archive of classes for this Java and these jars is or would be. It is None
    without Java or Spark, and where a folder of settings is named: Spark puts it before its jars, and Java takes none
    of another class path. ``java_options`` are what Java gets without this project.
    """

    application: Path
    jars: tuple[Path, ...]
    python: Path
    search_path: str
    spark_home: Path | None = None
    archive_place: ArchivePlace | None = None
    java_options: ChosenJavaOptions = field(default_factory=ChosenJavaOptions)
    store_jars: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    """Those that Spark needs for an output in a store, by its scheme, where they are installed."""

    avro_jars: tuple[Path, ...] = ()
    """Those that Spark needs for Avro; in a folder of their own, so that they are nothing to other feeds."""

    def check_avro_jars(self) -> None:
        """Raise InstallationError where Spark cannot read Avro: neither its own jars nor ours have its module."""
        own = (self.spark_home / "jars").glob("*.jar") if self.spark_home is not None else ()
        if not any(jar.name.startswith(AVRO_JAR) for jar in (*self.avro_jars, *own)):
            raise InstallationError(
                f"expected {AVRO_JAR}*.jar for records in Avro, found none in {jars_root() / AVRO_FOLDER} or in "
                f"Spark's own jars. Run `kafka-ingest jars`, or set {AVRO_JARS_VARIABLE} to the folder of that jar."
            )

    def check_store_jars(self, scheme: str) -> None:
        """Raise InstallationError where Spark cannot write to a store: neither its own jars nor ours have the parts."""
        store = SPARK_STORES[scheme]
        own = (self.spark_home / "jars").glob("*.jar") if self.spark_home is not None else ()
        names = [jar.name for jar in (*self.store_jars.get(scheme, ()), *own)]
        if store.manifest and (core := next((name for name in names if UNABLE.match(name)), None)):
            raise InstallationError(
                f"expected a Spark before 4.2 for an output in {store.name}, found {core}: it gives Hadoop's committer "
                f"no id of the job. Install pyspark==4.1.1 and pyspark-client==4.1.1, and run `kafka-ingest jars "
                f"{store.folder}`."
            )
        if missing := [start for start in store.jars if not any(name.startswith(start) for name in names)]:
            raise InstallationError(
                f"expected {' and '.join(f'{each}*.jar' for each in missing)} for an output in {store.name}, found "
                f"none in {jars_root() / store.folder} or in Spark's own jars. Run `kafka-ingest jars "
                f"{store.folder}`, or set {store.jars_variable} to the folder of those jars (docs/sinks.md)."
            )

    @property
    def class_archive(self) -> Path | None:
        return self.archive_place.archive() if self.archive_place is not None else None


def installation(environment: Mapping[str, str] = os.environ) -> Installation:
    """Return this installation; raises InstallationError naming what is missing.

    Jars are where `kafka-ingest jars` brings them; KAFKA_INGEST_SPARK_JARS names another folder for the connector's.
    """
    root = jars_root(environment)
    folder = Path(environment.get(JARS_VARIABLE) or root / CONNECTOR_FOLDER)
    jars = tuple(sorted(folder.glob("*.jar")))
    if not any(jar.name.startswith(CONNECTOR) for jar in jars):
        raise InstallationError(
            f"expected Spark's Kafka connector ({CONNECTOR}) in {folder}, found {len(jars)} jars without it. "
            f"Run `kafka-ingest jars`, or set {JARS_VARIABLE} to the folder of its jars."
        )
    python = Path(sys.executable)
    # spark-submit is next to the Python that pyspark was installed for, also where its environment is not activated.
    search_path = os.pathsep.join([str(python.parent), environment.get("PATH", os.defpath)])
    spark = spark_home(environment, python)
    java = java_binary(environment, search_path)
    place = None
    if java and spark and not environment.get(SETTINGS_VARIABLE):
        place = ArchivePlace.of(java, [*jars, *(spark / "jars").glob("*.jar")], folder)
    store_folders = {
        scheme: Path(environment.get(each.jars_variable) or root / each.folder) for scheme, each in SPARK_STORES.items()
    }
    avro_folder = Path(environment.get(AVRO_JARS_VARIABLE) or root / AVRO_FOLDER)
    return Installation(
        APPLICATION,
        jars,
        python,
        search_path,
        spark_home=spark,
        archive_place=place,
        java_options=chosen_java_options(spark, environment),
        store_jars={scheme: tuple(sorted(each.glob("*.jar"))) for scheme, each in store_folders.items()},
        avro_jars=tuple(sorted(avro_folder.glob("*.jar"))),
    )


def jars_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the folders of jars: KAFKA_INGEST_JARS, or a place in this Python environment.

    Where this user may not write into the environment, and has not done so before, it is one of the user's own.
    """
    if named := environment.get(ROOT_VARIABLE):
        return Path(named).resolve()
    here = Path(sys.prefix) / "share" / "kafka-ingest" / "jars"
    data = environment.get("XDG_DATA_HOME") or Path(environment.get("HOME") or Path.home()) / ".local" / "share"
    own = Path(data) / "kafka-ingest" / "jars"
    # Resolved: an archive of classes fits one class path alone.
    return (own if not here.is_dir() and (own.is_dir() or not os.access(sys.prefix, os.W_OK)) else here).resolve()


def spark_home(environment: Mapping[str, str], python: Path) -> Path | None:
    """Return where Spark is: SPARK_HOME, or inside the pyspark whose ``spark-submit`` is next to Python."""
    if home := environment.get("SPARK_HOME"):
        return Path(home)
    pyspark = find_spec("pyspark") if python.with_name("spark-submit").is_file() else None
    return Path(pyspark.origin).parent if pyspark is not None and pyspark.origin else None
