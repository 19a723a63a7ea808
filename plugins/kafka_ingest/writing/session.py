"""The Spark session of the job: without what only machine learning needs, and stopped without a wait."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator, Mapping

from py4j.java_gateway import JavaObject
from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.pandas import functions
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from kafka_ingest.model.place import MAX_WAIT_FOR_EXECUTORS, FailureCode
from kafka_ingest.model.spark_settings import EXTENSIONS, OUR_SETTINGS, SparkSettings
from kafka_ingest.writing.java_classes import Java, JavaClasses, classes_of

POLL_S = 0.2

PYSPARKS_CLASSES = (
    "PythonUtils",
    "functions",
    "org.apache.spark.sql.Observation",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.classic.SparkSession$",
    "org.apache.spark.sql.functions",
    "org.apache.spark.util.Utils",
)

AT_ONCE = "spark.kafkaIngest.attemptsAtOnce"
"""Of a session's settings: how many attempts of its application are at work at a time."""


class NoExecutorsError(Exception):
    """The cluster gave no executor within the limit."""


def wait_for_executors(java_context: JavaObject) -> None:
    """Wait until the application has an executor, as long as its setting says; raises NoExecutorsError.

    Spark only warns that its job has not accepted any resources (TaskSchedulerImpl), and waits.
    """
    limit = java_context.getConf().getOption(MAX_WAIT_FOR_EXECUTORS)
    if java_context.isLocal() or limit.isEmpty():
        return
    limit_s = float(limit.get())
    deadline = time.monotonic() + limit_s
    # The driver is one of those whose memory is known.
    while java_context.getExecutorMemoryStatus().size() <= 1:
        if time.monotonic() > deadline:
            found = (
                f"expected an executor within {limit_s:,.0f} s (spark.max_wait_for_executors), found none: "
                f"{java_context.master()} has no free cores or memory for it"
            )
            raise NoExecutorsError(FailureCode.NO_EXECUTORS.says(found))
        time.sleep(POLL_S)


@contextlib.contextmanager
def spark_session(
    hadoop: Mapping[str, str] | None = None, settings: SparkSettings = OUR_SETTINGS
) -> Iterator[SparkSession]:
    """Yield the session of this application, and stop Spark after it; ``hadoop`` are settings that no log may show.

    Java may be making its context already (:mod:`kafka_ingest.writing.java_classes`). Python's own ``stop()`` would
    wait, up to half a second, until its server for accumulators looks whether it shall end; that one ends with this
    process.
    """
    without_pandas()
    gateway = launch_gateway()
    remember_classes(gateway.jvm)
    java = classes_of(gateway.jvm)
    java_context = java.org.apache.spark.SparkContext.getOrCreate()
    try:
        # Executors get them with the tasks, as they get Kafka's.
        for name, value in (hadoop or {}).items():
            java_context.hadoopConfiguration().set(name, value)
        wait_for_executors(java_context)
        context = SparkContext(gateway=gateway, jsc=java.JavaSparkContext.fromSparkContext(java_context))
        session = session_of(context, java, java_context, with_extensions=EXTENSIONS in settings.feed)
        fix_meaning(session, java_context, settings)
        yield session
    finally:
        with contextlib.suppress(Py4JError, OSError):  # where Java is gone, that has been reported
            java_context.stop()


def fix_meaning(session: SparkSession, java_context: Java, settings: SparkSettings) -> None:
    """Let SQL mean the same, whatever the environment, ``spark-defaults.conf`` or a site's other files say."""
    # One question, instead of one for each setting; a value of several lines may look like names, which do not exist.
    found = (line.partition("=")[0] for line in java_context.getConf().toDebugString().splitlines())
    for name in settings.to_forget(found):
        session.conf.unset(name)
    for name, value in settings.fixed.items():
        session.conf.set(name, value)


def session_of(context: SparkContext, java: Java, java_context: Java, *, with_extensions: bool) -> SparkSession:
    """Return a session of this context, made without looking for extensions unless the feed names some.

    Spark looks for extensions in all its jars, and the one that it finds, in its library for machine learning, brings
    up Scala's runtime reflection: a tenth of what a small batch takes (bench/README.md). The constructor for that is
    not documented; where it is another one, the usual way is gone.
    """
    if with_extensions:
        return SparkSession.builder.getOrCreate()
    try:
        none, empty = java.scala.Option.empty(), java.scala.collection.immutable.HashMap()
        made = java.org.apache.spark.sql.classic.SparkSession(
            *(java_context, none, none), *(java.org.apache.spark.sql.SparkSessionExtensions(), empty, empty)
        )
    except (Py4JError, TypeError):  # a name that Java does not know is a package, which cannot be called
        return SparkSession.builder.getOrCreate()
    return SparkSession(context, made)


def is_local(spark: SparkSession) -> bool:
    """Whether Spark runs on this machine alone, with the driver's memory for its tasks."""
    return (spark.sparkContext.master or "").startswith("local")


def remember_classes(jvm: Java) -> None:
    """Let Py4J look once for the classes that pyspark names each time that it calls them.

    A name without a package is looked for in all of Spark's jars, once for each package that it may be of. With several
    attempts that was a tenth of what the driver did.
    """
    for name in PYSPARKS_CLASSES:
        setattr(jvm, name, getattr(jvm, name))
    jvm.py4j = JavaClasses(jvm, "py4j.")  # each of Java's exceptions is compared with a dozen classes


def without_pandas() -> None:
    """Hand no arrays to Java: to look whether something is one, pyspark imports pandas, half a second in all.

    For ``mapInArrow``, which needs none of it, it does so only to see that pandas is there.
    """
    numpy = (NumpyArrayConverter, NumpyScalarConverter)
    INPUT_CONVERTER[:] = [converter for converter in INPUT_CONVERTER if not isinstance(converter, numpy)]
    functions.require_minimum_pandas_version = lambda: None  # type: ignore[attr-defined]  # not in the stubs


def say(text: str) -> None:
    """Write a line; where there are several attempts, with the name of the thread, which says which one it is about.

    Where Java is gone nobody listens any more, and nothing is written.
    """
    thread = threading.current_thread()
    about = "" if thread is threading.main_thread() else f"{thread.name}: "
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{about}{text}\n")
