"""What reads and writes in any file system that fsspec knows; kinds of stores replace what they do in another way.

Folders are only a part of the files' names in a store, and may be more in another file system. Failures of a store are
each an OSError with a number: one without a number is Arrow's, and says that a file is damaged.
"""

import contextlib
import errno
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from kafka_ingest.foundation.stores.access import StoreAccess

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


@contextlib.contextmanager
def remote_errors(store: "AnyStore", path: "UPath") -> Iterator[None]:
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


PATTERN = re.compile(r"[*?[]")
"""The characters by which fsspec knows a pattern."""


class Remote(Protocol):
    """A place that is not on a local disk."""

    @property
    def uri(self) -> str:
        """Where it is, with its scheme."""

    @property
    def scheme(self) -> str:
        """The kind of store."""

    @property
    def bucket(self) -> str:
        """The bucket's name."""

    @property
    def key(self) -> str:
        """The name in the bucket."""


class AnyStore:
    """A file system that nothing is known of but what fsspec promises."""

    reading: ClassVar[Mapping[str, Any]] = {}
    """Arguments for reading a file at once."""

    def open(self, place: Remote, access: StoreAccess | None) -> "UPath":
        """Return what reads and writes at a place; raises ValueError or ImportError where it is not installed."""
        if access is None:
            found = open_uri(place.uri)
        else:
            found = open_uri(f"{access.scheme}://{place.bucket}/{place.key}", access.for_fsspec())
            self.prepare(found)
        # Some of these file systems cache listings forever: what other processes wrote since then would stay unseen.
        found.fs.invalidate_cache()
        return found

    def prepare(self, path: "UPath") -> None:
        """Set what a file system has no argument for."""

    def reason_of(self, _: BaseException) -> str:
        """Return the store's own name of a failure; empty where it has none."""
        return ""

    def is_taken(self, _: Exception) -> bool:
        """Whether something exists that must not be overwritten."""
        return False

    def has_no_bucket(self, _: FileNotFoundError, __: "UPath", /) -> bool:
        return False

    def make_folder(self, path: "UPath") -> None:
        """Make a folder and those above it that are missing, where there are any."""
        path.mkdir(parents=True, exist_ok=True)

    def find(self, path: "UPath") -> dict[str, dict[str, Any]]:
        """Return path → what is known of all files below a folder."""
        found: dict[str, dict[str, Any]] = path.fs.find(path.path, detail=True)
        return found

    def paths_in(self, folder: "UPath") -> list[str]:
        return list(map(str, folder.fs.ls(folder.path, detail=False)))

    def beginnings(self, folder: "UPath", paths: Sequence[str], most: int) -> list[bytes]:
        """Return the first bytes of several files, many at once."""
        found = folder.fs.cat(list(paths), start=0, end=most)
        return [found[path] for path in paths]

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        """Return the names of a folder's files from a name on, in any order."""
        return [name for name in names_in(self, folder) if name >= first]

    def renew(self, path: "UPath") -> None:
        """Let a file count as written now."""
        with remote_errors(self, path):
            path.fs.cp_file(path.path, path.path)

    def move_files(self, folder: "UPath", names: Mapping[str, str]) -> None:
        """Give files below a folder other names, old → new."""
        old_paths, new_paths = ([f"{folder.path}/{name}" for name in some] for some in (names.keys(), names.values()))
        # Several at a time, inside the store: no byte of them comes here.
        folder.fs.copy(old_paths, new_paths)
        self.remove_files(folder, old_paths)

    def remove_files(self, folder: "UPath", paths: Sequence[str]) -> None:
        """Remove files below a folder, many at once; raises OSError where one stays."""
        remove_by_name(folder, paths)

    def remove_tree(self, path: "UPath") -> None:
        with contextlib.suppress(FileNotFoundError), remote_errors(self, path):
            path.fs.rm(path.path, recursive=True)

    def remove_if_empty(self, path: "UPath") -> None:
        """Remove a folder that is empty; it may not exist any more."""
        with contextlib.suppress(OSError):
            path.fs.rmdir(path.path)


def remove_by_name(folder: "UPath", paths: Sequence[str]) -> None:
    """Remove files, many at once where their names cannot be patterns, as which the library would read them."""
    several = [path for path in paths if not PATTERN.search(path)]
    if several:
        folder.fs.rm(several)
    for path in paths:
        if PATTERN.search(path):
            with contextlib.suppress(FileNotFoundError):  # another clean-up was faster
                folder.fs.rm_file(path)


def open_uri(uri: str, settings: Mapping[str, Any] = MappingProxyType({})) -> "UPath":
    found: UPath = import_module("upath").UPath(uri, **settings)
    return found


def finds_none(store: AnyStore, path: "UPath", look: Callable[[], object]) -> bool:
    """Whether a look at a bucket says that there is none; what a store refuses to say, or fails with, gets a number."""
    try:
        look()
    except FileNotFoundError:
        return True
    except Exception:
        with remote_errors(store, path):
            raise
    return False


def names_in(store: AnyStore, folder: "UPath") -> list[str]:
    """Return the names in a folder; raises OSError where it cannot be read, which is not an empty one."""
    try:
        with remote_errors(store, folder):
            found = store.paths_in(folder)
    except FileNotFoundError:
        return []
    return [name for name in (each.rstrip("/").rpartition("/")[2] for each in found) if name != folder.name]


def found_below(store: AnyStore, path: "UPath") -> dict[str, dict[str, Any]]:
    with remote_errors(store, path):
        found = store.find(path)
    return {name.removeprefix(f"{path.path}/"): each for name, each in found.items()}
