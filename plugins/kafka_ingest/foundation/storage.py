"""The file operations that staging needs: on the local disk by ``pathlib``, elsewhere by ``universal_pathlib``.

A local place imports nothing: the other library is loaded for a URI only. On a disk a write is durable when it returns
(:mod:`.durable_files`). Elsewhere it is one put, which readers see completely or not at all, and folders are only a
part of the files' names.
"""

import contextlib
import errno
import shutil
import stat
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kafka_ingest.foundation.durable_files import make_directory_durably, sync, write_durably

if TYPE_CHECKING:
    from upath import UPath

Opened: TypeAlias = "Path | UPath"

REMOVE_TRIES = 10


class Remote(Protocol):
    """A place that is not on a local disk."""

    @property
    def uri(self) -> str:
        """Where it is, with its scheme."""


def opened(place: Path | Remote) -> Opened:
    """Return what reads and writes at a place; raises ValueError or ImportError where its scheme is not installed."""
    if isinstance(place, Path):
        return place
    found: UPath = import_module("upath").UPath(place.uri)
    # Some of these file systems cache listings forever: what other processes wrote since then would stay unseen.
    found.fs.invalidate_cache()
    return found


def write_whole(path: Opened, content: bytes) -> None:
    """Write a file completely or not at all; it is durable when this returns."""
    if isinstance(path, Path):
        write_durably(path, content)
    else:
        path.fs.pipe_file(path.path, content)


def write_unsynced(path: Opened, content: bytes) -> None:
    """Write a file that is written again after a crash: on a disk without waiting for it."""
    if isinstance(path, Path):
        path.write_bytes(content)
    else:
        write_whole(path, content)


def make_folder(path: Opened) -> None:
    """Make a folder and those above it that are missing; on a disk each name is durable."""
    if isinstance(path, Path):
        make_directory_durably(path)
    else:
        path.mkdir(parents=True, exist_ok=True)


def flush(path: Opened) -> None:
    """Flush a file's content, or a folder's names, to the disk; elsewhere a put has done that."""
    if isinstance(path, Path):
        sync(path)


def copy_file(source: Opened, target: Opened) -> None:
    """Copy a file."""
    if isinstance(source, Path) and isinstance(target, Path):
        shutil.copyfile(source, target)
        return
    with source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)


def size_below(path: Opened) -> int:
    """Return how many bytes all files below a folder have together; 0 where there is none."""
    if isinstance(path, Path):
        return sum(file_size(each) for each in path.rglob("*"))
    return sum(remote_sizes(path).values())


def remote_sizes(path: "UPath") -> dict[str, int]:
    """Return name → bytes of all files below a folder on other storage than a disk; empty where there is none."""
    found = path.fs.find(path.path, detail=True)
    return {name.removeprefix(f"{path.path}/"): each["size"] for name, each in found.items()}


def file_size(path: Path) -> int:
    """Return a file's size in bytes: 0 for a directory, and for what vanished since its name was read."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISDIR(found.st_mode) else found.st_size


def remove_tree(path: Opened) -> None:
    """Remove a folder with all that is in it; does nothing where there is none."""
    if isinstance(path, Path):
        remove_from_disk(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.fs.rm(path.path, recursive=True)


def remove_from_disk(directory: Path) -> None:
    """Remove a directory as :func:`remove_tree` does."""
    for _ in range(REMOVE_TRIES):
        # It stops at the first name that another process removed: another clean-up, or a Spark that is still running.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(directory)
        if not directory.exists():
            break
    else:
        raise OSError(errno.EBUSY, "another process keeps writing to it", str(directory))


def remove_if_empty(path: Opened) -> None:
    """Remove a folder that is empty; on other storage than a disk it may not exist any more."""
    with contextlib.suppress(OSError):
        if isinstance(path, Path):
            path.rmdir()
        else:
            path.fs.rmdir(path.path)
