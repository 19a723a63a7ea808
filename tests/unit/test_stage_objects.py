"""Which batches of JSON objects Python's workers read and write."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkFiles
from pyspark.sql.types import BinaryType, StructField, StructType
from tests.fakes import a_plan, span

from kafka_ingest.foundation.storage import opened
from kafka_ingest.model.batch import AttemptDocument, DataNeeds
from kafka_ingest.model.decoding import Decoding, FieldDecoding, Format, UnknownFields
from kafka_ingest.model.offsets import OffsetRange
from kafka_ingest.model.partition_term import terms_of
from kafka_ingest.model.place import Place, RemotePlace
from kafka_ingest.model.schema_source import WriterSchema
from kafka_ingest.model.spark_settings import FIXED_PARQUET_SETTINGS, PARQUET_SETTINGS
from kafka_ingest.model.written_columns import Shape
from kafka_ingest.writing.stage_decoded import SWITCH, CountedRows
from kafka_ingest.writing.stage_objects import ObjectsOfWorkers, objects_for_workers

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
    ranges: Sequence[OffsetRange] = (),
    place: Place = Path("/output/data"),
    master: str = "local[2]",
    settings: Mapping[str, str] = SETTINGS,
    hadoop: Mapping[str, str] = SETTINGS,
) -> ObjectsOfWorkers | None:
    """Return what stages a batch, if workers do."""
    document = AttemptDocument(a_plan(*ranges), 1, decoding, needs)
    raw = records(settings, master, hadoop)
    return objects_for_workers(raw, document.plan.ranges, document, place, opened)


def test_objects_of_plain_types_are_read_by_workers_on_this_machine() -> None:
    for decoding in (
        Decoding(OBJECT),
        Decoding(OBJECT, FieldDecoding(Format.STRING)),
        Decoding(replace(OBJECT, unknown_fields=UnknownFields.REFUSE)),
        Decoding(replace(OBJECT, writers=(WriterSchema(7, "{}"),))),
        Decoding(OBJECT, max_record_bytes=8192),
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
        Decoding(replace(OBJECT, writers=(WriterSchema(7, None, misfit="no JSON Schema"),))),
        Decoding(replace(OBJECT, required=("id",))),
        Decoding(OBJECT, max_record_bytes=8191),
        Decoding(OBJECT, OBJECT),
        Decoding(OBJECT, shape=Shape(where="id > 5")),
        Decoding(OBJECT, shape=Shape(transform="package.module:function")),
        *(
            Decoding(FieldDecoding(Format.JSON, f"id bigint, other {kind}"))
            for kind in ("float", "smallint", "decimal(10,2)", "date", "timestamp", "array<int>", "map<string,int>")
        ),
        Decoding(FieldDecoding(Format.JSON, "id bigint, inner struct<x: double, day: date>")),
    ],
    ids=range(18),
)
def test_what_arrow_reads_otherwise_than_spark_or_spark_alone_can_do_is_left_to_spark(decoding: Decoding) -> None:
    assert found(decoding) is None


def test_tables_with_partitions_are_written_by_workers_unless_spark_has_to_bring_records_together() -> None:
    days, topics = (DataNeeds(partition_by=terms_of([term])) for term in ("day(kafka_timestamp)", "kafka_topic"))
    assert found(Decoding(OBJECT), needs=days) is not None
    assert found(Decoding(OBJECT), needs=topics) is not None
    assert found(Decoding(OBJECT), needs=topics, ranges=[span(0, 0, 9, "x" * 249)]) is None
    assert found(Decoding(OBJECT), needs=days, ranges=[span(number, 0, 9) for number in range(2_000)]) is None


def test_what_is_for_a_store_is_written_to_a_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))
    assert found(Decoding(OBJECT), place=RemotePlace("s3://bucket/table")) is not None
    assert len(list(tmp_path.iterdir())) == 1


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
    ],
)
def test_where_a_feed_says_how_files_are_written_spark_writes_them(name: str, value: str) -> None:
    assert found(Decoding(OBJECT), settings=SETTINGS | {name: value}) is None


@pytest.mark.parametrize(
    ("decoding", "records_there", "settings", "are_read"),
    [
        (Decoding(OBJECT), 250_001, {}, True),
        (Decoding(FieldDecoding(), OBJECT), 250_001, {}, True),
        (Decoding(), 250_001, {}, False),
        (Decoding(OBJECT), 250_000, {}, False),
        (Decoding(OBJECT), 250_001, {SWITCH: "false"}, False),
    ],
)
def test_workers_read_the_json_of_large_batches_unless_the_feed_says_no(
    decoding: Decoding, records_there: int, settings: Mapping[str, str], *, are_read: bool
) -> None:
    ranges = [span(0, 0, 1), span(1, 1, records_there)]
    document = AttemptDocument(a_plan(*ranges), 1, decoding, DataNeeds())
    assert CountedRows(records(settings, "spark://x:7077", {}), ranges, document).plainly == are_read
