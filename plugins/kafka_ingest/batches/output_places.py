"""Where outputs may be: none in or around another, or in the folder of another's staging and receipts."""

from collections.abc import Iterable
from pathlib import Path

from kafka_ingest.model.place import Place


def is_taken(places: Iterable[Place], others: Iterable[Place]) -> bool:
    """Whether one of an output's places is one of another's, is inside it, or contains it.

    Symbolic links are followed, and connections do not count: two may lead to one bucket.
    """
    mine, theirs = ([folders_to(each) for each in some] for some in (places, others))
    return any(one[0] in there or there[0] in one for one in mine for there in theirs)


def folders_to(place: Place) -> list[str]:
    """Return a place and the folders that it is in, as texts that are equal where they are one."""
    if isinstance(place, Path):
        resolved = place.resolve()
        return [str(each) for each in (resolved, *resolved.parents)]
    found = [place.without_connection]
    while found[-1].parent != found[-1]:
        found.append(found[-1].parent)
    return [str(each) for each in found]
