"""Make the directories of an output, and find out whether this user can write there."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from kafka_ingest.errors import OutputNotUsableError
from kafka_ingest.foundation.durable_files import make_directory_durably

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


def make_usable(output: Path, beside: Sequence[Path]) -> None:
    """Create an output and the directories beside it.

    Raises OutputNotUsableError where another try cannot succeed, and OSError where the storage fails.
    """
    places = (output, *beside)
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
