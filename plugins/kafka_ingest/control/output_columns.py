"""The output of a batch, read from its stored plan without the rest of the plan."""

import json
from typing import Any

from sqlalchemy import RowMapping

from kafka_ingest.control.schema import batch
from kafka_ingest.model.output_location import OutputLocation

SINK = batch.c.plan["sink"]
OUTPUT = (
    SINK["format"].as_string().label("sink_format"),
    SINK["path"].as_string().label("output_path"),
    SINK["options"].as_string().label("sink_options"),
)
"""Columns of a query on batches, for :func:`output_of`. Texts, so that rows can be compared: DISTINCT."""


def output_of(row: RowMapping) -> OutputLocation:
    options: dict[str, Any] = json.loads(row["sink_options"]) if row["sink_options"] else {}
    return OutputLocation(row["sink_format"], row["output_path"], tuple(sorted(options.items())))
