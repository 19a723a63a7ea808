"""Files of attempts by their names below the folder of batches: ``<batch>/<attempt>/<file>``."""

from collections.abc import Iterable
from uuid import UUID


class OwnFiles:
    """The files of many attempts, put in order once: there may be one for every five minutes of years."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_attempt: dict[tuple[str, str], set[str]] = {}
        for name in names:
            batch, _, rest = name.partition("/")
            attempt, _, file = rest.partition("/")
            self._by_attempt.setdefault((batch, attempt), set()).add(file)

    def of(self, batch_id: UUID, attempt: int) -> set[str]:
        """Return the names of an attempt's files; empty where there are none."""
        return self._by_attempt.get((str(batch_id), str(attempt)), set())
