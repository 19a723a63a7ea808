"""Whether columns of decoded records go with those that a table has, before files with them become part of it.

A table is one set of columns for all of its files. So a field of another type would be misread, or not at all; a field
that only the table has is null in new rows, and one that it lacks is added (``on_new_fields`` was asked before).
"""

from collections.abc import Collection, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Final, NamedTuple

from kafka_ingest.errors import ColumnsChangedError
from kafka_ingest.model.offsets import listing
from kafka_ingest.model.record_schema import RESERVED_PREFIX
from kafka_ingest.model.written_columns import WrittenColumns, changes, names_in, path_of, side_by_side

BEFORE_COMMITTING: Final = (
    "Nothing was published and no offset was moved; the next run writes the batch again. Keep the fields as they are "
    "in the table, by a select (cast(… as …)) or an earlier version of the schema. Or abandon the batch, and give the "
    "feed another sink.path."
)
WHILE_COMMITTING: Final = (
    "The table was changed after this batch was checked, and began to be COMMITTING: it is not written again by "
    "itself. Nothing was published and no offset was moved. Either change the table's columns back and run the commit "
    "again, or "
)


@contextmanager
def say_how_to_go_on(how: str) -> Iterator[None]:
    """Add to a refusal of columns what its state allows to do."""
    try:
        yield
    except ColumnsChangedError as error:
        raise ColumnsChangedError(f"{error}\n{how}") from error


def is_own(column: str) -> bool:
    """Whether a column is one of Kafka's own, or of this project's: decoded ones are never called so."""
    return column.lower().startswith(RESERVED_PREFIX)


class Part(NamedTuple):
    """A column of a table or a file, or what is in one; ``kind`` is its type as receipts list it."""

    path: str
    kind: str
    allows_nulls: bool


def listed_in(parts: Iterable[Part]) -> dict[str, str]:
    """Return columns beside Kafka's own, as receipts list them."""
    return {part.path: part.kind for part in parts if not is_own(column_of(part.path))}


def column_of(path: str) -> str:
    return next(iter(names_in(path)), "")


def parts_without_nulls(parts: Iterable[Part], columns: Collection[str], called: str) -> Iterator[str]:
    """Yield what allows no nulls in columns of a table that files have, too: a record may lack it, or have null."""
    for part in parts:
        column = column_of(part.path)
        is_inside = part.path != path_of("", column)
        if is_inside and not part.allows_nulls and column in columns and not is_own(column):
            yield f"{part.path}, which is {called} in the table"


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
        raise ColumnsChangedError(f"{table}: expected fields that a table can have, found {listing(problems)}")
    if other := [*changes(there, found).retyped, *in_other_case(there, found)]:
        raise ColumnsChangedError(
            f"{table}: expected the fields that the table has, found others:\n{side_by_side(there, found, other)}"
        )


def wrong_names(named: Iterable[tuple[str, str]], not_in_names: AbstractSet[str]) -> Iterator[str]:
    for path, name in named:
        if found := sorted(not_in_names & set(name)):
            yield f"{path} with {listing(map(repr, found))} in its name"


def last_names(written: WrittenColumns) -> Iterator[tuple[str, str]]:
    yield from ((path, name) for path in written if not path.endswith("[]") for name in names_in(path)[-1:])


def names_of_columns(written: WrittenColumns) -> set[str]:
    return {column_of(path) for path in written}


def in_other_case(there: WrittenColumns, found: WrittenColumns) -> Iterator[str]:
    """Yield new fields of which the table has one that differs only in upper and lower case: engines ignore that."""
    known = {path.lower() for path in there}
    yield from (path for path in found if path not in there and path.lower() in known)
