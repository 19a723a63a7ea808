"""Lists page by page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """One page of a list; pages are numbered from 1."""

    items: Sequence[T]
    page: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[T], page: int, length: int) -> "PageOf[T]":
        """Return the page of that number, or the last one where there are fewer."""
        pages = max(1, -(-len(items) // length))
        page = min(max(page, 1), pages)
        return cls(items[(page - 1) * length : page * length], page, pages, len(items))
