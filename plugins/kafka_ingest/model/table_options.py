"""How records go into a table of an engine: options of an output, stored in each plan, so a batch keeps its own."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.partition_term import PartitionTerm, terms_of
from kafka_ingest.model.written_columns import WrittenColumns, names_in

MODE, CURRENT = "mode", "current"
DELETED, ON_TRUNCATE = "deleted", "on_truncate"
REMOVE, APPLY = "remove", "apply"

WRITES, READS, DELETES, TRUNCATES, NOTHING, UNKNOWN = "u", "r", "d", "t", "m", "?"
"""What an event does: a change, a snapshot's read, a deletion, a truncation, and a message, which changes no row."""
OPERATIONS: Final[Mapping[str, str]] = {
    "c": WRITES,
    "u": WRITES,
    "r": READS,
    "d": DELETES,
    "t": TRUNCATES,
    "m": NOTHING,
}
"""Debezium's ``op``: https://debezium.io/documentation/reference/stable/connectors/postgresql.html."""
UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Stands for a value that PostgreSQL did not log, as it is stored apart (TOAST) and has not changed."""

IS_DELETED, IS_SNAPSHOT = "kafka_deleted", "kafka_snapshot"
"""Columns of a table: the key was deleted; the row is of a snapshot, so that any change wins over it."""
CHANGE, UNAVAILABLE_COLUMNS = "kafka_change", "kafka_unavailable"
"""Columns of events alone: what it does, and the names of columns whose value it does not have, a line each."""
Path = tuple[str, ...]

DEFAULT = "_default"
"""What the name of the DEFAULT partition adds to that of a table in a database."""
MARKS = "_kafka_batches"
"""What the name of the table of marks adds to it."""


@dataclass(frozen=True, slots=True)
class CurrentState:
    """How a table of the newest state of each key is kept; options of an output, stored in each plan.

    ``removes``: rows of deleted keys leave the table, instead of being marked. ``truncates``: a truncation removes what
    is older of a topic with one partition, instead of stopping the feed.
    """

    removes: bool = False
    truncates: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "CurrentState | None":
        """Read the options of an output; None where each record is a row."""
        if options.get(MODE) != CURRENT:
            return None
        return cls(options.get(DELETED) == REMOVE, options.get(ON_TRUNCATE) == APPLY)

    def as_options(self) -> dict[str, str]:
        """Return what is stored: only what is not the default."""
        chosen = {DELETED: REMOVE} if self.removes else {}
        return {MODE: CURRENT, **chosen, **({ON_TRUNCATE: APPLY} if self.truncates else {})}


@dataclass(frozen=True, slots=True)
class EventLayout:
    """Where the columns of a row are in a record: paths by names, the key's apart from those of its state.

    ``value`` leads to what an event has beside its key; a tombstone's whole column is null. ``operation``, and
    ``deleted`` of an unwrapped event, are None where records have none; ``row``: in an envelope, what is null where
    there is no row.
    """

    key: Mapping[str, Path]
    state: Mapping[str, Path]
    value: Path
    operation: Path | None
    deleted: Path | None
    row: Path | None

    @classmethod
    def of(cls, written: WrittenColumns) -> "EventLayout":
        """Return the layout of records with these columns, by their types alone.

        Debezium's envelope has ``op`` and a struct ``after``. Connect's JSON converter adds one with ``payload``.
        Raises ColumnsChangedError where records have no key and value any more, or columns that a table cannot have.
        """
        columns = dict(children(written, ()))
        if missing := [name for name in ("key", "value") if name not in columns]:
            raise ColumnsChangedError(
                f"expected records with their key and value, of which sink.mode {CURRENT} makes rows, found no column "
                f"{' and no '.join(missing)}. Leave columns: flatten out, and let select keep the two "
                "(keep_other_columns: true)."
            )
        key, value = within(written, "key"), within(written, "value")
        fields = dict(children(written, value))
        row = (*value, "after") if fields.get("op") == "string" and fields.get("after") == "struct" else None
        keys = {name: (*key, name) for name, _ in children(written, key)} or {"key": key}
        of_value = {name: (*(row or value), name) for name, _ in children(written, row or value)} or {"value": value}
        others = {name: (name,) for name in columns if name not in {"key", "value"} and not name.startswith("kafka_")}
        marks = {"__deleted", "__op"} if row is None and fields else set()
        state = {**of_value, **others}
        if reserved := [name for name in (*keys, *state) if name.startswith("kafka_") or "\n" in name]:
            raise ColumnsChangedError(
                "expected columns of records that do not begin with kafka_ and have no line break, found "
                f"{', '.join(reserved)}: rename them by a select"
            )
        if ("key" in keys and "key" in state) or ("value" in keys and "value" in state and not fields):
            raise ColumnsChangedError("expected other names than key and value in key and value: rename them by select")
        name = "op" if row else "__op"
        return cls(
            keys,
            {name: path for name, path in state.items() if name not in {*keys, *marks}},
            value,
            (*value, name) if fields.get(name) == "string" else None,
            (*value, "__deleted") if "__deleted" in marks & fields.keys() else None,
            row,
        )

    def columns(self, written: WrittenColumns) -> dict[str, str]:
        """Return the types of a row's columns beside Kafka's own, by their names."""
        kinds = {tuple(names_in(path)): kind for path, kind in written.items() if "[]" not in path}
        return {name: kinds[path] for name, path in {**self.key, **self.state}.items()}


def children(written: WrittenColumns, parent: Path) -> Iterator[tuple[str, str]]:
    """Yield the fields of a struct, or all columns, with their types; none of what has no fields."""
    for path, kind in written.items():
        names = tuple(names_in(path))
        if "[]" not in path and names[:-1] == parent:
            yield names[-1], kind


def within(written: WrittenColumns, column: str) -> Path:
    """Return the path of a key or a value, which is in an envelope where that has nothing else."""
    return (column, "payload") if [name for name, _ in children(written, (column,))] == ["payload"] else (column,)


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
