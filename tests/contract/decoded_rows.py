"""Rows of decoded records, as Spark stages them for a table."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet
from tests.contract.builders import NOON, attempt_of
from tests.contract.sink_outputs import ROWS, opened, raw_rows
from tests.like_spark import files_of

from kafka_ingest.model.batch import BatchPlan
from kafka_ingest.model.published_output import PublishedReceipt
from kafka_ingest.model.receipt import Receipt, WrittenFile
from kafka_ingest.model.table_options import TableOptions

DECODED = TableOptions(decoded=True)

LINE = pa.struct([pa.field("sku", pa.string()), pa.field("count", pa.int32(), nullable=False)])
VALUE = pa.struct(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("total", pa.decimal128(12, 2)),
        ("due", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("lines", pa.list_(LINE)),
        ("labels", pa.map_(pa.string(), pa.int64())),
    ]
)
"""What a nested value is decoded to: some parts are never null in Spark's expressions, and its files say so."""


def a_value(number: int) -> dict[str, Any]:
    """Return a nested value."""
    return {
        "id": number,
        "city": f"Zürich {number}",
        "total": Decimal(number).scaleb(-2),
        "due": date(2026, 1, 1 + number),
        "at": datetime(2026, 1, 2, 3, 4, 5, number, UTC),
        "tags": ["a", None],
        "lines": [{"sku": "s", "count": number}],
        "labels": [("x", number)],
    }


def nested(count: int = ROWS) -> dict[str, "pa.Array[Any]"]:
    """Return columns of nested values, and of keys."""
    return {
        "key": pa.array([f"k{number}" for number in range(count)], pa.string()),
        "value": pa.array([a_value(number) for number in range(count)], VALUE),
    }


def with_more_fields() -> dict[str, "pa.Array[Any]"]:
    """Return the same with fields that came later: a column, a field of the value, and one of what its list holds.

    Theirs are in the middle, and those around them in another order: a producer rewrote its schema.
    """
    sku, count = LINE
    line = pa.struct([count, ("note", pa.string()), sku])
    fields = [each.with_type(pa.list_(line)) if each.name == "lines" else each for each in reversed(list(VALUE))]
    values = [
        a_value(number) | {"zip": "8000", "lines": [{"sku": "t", "count": number, "note": "gift"}]}
        for number in range(ROWS)
    ]
    value = pa.array(values, pa.struct([*fields[:3], ("zip", pa.string()), *fields[3:]]))
    return nested() | {"value": value, "extra": pa.array([Decimal("1.5")] * ROWS)}


def stage_decoded(
    output: Any, plan: BatchPlan, columns: dict[str, "pa.Array[Any]"], **changes: Any
) -> tuple[Path, PublishedReceipt]:
    """Stage ten rows of each partition of a plan, with columns in the place of key and value, and its receipt."""
    directory = opened(output, plan)
    needs = output.sink.publisher.data_needs(directory)
    data = needs.place
    assert isinstance(data, Path)
    data.mkdir(parents=True)
    files = []
    for planned in plan.ranges:
        name = f"part-{planned.partition:05d}.parquet"
        raw = raw_rows(name, batch_id=str(plan.batch_id) if needs.batch_column else None)
        names = [*raw.column_names[:4], *columns, *raw.column_names[6:]]
        rows = pa.table({each: columns[each] if each in columns else raw[each] for each in names})
        [(folder, rows)] = files_of(rows, needs)
        name = str(PurePosixPath(folder) / name)
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        # Several groups each, so that bounds are put together.
        pyarrow.parquet.write_table(rows, data / name, row_group_size=4, write_statistics=with_bounds(rows.schema))
        size = (data / name).stat().st_size
        files.append(WrittenFile.of_one(name, size, ROWS, planned.topic_partition, 0, ROWS - 1))
    receipt = Receipt(
        batch_id=plan.batch_id,
        attempt=1,
        plan_fingerprint=plan.fingerprint,
        document_sha256=attempt_of(plan, 1).document_sha256,
        rows_read=ROWS * len(files),
        files=tuple(files),
        written_at=NOON,
        written_by="spark local-1",
    )
    receipt = replace(receipt, **changes)
    output.write_receipt(directory, receipt.as_bytes())
    return directory, PublishedReceipt(plan, receipt, ())


def with_bounds(fields: "pa.Schema | pa.StructType", below: str = "") -> list[str]:
    """Return the columns with bounds in a file: not those with NaN, which is a bound itself to Spark, none to Arrow."""
    found: list[str] = []
    for each in fields:
        path = f"{below}{each.name}"
        if isinstance(each.type, pa.StructType):
            found += with_bounds(each.type, f"{path}.")
        elif not pa.types.is_floating(each.type):
            found.append(path)
    return found


def publish_decoded(
    output: Any, plan: BatchPlan, columns: dict[str, "pa.Array[Any]"], **changes: Any
) -> PublishedReceipt:
    """Stage a batch, ask, and publish it."""
    directory, published = stage_decoded(output, plan, columns, **changes)
    output.sink.publisher.can_take(directory, published.receipt)
    output.sink.publisher.publish(directory, published)
    return published
