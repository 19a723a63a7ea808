"""Whether a Delta table can be written without Spark: delta-rs does not check it, and would silently break readers."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.delta.columns import differences_of_table
from kafka_ingest.sinks.delta.searched_columns import searched

if TYPE_CHECKING:
    from deltalake import DeltaTable

READER_FEATURES = frozenset({"timestampNtz"})
WRITER_FEATURES = frozenset({"appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"})
"""Features that a table may list, as long as it does not use those that restrict rows; their use is checked."""

LEGACY_READER, LEGACY_WRITER = 1, 4
"""Protocol versions up to these imply only the features above; higher ones column mapping and identity columns."""

BY_FEATURE = (3, 7)
"""The reader and writer version from which a table lists its features by name."""

CONSTRAINT = "delta.constraints."
MARKERS_EXPIRE = "delta.setTransactionRetentionDuration"
RETENTION = "delta.deletedFileRetentionDuration"
DEFAULT_RETENTION_S = 7 * 86_400.0
LEAST_RETENTION_S = 3_600.0
"""With less, files that are renewed may be too old again when the task is tried again."""
MARGIN_S = 86_400.0
UNITS_S = {"second": 1.0, "minute": 60.0, "hour": 3_600.0, "day": 86_400.0, "week": 7 * 86_400.0}
INTERVAL = re.compile(r"(?:interval\s+)?([0-9]{1,12})\s+([a-z]+?)s?", re.IGNORECASE)
OFF = {"delta.columnMapping.mode": "none", "delta.enableDeletionVectors": "false", "delta.enableRowTracking": "false"}


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table's newest protocol and metadata actions."""

    reader_version: int
    writer_version: int
    reader_features: Collection[str]
    writer_features: Collection[str]
    partition_columns: Collection[str]
    configuration: Mapping[str, str]
    schema: Mapping[str, Any]

    @property
    def fields(self) -> Sequence[Mapping[str, Any]]:
        fields: Sequence[Mapping[str, Any]] = self.schema["fields"]
        return fields

    @property
    def columns(self) -> list[str]:
        return [field["name"] for field in self.fields]

    @property
    def searched(self) -> dict[str, object]:
        return searched(self.fields, self.configuration, self.partition_columns)


def why_not_read(form: TableForm) -> Iterator[str]:
    """Yield why the table's rows do not follow from its Parquet files alone."""
    if form.reader_version > LEGACY_READER and form.reader_version != BY_FEATURE[0]:
        yield f"reader version {form.reader_version}, expected {LEGACY_READER}"
    for feature in sorted(set(form.reader_features) - READER_FEATURES):
        yield f"reader feature {feature}"
    if (mode := form.configuration.get("delta.columnMapping.mode", "none")) != "none":
        yield f"delta.columnMapping.mode={mode}"


def why_not_written(form: TableForm, options: TableOptions) -> Iterator[str]:
    """Yield why files of the raw format cannot be added to the table; nothing where they can."""
    yield from why_not_read(form)
    if form.writer_version > LEGACY_WRITER and form.writer_version != BY_FEATURE[1]:
        yield f"writer version {form.writer_version}, expected up to {LEGACY_WRITER}"
    known = WRITER_FEATURES | set(form.reader_features)
    for feature in sorted(set(form.writer_features) - known):
        yield f"writer feature {feature}"
    expected = [term.own_column for term in options.partition_by]
    if list(form.partition_columns) != expected:
        found = ", ".join(form.partition_columns) or "nothing"
        yield f"partitioned by {found}, sink.partition_by asks for {', '.join(expected) or 'nothing'}"
    for key, value in sorted(form.configuration.items()):
        if key.startswith(CONSTRAINT):
            yield f"CHECK constraint {key.removeprefix(CONSTRAINT)}"
        elif key == MARKERS_EXPIRE:
            yield f"{key}={value}: the marks of published batches would be forgotten, and batches published twice"
        elif key == RETENTION and retention_s(form.configuration) < LEAST_RETENTION_S:
            yield f"{key}={value}: VACUUM would delete staged files before they are committed, expected an hour or more"
        elif key in OFF and key != "delta.columnMapping.mode" and value != OFF[key]:
            yield f"{key}={value}"
    yield from differences_of_table(form.schema, options)


def form_of(table: "DeltaTable") -> TableForm:
    protocol, metadata = table.protocol(), table.metadata()
    return TableForm(
        reader_version=protocol.min_reader_version,
        writer_version=protocol.min_writer_version,
        reader_features=protocol.reader_features or (),
        writer_features=protocol.writer_features or (),
        partition_columns=tuple(metadata.partition_columns),
        configuration=dict(metadata.configuration),
        schema=json.loads(table.schema().to_json()),
    )


def retention_s(configuration: Mapping[str, str]) -> float:
    """Return how long VACUUM keeps files that a table does not name; the default where the setting cannot be read."""
    found = INTERVAL.fullmatch(configuration.get(RETENTION, "").strip())
    if found is None or found[2].lower() not in UNITS_S:
        return DEFAULT_RETENTION_S
    return int(found[1]) * UNITS_S[found[2].lower()]


def oldest_s(configuration: Mapping[str, str]) -> float:
    """Return at which age of staged files VACUUM is near to taking them."""
    retention = retention_s(configuration)
    return retention - min(MARGIN_S, retention / 2)
