"""One Spark for the tests of a process: a second one would get the first one's Java, without jars of its own."""

import logging
import os
import sys
from collections.abc import Iterator
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from tests.spark.quick_start import builder_of_quick_start

from kafka_ingest.model.spark_settings import FIXED, SparkSettings
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.spark_submission import FIXED_CONF
from kafka_ingest.writing.session import fix_meaning

# It says goodbye when the interpreter ends, and pytest has closed its streams by then.
logging.getLogger("py4j").setLevel(logging.WARNING)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark whose Java has to start fast, not to run fast."""
    builder = builder_of_quick_start()
    for name in ("spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs", "spark.hadoop.fs.file.impl"):
        builder = builder.config(name, FIXED_CONF[name])  # nothing but data is written
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.jars", ",".join(map(str, installation().avro_jars)))
    with patch.dict(os.environ, PYSPARK_PYTHON=sys.executable):  # of the workers that decode Protobuf
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    new_york = {**FIXED, "spark.sql.session.timeZone": "America/New_York"}  # nothing may depend on it
    fix_meaning(session, session.sparkContext._jsc.sc(), SparkSettings(new_york))
    yield session
    session.stop()
