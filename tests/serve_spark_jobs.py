"""A process with Spark's Java and pyspark, which runs the jobs that it is sent, one after the other.

`serve_spark_jobs.py SOCKET`: a client sends its standard output and error, then spark-submit's arguments and its
environment as JSON, and gets the exit code. Each job has a Spark context of its own.
"""

import argparse
import json
import os
import runpy
import shlex
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import patch

from py4j.java_gateway import JavaGateway
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from tests.hold_and_run import holding_at
from tests.kept_spark import ON_DISK
from tests.submitted_jobs import clients_of, job_of

from kafka_ingest.writing import session, write_batch

OF_JAVA = ("spark.driver.", "spark.jars")
"""What is decided when Java starts."""
HAS_VALUES = ("--driver-class-path", "--jars", "--queue", "--deploy-mode")


def submitted(arguments: list[str]) -> tuple[dict[str, str | None], str, list[str]]:
    """Return Spark's settings, None for one that it has not; the application; and its arguments."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--conf", action="append", default=[])
    parser.add_argument("--master")
    parser.add_argument("--name")
    for option in HAS_VALUES:
        parser.add_argument(option)
    parser.add_argument("application")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    found = parser.parse_args(arguments)
    settings = dict(each.split("=", 1) for each in found.conf)
    kept = {name: value for name, value in settings.items() if not name.startswith(OF_JAVA)}
    hosts = {
        name: value for name, value in settings.items() if name.startswith(("spark.driver.host", "spark.driver.bind"))
    }
    return (
        {
            ON_DISK: None,  # a job that writes to a store has none
            **kept,
            **hosts,
            "spark.jars": found.jars,
            "spark.master": found.master,
            "spark.app.name": found.name,
        },
        found.application,
        found.arguments,
    )


@contextmanager
def spark_settings(gateway: JavaGateway, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Let the next context have these settings, as from spark-submit."""
    system = gateway.jvm.java.lang.System

    def set_all(values: Mapping[str, str | None]) -> None:
        for name, value in values.items():
            if value is None:
                system.clearProperty(name)
            else:
                system.setProperty(name, value)
        if settings[ON_DISK] is None:  # Hadoop keeps the file systems that were made with other settings
            gateway.jvm.org.apache.hadoop.fs.FileSystem.closeAll()

    before = {name: system.getProperty(name) for name in settings}
    set_all(settings)
    try:
        yield
    finally:
        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        set_all(before)


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def writing_to(outputs: list[int]) -> Iterator[None]:
    """Let standard output and error of this process, not of Java, be these."""
    before = [os.dup(number) for number in (1, 2)]
    for number, output in enumerate(outputs, 1):
        os.dup2(output, number)
        os.close(output)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, output in enumerate(before, 1):
            os.dup2(output, number)
            os.close(output)


def exit_code_of(job: Callable[[], object]) -> int:
    """Run a job as a program: a failure is reported and has a code."""
    try:
        job()
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:  # noqa: BLE001 - as Python itself, where nothing catches it
        traceback.print_exc()
        return 1
    return 0


def run_of(application: str, arguments: list[str]) -> Callable[[], object]:
    """Return the job, the job that is held at one of its own calls, or what a script of a test's does."""
    if Path(application).name == "write_batch.py":
        return partial(write_batch.main, arguments)
    if Path(application).name != "hold_and_run.py":
        return partial(run_script, application, arguments)
    directory, point, _, *of_job = arguments

    def held() -> None:
        with holding_at(point, Path(directory)):
            write_batch.main(of_job)

    return held


def run_script(script: str, arguments: list[str]) -> None:
    with patch.object(sys, "argv", [script, *arguments]):
        runpy.run_path(script, run_name="__main__")


def serve(client: socket.socket, gateway: JavaGateway) -> None:
    """Run the job that a client brings."""
    arguments, variables, outputs = job_of(client)
    settings, application, of_job = submitted(arguments)
    with writing_to(outputs), environment(variables), spark_settings(gateway, settings):
        code = exit_code_of(run_of(application, of_job))
    client.sendall(str(code).encode())


def main() -> None:
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*json.loads(os.environ["PYSPARK_SUBMIT_ARGS"]), "pyspark-shell"])
    gateway = launch_gateway(popen_kwargs={"stdout": 2})
    session.launch_gateway = lambda: gateway
    SparkContext._ensure_initialized(gateway=gateway)  # for scripts, which make a session in the usual way
    for client in clients_of(sys.argv[1]):
        serve(client, gateway)


if __name__ == "__main__":
    main()
