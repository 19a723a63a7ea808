"""Chance that can be repeated."""

import random


def repeatable_random(seed: int) -> random.Random:
    """Return a generator that gives the same numbers for the same seed; never for secrets."""
    return random.Random(seed)  # noqa: S311  (repeatable, not secret)
