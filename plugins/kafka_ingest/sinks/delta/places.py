"""Where the data files of a Delta table are: ``P/batches/<batch>/<attempt>/``, staged and published alike.

Readers see what the table's log names. Not hidden: VACUUM never deletes from hidden directories, not even what OPTIMIZE
replaced.
"""

from collections.abc import Callable
from pathlib import Path

from kafka_ingest.model.place import Place

BATCHES = "batches"
LOG = "_delta_log"


class DataInTable:
    """Data at its final place in the table's directory. ``is_needed``: whether the data of an attempt is published."""

    batch_column = True

    def __init__(self, output: Path, is_needed: Callable[[Place], bool]) -> None:
        self._output = output
        self._is_needed = is_needed

    def place(self, directory: Place) -> Path:
        """Return where the data of the attempt in a directory is written."""
        return self._output / BATCHES / directory.parent.name / directory.name

    def places(self, directory: Place) -> tuple[Path, ...]:
        """Return where the data is: revoking leaves it there."""
        return (self.place(directory),)

    def to_remove(self, directory: Place) -> Path | None:
        """Return the place of data that the table does not refer to, None where it is published."""
        return None if self._is_needed(directory) else self.place(directory)
