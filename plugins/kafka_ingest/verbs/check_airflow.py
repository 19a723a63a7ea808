"""Whether Airflow has what a feed's file names, and SQLite's control tables are on one machine with all tasks.

Without a pool tasks wait for ever, and without a look a feed with start_when starts by its schedule alone. A task may
not ask Airflow's database; and where no Airflow was ever set up, there is nothing to ask. SQLite's locks do not hold
over a network, and its write-ahead log needs shared memory: https://sqlite.org/useovernet.html.
"""

import configparser
import importlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy.exc import SQLAlchemyError

from kafka_ingest.errors import (
    InstallationError,
    InvalidConnectionError,
    InvalidNotifierError,
    KafkaIngestError,
    MissingPoolError,
)
from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.alert import Notifier
from kafka_ingest.model.offsets import listing
from kafka_ingest.settings.feed import CHECKING_DAG

ONE_HOST_EXECUTORS = frozenset({"LocalExecutor", "SequentialExecutor"})
NETWORK_FILE_SYSTEMS = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs"),
        *("ocfs2", "gfs2", "fuse.ceph", "fuse.glusterfs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.juicefs"),
        "fuse.rclone",
    )
)
MOUNTS = Path("/proc/self/mounts")  # proc_pid_mounts(5)
MOVE = (
    "Use PostgreSQL: set the connection kafka_ingest to it, make the tables there (`kafka-ingest db upgrade "
    "--create`) and fill them from each feed's output (`kafka-ingest adopt FEED`) before the next run."
)


def check_one_host(file: Path, environment: Mapping[str, str]) -> None:
    """Raise InvalidConnectionError where tasks run on several hosts, or the file is on a network file system."""
    elsewhere = [name for name in executors(environment) if name not in ONE_HOST_EXECUTORS]
    if elsewhere:
        raise InvalidConnectionError(
            f"expected control tables that every host reaches, found the SQLite file {file} and Airflow's "
            f"{', '.join(elsewhere)}, which may run tasks on other hosts. {MOVE}"
        )
    kind = file_system_of(file)
    if kind in NETWORK_FILE_SYSTEMS:
        raise InvalidConnectionError(
            f"expected a SQLite file on a disk of this machine, found {file} on {kind}: locks do not hold there, and "
            f"two writers can destroy it. {MOVE}"
        )


def executors(environment: Mapping[str, str]) -> list[str]:
    """Return the class names of Airflow's executors, from its environment variable or its file; empty without any."""
    named = environment.get("AIRFLOW__CORE__EXECUTOR") or executor_of_file(environment)
    # Several may be named, each with a module's path before it, an alias or a team:
    # https://airflow.apache.org/docs/apache-airflow/stable/core-concepts/executor/index.html
    return [re.split(r"[.:=]", one.strip())[-1] for one in re.split(r"[,;]", named) if one.strip()]


def executor_of_file(environment: Mapping[str, str]) -> str:
    home = environment.get("AIRFLOW_HOME") or str(Path.home() / "airflow")
    settings = configparser.RawConfigParser(strict=False)
    try:
        settings.read(environment.get("AIRFLOW_CONFIG") or Path(home, "airflow.cfg"), encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return ""
    return settings.get("core", "executor", fallback="")


def file_system_of(file: Path) -> str:
    """Return the type of the file system that a file is on, empty where it is unknown."""
    if not MOUNTS.exists():
        return ""
    place = Path(os.path.realpath(file))
    best, kind = Path(), ""
    for line in MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines():
        _, mounted, found, *_ = line.split(" ")
        folder = Path(mounted.replace("\\040", " "))
        # The last of several mounts at one place is the one that is seen.
        if place.is_relative_to(folder) and len(folder.parts) >= len(best.parts):
            best, kind = folder, found
    return kind


def pool(name: str) -> str:
    """Return what Airflow's database says of a pool; raises MissingPoolError where there is none of that name."""
    from airflow.models.pool import Pool  # noqa: PLC0415 - seconds, and only for feeds that name a pool

    try:
        found = Pool.get_pool(name)
    except (SQLAlchemyError, RuntimeError):
        return f"{name}; Airflow's database cannot be asked for it from here"
    if found is None:
        raise MissingPoolError(
            f"expected a pool {name!r} in Airflow, as airflow.pool says, found none: the feed's tasks would wait for "
            f"ever. Make it: `airflow pools set {name} SLOTS DESCRIPTION`, or correct airflow.pool."
        )
    return f"{name}, {counted(found.slots, 'slot')}"


def looked_at() -> str:
    """Return what looks at waiting records; raises InstallationError where nothing does."""
    from airflow.jobs.job import most_recent_job  # noqa: PLC0415 - seconds, and only for feeds that say start_when
    from airflow.models.dag import DagModel  # noqa: PLC0415
    from airflow.utils.session import create_session  # noqa: PLC0415

    try:
        with create_session() as session:
            triggerer = most_recent_job("TriggererJob", session=session)
            is_alive = triggerer is not None and triggerer.is_alive()
            dag = session.get(DagModel, CHECKING_DAG)
            is_on = dag is not None and not dag.is_paused and not dag.is_stale
    except (SQLAlchemyError, RuntimeError):
        return "Airflow's database cannot be asked from here what looks at waiting records"
    if not is_alive and not is_on:
        raise InstallationError(
            f"expected a triggerer that runs, or the DAG {CHECKING_DAG} switched on, since the feed's file says "
            "start_when; found neither: its schedule alone starts it. Start `airflow triggerer`, or run "
            f"`airflow dags unpause {CHECKING_DAG}`"
        )
    # The triggerer looks from Airflow 3.3 on, every few seconds; the DAG on each of its runs.
    return " and ".join(["a triggerer"] * is_alive + [f"the DAG {CHECKING_DAG}"] * is_on)


def made(notifier: Notifier) -> Any:  # noqa: ANN401 - Airflow's BaseNotifier, which only a task has imported
    kind = notifier_class(notifier.path)
    try:
        return kind(**notifier.arguments)
    except Exception as error:
        raise InvalidNotifierError(
            f"{notifier.path} cannot be made with the arguments {listing(sorted(notifier.arguments)) or '(none)'}: "
            f"{type(error).__name__}: {error}. Correct alerts.notify in the feed file."
        ) from error


def notifier_class(path: str) -> type[Any]:
    """Return the class of that dotted path; raises InvalidNotifierError where there is none, or it does not notify."""
    from airflow.sdk import BaseNotifier  # noqa: PLC0415 - seconds, and only for those who need it

    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise InvalidNotifierError(
            f"expected a notifier at {path}, found that it cannot be imported: {type(error).__name__}: {error}. "
            "Correct alerts.notify in the feed file, or install its provider wherever Airflow runs tasks."
        ) from error
    if not (isinstance(kind, type) and issubclass(kind, BaseNotifier)):
        raise InvalidNotifierError(
            f"expected a class that is an airflow.sdk.BaseNotifier at {path}, found something else. Correct "
            "alerts.notify in the feed file."
        )
    if kind.notify is BaseNotifier.notify:
        raise InvalidNotifierError(
            f"expected {path} to have a method notify, found none: it can notify from Airflow's triggerer alone. Name "
            "another notifier in alerts.notify of the feed file."
        )
    return kind


def notifiers(found: tuple[Notifier, ...]) -> str:
    """Return what was checked; raises the error of the first notifier that cannot be used."""
    problems = []
    for notifier in found:
        try:
            made(notifier)
        except KafkaIngestError as error:
            problems.append(str(error))
    if problems:
        raise InvalidNotifierError(" ".join(problems))
    return listing([notifier.path for notifier in found]) or "none: alerts are shown on the page alone"
