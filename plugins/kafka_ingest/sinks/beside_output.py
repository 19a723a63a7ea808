"""The folder of staging and receipts: beside an output, on its file system, never under it."""

from pathlib import Path
from typing import Final, overload

from kafka_ingest.model.place import Place

BESIDE_OUTPUT: Final = ".kafka-ingest"
"""What its name adds to the output's."""


@overload
def beside(output: Path) -> Path: ...
@overload
def beside(output: Place) -> Place: ...
def beside(output: Place) -> Place:
    name = f"{output.name}{BESIDE_OUTPUT}"
    return output.with_name(name) if isinstance(output, Path) else output.parent / name


@overload
def places_of(output: Path) -> tuple[Path, Path]: ...
@overload
def places_of(output: Place) -> tuple[Place, Place]: ...
def places_of(output: Place) -> tuple[Place, Place]:
    """Return the directories that belong to an output alone: the one that readers see, and the one beside it."""
    return (output, beside(output))


def output_of(folder: Path) -> Path | None:
    """Return the output beside which a folder of this name would be; None where it has another name."""
    name = folder.name.removesuffix(BESIDE_OUTPUT)
    return folder.with_name(name) if name and name != folder.name else None
