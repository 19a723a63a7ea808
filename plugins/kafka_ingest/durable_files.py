"""Files and directories that are on the disk when the call returns (fsync(2): a file's name is durable with its directory)."""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Flush a file's content, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_durably(path: Path, content: bytes) -> None:
    """Write a file whole or not at all: under another name first, then renamed."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync(path.parent)


def make_directory_durably(path: Path) -> None:
    """Make a directory and those above it that are missing, each name durable."""
    if path.is_dir():
        return
    make_directory_durably(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)
