"""SQLite is for one machine: its locks do not hold over a network, and its write-ahead log needs shared memory.

https://sqlite.org/useovernet.html, https://sqlite.org/wal.html
"""

import configparser
import os
import re
from collections.abc import Mapping
from pathlib import Path

from kafka_ingest.errors import InvalidConnectionError

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
    """Raise InvalidConnectionError where tasks run on several hosts, or the file lies on a network file system."""
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
    """Return what airflow.cfg says, without importing Airflow, which takes seconds."""
    home = environment.get("AIRFLOW_HOME") or str(Path.home() / "airflow")
    settings = configparser.RawConfigParser(strict=False)
    try:
        settings.read(environment.get("AIRFLOW_CONFIG") or Path(home, "airflow.cfg"), encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        return ""
    return settings.get("core", "executor", fallback="")


def file_system_of(file: Path) -> str:
    """Return the type of the file system that a file lies on, empty where it is unknown."""
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
