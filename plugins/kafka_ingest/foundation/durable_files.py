"""Files and directories that are on the disk when the call returns.

fsync(2): a file's name is durable once its directory is synced.
"""

import os
from pathlib import Path
from uuid import uuid4


def sync(path: Path) -> None:
    """Flush a file's content, or a directory's names, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_beside(path: Path) -> Path:
    """Return a name of each call's own: two concurrent calls must not rename each other's file."""
    return path.with_name(f".{path.name}.{uuid4().hex}.tmp")


def write_flushed(path: Path, content: bytes) -> None:
    """Write a new file, its content on the disk; its name is not yet durable."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write_durably(path: Path, content: bytes) -> None:
    """Write a file completely or not at all: under a temporary name first, then renamed."""
    temporary = temporary_beside(path)
    try:
        write_flushed(temporary, content)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def create_durably(path: Path, content: bytes) -> None:
    """Write a file completely, under a name that no other writer has taken; raises FileExistsError where one has."""
    temporary = temporary_beside(path)
    try:
        write_flushed(temporary, content)
        path.hardlink_to(temporary)  # a renaming would replace what is there
    finally:
        temporary.unlink(missing_ok=True)
    sync(path.parent)


def make_directory_durably(path: Path) -> None:
    """Make a directory and those above it that are missing, each name durable."""
    if path.is_dir():
        return
    make_directory_durably(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)
