"""Google Cloud Storage: how its three clients reach it, and how gcsfs is used there.

Python reads and writes documents with gcsfs, the commit uses delta-rs, and Spark writes with Google's connector for
Hadoop. Without a key each of them uses the application default credentials: a file that the environment names, then the
machine's own account.
"""

import contextlib
import errno
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kafka_ingest.foundation.stores.access import CONNECT_TIMEOUT_S, StoreAccess
from kafka_ingest.foundation.stores.any_store import (
    AnyStore,
    Remote,
    finds_none,
    found_below,
    remote_errors,
    remove_by_name,
)

if TYPE_CHECKING:
    from upath import UPath

SHORTEST_SECRET = 16
"""Lines of a key that are shorter may be anything."""


@dataclass(frozen=True, slots=True)
class GcsAccess(StoreAccess):
    """One connection to a store. ``key`` is the JSON key of a service account, ``key_path`` the file that it is in.

    gcsfs has a number of tries of its own, which is 6.
    """

    scheme: ClassVar[str] = "gs"

    endpoint_url: str | None = None
    project: str | None = None
    key: str | None = field(default=None, repr=False)
    key_path: str | None = None

    @property
    def has_credentials(self) -> bool:
        return self.key is not None

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show: each line of the private key."""
        if self.key is None:
            return ()
        lines = str(json.loads(self.key).get("private_key", "")).splitlines()
        return tuple(line for line in lines if len(line) >= SHORTEST_SECRET and not line.startswith("-----"))

    @property
    def only_on_this_machine(self) -> str | None:
        if self.key is None or self.key_path is not None:
            return None
        return "the key is in keyfile_dict, and Google's connector for Hadoop reads it from a file: use key_path"

    def for_fsspec(self) -> dict[str, Any]:
        settings: dict[str, Any] = {
            # What other processes wrote since the last look would stay unseen.
            "use_listings_cache": False,
            "token": json.loads(self.key) if self.key is not None else "google_default",
            "requests_timeout": self.read_timeout_s,
        }
        if self.endpoint_url is not None:
            settings["endpoint_url"] = self.endpoint_url
        if self.project is not None:
            settings["project"] = self.project
        return settings

    def for_delta(self) -> dict[str, str]:
        options = self.limits_for_delta()
        if self.endpoint_url is not None:
            options["google_base_url"] = self.endpoint_url
            options["allow_http"] = str(self.endpoint_url.startswith("http://")).lower()
        if self.key is not None:
            options["google_service_account_key"] = self.key
        return options

    def for_hadoop(self, _: str) -> dict[str, str]:
        """Return the settings of Google's connector, which knows none for one bucket alone.

        Raises ValueError where there is a key and no file with it.
        """
        settings = {"auth.type": "APPLICATION_DEFAULT"}
        if self.key is not None:
            if self.key_path is None:
                raise ValueError("expected a file with the key, found only the key")
            settings["auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
            settings["auth.service.account.json.keyfile"] = self.key_path
            if token_uri := json.loads(self.key).get("token_uri"):
                settings["token.server.url"] = token_uri
        if self.endpoint_url is not None:
            settings["storage.root.url"] = f"{self.endpoint_url}/"
        if self.project is not None:
            settings["project.id"] = self.project
        return {f"fs.gs.{name}": value for name, value in settings.items()}

    def with_key_in(self, folder: Path) -> Self:
        if self.only_on_this_machine is None or self.key is None:
            return self
        file = folder / "key.json"
        file.touch(mode=0o600)
        file.write_text(self.key)
        return replace(self, key_path=str(file))


class GcsStore(AnyStore):
    """How Google's store differs from other file systems: it has no folders, and never says what is missing."""

    def open(self, place: Remote, access: StoreAccess | None) -> "UPath":
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


STORE, ACCESS = GcsStore(), GcsAccess
