"""Which fields of a value are named where its types cannot hold something in it."""

import re

from kafka_ingest.model.record_schema import read_schema
from kafka_ingest.writing.decode_avro import is_beyond
from kafka_ingest.writing.decode_limits import fields_that


def test_a_field_within_others_is_named_by_its_whole_path() -> None:
    schema = read_schema("before struct<credit: struct<due: date>, name: string>, at timestamp, days array<date>")
    found = fields_that(is_beyond, "v", schema)
    assert [re.findall(r"'([^']*)', null\)$", each) for each in found] == [["before.credit.due"], ["at"], ["days"]]
