"""``sink: {format: delta, path: …}``, and what a table has."""

import re
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import field_validator

from kafka_ingest.foundation.stores.kinds import SCHEMES_IN_WORDS
from kafka_ingest.settings.sink_settings.table import TableSink

INTERVALS = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
"""With less than an hour, what is not committed yet may be deleted, and what is read at the moment."""
HOURS_OR_MORE = re.compile(r"(?:interval )?[1-9][0-9]{0,5} (?:hour|day|week)s?")
CHECKPOINTS = "delta.checkpointInterval"
SETTABLE = (
    *("checkpointInterval", "dataSkippingNumIndexedCols", "dataSkippingStatsColumns", "deletedFileRetentionDuration"),
    *("enableExpiredLogCleanup", "logRetentionDuration", "targetFileSize", "tuneFileSizesForRewrites"),
)
"""Delta's own properties that change nothing about how a table is written; all others may need a table feature."""


class DeltaSink(TableSink):
    """A Delta table."""

    not_on_object_stores: ClassVar[str] = f"Delta tables are written on disks and in {SCHEMES_IN_WORDS}"
    on_object_stores: ClassVar[bool] = True
    reserved_properties: ClassVar[re.Pattern[str]] = re.compile(
        rf"(?!delta\.)(?i:delta)\.|delta\.(?!(?:{'|'.join(SETTABLE)}|autoOptimize\.\w+)$)|kafka_ingest"
    )

    format: Literal["delta"]

    @field_validator("table_properties")
    @classmethod
    def _can_be_read(cls, properties: Mapping[str, str]) -> Mapping[str, str]:
        for name in INTERVALS:
            if not HOURS_OR_MORE.fullmatch(found := properties.get(name, "1 day")):
                raise ValueError(
                    f"expected hours, days or weeks for {name}, such as 'interval 7 days', found {found!r}"
                )
        if not re.fullmatch(r"[1-9][0-9]{0,8}", found := properties.get(CHECKPOINTS, "1")):
            raise ValueError(f"expected a whole number for {CHECKPOINTS}, found {found!r}")
        return properties
