"""Data files at their final place in a table's directory: ``<folder>/<batch>/<attempt>/``, staged or published."""

from collections.abc import Callable

from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.dead_letters import are_dead_letters
from kafka_ingest.model.place import Place


class DataInTable:
    """The data of a table's attempts. ``is_needed``: whether the data of an attempt is published."""

    def __init__(self, folder: Place, is_needed: Callable[[Place], bool]) -> None:
        self.folder = folder
        self._is_needed = is_needed

    def place(self, directory: Place) -> Place:
        """Return where the data of the attempt in a directory is written; dead letters are no rows of the table."""
        if are_dead_letters(directory):
            return directory / DATA
        return self.folder / directory.parent.name / directory.name

    def has_batch_column(self, directory: Place) -> bool:
        """Whether each row carries its batch's id, which no path tells readers of the table."""
        return not are_dead_letters(directory)

    def places(self, directory: Place) -> tuple[Place, ...]:
        """Return where the data is: revoking leaves it there."""
        return (self.place(directory),)

    def to_remove(self, directory: Place) -> Place | None:
        """Return the place of data that the table does not refer to; None where it is published, or inside."""
        if are_dead_letters(directory) or self._is_needed(directory):
            return None
        return self.place(directory)
