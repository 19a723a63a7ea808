"""How records go into a table of an engine: options of an output, stored in each plan, so a batch keeps its own."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from kafka_ingest.model.change_events import CurrentState
from kafka_ingest.model.partition_term import PartitionTerm, terms_of

ON_NEW_COLUMNS, PARTITION_BY = "on_new_columns", "partition_by"
RECORDS, DECODED = "records", "decoded"
"""The option of an output whose rows have columns of decoded records in the place of key and value."""
OF_TABLE = "table_properties."
"""Begins the name of an option that is a property of a new table."""

IGNORABLE = frozenset({"kafka_headers", "kafka_topic_id", "kafka_timestamp_ms"})
"""Columns that a table may do without: position, key, value and ``kafka_timestamp`` are always written.

Without ``kafka_timestamp_ms``, the time of a record whose ``kafka_timestamp`` is null is not kept.
"""

NEVER_ADDED = frozenset({"kafka_topic", "kafka_partition", "kafka_offset"})
"""A table without positions was not made for records of Kafka."""

OF_RECORDS = frozenset({"key", "value"})
"""The columns of the raw format that decoded records have others for."""


class OnNewColumns(StrEnum):
    """What happens where a table lacks columns that are written."""

    ADD = "add"
    IGNORE = "ignore"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a feed says about its table. The defaults are what plans of earlier versions mean.

    ``properties`` are those of the engine, name and value, which a new table gets. ``decoded``: beside Kafka's own
    columns, which are the ones that ``on_new_columns`` is about, rows have those of decoded records. ``current``: a row
    is the newest state of a key; None: a record.
    """

    on_new_columns: OnNewColumns = OnNewColumns.STOP
    partition_by: tuple[PartitionTerm, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    decoded: bool = False
    current: CurrentState | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TableOptions":
        """Read the options of an output; raises ValueError where another version wrote them."""
        terms = options.get(PARTITION_BY, "")
        return cls(
            OnNewColumns(options.get(ON_NEW_COLUMNS, OnNewColumns.STOP.value)),
            terms_of(terms.split(", ")) if terms else (),
            tuple((name.removeprefix(OF_TABLE), each) for name, each in options.items() if name.startswith(OF_TABLE)),
            options.get(RECORDS) == DECODED,
            CurrentState.of(options),
        )

    def as_options(self) -> dict[str, str]:
        """Return what is stored: only what is not the default."""
        is_default = self.on_new_columns is OnNewColumns.STOP
        new_columns = {} if is_default else {ON_NEW_COLUMNS: self.on_new_columns.value}
        partitions = {PARTITION_BY: ", ".join(map(str, self.partition_by))} if self.partition_by else {}
        records = {RECORDS: DECODED} if self.decoded else {}
        current = self.current.as_options() if self.current is not None else {}
        properties = {f"{OF_TABLE}{name}": value for name, value in self.properties}
        return new_columns | partitions | records | current | properties

    @property
    def may_lack(self) -> frozenset[str]:
        """The columns that a file of this output may lack, since the table may."""
        return IGNORABLE if self.on_new_columns is OnNewColumns.IGNORE else frozenset()

    def is_of_records(self, column: str) -> bool:
        """Whether a column of the raw format is one that decoded records, or the states of keys, have others for."""
        return (self.decoded or self.current is not None) and column in OF_RECORDS

    def takes_without(self, column: str) -> bool:
        """Whether a table without a column of the raw format can be written."""
        if self.on_new_columns is OnNewColumns.ADD:
            return column not in NEVER_ADDED
        return column in self.may_lack

    def left_out(self, columns: Collection[str]) -> tuple[str, ...]:
        """Return the columns that files leave out for a table with these columns, sorted."""
        return tuple(sorted(self.may_lack - set(columns)))

    def to_add(self, written: Collection[str], columns: Collection[str]) -> list[str]:
        """Return the written columns that a table with these columns gets, in the order in which they are written."""
        if self.on_new_columns is not OnNewColumns.ADD:
            return []
        return [name for name in written if name not in columns]


NO_TABLE_OPTIONS = TableOptions()

HOW_TO_TAKE_IT = (
    f"Columns that a table lacks can be added by hand, or by batches that are planned with sink.{ON_NEW_COLUMNS}: add; "
    f"with ignore they leave out {', '.join(sorted(IGNORABLE))}."
)
"""What to do about missing columns, for a message."""
