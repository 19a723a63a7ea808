"""Azure Data Lake Storage Gen2, with adlfs."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.any_store import AnyStore, Remote, finds_none
from kafka_ingest.foundation.stores.errors import NO_CONTAINER, remote_errors

if TYPE_CHECKING:
    from upath import UPath

    from kafka_ingest.foundation.stores.azure_files import AzureFiles

NOT_EMPTY = "DirectoryIsNotEmpty"


class AzureStore(AnyStore):
    """How Azure's store differs from other file systems: its folders are objects, and stay when they are empty."""

    def open(self, place: Remote, access: StoreAccess | None) -> "UPath":
        """Return what reads and writes at a place."""
        files = import_module("kafka_ingest.foundation.stores.azure_files").AzureFiles
        import_module("fsspec").register_implementation(place.scheme, files, clobber=True)
        return super().open(place, access)

    def reason_of(self, error: BaseException) -> str:
        """Return Azure's own name of a failure, or that of its client; empty where it is none of theirs."""
        kind = type(error)
        name = kind.__name__ if kind.__module__.startswith("azure.") else ""
        code = getattr(error, "error_code", None) or getattr(error.__cause__, "error_code", None) or name
        return str(getattr(code, "value", code))

    def has_no_bucket(self, error: FileNotFoundError, path: "UPath", /) -> bool:
        """Whether it is the container that is missing; asks for it where adlfs has dropped the answer."""
        if reason := self.reason_of(error):
            return reason in NO_CONTAINER
        return finds_none(self, path, lambda: files_of(path).look_for_container(path.path))

    def make_folder(self, path: "UPath") -> None:
        """Do nothing: an object's folders are there when it is."""

    def find(self, path: "UPath") -> dict[str, dict[str, Any]]:
        """Return path → what is known of all files below a folder."""
        found = files_of(path).below(path.path)
        return {each.name: {"type": "file", "size": each.size} for each in found if not each.is_folder}

    def paths_in(self, folder: "UPath") -> list[str]:
        """Return the paths of what is in a folder."""
        return sorted({each.name for each in files_of(folder).inside(folder.path)})

    def beginnings(self, folder: "UPath", paths: Sequence[str], most: int) -> list[bytes]:
        """Return the first bytes of several files, many at once."""
        return files_of(folder).beginnings(paths, most)

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        """Return the names of a folder's files from a name on; these alone are listed."""
        with remote_errors(self, folder):
            found = files_of(folder).inside(folder.path, first)
        names = [each.name.rpartition("/")[2] for each in found if not each.is_folder]
        return [name for name in names if name >= first]

    def renew(self, path: "UPath") -> None:
        """Let an object count as written now."""
        with remote_errors(self, path):
            files_of(path).renew(path.path)

    def move_files(self, folder: "UPath", names: Mapping[str, str]) -> None:
        """Give files other names, through this machine: Azure copies by itself only for who has the account's key."""
        for old, new in names.items():
            with (folder / old).open("rb") as read, (folder / new).open("wb") as written:
                shutil.copyfileobj(read, written)
        self.remove_files(folder, [f"{folder.path}/{name}" for name in names])
        above = {each for name in names for each in PurePosixPath(name).parents} - {PurePosixPath()}
        for emptied in sorted(above, reverse=True):
            self.remove_if_empty(folder / str(emptied))

    def remove_files(self, folder: "UPath", paths: Sequence[str]) -> None:
        """Remove objects, many at once; raises OSError where one stays."""
        with remote_errors(self, folder):
            files_of(folder).remove(paths)

    def remove_tree(self, path: "UPath") -> None:
        """Remove all objects below a folder, then the folders from the innermost on, which have to be empty for that.

        Pieces that killed writers began to upload are in no listing, and Azure drops them after a week.
        """
        with contextlib.suppress(FileNotFoundError):
            with remote_errors(self, path):
                found = files_of(path).below(path.path)
            self.remove_files(path, [each.name for each in found if not each.is_folder])
            for folder in sorted((each.name for each in found if each.is_folder), reverse=True):
                self.remove_files(path, [folder])
            self.remove_files(path, [path.path])

    def remove_if_empty(self, path: "UPath") -> None:
        """Remove the object that stands for a folder, where nothing is in it."""
        try:
            with remote_errors(self, path):
                if not files_of(path).below(path.path):
                    files_of(path).remove([path.path])
        except FileNotFoundError:
            pass
        except OSError as error:
            if NOT_EMPTY not in str(error):
                raise


def files_of(path: "UPath") -> "AzureFiles":
    """Return the file system that a path is in."""
    found: AzureFiles = path.fs
    return found
