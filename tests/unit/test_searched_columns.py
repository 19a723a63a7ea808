"""For which columns readers of a Delta table look for bounds, by what the table says."""

import pytest

from kafka_ingest.sinks.delta.table_fit import searched

FIELDS = [{"name": name, "type": "long"} for name in ("a", "b", "c")]


@pytest.mark.parametrize(
    ("said", "columns"), [("2", "ab"), ("-1", "abc"), ("0", ""), ("abc", "abc"), ("9" * 5_000, "abc")]
)
def test_a_number_of_columns_that_is_none_is_the_default(said: str, columns: str) -> None:
    assert "".join(searched(FIELDS, {"delta.dataSkippingNumIndexedCols": said})) == columns
