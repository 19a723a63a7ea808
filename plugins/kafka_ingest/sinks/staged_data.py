"""Where the data files of attempts lie while they are staged: in the attempt's directory, unless the sink says otherwise."""

from pathlib import Path
from typing import Protocol

from kafka_ingest.model.attempt_directory import DATA, DATA_REVOKED


class StagedData(Protocol):
    """What a sink says of the data of the attempt in a directory."""

    batch_column: bool
    """Whether each row carries its batch's id."""

    def place(self, directory: Path) -> Path:
        """Return where the data is written, and lies until it is published."""

    def places(self, directory: Path) -> tuple[Path, ...]:
        """Return all directories that may hold the data of an attempt that was not published, the usual one first."""

    def to_remove(self, directory: Path) -> Path | None:
        """Return what has to be removed with the attempt's directory; None where nothing lies elsewhere, or it is published."""


class DataInAttempt:
    """Data in the attempt's own directory, which publishing moves away, and revoking renames."""

    batch_column = False

    def place(self, directory: Path) -> Path:
        """Return where the data is written."""
        return directory / DATA

    def places(self, directory: Path) -> tuple[Path, ...]:
        """Return where the data lies, also after it was revoked."""
        return (directory / DATA, directory / DATA_REVOKED)

    def to_remove(self, _directory: Path) -> Path | None:
        """Return None: it goes with its directory."""
        return None
