"""Data files at their final place in a table's directory: ``<folder>/<batch>/<attempt>/``, staged or published."""

from collections.abc import Callable

from kafka_ingest.model.place import Place


class DataInTable:
    """The data of a table's attempts. ``is_needed``: whether the data of an attempt is published."""

    batch_column = True

    def __init__(self, folder: Place, is_needed: Callable[[Place], bool]) -> None:
        self.folder = folder
        self._is_needed = is_needed

    def place(self, directory: Place) -> Place:
        """Return where the data of the attempt in a directory is written."""
        return self.folder / directory.parent.name / directory.name

    def places(self, directory: Place) -> tuple[Place, ...]:
        """Return where the data is: revoking leaves it there."""
        return (self.place(directory),)

    def to_remove(self, directory: Place) -> Place | None:
        """Return the place of data that the table does not refer to, None where it is published."""
        return None if self._is_needed(directory) else self.place(directory)
