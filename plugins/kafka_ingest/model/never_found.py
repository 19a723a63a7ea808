"""Fields of a schema that no record of a batch has: as a rule, names that are mistyped, or inside an envelope."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafka_ingest.foundation.counting import counted
from kafka_ingest.model.documents import Documented

LEAST_RECORDS: Final = 20
"""Fewer records say nothing of what all of them have, unless they have none of the fields."""

MOST_NAMES: Final = 20
"""How many names that the records have in a field's place are kept."""

MOST_FIELDS: Final = 100
"""How many fields are kept."""

LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class NeverFound(Documented):
    """A field that is null in all rows of a batch, and that none of the records examined has.

    ``part``: ``key`` or ``value``. ``field``: its path there. ``records``: how many were examined that have the object
    it belongs to. ``others``: names that these have in that object and the schema does not, the most frequent first.
    ``is_part_found``: other fields of the part were found.
    """

    part: str
    field: str
    records: int
    others: tuple[str, ...] = ()
    is_part_found: bool = True

    @property
    def whereabouts(self) -> str:
        """Say how many records were examined, and what they have in its place."""
        there = f"there are: {', '.join(self.others)}" if self.others else "the schema has all names that are there"
        return f"in 0 of {counted(self.records, 'record')}; {there}"


def described(missing: Iterable[NeverFound]) -> list[str]:
    """Return the fields in words, those of one object together: ``value.usr: in 0 of 20 records; there are: user``."""
    fields: dict[tuple[str, str], list[str]] = {}
    for each in missing:
        fields.setdefault((each.part, each.whereabouts), []).append(f"{each.part}.{each.field}")
    return [f"{', '.join(names)}: {whereabouts}" for (_, whereabouts), names in fields.items()]
