"""Java's classes by their full names, each asked for once.

Py4J asks Java at each step of a name such as ``jvm.scala.Option`` whether it is a class, and Java looks into each of
Spark's 300 jars for what is only a package. And what Java does while Python still imports pyspark: with two processors,
one of them would have nothing to do.
"""

import contextlib
import os
from collections.abc import Mapping
from functools import lru_cache
from threading import Thread
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

Java = Any
"""An object of Java's, which has whatever methods Java gives it."""


class JavaClasses:
    """Finds classes as Py4J's view of Java does; a name of small letters and digits is a package."""

    def __init__(self, jvm: Java, package: str = "") -> None:
        self._jvm = jvm
        self._package = package

    def __getattr__(self, name: str) -> Java:
        full_name = f"{self._package}{name}"
        found = JavaClasses(self._jvm, f"{full_name}.") if name.islower() else getattr(self._jvm, full_name)
        setattr(self, name, found)
        return found


@lru_cache(maxsize=1)
def classes_of(jvm: Java) -> JavaClasses:
    """Return the classes of a Java; a process has one."""
    return JavaClasses(jvm)


def head_start(environment: Mapping[str, str] = os.environ) -> Thread | None:
    """Let Java make Spark's context; return the thread that waits for it, None where nothing was begun.

    In these variables Spark's ``PythonRunner`` gives pyspark Java's port, and which of py4j's two protocols it speaks.
    """
    port, secret = environment.get("PYSPARK_GATEWAY_PORT"), environment.get("PYSPARK_GATEWAY_SECRET")
    if not port or not secret or environment.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return None
    java = ClientServer(
        java_parameters=JavaParameters(port=int(port), auth_token=secret),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    thread = Thread(target=make_context, args=[java], daemon=True)
    thread.start()
    return thread


def make_context(java: ClientServer) -> None:
    """Make the context that ``spark_session`` takes; what fails here fails there again, and is reported."""
    # A name that Java does not know is a package, which cannot be called; a Java that is gone refuses the connection.
    with contextlib.suppress(Py4JError, TypeError, OSError):
        JavaClasses(java.jvm).org.apache.spark.SparkContext.getOrCreate()
