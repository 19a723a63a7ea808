"""The file operations that outputs need: on the local disk by ``pathlib``, elsewhere by ``universal_pathlib``.

A local place imports nothing: the other library is loaded for a URI only. On a disk a write is durable when it returns
(:mod:`.durable_files`). Elsewhere it is one put, which readers see completely or not at all, and what differs between
kinds of stores is in :mod:`.stores`. There every failure is an OSError with a number: one without a number is Arrow's,
and says that a file is damaged.
"""

import contextlib
import errno
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, TypeAlias, Union

from kafka_ingest.foundation.durable_files import create_durably, make_directory_durably, sync, write_durably
from kafka_ingest.foundation.stores import any_store
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.any_store import AnyStore, Remote, remote_errors
from kafka_ingest.foundation.stores.kinds import KINDS

if TYPE_CHECKING:
    from upath import UPath

Opened: TypeAlias = Union[Path, "UPath"]

REMOVE_TRIES = 10
SHORT = 1024 * 1024
"""Of how many bytes files are read many at once."""
UNKNOWN = AnyStore()
EMPTY = re.compile(r"InvalidRange|not satisfiable|, 416\b")
"""How stores refuse to read the beginning of a file without content (HTTP 416)."""


def opened(place: Path | Remote, access: StoreAccess | None = None) -> Opened:
    """Return what reads and writes at a place; raises ValueError or ImportError where its scheme is not installed."""
    return place if isinstance(place, Path) else opened_elsewhere(place, access)


def opened_elsewhere(place: Remote, access: StoreAccess | None = None) -> "UPath":
    """Return what reads and writes at a place that is on no disk."""
    return store_at(place.scheme).open(place, access)


def module_of(scheme: str) -> ModuleType:
    return import_module(f"{any_store.__package__}.{KINDS[scheme].module}")


def store_at(scheme: str) -> AnyStore:
    store: AnyStore = module_of(scheme).STORE if scheme in KINDS else UNKNOWN
    return store


def access_from_json(text: str) -> StoreAccess:
    """Return how to reach a store, as any kind's ``as_json`` wrote it."""
    access: StoreAccess = module_of(json.loads(text)["scheme"]).ACCESS.from_json(text)
    return access


def store_of(path: "UPath") -> AnyStore:
    return store_at(path.protocol)


def is_installed(scheme: str) -> bool:
    """Whether the library for a scheme is installed; imports nothing."""
    return scheme not in KINDS or find_spec(KINDS[scheme].library) is not None


def errors_at(path: Opened) -> contextlib.AbstractContextManager[None]:
    """Return what gives failures at a place their number: on a disk they have one."""
    return contextlib.nullcontext() if isinstance(path, Path) else remote_errors(store_of(path), path)


def refuse_links(path: Opened, folder: Opened) -> None:
    """Raise OSError where a symbolic link is between a folder on a disk and what is in it: it may lead anywhere."""
    if isinstance(path, Path) and isinstance(folder, Path):
        below = path.relative_to(folder)
        for each in (folder / part for part in (*below.parents[-2::-1], below)):
            if each.is_symlink():
                raise OSError(errno.ELOOP, f"expected no symbolic link below {folder}, found one; remove it", str(each))


def open_itself(path: Path) -> IO[bytes]:
    """Open a document on a disk for reading, and no other file by its name.

    Raises OSError on a symbolic link, which may lead to any file of this user, and on a pipe, for which to wait.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        raise OSError(errno.ELOOP, "expected a file, found a symbolic link; remove it", str(path)) from None
    found = os.fstat(descriptor).st_mode
    if stat.S_ISREG(found):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    number = errno.EISDIR if stat.S_ISDIR(found) else errno.EINVAL
    raise OSError(number, f"expected a file, found something else: {os.strerror(number)}", str(path))


def read_at_most(path: Opened, most: int) -> bytes:
    """Return the first bytes of a file, at most so many; raises as :func:`read_whole` does."""
    if isinstance(path, Path):
        with open_itself(path) as file:
            return file.read(most)
    try:
        with errors_at(path):
            beginning: bytes = path.fs.cat_file(path.path, start=0, end=most)
            return beginning
    except OSError as error:
        if EMPTY.search(str(error)):
            return b""
        raise


def read_whole(path: Opened) -> bytes:
    """Return a file's content; raises FileNotFoundError where there is none, another OSError where none can be had."""
    if isinstance(path, Path):
        with open_itself(path) as file:
            return file.read()
    with errors_at(path):
        # At once, without asking for its size before: that question cannot tell a missing bucket from a missing file.
        content: bytes = path.fs.cat_file(path.path, **store_of(path).reading)
        return content


def read_end(path: Opened, most: int) -> bytes:
    """Return the last bytes of a file, at most so many; raises as :func:`read_whole` does."""
    if isinstance(path, Path):
        with open_itself(path) as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read(most)
    with errors_at(path):
        content: bytes = path.fs.cat_file(path.path, start=-most, **store_of(path).reading)
        return content


def read_each(folder: Opened, names: Sequence[str], most: int) -> Iterator[bytes]:
    """Yield the first bytes of several files in a folder, at most so many of each; raises as :func:`read_whole` does.

    From a store the short ones come at once, and each other one when it is its turn.
    """
    if isinstance(folder, Path):
        yield from (read_at_most(folder / name, most) for name in names)
        return
    paths = [folder / name for name in names]
    for path, beginning in zip(paths, beginnings(folder, paths), strict=True):
        yield beginning if len(beginning) < SHORT else read_at_most(path, most)


def beginnings(folder: "UPath", paths: Sequence["UPath"]) -> list[bytes]:
    """Return the first bytes of files in a store, up to those of a short one."""
    try:
        with errors_at(folder):
            return store_of(folder).beginnings(folder, [path.path for path in paths], SHORT) if paths else []
    except OSError as error:
        if EMPTY.search(str(error)):
            return [read_at_most(path, SHORT) for path in paths]
        raise


@contextlib.contextmanager
def open_to_read(path: Opened) -> Iterator[Path | IO[bytes]]:
    if isinstance(path, Path):
        yield path
        return
    with errors_at(path), path.open("rb") as file:
        yield file


@contextlib.contextmanager
def open_to_write(path: Opened) -> Iterator[IO[bytes]]:
    """Yield what a new file is written to, a piece at a time; on a disk it is not flushed."""
    with errors_at(path), path.open("wb") as file:
        yield file


def write_whole(path: Opened, content: bytes) -> None:
    """Write a file completely or not at all; it is durable when this returns."""
    if isinstance(path, Path):
        write_durably(path, content)
    else:
        with errors_at(path):
            path.fs.pipe_file(path.path, content)


def write_new(path: Opened, content: bytes) -> None:
    """Write a file that does not exist; on other storage than a disk one put that the store refuses where it does.

    Raises FileExistsError where it exists with another content: with the same one, an answer was lost, or another
    process was first.
    """
    if isinstance(path, Path):
        write_durably(path, content)
        return
    try:
        with errors_at(path):
            path.fs.pipe_file(path.path, content, mode="create")
    except FileExistsError:
        if read_whole(path) != content:
            raise FileExistsError(errno.EEXIST, f"expected no {path}, or one with the same content") from None


def create(path: Opened, content: bytes) -> None:
    """Write a file whose name one writer alone can take; raises FileExistsError where another one has.

    In a store, where an answer may be lost, the same content counts as this writer's.
    """
    if isinstance(path, Path):
        create_durably(path, content)
    else:
        write_new(path, content)


def write_unsynced(path: Opened, content: bytes) -> None:
    """Write a file that is written again after a crash: on a disk without waiting for it."""
    if isinstance(path, Path):
        path.write_bytes(content)
    else:
        write_whole(path, content)


def refuses_overwriting(path: Opened) -> bool:
    """Whether a store keeps its promise to write only what does not exist; the file stays, for the next time."""
    if isinstance(path, Path):
        return True
    for _ in range(2):  # the first one may be what creates it
        try:
            with errors_at(path):
                path.fs.pipe_file(path.path, b"", mode="create")
        except FileExistsError:
            return True
    return False


def make_folder(path: Opened) -> None:
    """Make a folder and those above it that are missing; on a disk each name is durable."""
    if isinstance(path, Path):
        make_directory_durably(path)
    else:
        store_of(path).make_folder(path)


def flush(path: Opened) -> None:
    """Flush a file's content, or a folder's names, to the disk; elsewhere a put has done that."""
    if isinstance(path, Path):
        sync(path)


def copy_file(source: Opened, target: Opened) -> None:
    if isinstance(source, Path) and isinstance(target, Path):
        shutil.copyfile(source, target)
        return
    with errors_at(source), errors_at(target), source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)


def move_files(folder: Opened, names: Mapping[str, str]) -> None:
    """Give files below a folder other names in it, old → new; in a store, which cannot rename, they are copied.

    Where there are folders, they are made, and removed where no file is left.
    """
    if isinstance(folder, Path):
        for old, new in names.items():
            (folder / new).parent.mkdir(parents=True, exist_ok=True)
            (folder / old).rename(folder / new)
        for empty in sorted((each for each in folder.rglob("*") if each.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                empty.rmdir()
        return
    if not names:
        return
    with errors_at(folder):
        store_of(folder).move_files(folder, names)


def files_below(path: Opened) -> list[str]:
    if isinstance(path, Path):
        return sorted(found.relative_to(path).as_posix() for found in path.rglob("*") if found.is_file())
    return sorted(remote_sizes(path))


def size_of(path: Opened) -> int:
    with errors_at(path):
        return path.stat().st_size


def size_below(path: Opened) -> int:
    """Return how many bytes all files below a folder have together; 0 where there is none."""
    if isinstance(path, Path):
        return sum(file_size(each) for each in path.rglob("*"))
    return sum(remote_sizes(path).values())


def remote_sizes(path: "UPath") -> dict[str, int]:
    """Return name → bytes of all files below a folder on other storage than a disk; empty where there is none."""
    # A name that ends with a slash is a folder's: Hadoop writes such objects, and no reader takes them for files.
    files = ((name, each) for name, each in found_below(path).items() if each["type"] == "file")
    return {name: each["size"] for name, each in files if name and not name.endswith("/")}


def found_below(path: "UPath") -> dict[str, dict[str, Any]]:
    """Return name → what is known of all files below a folder on other storage than a disk."""
    return any_store.found_below(store_of(path), path)


def is_folder(path: Opened) -> bool:
    return path.is_dir() if isinstance(path, Path) else bool(found_below(path))


def names_in(folder: Opened) -> list[str]:
    """Return the names in a folder; raises OSError where it cannot be read, which is not an empty one."""
    if isinstance(folder, Path):
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    return any_store.names_in(store_of(folder), folder)


def names_from(folder: Opened, first: str) -> list[str]:
    """Return the names of a folder's files from a name on, in the order of texts; stores list these alone."""
    if isinstance(folder, Path):
        return sorted(name for name in names_in(folder) if name >= first)
    return sorted(store_of(folder).names_from(folder, first))


def file_size(path: Path) -> int:
    """Return a file's size in bytes: 0 for a directory, and for what vanished since its name was read."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return 0
    return 0 if stat.S_ISDIR(found.st_mode) else found.st_size


def changed_at(path: Opened) -> float:
    """Return when a file was written, in seconds since 1970."""
    with errors_at(path):
        return path.stat().st_mtime


def renew(path: Opened) -> None:
    if isinstance(path, Path):
        os.utime(path)
        return
    store_of(path).renew(path)


def remove_file(path: Opened) -> None:
    """Remove a file; does nothing where there is none."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError), errors_at(path):
        path.fs.rm_file(path.path)


def remove_tree(path: Opened) -> None:
    """Remove a folder with all that is in it, also what is in no listing; does nothing where there is none."""
    if isinstance(path, Path):
        remove_from_disk(path)
    else:
        store_of(path).remove_tree(path)


def remove_from_disk(directory: Path) -> None:
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
    if not isinstance(path, Path):
        store_of(path).remove_if_empty(path)
        return
    with contextlib.suppress(OSError):
        path.rmdir()
