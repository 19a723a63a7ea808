"""Which batches of JSON objects Python's workers read and write."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.fakes import a_plan

from kafka_ingest.model.batch import AttemptDocument, DataNeeds
from kafka_ingest.model.decoding import Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.parquet_settings import FIXED_PARQUET_SETTINGS, PARQUET_SETTINGS
from kafka_ingest.model.partition_term import PartitionTerm
from kafka_ingest.model.shape import Shape
from kafka_ingest.writing.stage_objects import SWITCH, ObjectsOfWorkers, objects_for_workers

SETTINGS = {**FIXED_PARQUET_SETTINGS, **PARQUET_SETTINGS}
OBJECT = FieldDecoding(Format.JSON, "id bigint, n int, name string, x double, paid boolean, inner struct<y: string>")


def records(settings: Mapping[str, str], master: str, hadoop: Mapping[str, str]) -> Any:
    """Return records of a Spark with some settings, which are not read."""
    conf = SimpleNamespace(getAll=lambda: list(settings.items()), get=settings.get)
    context = SimpleNamespace(
        master=master, getConf=lambda: conf, defaultParallelism=4, accumulator=lambda zero, *_: zero
    )
    schema = StructType([StructField(name, BinaryType()) for name in ("kafka_topic", "key", "value")])
    java = SimpleNamespace(hadoopConfiguration=lambda: hadoop)
    spark = SimpleNamespace(sparkContext=context, _jsc=java)
    return SimpleNamespace(sparkSession=spark, schema=schema, columns=schema.names)


def found(
    decoding: Decoding,
    *,
    needs: DataNeeds = DataNeeds(),  # noqa: B008 - a frozen value
    place: PurePath = Path("/output/data"),
    master: str = "local[2]",
    settings: Mapping[str, str] = SETTINGS,
    hadoop: Mapping[str, str] = SETTINGS,
) -> ObjectsOfWorkers | None:
    """Return what stages a batch, if workers do."""
    document = AttemptDocument(a_plan(), 1, decoding, needs)
    place_in_store: Any = place
    return objects_for_workers(records(settings, master, hadoop), document, place_in_store)


def test_objects_of_plain_types_are_read_by_workers_on_this_machine() -> None:
    for decoding in (
        Decoding(OBJECT),
        Decoding(OBJECT, FieldDecoding(Format.STRING)),
        Decoding(replace(OBJECT, unknown_fields=UnknownFields.REFUSE)),
    ):
        assert found(decoding) is not None
    assert found(Decoding(OBJECT), master="local[*]", settings=SETTINGS | {"spark.executor.memory": "2g"}) is not None


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(),
        Decoding(FieldDecoding(Format.JSON)),
        Decoding(FieldDecoding(Format.AVRO, "{}")),
        Decoding(replace(OBJECT, unknown_fields=UnknownFields.KEEP)),
        Decoding(replace(OBJECT, writers=())),
        Decoding(OBJECT, OBJECT),
        Decoding(OBJECT, shape=Shape(where="id > 5")),
        Decoding(OBJECT, shape=Shape(transform="package.module:function")),
        *(
            Decoding(FieldDecoding(Format.JSON, f"id bigint, other {kind}"))
            for kind in ("float", "smallint", "decimal(10,2)", "date", "timestamp", "array<int>", "map<string,int>")
        ),
        Decoding(FieldDecoding(Format.JSON, "id bigint, inner struct<x: double, day: date>")),
    ],
    ids=range(16),
)
def test_what_arrow_reads_otherwise_than_spark_or_spark_alone_can_do_is_left_to_spark(decoding: Decoding) -> None:
    assert found(decoding) is None


def test_tables_with_partitions_and_stores_are_left_to_spark() -> None:
    assert found(Decoding(OBJECT), needs=DataNeeds(partition_by=(PartitionTerm.parse("kafka_topic"),))) is None
    assert found(Decoding(OBJECT), place=PurePath("/not/on/a/disk")) is None


def test_where_a_site_encrypts_parquet_spark_writes_it() -> None:
    assert found(Decoding(OBJECT), hadoop={"parquet.crypto.factory.class": "a.b.C"}) is None


def test_a_cluster_has_no_workers_of_this_machine() -> None:
    assert found(Decoding(OBJECT), master="spark://x:7077") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.hadoop.parquet.crypto.factory.class", "a.b.C"),
        ("spark.hadoop.parquet.encryption.footer.key", "k"),
        ("spark.sql.parquet.compression.codec", "snappy"),
        ("spark.sql.files.maxRecordsPerFile", "1000"),
        (SWITCH, "false"),
    ],
)
def test_where_a_feed_says_how_files_are_written_spark_writes_them(name: str, value: str) -> None:
    assert found(Decoding(OBJECT), settings=SETTINGS | {name: value}) is None
