"""The newest state of each key: what of a record is an event, and which of a key's events is the newest.

Nothing here knows a format: :mod:`kafka_ingest.sinks.change_events` makes events of staged records, and a sink keeps
for each key the one that wins. The rules: an event with a larger offset of the same partition wins, whatever times
or LSNs say; a snapshot's read never wins over a change; what is older than a truncation is none.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafka_ingest.errors import ColumnsChangedError
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
        if reserved := [name for name in (*keys, *state) if name.startswith("kafka_")]:
            raise ColumnsChangedError(
                f"expected columns of records that do not begin with kafka_, found {', '.join(reserved)}: rename them "
                "by a select"
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
