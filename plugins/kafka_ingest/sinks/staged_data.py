"""Where the data files of attempts are staged: in the attempt's directory, unless the sink decides otherwise."""

from typing import Protocol

from kafka_ingest.model.attempt_directory import DATA
from kafka_ingest.model.place import Place

DATA_PUBLISHED = "data.published"
DATA_REVOKED = "data.revoked"


class StagedData(Protocol):
    """What a sink decides about an attempt's data."""

    def place(self, directory: Place) -> Place:
        """Return where the data is written and stays until it is published."""

    def has_batch_column(self, directory: Place) -> bool:
        """Whether each row carries its batch's id."""

    def places(self, directory: Place) -> tuple[Place, ...]:
        """Return all directories that may hold the data of an attempt that was not published, the usual one first."""

    def to_remove(self, directory: Place) -> Place | None:
        """Return what must be removed with the attempt's directory; None where that is all, or it is published."""


class DataInAttempt:
    """Data in the attempt's directory, which publishing moves and revoking renames."""

    def place(self, directory: Place) -> Place:
        """Return where the data is written."""
        return directory / DATA

    def has_batch_column(self, _directory: Place) -> bool:
        """Return that the path tells it."""
        return False

    def places(self, directory: Place) -> tuple[Place, ...]:
        """Return where the data is, also after it was revoked."""
        return (directory / DATA, directory / DATA_REVOKED)

    def to_remove(self, _directory: Place) -> Place | None:
        """Return None: it goes with its directory."""
        return None
