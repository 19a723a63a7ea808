"""The Spark session of the job, without what only machine learning needs."""

from py4j.protocol import INPUT_CONVERTER, Py4JError
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter


def spark_session() -> SparkSession:
    """Return the session of this application.

    Spark looks for extensions in all its jars, and the one that it finds, in its library for machine learning, brings up Scala's
    runtime reflection: a tenth of what a small batch takes (bench/README.md). So the session is made without looking, unless a
    setting names extensions. The constructor for that is not documented; where it is another one, the usual way is gone.
    """
    without_numpy()
    gateway = launch_gateway()
    context = SparkContext(gateway=gateway)
    if context.getConf().contains("spark.sql.extensions"):
        return SparkSession.builder.getOrCreate()
    jvm = gateway.jvm
    try:
        none, empty = jvm.scala.Option.empty(), jvm.scala.collection.immutable.HashMap()
        made = jvm.org.apache.spark.sql.classic.SparkSession(
            *(jvm.org.apache.spark.SparkContext.getOrCreate(), none, none),
            *(jvm.org.apache.spark.sql.SparkSessionExtensions(), empty, empty),
        )
    except (Py4JError, TypeError):  # a name that Java does not know is a package, which cannot be called
        return SparkSession.builder.getOrCreate()
    return SparkSession(context, made)


def without_numpy() -> None:
    """Hand no arrays to Java: to look whether something is one, pyspark imports pandas, half a second in all."""
    numpy = (NumpyArrayConverter, NumpyScalarConverter)
    INPUT_CONVERTER[:] = [converter for converter in INPUT_CONVERTER if not isinstance(converter, numpy)]
