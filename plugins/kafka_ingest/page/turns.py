"""How many views are made at once: the page shares the API server's threads with Airflow."""

from collections.abc import AsyncIterator
from typing import Final

from fastapi import HTTPException, status

AT_ONCE: Final = 8
"""Airflow's API server has 40 threads for all that waits. A database that hangs holds each for up to 30 s."""


class Turns:
    """Lets so many requests in; who comes then is sent away at once, and the page asks again."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._left = at_once

    async def __call__(self) -> AsyncIterator[None]:
        """Take a turn until the answer is made; raises HTTPException where none is left."""
        # Only the event loop comes here, so nothing is counted twice.
        if not self._left:
            raise HTTPException(status.HTTP_503_SERVICE_UNAVAILABLE)
        self._left -= 1
        try:
            yield
        finally:
            self._left += 1
