"""Which columns and rows a feed makes of its decoded records; frozen with each attempt, as the decoding is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SelectedColumn:
    """A column: its name, its type in Spark's DDL, and the Spark SQL expression that gives exactly that type."""

    name: str
    type: str
    sql: str


@dataclass(frozen=True, slots=True)
class Shape:
    """How decoded records are filtered and reshaped.

    ``where``: a Spark SQL expression; records for which it is not true are filtered. ``select``: the columns in the
    place of key and value; none leaves these. ``keeps_others``: the others stay beside these. ``transform``:
    ``package.module:function``, which is given all rows.
    """

    select: Sequence[SelectedColumn] = ()
    where: str | None = None
    transform: str | None = None
    keeps_others: bool = False

    def __bool__(self) -> bool:
        """Whether records become anything but what they are decoded to."""
        return bool(self.select) or self.where is not None or self.transform is not None

    @property
    def has_expressions(self) -> bool:
        """Whether a record can be a dead letter since an expression fails for it."""
        return bool(self.select) or self.where is not None

    def as_document(self) -> dict[str, Any]:
        return {
            "select": [[column.name, column.type, column.sql] for column in self.select],
            "where": self.where,
            "transform": self.transform,
        } | ({"keeps_others": True} if self.keeps_others else {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Shape":
        columns = tuple(SelectedColumn(*each) for each in document["select"])
        return cls(columns, document["where"], document["transform"], document.get("keeps_others", False))

    def columns(self, decoded: Sequence[str]) -> list[str]:
        """Return the names of the columns, of which ``decoded`` are there without ``select``.

        Where the others stay, a column is in the place of the one of its name, in any case of letters, or behind all.
        """
        if not self.select:
            return list(decoded)
        selected = {column.name.lower(): column.name for column in self.select}
        kept = [selected.pop(name.lower(), name) for name in decoded] if self.keeps_others else []
        return [*kept, *selected.values()]


AS_DECODED = Shape()
"""Records become the rows that they are decoded to."""
