"""Spark reads Delta and Iceberg tables with the formats' own jars, on a disk and in S3, where Iceberg's by its catalog.

It has no key of the store: S3A finds the role of the machine, as it does in a job whose connection has none. Its Java
is one that ran before (:mod:`tests.kept_spark`), and has the formats' jars.
"""

import json
from collections import Counter
from pathlib import Path

from tests.contract.decoded_rows import DECODED, nested, publish_decoded, with_more_fields
from tests.contract.sink_outputs import (
    ROWS,
    DeltaInStore,
    DeltaOutput,
    IcebergInStore,
    IcebergOutput,
    Output,
    plan_to,
    publish,
)
from tests.contract.table_filters import CONDITIONS, at_once
from tests.contract.table_filters import in_spark as spark_literal
from tests.contract.test_table_filters import published, wrong
from tests.iceberg_lake import CATALOG, name_at, table_at
from tests.kept_spark import kept_spark
from tests.object_store import ObjectStore

from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.table_options import TableOptions

READ = """
import json, sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
for form, place in json.loads(sys.argv[1]):
    table = spark.table(place) if form == "catalog" else spark.read.format(form).load(place)
    rows = table.select("kafka_batch", "kafka_partition", "kafka_offset", "value", "kafka_headers").collect()
    of_one = table.where("kafka_partition = 1 and kafka_offset < 3").count()
    print(json.dumps([form, of_one, [[*row[:3], row[3].decode(), row[4]] for row in rows]]))
for form, place in json.loads(sys.argv[2]):
    table = spark.read.format(form).load(place)
    table.createOrReplaceTempView("t")
    read = "kafka_offset, value.id, value.zip, value.lines[0].note, value.labels['x'], cast(extra as string)"
    rows = [list(row) for row in spark.sql(f"select {read} from t where value is not null order by zip, 1").collect()]
    print(json.dumps(rows))
for form, place in json.loads(sys.argv[3]):
    spark.read.format(form).load(place).createOrReplaceTempView("t")
    print(json.dumps([list(row) for row in spark.sql(sys.argv[4]).collect()]))
"""
CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Small tables: one task for each step.
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Nothing is read often enough to be worth compiling.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
}


PARTITIONED = TableOptions(partition_by=terms_of(["kafka_topic", "day(kafka_timestamp)"]))


def in_spark(output: Output) -> tuple[str, str]:
    """Return how Spark finds a table: its format and its place, or its name in the catalog."""
    if isinstance(output, IcebergInStore):
        return "catalog", f"{CATALOG}.{name_at(output.place)}"
    if isinstance(output, DeltaInStore):
        return "delta", f"s3a://{output.place.bucket}/{output.place.key}"
    return output.format, str(output.path) if output.format == "delta" else table_at(output.path).metadata_location


def of_store(output: IcebergInStore) -> dict[str, str]:
    """Return the settings by which Spark reaches a bucket, without a key, and the catalog of a table in it."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    access = output.store.access(access_key=None, secret_key=None)
    return {
        **{f"spark.hadoop.{name}": value for name, value in access.for_hadoop("lake").items()},
        # Iceberg's files are named s3://…
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{output.path.parent}/catalog.db",
        f"{catalog}.warehouse": "s3://lake/",
        f"{catalog}.io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }


def test_spark_reads_each_row_of_delta_and_iceberg_tables_once_with_the_formats_own_jars(
    tmp_path: Path, object_store: ObjectStore
) -> None:
    in_store = IcebergInStore(tmp_path / "iceberg-in-store" / "orders", PARTITIONED)
    outputs: list[Output] = [
        DeltaOutput(tmp_path / "delta" / "orders"),
        IcebergOutput(tmp_path / "iceberg" / "orders"),
        DeltaInStore(tmp_path / "delta-in-store" / "orders", PARTITIONED),
        in_store,
    ]
    for output in outputs:
        output.sink.publisher.prepare()
        for number in (1, 2):
            publish(output, plan_to(output, number))
    decoded = [DeltaOutput(tmp_path / "delta" / "all", DECODED), IcebergOutput(tmp_path / "iceberg" / "all", DECODED)]
    filtered = [DeltaOutput(tmp_path / "delta" / "any", DECODED), IcebergOutput(tmp_path / "iceberg" / "any", DECODED)]
    for output in decoded:
        output.sink.publisher.prepare()
        for number, columns in enumerate((nested(), with_more_fields()), start=1):
            publish_decoded(output, plan_to(output, number, partitions=1), columns)
    for output in filtered:
        published(output)
    places = [in_spark(each) for each in outputs]
    script = tmp_path / "read.py"
    script.write_text(READ)
    conditions = CONDITIONS[3::8]  # each plans a scan of its own
    asked = (places, [in_spark(each) for each in decoded], [in_spark(each) for each in filtered])
    # Where Java looks for its machine's role, which the environment may say as well.
    of_machine = {"aws.ec2MetadataServiceEndpoint": object_store.endpoint}
    with object_store.refusing_all_but_the_role():
        done = kept_spark().run_script(
            *(script, *map(json.dumps, asked), at_once(conditions, "t", spark_literal)),
            master="local[1]",
            conf=CONF | of_store(in_store) | of_machine,
        )

    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    for answers in (found.pop() for _ in filtered):
        numbers = [[number for asked, number in answers if asked == place] for place in range(len(conditions))]
        assert wrong(zip(conditions, numbers, strict=True)) == []
    for rows in (found.pop() for _ in decoded):
        older = [[number, number, None, None, number, None] for number in range(ROWS)]
        newer = [[number, number, "8000", "gift", number, "1.5"] for number in range(ROWS)]
        assert rows == older + newer
    assert [form for form, _, _ in found] == ["delta", "iceberg", "delta", "catalog"]
    for output, (_, of_one, rows) in zip(outputs, found, strict=True):
        assert Counter((batch, partition, offset) for batch, partition, offset, _, _ in rows) == output.seen()
        assert {(value, headers) for _, partition, offset, value, headers in rows if (partition, offset) == (1, 7)} == {
            ("orders-1@7", None)
        }
        assert of_one == 6
