"""One Spark for many jobs: a spark-submit that hands its job to a Spark that runs already.

Starting Java, and filling it with Spark's classes, takes most of what a small job takes. What is submitted, how its
command line is put together and what becomes of its end stay real, and so does the job: each gets a context of its own
with its own settings, in a Java and a Python that others used before.

What is told by a Java or a Python of the job's own (its heap, what it imports, how it is killed) needs a Spark of its
own.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

from dies_with_parent import dying_with_this_process
from kafka_ingest.spark_launch.installation import Installation, installation
from kafka_ingest.spark_launch.java_options import java_options, launcher_options
from kafka_ingest.spark_launch.run_spark_submit import driver_environment
from kafka_ingest.spark_launch.spark_stores import SPARK_STORES
from kafka_ingest.spark_launch.spark_submission import FIXED_CONF, SparkSubmission

ROOM_FOR_CODE = "-XX:ReservedCodeCacheSize=240m"
"""For a Java of hundreds of queries: with 48 MB, the default of one that compiles fast, it throws code away for new."""

ON_DISK = "spark.hadoop.fs.file.impl"
SERVE = Path(__file__).with_name("serve_spark_jobs.py")
OF_TABLES = ("delta/*", "iceberg/*", "rest-catalog/sqlite-jdbc-*")
"""The jars of the formats of tables, and what reads a catalog in SQLite: for scripts, no job of ours has them."""
SUBMIT = f"""#!{sys.executable} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect(os.path.join(os.path.dirname(__file__), "jobs"))
    socket.send_fds(server, [b"."], [1, 2])
    server.sendall(json.dumps([sys.argv[1:], dict(os.environ)]).encode())
    server.shutdown(socket.SHUT_WR)
    sys.exit(int(server.makefile().read()))
"""
"""The stand-in for spark-submit: its job writes where it would write."""


class KeptSpark:
    """A Spark that waits for jobs, and the folder with the spark-submit that brings them."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-ingest-spark-")
        self.folder = Path(self._directory.name)
        (self.folder / "spark-submit").write_text(SUBMIT)
        (self.folder / "spark-submit").chmod(0o755)
        self.log = self.folder / "log"
        """What Java says, of all jobs until now."""
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                dying_with_this_process([sys.executable, str(SERVE), str(self.folder / "jobs")]),
                env=environment_of(installation(), self.folder),
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", self.log.read_text()

    def instead(self, submission: SparkSubmission) -> SparkSubmission:
        """Return a submission whose spark-submit is found here."""
        path = os.pathsep.join([str(self.folder), submission.environment["PATH"]])
        return replace(submission, environment={**submission.environment, "PATH": path})

    def run_script(
        self, script: Path, *arguments: str, master: str, conf: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a script as spark-submit does; ``conf`` may hold properties of Java's, too."""
        settings = (part for name, value in conf.items() for part in ("--conf", f"{name}={value}"))
        command = [self.folder / "spark-submit", "--master", master, "--name", script.name, *settings]
        return subprocess.run(
            [*command, script, *arguments], cwd=script.parent, capture_output=True, text=True, check=False
        )

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._directory.cleanup()


def environment_of(installed: Installation, folder: Path) -> dict[str, str]:
    """Return what the server is started with: a Java that starts as those of small batches do."""
    home = installed.spark_home
    assert home is not None
    jars = os.pathsep.join(map(str, installed.jars))
    root = Path(__file__).resolve().parents[1]
    of_tables = (jar for folder in OF_TABLES for jar in root.glob(f".jvm/{folder}.jar"))
    of_stores = chain.from_iterable(installed.store_jars.values())
    of_some_jobs = ",".join(map(str, (*installed.avro_jars, *of_stores, *of_tables)))
    options = java_options(1, installed.class_archive, "")
    arguments = [
        *("--driver-java-options", f"{options} {ROOM_FOR_CODE}", "--driver-class-path", jars),
        *("--jars", of_some_jobs),  # no jar can be added later; to its context each job adds its own
        *("--conf", f"spark.local.dir={folder}", "--conf", "spark.ui.enabled=false"),
        # Jars are looked at when Java starts, and Hadoop keeps the file system that it looked with.
        *("--conf", f"{ON_DISK}={FIXED_CONF[ON_DISK]}"),
    ]
    search_path = [root, root / "plugins", root / "dev"]
    return {
        **driver_environment(os.environ),
        **SPARK_STORES["s3"].environment,
        "PATH": installed.search_path,
        "PYTHONPATH": os.pathsep.join(map(str, search_path)),
        "SPARK_HOME": str(home),
        "SPARK_LAUNCHER_OPTS": launcher_options(installed.java_options, home),
        "PYSPARK_SUBMIT_ARGS": json.dumps(arguments),
    }


@cache
def kept_spark() -> KeptSpark:
    return KeptSpark()


def end_kept_spark() -> None:
    """End it, where a test has started it."""
    if kept_spark.cache_info().currsize:
        kept_spark().end()
