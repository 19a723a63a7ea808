"""Odd values in a real Spark: each becomes what docs/values.md says, of each format in one job."""

from types import ModuleType

import pytest
from pyspark.sql import SparkSession
from tests.values.page import FORMATS

from kafka_ingest.model.decoding import DeadClass, Decoding
from kafka_ingest.writing.decode import DEAD, decoded

UNCERTAIN = "uncertain"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.TITLE)
def test_an_odd_value_becomes_what_the_page_says(spark: SparkSession, form: ModuleType) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        strict, certain = (found_in(spark, form, strictly=strictly) for strictly in (True, False))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)

    wanted = {(row.type, row.written): row.becomes for row in form.ROWS}
    assert dict(zip(wanted, (found for found, _ in strict), strict=True)) == wanted
    paths = {row.written: row.path for row in form.ROWS if row.path}
    said = {row.written: reason for row, (_, reason) in zip(form.ROWS, strict, strict=True) if row.path}
    assert {written: reason.rpartition(" in ")[2] for written, reason in said.items()} == paths
    read_fast = {place: found for place, (found, _) in zip(wanted, certain, strict=True) if found is not UNCERTAIN}
    assert read_fast == {place: wanted[place] for place in read_fast}


def found_in(spark: SparkSession, form: ModuleType, *, strictly: bool) -> list[tuple[str | DeadClass, str]]:
    """Return what becomes of each row of a format, decoded strictly, or by the way that may leave some to that.

    Beside it is the reason of a dead letter.
    """
    raw = [(number, None, bytearray(row.raw), row.field) for number, row in enumerate(form.ROWS)]
    read = spark.createDataFrame(raw, "kafka_offset bigint, key binary, value binary, kafka_field string").coalesce(1)
    fields = sorted({row.field for row in form.ROWS})
    stored = {field: f"value.{field}" if field else "value" for field in fields}
    values = " ".join(f"when '{field}' then coalesce(cast({sql} as string), 'null')" for field, sql in stored.items())
    shown = decoded(read, Decoding(form.DECODING), with_reasons=strictly).selectExpr(
        "kafka_offset", f"{DEAD}.class as dead", f"{DEAD}.text as reason", f"case kafka_field {values} end as stored"
    )
    found = sorted(shown.collect(), key=lambda row: int(row["kafka_offset"]))
    return [
        (
            row["stored"] if row["dead"] is None else DeadClass(row["dead"]) if row["dead"] else UNCERTAIN,
            row["reason"] or "",
        )
        for row in found
    ]
