"""Whether a Delta table can be written without Spark: delta-rs does not check it, and would silently break readers.

To make a dataset of a table (``to_pandas``, ``to_pyarrow_dataset``), delta-rs 1.6.6 takes a bound that a file lacks for
a null: no row seems to fit a condition, and the file is skipped. It does so for columns that were added after the file,
too. It looks for the columns that ``delta.dataSkippingStatsColumns`` names, by default for the first 32, and at no
bounds of a file that has none at all. So a new table names the columns that can have bounds; and a file has bounds of
all columns that are looked for, or none (:class:`FileStatistics`).
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_ingest.model.table_options import TableOptions
from kafka_ingest.sinks.delta.columns import differences_of_table

if TYPE_CHECKING:
    from deltalake import DeltaTable

NAMED = "delta.dataSkippingStatsColumns"
NUMBER, DEFAULT_NUMBER = "delta.dataSkippingNumIndexedCols", 32
BOUNDED = frozenset({"string", "long", "integer", "short", "byte", "date", "timestamp"})
"""The types whose bounds are recorded. Numbers that may be NaN have none: engines take it for larger than all others,
and Parquet leaves it out of its statistics. Of decimals, truth values and times without a zone there are none either.
"""
NEVER = frozenset({"binary", "array", "map"})
"""The types of which no reader looks for bounds."""
A_NUMBER = re.compile(r"-?[0-9]{1,6}")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NAMES = re.compile(rf"\s*({NAME.pattern}(\.{NAME.pattern})*)(\s*,\s*({NAME.pattern}(\.{NAME.pattern})*))*\s*")
"""What every reader takes for names in the property; delta-rs ignores all of them where it cannot read one."""

Fields = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Rows of a file, its columns, and of those of which it is known: how many nulls, and bounds as JSON has them."""

    rows: int
    columns: Collection[str]
    nulls: dict[str, int] = field(default_factory=dict)
    smallest: dict[str, Any] = field(default_factory=dict)
    largest: dict[str, Any] = field(default_factory=dict)

    def can_bound(self, column: str) -> bool:
        """Whether bounds of a column are known, or not needed."""
        return column in self.smallest or column not in self.columns or self.nulls.get(column) == self.rows

    def recorded(self, searched: Mapping[str, object]) -> str:
        """Return the statistics as the Delta protocol writes them, for readers that look for some columns' bounds.

        delta-rs takes a bound that is missing beside others for a null, and skips the file. So there are all of
        ``searched`` (name and type of :func:`searched`) or none at all, but counts of nulls; a column
        of nulls alone needs none.
        """
        lacking = [name for name, kind in searched.items() if name not in self.columns and isinstance(kind, str)]
        nulls = self.nulls | dict.fromkeys(lacking, self.rows)
        found: dict[str, Any] = {"numRecords": self.rows, "nullCount": nulls}
        # Those of fields within others are not known.
        if all(isinstance(kind, str) for kind in searched.values()) and all(map(self.can_bound, searched)):
            found |= {"minValues": self.smallest, "maxValues": self.largest}
        # As they are: of an escaped character beyond U+FFFFF delta-rs, DuckDB and Polars make another one.
        return json.dumps(found, ensure_ascii=False)


def searched(
    fields: Fields, configuration: Mapping[str, str], partitioned_by: Collection[str] = ()
) -> dict[str, object]:
    """Return the columns, with their types, whose bounds some reader looks for in each file."""
    types = {each["name"]: each["type"] for each in fields}
    named = configuration.get(NAMED, "")
    if NAMES.fullmatch(named):
        names: Sequence[str] = [name.strip() for name in named.split(",")]
    else:
        said = configuration.get(NUMBER, "")
        number = int(said) if A_NUMBER.fullmatch(said) else DEFAULT_NUMBER
        names = [*types] if number < 0 else [*types][:number]
    found = {name: types[name] for name in names if name in types and name not in partitioned_by}
    return {name: kind for name, kind in found.items() if word(kind) not in NEVER}


def word(kind: object) -> object:
    """Return a type's name, whatever is in it."""
    return kind["type"] if isinstance(kind, Mapping) else kind


def with_bounds(columns: Mapping[str, object]) -> list[str]:
    """Return the columns that can have bounds in each file, and be named so that every reader understands it."""
    return [
        name for name, kind in columns.items() if isinstance(kind, str) and kind in BOUNDED and NAME.fullmatch(name)
    ]


def naming(columns: Sequence[str]) -> dict[str, str]:
    return {NAMED: ",".join(columns)}


def for_new_table(
    fields: Fields, properties: Mapping[str, str], partitioned_by: Collection[str], files: Collection[FileStatistics]
) -> dict[str, str]:
    """Return the property that a new table gets beside its own; none where these say what has statistics.

    What its first files have no bounds of, such as texts of kilobytes, is not named: later ones will have none either.
    """
    if NAMED in properties or NUMBER in properties:
        return {}
    columns = with_bounds(searched(fields, {NUMBER: "-1"}, partitioned_by))
    return naming([name for name in columns if all(file.can_bound(name) for file in files)])


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
