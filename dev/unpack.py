"""Unpack an archive, on Pythons before 3.11.4, too: Debian's has no filters of members yet."""

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, target: Path) -> None:
    """Unpack an archive into a folder; where Python has filters, nothing of it can land elsewhere."""
    archive.extraction_filter = getattr(tarfile, "data_filter", None)
    for each in archive:
        archive.extract(each, target)
