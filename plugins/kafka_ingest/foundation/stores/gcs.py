"""Google Cloud Storage, with gcsfs."""

import contextlib
import errno
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from kafka_ingest.foundation.stores.access import CONNECT_TIMEOUT_S, StoreAccess
from kafka_ingest.foundation.stores.any_store import AnyStore, Remote, finds_none, found_below, remove_by_name
from kafka_ingest.foundation.stores.errors import remote_errors

if TYPE_CHECKING:
    from upath import UPath


class GcsStore(AnyStore):
    """How Google's store differs from other file systems: it has no folders, and never says what is missing."""

    def open(self, place: Remote, access: StoreAccess | None) -> "UPath":
        """Return what reads and writes at a place; raises PermissionError where there are no usable credentials."""
        # By default gcsfs asks by gRPC what kind of bucket each is, at another address and with limits of its own.
        plain = import_module("gcsfs.core").GCSFileSystem
        import_module("fsspec").register_implementation(place.scheme, plain, clobber=True)
        try:
            return super().open(place, access)
        except KeyError:  # it takes a key that cannot be read for one of another form, and misses a field
            said = "expected a private_key in the form of PEM, found one that cannot be read"
            raise PermissionError(errno.EACCES, f"{said}; create a new key of the service account") from None
        except (ValueError, import_module("google.auth.exceptions").GoogleAuthError) as error:
            raise PermissionError(errno.EACCES, f"expected credentials for {place.uri}, found: {error}") from error

    def prepare(self, path: "UPath") -> None:
        """Limit the time for each piece of an answer, and not for the whole of it."""
        limit = path.fs.requests_timeout
        if isinstance(limit, float):  # the file system is kept for the next time
            found = import_module("aiohttp").ClientTimeout(sock_connect=CONNECT_TIMEOUT_S, sock_read=limit)
            path.fs.requests_timeout = found

    def reason_of(self, error: BaseException) -> str:
        """Return what gcsfs says without a number where it is Google that refuses something."""
        if type(error) is OSError and str(error).startswith("Forbidden: "):
            return "403"
        return "400" if type(error) is ValueError and str(error).startswith("Bad Request: ") else ""

    def has_no_bucket(self, _: FileNotFoundError, path: "UPath", /) -> bool:
        """Ask whether it is the bucket that is missing: gcsfs drops the answer that says so."""
        bucket = path.path.partition("/")[0]
        return finds_none(self, path, lambda: path.fs.call("GET", "b/{}/o", bucket, maxResults=1, json_out=True))

    def make_folder(self, path: "UPath") -> None:
        """Do nothing."""

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        """Return the names of a folder's files from a name on; these alone are listed."""
        bucket, _, key = folder.path.partition("/")
        asked = {"prefix": f"{key}/", "delimiter": "/", "startOffset": f"{key}/{first}"}
        found: list[str] = []
        with remote_errors(self, folder):
            while True:
                page = folder.fs.call("GET", "b/{}/o", bucket, json_out=True, **asked)
                found += [each["name"].rpartition("/")[2] for each in page.get("items", [])]
                if not page.get("nextPageToken"):
                    return [name for name in found if name and name >= first]
                asked["pageToken"] = page["nextPageToken"]

    def remove_files(self, folder: "UPath", paths: Sequence[str]) -> None:
        """Remove objects, many at once; raises OSError where one stays."""
        try:
            remove_by_name(folder, paths)
        except FileNotFoundError:  # all of them were gone
            pass
        except OSError as error:
            if error.errno is not None:
                raise
            # It passes on what was answered for one of them, without a number.
            raise OSError(errno.EIO, f"expected {len(paths)} objects to be removed: {error}") from error

    def remove_tree(self, path: "UPath") -> None:
        """Remove all objects below a folder, those that stand for folders too.

        What killed writers began to upload is in no listing, costs nothing, and ends by itself after a week.
        """
        found = found_below(self, path)
        if found:
            with remote_errors(self, path):
                self.remove_files(path, [f"{path.path}/{name}" for name in found])

    def remove_if_empty(self, path: "UPath") -> None:
        """Remove the object that stands for a folder, which Hadoop writes, where it is the only one."""
        if found_below(self, path).keys() == {""}:
            with contextlib.suppress(FileNotFoundError), remote_errors(self, path):
                path.fs.rm_file(f"{path.path}/")
