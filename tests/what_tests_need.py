"""What a test needs beside Python.

Read from its folder and its fixtures, so no test has to say it and none can forget to.

``--quick`` runs the tests that need nothing. In every run, quick or not, one of those that starts a JVM or a server
fails.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent

REAL_PARTS = "a real broker, Spark or Airflow"
OBJECT_STORE = "a server that speaks S3's protocol"
REST_CATALOG = "an Iceberg REST catalog"
SCHEMA_REGISTRY = "a schema registry in Java"
DATABASE = "control tables in SQLite or PostgreSQL"
LONG = "a while, to try very many cases, to write many tables or to wait"

NEEDS_OF_FOLDERS = {"integration": REAL_PARTS, "orchestration": REAL_PARTS, "spark": REAL_PARTS}
NEEDS_OF_FIXTURES = {
    "object_store": OBJECT_STORE,
    "s3_proxy": OBJECT_STORE,
    "gcs": OBJECT_STORE,
    "azure": OBJECT_STORE,
    "rest_catalog": REST_CATALOG,
    "apicurio": SCHEMA_REGISTRY,
    "broker": REAL_PARTS,
    "migrated_sqlite_file": DATABASE,
    "sqlite": DATABASE,
    "postgresql_server": DATABASE,
    "postgresql": DATABASE,
    "upgraded_tables": DATABASE,
}
"""Also for a parameter, by which some tests name the fixture that they ask for."""
NEEDS_OF_MARKERS = {"long": LONG}

ORDER = (REAL_PARTS, LONG, OBJECT_STORE, REST_CATALOG, SCHEMA_REGISTRY, DATABASE, None)
"""What is started first: a file that takes minutes must not begin when the other process has nothing left to do."""

IN_A_KEPT_SPARK = re.compile(r"submitting\(spark_is_real=|kept_spark\(\)\.|spark: SparkSession")
"""What a test says that asks for the Spark that a process keeps: for jobs, or as a session."""
IN_A_FORK_OF_AIRFLOW = re.compile(r"import Airflow\b|airflow_forks|page_server")
"""What a test says that asks for the Airflow that a process has imported once, and whose database it has made."""
WITH_A_BROKER_MORE = re.compile(r"another_broker|mortal_broker")
"""What a test says that asks for one of the brokers that a process starts beside its own."""
KEPT: Mapping[str, tuple[frozenset[str], re.Pattern[str]]] = {
    "in a kept Spark": (frozenset({"integration", "spark"}), IN_A_KEPT_SPARK),
    "in forks of an Airflow": (frozenset({"orchestration"}), IN_A_FORK_OF_AIRFLOW),
    "with a broker more": (frozenset({"integration"}), WITH_A_BROKER_MORE),
}
"""What files of tests share, in which folders, and what they say: one process starts it, and runs them all."""

WAIT, COMPUTE = REAL_PARTS, LONG
"""What is waited for, and what is not: while one process waits for Kafka, Java or Airflow, others use its processor."""

SERVERS = frozenset({"java", "spark-submit", "spark-class", "airflow", "postgres", "initdb", "pg_ctl"})
"""The programs that are a JVM or a server, or start one."""


class NotQuickError(AssertionError):
    """A test that is counted among the quick ones starts a JVM or a server."""


def need(
    folder: str, fixtures: Collection[str], parameters: Collection[object], markers: Collection[str]
) -> str | None:
    """Return what a test needs, None where it is quick."""
    names = [*fixtures, *(each for each in parameters if isinstance(each, str))]
    found = {NEEDS_OF_FOLDERS.get(folder)}
    found |= {NEEDS_OF_FIXTURES.get(name) for name in names} | {NEEDS_OF_MARKERS.get(name) for name in markers}
    return next((each for each in ORDER if each in found - {None}), None)


@cache
def shared_by(file: Path) -> str | None:
    """Return what tests of a file share with others; each process would start and warm up one of its own."""
    said = [name for name, (folders, _) in KEPT.items() if file.parent.name in folders]
    return next((name for name in said if KEPT[name][1].search(file.read_text(encoding="utf-8"))), None)


def turns(needs: Mapping[Path, str | None]) -> dict[Path, float]:
    """Return when each file of tests has its turn, from what its tests need: numbers to sort by.

    Those that share a Spark come first, since one process runs them all, and those that share an Airflow. Then those
    that wait for real parts and those that compute for long follow each other in turn, so that the processes do not all
    wait at the same time.
    """
    found: dict[Path, float] = {}
    for number, kind in enumerate(ORDER):
        files = [path for path, needed in needs.items() if needed == kind and shared_by(path) is None]
        begin = ORDER.index(WAIT) if kind == COMPUTE else number
        found |= {path: begin + place / len(files) for place, path in enumerate(files)}
    first = {name: float(place - len(KEPT)) for place, name in enumerate(KEPT)}
    return found | {path: first[shared] for path in needs if (shared := shared_by(path)) is not None}


def left_out(needs: Counter[str]) -> list[str]:
    """Say which tests were left out: those in whole folders, which were not counted, and how many others."""
    folders = [f"left out: the tests in {', '.join(sorted(NEEDS_OF_FOLDERS))}, which need {REAL_PARTS}"]
    return folders + [
        f"left out: {needs[each]:,} tests that need {each}" for each in ORDER if each is not None and needs[each]
    ]


def server_among(arguments: object) -> str | None:
    """Return the program that is a JVM or a server in a command.

    What is started, or what a wrapper is given by its full path.

    A stand-in that a test has put in its own folder is none.
    """
    words = [Path(str(word)) for word in (arguments if isinstance(arguments, list | tuple) else [arguments])]
    programs = [word for number, word in enumerate(words) if number == 0 or word.is_absolute()]
    return next((each.name for each in programs if each.name in SERVERS and not is_stand_in(each)), None)


def is_stand_in(program: Path) -> bool:
    """Whether a program lies where tests write theirs."""
    return program.is_relative_to(tempfile.gettempdir()) and not program.is_relative_to(ROOT)


@contextmanager
def refusing_servers() -> Iterator[None]:
    """Let no JVM and no server be started inside."""
    start: Callable[..., None] = subprocess.Popen.__init__

    @wraps(start)
    def checked(process: "subprocess.Popen[Any]", arguments: object, *others: Any, **named: Any) -> None:
        if found := server_among(arguments):
            raise NotQuickError(
                f"expected a test without a JVM or a server, found that it starts {found}. Let it ask for the fixture "
                f"that starts one, or move it to a folder of tests with {REAL_PARTS}: {', '.join(NEEDS_OF_FOLDERS)}."
            )
        start(process, arguments, *others, **named)

    with patch.object(subprocess.Popen, "__init__", checked):
        yield
