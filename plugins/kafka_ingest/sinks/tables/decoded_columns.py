"""Whether columns of decoded records go with those that a table has, before files with them become part of it.

A table is one set of columns for all of its files. So a field of another type would be misread, or not at all; a field
that only the table has is null in new rows, and one that it lacks is added (``on_new_fields`` was asked before).
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.record_schema import RESERVED_PREFIX
from kafka_ingest.model.written_columns import WrittenColumns, changes, side_by_side

HOW_TO_GO_ON: Final = (
    "Nothing was published and no offset was moved; the next run writes the batch again. Keep the fields as they are "
    "in the table, by a select (cast(… as …)) or an earlier version of the schema. Or abandon the batch, and give the "
    "feed another sink.path."
)


def is_own(column: str) -> bool:
    """Whether a column is one of Kafka's own, or of this project's: decoded ones are never called so."""
    return column.lower().startswith(RESERVED_PREFIX)


def in_the_words_of(there: WrittenColumns, written: WrittenColumns, same: Iterable[tuple[str, str]]) -> WrittenColumns:
    """Return a table's columns, with a type that the format has no name for called as in the columns to be written.

    ``same``: pairs of the table's type and of one that is stored as that.
    """
    pairs = set(same)
    return {path: written[path] if (kind, written.get(path)) in pairs else kind for path, kind in there.items()}


def refuse_misfits(table: str, there: WrittenColumns, found: WrittenColumns, names: Iterable[str] = ()) -> None:
    """Raise ColumnsChangedError where rows with these columns would be misread in a table with those.

    ``names``: what else is wrong with the names of fields.
    """
    if problems := list(names):
        raise ColumnsChangedError(
            f"{table}: expected fields that a table can have, found {listing(problems)}. {HOW_TO_GO_ON}"
        )
    if other := [*changes(there, found).retyped, *in_other_case(there, found)]:
        raise ColumnsChangedError(
            f"{table}: expected the fields that the table has, found others:\n{side_by_side(there, found, other)}\n"
            f"{HOW_TO_GO_ON}"
        )


def in_other_case(there: WrittenColumns, found: WrittenColumns) -> Iterator[str]:
    """Yield new fields of which the table has one that differs only in upper and lower case: engines ignore that."""
    known = {path.lower() for path in there}
    yield from (path for path in found if path not in there and path.lower() in known)
