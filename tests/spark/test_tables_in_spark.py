"""Spark reads Delta and Iceberg tables with the formats' own jars."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.contract.sink_outputs import DeltaOutput, IcebergOutput, Output, plan_to, written
from tests.iceberg_lake import table_at

from environment import ROOT
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.table_options import NO_TABLE_OPTIONS, TableOptions
from kafka_ingest.spark_launch.installation import installation
from kafka_ingest.spark_launch.java_options import SMALL

JARS = [*ROOT.glob(".jvm/delta/*.jar"), *ROOT.glob(".jvm/iceberg/*.jar")]
READ = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for form, place in json.loads(sys.argv[1]):
    table = spark.read.format(form).load(place)
    rows = table.select("kafka_batch", "kafka_partition", "kafka_offset", "value", "kafka_headers").collect()
    of_one = table.where("kafka_partition = 1 and kafka_offset < 3").count()
    print(json.dumps([form, of_one, [[*row[:3], row[3].decode(), row[4]] for row in rows]]))
"""
CONF = {
    "spark.jars": ",".join(map(str, JARS)),
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    # Small tables: one task for each step, and a Java that starts quickly.
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.driver.extraJavaOptions": " ".join(SMALL),
}


PARTITIONED = TableOptions(partition_by=terms_of(["kafka_topic", "day(kafka_timestamp)"]))


def test_spark_reads_each_row_of_delta_and_iceberg_tables_once_with_the_formats_own_jars(tmp_path: Path) -> None:
    outputs: list[Output] = [
        made(tmp_path / made.name / name, options)
        for made in (DeltaOutput, IcebergOutput)
        for name, options in (("orders", NO_TABLE_OPTIONS), ("partitioned", PARTITIONED))
    ]
    for output in outputs:
        output.sink.publisher.prepare()
        for number in (1, 2):
            directory, published = written(output, plan_to(output, number))
            output.sink.publisher.publish(directory, published)
    places = [
        [each.format, table_at(each.path).metadata_location if each.format == "iceberg" else str(each.path)]
        for each in outputs
    ]
    script = tmp_path / "read.py"
    script.write_text(READ)
    conf = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]

    done = subprocess.run(
        ["spark-submit", "--master", "local[1]", *conf, script, json.dumps(places)],
        env=os.environ | {"PATH": installation().search_path, "PYSPARK_PYTHON": sys.executable},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [form for form, _, _ in found] == [each.format for each in outputs]
    for output, (_, of_one, rows) in zip(outputs, found, strict=True):
        assert Counter((batch, partition, offset) for batch, partition, offset, _, _ in rows) == output.seen()
        assert {(value, headers) for _, partition, offset, value, headers in rows if (partition, offset) == (1, 7)} == {
            ("orders-1@7", None)
        }
        assert of_one == 6
