"""Records with more bytes than a feed wants: they are not decoded."""

from pyspark.sql import DataFrame

from kafka_ingest.model.decoding import DeadClass
from kafka_ingest.model.record_schema import quoted
from kafka_ingest.writing.decoded_part import once, reason

SIZE = "kafka_size"

OF_HEADER = "octet_length(header.key) + coalesce(length(header.value), 0)"
OF_HEADERS = f"aggregate(kafka_headers, 0L, (bytes, header) -> bytes + {OF_HEADER})"
BYTES = f"coalesce(length(`key`), 0L) + coalesce(length(`value`), 0) + coalesce({OF_HEADERS}, 0)"
"""Of key, value and headers, as a bigint."""


def whole_name(column: str) -> str:
    """Return where a key or value is, of large records as well."""
    return f"kafka_whole_{column}"


def without_large(records: DataFrame, at_most: int) -> DataFrame:
    """Return records with keys and values of large ones as null, and these beside them (:func:`whole_name`)."""
    whole = {name: f"`{name}` as {whole_name(name)}" for name in ("key", "value")}
    sized = records.selectExpr("*", f"{once(BYTES)} as {SIZE}", *whole.values())
    given = (
        f"if({SIZE} > {at_most}, null, `{name}`) as `{name}`" if name in whole else quoted(name)
        for name in sized.columns
    )
    return sized.selectExpr(*given)


def is_too_large(at_most: int) -> tuple[str, str]:
    """Return whether a record is too large, and the reason."""
    said = f"concat('expected at most {at_most} bytes of key, value and headers, found ', {SIZE})"
    return f"{SIZE} > {at_most}", reason("value", DeadClass.TOO_LARGE, said)
