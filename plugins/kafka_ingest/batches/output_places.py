"""Where outputs may be: none in or around another, or in the folder of another's staging and receipts."""

from collections.abc import Iterable
from pathlib import Path


def is_taken(places: Iterable[Path], others: Iterable[Path]) -> bool:
    """Whether one of an output's places is one of another's, is inside it, or contains it.

    Symbolic links are followed.
    """
    mine, theirs = ([each.resolve() for each in some] for some in (places, others))
    return any(one in {there, *there.parents} or there in one.parents for one in mine for there in theirs)
