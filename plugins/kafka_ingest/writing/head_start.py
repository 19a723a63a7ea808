"""What Java does while Python still imports pyspark: with two processors, one of them would have nothing to do."""

import contextlib
import os
from collections.abc import Mapping
from threading import Thread

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.protocol import Py4JError

from kafka_ingest.writing.java_classes import JavaClasses


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
