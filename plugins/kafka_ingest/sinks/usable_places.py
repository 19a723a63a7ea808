"""The places of an output: whether what is needed to write there is installed and allowed, and their errors by name."""

import contextlib
import errno
import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, overload

from kafka_ingest.errors import InstallationError, OutputNotUsableError, OutputUnavailableError
from kafka_ingest.foundation.durable_files import make_directory_durably
from kafka_ingest.foundation.storage import Opened, is_installed, opened, refuses_overwriting
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.kinds import KINDS
from kafka_ingest.model.place import Place


def check_has_package(sink_format: str, package: str, version: str) -> None:
    """Raise InstallationError where a format's package is missing; imports nothing."""
    if importlib.util.find_spec(package) is None:
        raise InstallationError(
            f"sink.format: {sink_format} needs the Python package {package}, found none here. Install it where the "
            f"tasks and the command line run: pip install {package}=={version} (requirements-{sink_format}.txt), or "
            "choose another sink.format."
        )


@contextlib.contextmanager
def storage_errors(place: Place | Opened) -> Iterator[None]:
    """Give an I/O error its name: it proves nothing about the data, so the step can be tried again."""
    try:
        yield
    except OSError as error:
        raise OutputUnavailableError(
            f"{place} could not be read or written: {error}. No offset was moved; run this again when the storage is "
            "available again."
        ) from error


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


OF_THE_PATH = frozenset(
    {
        errno.EACCES,
        errno.EPERM,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EEXIST,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EINVAL,
    }
)
"""Errors of a path or its permissions; other input/output errors pass."""


PROBE: Final = "written-once"
"""The object beside an output in a store, by which it is seen that the store refuses to overwrite."""


def check_reachable(output: Place) -> None:
    """Raise InstallationError where the library that reads and writes a store is missing; imports nothing."""
    if not isinstance(output, Path) and not is_installed(output.scheme):
        kind = KINDS[output.scheme]
        raise InstallationError(
            f"sink.path {output} needs the Python package {kind.library}, found none here. Install it where the tasks "
            f"and the command line run: pip install {kind.library}=={kind.version} ({kind.requirements})."
        )


def check_usable(output: Place, access: StoreAccess | None) -> None:
    """Raise OutputNotUsableError on a store that overwrites what should only be created; does nothing on a disk."""
    if isinstance(output, Path):
        return
    probe = beside(output) / PROBE
    with storage_errors(probe):
        if refuses_overwriting(opened(probe, access)):
            return
    raise OutputNotUsableError(
        "expected a store that refuses to overwrite an object where it is asked to "
        f"({KINDS[output.scheme].create_if_absent}), found that {probe} was written "
        "twice. Without that, two runs at once could both publish a batch, and one commit to the table's log could "
        "replace another. Nothing was published. Use a store with conditional writes, or a local or mounted directory."
    )


def check_makeable(output: Place) -> None:
    """Raise OutputNotUsableError where this user cannot make and write an output's directories; makes nothing."""
    if not isinstance(output, Path):
        return
    for directory in places_of(output):
        found = nearest_existing(directory)
        if not found.is_dir() or not os.access(found, os.W_OK | os.X_OK):
            raise OutputNotUsableError(
                f"expected {directory} to be a directory this user can make and write, found {found}, which is not "
                "one. Correct sink.path, or the directory's owner and mode."
            )


def check_one_file_system(output: Path) -> None:
    """Raise OutputNotUsableError where an output and what is beside it are, or would be made, on two file systems."""
    places = places_of(output)
    if len({nearest_existing(each).stat().st_dev for each in places}) > 1:
        raise OutputNotUsableError(
            f"expected {' and '.join(map(str, places))} on one file system, found two: a batch is published by one "
            "rename. Name a link's target in sink.path; or mount the parent directory instead of the output itself."
        )


def nearest_existing(path: Path) -> Path:
    """Return a path, or the first of the folders above it where something is."""
    return next(folder for folder in (path, *path.parents) if os.path.lexists(folder))


def make_usable(output: Place, others: Sequence[Place | Opened]) -> None:
    """Create an output and the directories beside it; a store has none.

    Raises OutputNotUsableError where another try cannot succeed, and OSError where the storage fails.
    """
    if not isinstance(output, Path):
        return
    places = (output, *(each for each in others if isinstance(each, Path)))
    try:
        for directory in places:
            make_directory_durably(directory)
    except OSError as error:
        if error.errno not in OF_THE_PATH:
            raise
        raise OutputNotUsableError(
            f"expected to be able to make and write the output directory {output}, found: {error}. "
            "Correct sink.path, or give this user the right to write there."
        ) from error
    for directory in places:
        if os.access(directory, os.W_OK | os.X_OK):
            continue
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(directory))
        raise OutputNotUsableError(
            f"expected a directory this user can write, found {directory} without that right. "
            "Correct sink.path, or the directory's owner and mode."
        )
