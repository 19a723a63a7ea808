"""Failures of a store: each is an OSError with a number.

One without a number is Arrow's, and says that a file is damaged.
"""

import contextlib
import errno
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from upath import UPath

LIBRARIES = {
    "botocore.exceptions": ("BotoCoreError",),
    "aiohttp": ("ClientError",),
    "gcsfs.retry": ("HttpError", "ChecksumError", "NonRetryableError"),
    "google.auth.exceptions": ("GoogleAuthError",),
    "requests.exceptions": ("RequestException",),
    "azure.core.exceptions": ("AzureError",),
}
"""The libraries below those of fsspec whose failures may be passed on as they are: most are no OSError."""

NO_CONTAINER = frozenset({"ContainerNotFound", "FilesystemNotFound"})
"""Azure's names for a bucket that is missing."""


NEW_LINE = "\n"


class Reasons(Protocol):
    """What a store's library says of a failure."""

    def reason_of(self, error: BaseException) -> str:
        """Return the store's own name of a failure; empty where it has none."""

    def is_taken(self, error: Exception) -> bool:
        """Whether something exists that must not be overwritten."""

    def has_no_bucket(self, error: FileNotFoundError, path: "UPath", /) -> bool:
        """Whether it is the bucket that is missing."""


@contextlib.contextmanager
def remote_errors(store: Reasons, path: "UPath") -> Iterator[None]:
    """Give each failure of another storage than a disk a number, and its kind.

    A missing bucket is no missing file: FileNotFoundError proves that the bucket answered.
    """
    try:
        yield
    except FileExistsError:
        raise
    except FileNotFoundError as error:
        if store.has_no_bucket(error, path):
            raise OSError(errno.ENXIO, f"there is no such bucket ({error})") from error
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
    except (PermissionError, TimeoutError) as error:
        number = errno.EACCES if isinstance(error, PermissionError) else errno.ETIMEDOUT
        raise OSError(number, f"{store.reason_of(error)} {error}".strip()) from error
    except library_failures() as error:
        # Before OSError, which some of them are too: without a number they would count as Arrow's.
        # Azure's errors go on with the whole of the answer.
        name = store.reason_of(error)
        text = f"{name}: {str(error).partition(NEW_LINE)[0]}" if name else f"{type(error).__name__}: {error}"
        raise OSError(errno.EIO, text) from error
    except (OSError, ValueError) as error:
        if store.is_taken(error):
            raise FileExistsError(errno.EEXIST, str(error)) from error
        reason, code = store.reason_of(error), getattr(error, "errno", None)
        if code is not None or reason:
            said = getattr(error, "strerror", None) or error
            raise OSError(code or errno.EIO, f"{reason} {said}".strip()) from error
        raise


def library_failures() -> tuple[type[Exception], ...]:
    """Return what the libraries that are loaded raise; none where they are not."""
    return tuple(
        getattr(sys.modules[name], kind) for name, kinds in LIBRARIES.items() if name in sys.modules for kind in kinds
    )
