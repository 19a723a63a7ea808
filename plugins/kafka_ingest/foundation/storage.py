"""The file operations that outputs need: on the local disk by ``pathlib``, elsewhere by ``universal_pathlib``.

A local place imports nothing: the other library is loaded for a URI only. On a disk a write is durable when it returns
(:mod:`.durable_files`). Elsewhere it is one put, which readers see completely or not at all, and folders are only a
part of the files' names. There every failure is an OSError with a number: one without a number is Arrow's, and says
that a file is damaged.
"""

import contextlib
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from kafka_ingest.foundation.durable_files import create_durably, make_directory_durably, sync, write_durably
from kafka_ingest.foundation.s3_access import S3Access

if TYPE_CHECKING:
    from upath import UPath

Opened: TypeAlias = Union[Path, "UPath"]

REMOVE_TRIES = 10
MOST_AT_ONCE = 1_000
"""Objects that S3 removes by one request."""
S3 = "s3"
EXISTS = "PreconditionFailed"
"""S3's name for what must not be overwritten; no other condition is ever asked for."""
LIBRARIES = {"botocore.exceptions": "BotoCoreError", "aiohttp": "ClientError"}
"""The libraries below s3fs whose failures it may pass on as they are: with no number, and most are no OSError."""


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


def opened(place: Path | Remote, access: S3Access | None = None) -> Opened:
    """Return what reads and writes at a place; raises ValueError or ImportError where its scheme is not installed."""
    return place if isinstance(place, Path) else opened_elsewhere(place, access)


def opened_elsewhere(place: Remote, access: S3Access | None = None) -> "UPath":
    """Return what reads and writes at a place that is on no disk."""
    path = import_module("upath").UPath
    if place.scheme == S3 and access is not None:
        found: UPath = path(f"{S3}://{place.bucket}/{place.key}", **access.for_s3fs())
        found.fs.retries = 1  # the client below it tries again: together it would be for minutes
    else:
        found = path(place.uri)
    # Some of these file systems cache listings forever: what other processes wrote since then would stay unseen.
    found.fs.invalidate_cache()
    return found


def is_installed(scheme: str) -> bool:
    """Whether the library for a scheme is installed; imports nothing."""
    return scheme != S3 or find_spec("s3fs") is not None


@contextlib.contextmanager
def remote_errors() -> Iterator[None]:
    """Give each failure of another storage than a disk a number, and its kind.

    A missing bucket is no missing file: FileNotFoundError proves that the bucket answered.
    """
    try:
        yield
    except FileExistsError:
        raise
    except FileNotFoundError as error:
        if code_of(error) == "NoSuchBucket":
            raise OSError(errno.ENXIO, f"there is no such bucket ({error})") from error
        raise FileNotFoundError(errno.ENOENT, str(error)) from error
    except (PermissionError, TimeoutError) as error:
        number = errno.EACCES if isinstance(error, PermissionError) else errno.ETIMEDOUT
        raise OSError(number, f"{code_of(error)} {error}".strip()) from error
    except library_failures() as error:
        # Before OSError, which some of them are too: without a number they would count as Arrow's.
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error
    except OSError as error:
        if code_of(error) == EXISTS:  # s3fs knows only Amazon's answer, which names the condition as well
            raise FileExistsError(errno.EEXIST, str(error)) from error
        if error.errno is not None or code_of(error):
            raise OSError(error.errno or errno.EIO, f"{code_of(error)} {error.strerror or error}".strip()) from error
        raise


def errors_at(path: Opened) -> contextlib.AbstractContextManager[None]:
    """Return what gives failures at a place their number: on a disk they have one."""
    return contextlib.nullcontext() if isinstance(path, Path) else remote_errors()


def code_of(error: BaseException) -> str:
    """Return S3's own name of a failure; empty where it is none of S3's."""
    answer: Any = getattr(error.__cause__, "response", None)
    return str(answer["Error"].get("Code", "")) if isinstance(answer, dict) and "Error" in answer else ""


def library_failures() -> tuple[type[Exception], ...]:
    """Return what the libraries that are loaded raise; none where they are not."""
    return tuple(getattr(sys.modules[name], kind) for name, kind in LIBRARIES.items() if name in sys.modules)


def read_whole(path: Opened) -> bytes:
    """Return a file's content; raises FileNotFoundError where there is none, another OSError where none can be had."""
    if isinstance(path, Path):
        return path.read_bytes()
    with remote_errors():
        # At once, without asking for its size before: that question cannot tell a missing bucket from a missing file.
        content: bytes = path.fs.cat_file(path.path, **({"max_concurrency": 1} if path.protocol == S3 else {}))
        return content


def read_all(folder: Opened, names: Sequence[str]) -> list[bytes]:
    """Return the contents of several files in a folder, from a store at once; raises as :func:`read_whole` does."""
    if isinstance(folder, Path) or not names:
        return [read_whole(folder / name) for name in names]
    paths = [(folder / name).path for name in names]
    with remote_errors():
        found = folder.fs.cat(paths)
    return [found[path] for path in paths]


@contextlib.contextmanager
def open_to_read(path: Opened) -> Iterator[Path | IO[bytes]]:
    """Yield what pyarrow reads a file from."""
    if isinstance(path, Path):
        yield path
        return
    with remote_errors(), path.open("rb") as file:
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
        with remote_errors():
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
        with remote_errors():
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
            with remote_errors():
                path.fs.pipe_file(path.path, b"", mode="create")
        except FileExistsError:
            return True
    return False


def make_folder(path: Opened) -> None:
    """Make a folder and those above it that are missing; on a disk each name is durable."""
    if isinstance(path, Path):
        make_directory_durably(path)
    elif path.protocol != S3:
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
    with remote_errors(), source.open("rb") as read, target.open("wb") as written:
        shutil.copyfileobj(read, written)


def move_files(folder: Opened, names: Mapping[str, str]) -> None:
    """Give files below a folder other names in it, old → new; in a store, which cannot rename, they are copied.

    On a disk folders are made, and removed where no file is left.
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
    old_paths, new_paths = ([f"{folder.path}/{name}" for name in some] for some in (names.keys(), names.values()))
    with remote_errors():
        # Several at a time, inside the store: no byte of them comes here.
        folder.fs.copy(old_paths, new_paths)
        remove_files(folder, old_paths)


def files_below(path: Opened) -> list[str]:
    """Return the names of all files below a folder, relative to it and sorted."""
    if isinstance(path, Path):
        return sorted(found.relative_to(path).as_posix() for found in path.rglob("*") if found.is_file())
    return sorted(remote_sizes(path))


def size_of(path: Opened) -> int:
    """Return how many bytes a file has."""
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
    with remote_errors():
        found = path.fs.find(path.path, detail=True)
    return {name.removeprefix(f"{path.path}/"): each for name, each in found.items()}


def is_folder(path: Opened) -> bool:
    """Whether there is a folder; on other storage than a disk one with files in it."""
    return path.is_dir() if isinstance(path, Path) else bool(found_below(path))


def names_in(folder: Opened) -> list[str]:
    """Return the names in a folder; raises OSError where it cannot be read, which is not an empty one."""
    if isinstance(folder, Path):
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries]
    try:
        with remote_errors():
            found = folder.fs.ls(folder.path, detail=False)
    except FileNotFoundError:
        return []
    return [name for name in (str(each).rstrip("/").rpartition("/")[2] for each in found) if name != folder.name]


def names_from(folder: Opened, first: str) -> list[str]:
    """Return the names of a folder's files from a name on, in the order of texts; S3 lists these alone."""
    if isinstance(folder, Path) or folder.protocol != S3:
        return sorted(name for name in names_in(folder) if name >= first)
    bucket, _, key = folder.path.partition("/")
    # S3 lists what comes after a name, so the name itself is asked for without its last character.
    asked = {"Bucket": bucket, "Prefix": f"{key}/", "Delimiter": "/", "StartAfter": f"{key}/{first[:-1]}"}
    found: list[str] = []
    with remote_errors():
        while True:
            page = folder.fs.call_s3("list_objects_v2", **asked)
            found += [each["Key"].rpartition("/")[2] for each in page.get("Contents", [])]
            if not page.get("IsTruncated"):
                return sorted(name for name in found if name and name >= first)
            asked["ContinuationToken"] = page["NextContinuationToken"]


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
    """Let a file count as written now."""
    if isinstance(path, Path):
        os.utime(path)
        return
    bucket, _, key = path.path.partition("/")
    with remote_errors():
        path.fs.call_s3(
            "copy_object",
            Bucket=bucket,
            Key=key,
            CopySource={"Bucket": bucket, "Key": key},
            MetadataDirective="REPLACE",
            Metadata={"renewed": "by-kafka-ingest"},
        )


def remove_file(path: Opened) -> None:
    """Remove a file; does nothing where there is none."""
    if isinstance(path, Path):
        path.unlink(missing_ok=True)
        return
    with contextlib.suppress(FileNotFoundError), remote_errors():
        path.fs.rm_file(path.path)


def remove_tree(path: Opened) -> None:
    """Remove a folder with all that is in it; does nothing where there is none.

    On S3 also what killed writers began to upload there: it is in no listing, and is paid for.
    """
    if isinstance(path, Path):
        remove_from_disk(path)
        return
    if path.protocol == S3:
        abort_uploads(path)
        remove_objects(path)
        return
    with contextlib.suppress(FileNotFoundError), remote_errors():
        path.fs.rm(path.path, recursive=True)


def remove_objects(path: "UPath") -> None:
    """Remove all objects below a folder in S3; those that stand for folders last, by their own names."""
    found = found_below(path)
    folders = {name for name, each in found.items() if not name or name.endswith("/") or each["type"] != "file"}
    with contextlib.suppress(FileNotFoundError), remote_errors():  # another clean-up may be faster
        remove_files(path, [f"{path.path}/{name}" for name in sorted(found.keys() - folders)])
    with remote_errors():
        bucket, _, key = path.path.partition("/")
        for name in folders:
            # The library's own removal takes the slash from the name, and so removes something else.
            path.fs.call_s3("delete_object", Bucket=bucket, Key=f"{key}/{name}".rstrip("/") + "/")


def remove_files(folder: "UPath", paths: Sequence[str]) -> None:
    """Remove files below a folder on other storage than a disk, many at once; raises OSError where one stays.

    S3 answers with success also where it keeps some of the objects, and s3fs does not look at what the answer says.
    """
    if folder.protocol != S3:
        if paths:
            folder.fs.rm(list(paths))
        return
    for first in range(0, len(paths), MOST_AT_ONCE):
        some = [path.partition("/") for path in paths[first : first + MOST_AT_ONCE]]
        asked = {"Objects": [{"Key": key} for _, _, key in some], "Quiet": True}
        answer = folder.fs.call_s3("delete_objects", Bucket=some[0][0], Delete=asked)
        if kept := answer.get("Errors"):
            one = kept[0]
            said = f"{one.get('Code')} {one.get('Message')}: expected {len(some)} objects to be removed"
            raise OSError(errno.EIO, f"{said}, found that {len(kept)} stay, such as {one.get('Key')}")


def abort_uploads(path: "UPath") -> None:
    """End the uploads in parts below a folder in S3 that nobody will complete."""
    bucket, _, key = path.path.partition("/")
    with remote_errors():
        while True:
            found = path.fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/")
            uploads = found.get("Uploads", [])
            for each in uploads:
                with contextlib.suppress(FileNotFoundError):  # another clean-up was faster
                    path.fs.call_s3("abort_multipart_upload", Bucket=bucket, Key=each["Key"], UploadId=each["UploadId"])
            if not uploads or not found.get("IsTruncated"):
                return


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
    if not isinstance(path, Path) and path.protocol == S3:
        return
    with contextlib.suppress(OSError):
        if isinstance(path, Path):
            path.rmdir()
        else:
            path.fs.rmdir(path.path)
