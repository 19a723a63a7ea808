"""How long a batch's transaction may take, by what earlier ones took, and how many rows it may have. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LEAST_S: Final = 60.0
ROWS_PER_S: Final = 20_000
BYTES_PER_S: Final = 2_000_000
"""Where none was measured: 316,000 rows of 200 bytes a second were, with one broker on the machine."""
ROW_BYTES: Final = 16_000
"""How large rows are taken to be before the first batch: it is the one that measures them, and must not be refused."""
MARGIN: Final = 4
"""So much slower than the slowest of the newest ones a transaction may be."""
TELLING_S: Final = 1.0
"""A shorter one, or one of fewer bytes than it takes at least, says nothing: it is mostly waiting for answers."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What one transaction has produced, in so many seconds; the bytes are nearly as ``sizes_of`` counts them."""

    rows: int
    size_bytes: int
    seconds: float


def longest_s(rows: int, size_bytes: int, earlier: Sequence[Pace]) -> float:
    """Return how long a transaction may take.

    A record counts as 200 bytes at least, so that bytes a second say how long small ones take, too.
    """
    telling = [each for each in earlier if each.seconds >= TELLING_S and each.size_bytes >= BYTES_PER_S * TELLING_S]
    slowest = min((each.size_bytes / each.seconds for each in telling), default=None)
    if slowest is not None:
        return LEAST_S + size_bytes * MARGIN / slowest
    return LEAST_S + rows / ROWS_PER_S + size_bytes / BYTES_PER_S


def most_rows(allowed_s: float, earlier: Sequence[Pace]) -> int:
    """Return how many rows a batch may have, one at least, so that its transaction lasts half the time that it may.

    Its records may thus be twice as large as the largest ones of earlier batches, on an average, were.
    """
    largest = max((pace.size_bytes / pace.rows for pace in earlier), default=ROW_BYTES)
    of_many_s = longest_s(1_000_000, round(largest * 1_000_000), earlier) - LEAST_S
    return max(1, int((allowed_s - LEAST_S) / 2 / of_many_s * 1_000_000))
