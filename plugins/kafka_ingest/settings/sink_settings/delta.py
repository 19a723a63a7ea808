"""``sink: {format: delta, path: …}``, and what a table has."""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import field_validator

from kafka_ingest.settings.sink_settings.table import TableSink

RETENTION = "delta.deletedFileRetentionDuration"
HOURS_OR_MORE = re.compile(r"(?:interval )?[1-9][0-9]{0,5} (?:hour|day|week)s?")
SETTABLE = (
    *("checkpointInterval", "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration"),
    *("enableExpiredLogCleanup", "logRetentionDuration", "targetFileSize", "tuneFileSizesForRewrites"),
)
"""Delta's own properties that change nothing about how a table is written; all others may need a table feature."""


class DeltaSink(TableSink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = "Delta tables are written on disks and in s3://…"
    on_object_stores: ClassVar[bool] = True
    reserved_properties: ClassVar[re.Pattern[str]] = re.compile(
        rf"(?i:delta)\.(?!(?:{'|'.join(SETTABLE)}|autoOptimize\.\w+)$)|kafka_ingest"
    )

    format: Literal["delta"]

    @field_validator("table_properties")
    @classmethod
    def _keep_staged_files(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        kept = properties.get(RETENTION)
        if kept is not None and not HOURS_OR_MORE.fullmatch(kept):
            raise ValueError(
                f"expected {RETENTION} in hours, days or weeks, such as 'interval 7 days', found {kept!r}: with less, "
                "VACUUM deletes files that are not committed yet"
            )
        return properties
