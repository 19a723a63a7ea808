"""The folder of staging and receipts: beside an output, on its file system, never under it."""

from pathlib import Path
from typing import Final

BESIDE_OUTPUT: Final = ".kafka-ingest"
"""What its name adds to the output's."""


def beside(output: Path) -> Path:
    """Return the folder beside a local output."""
    return output.with_name(f"{output.name}{BESIDE_OUTPUT}")


def places_of(output: Path) -> tuple[Path, Path]:
    """Return the directories that belong to a local output alone: the one that readers see, and the one beside it."""
    return (output, beside(output))


def output_of(folder: Path) -> Path | None:
    """Return the output beside which a folder of this name would be; None where it has another name."""
    name = folder.name.removesuffix(BESIDE_OUTPUT)
    return folder.with_name(name) if name and name != folder.name else None
