"""Azure Data Lake Storage Gen2: how its three clients reach it, and how adlfs is used there.

Python reads and writes documents with adlfs, the commit uses delta-rs, and Spark writes with Hadoop's ABFS. Without a
key, a token or a secret each of them uses a workload's identity, which the environment names, then the machine's.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from kafka_ingest.foundation.stores.access import StoreAccess, given
from kafka_ingest.foundation.stores.any_store import NO_CONTAINER, AnyStore, Remote, finds_none, remote_errors

if TYPE_CHECKING:
    from upath import UPath

    from kafka_ingest.foundation.stores.azure_files import AzureFiles

BLOBS = "blob.core.windows.net"
AUTHORITY = "https://login.microsoftonline.com"
PROVIDERS = "org.apache.hadoop.fs.azurebfs.oauth2"


@dataclass(frozen=True, slots=True)
class AzureAccess(StoreAccess):
    """One connection to an account. ``endpoint_url`` is that of another server, such as ``http://HOST:PORT/ACCOUNT``.

    There is ``account_key``, or ``sas_token``, or ``client_secret`` of an application; or ``client_id`` may name one of
    the identities of the machine. Raises ValueError where there is more than one, an application is not complete, or
    the token of one would travel without TLS.
    """

    scheme: ClassVar[str] = "abfss"

    account: str
    endpoint_url: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        secrets = [self.account_key, self.sas_token, self.client_secret]
        if len(secrets) - secrets.count(None) > 1:
            raise ValueError("expected a key of the account, a SAS token or a client secret, found more than one")
        if self.client_secret is not None and (self.tenant_id is None or self.client_id is None):
            raise ValueError("expected a client secret with its tenant_id and client id, found only a part of them")
        if self.tenant_id is not None and self.client_secret is None:
            raise ValueError("expected a client secret with the tenant_id, found none")
        if not self.blob_url.startswith("https://") and not (self.account_key or self.sas_token):
            raise ValueError("expected a key of the account or a SAS token for a server without TLS, found neither")

    @property
    def has_credentials(self) -> bool:
        return bool(self.account_key or self.sas_token or self.client_secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no log may show; of a token also its signature alone, in both forms that URLs have."""
        parts = (self.sas_token or "").split("&")
        written = [part.removeprefix("sig=") for part in parts if part.startswith("sig=")]
        # Clients write it anew: delta-rs also where it was written without a client's escapes.
        signatures = [unquote(each) for each in written]
        escaped = [quote(each, safe="") for each in signatures]
        found = (self.account_key, self.sas_token, self.client_secret, *signatures, *written, *escaped)
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def blob_url(self) -> str:
        """The address at which Python's clients reach the account."""
        return self.endpoint_url or f"https://{self.account}.{BLOBS}"

    def for_fsspec(self) -> dict[str, Any]:
        return {
            # What other processes wrote since the last look would stay unseen.
            "use_listings_cache": False,
            "access": self.as_json(),
        }

    def for_delta(self) -> dict[str, str]:
        options = {
            "azure_storage_account_name": self.account,
            # Also Azure's own address: variables of the environment could lead elsewhere.
            "azure_storage_endpoint": self.blob_url,
            "azure_storage_use_emulator": "false",
            "allow_http": str(self.blob_url.startswith("http://")).lower(),
            **self.limits_for_delta(),
        }
        return options | given(
            {
                "azure_storage_account_key": self.account_key,
                "azure_storage_sas_key": self.sas_token,
                "azure_storage_tenant_id": self.tenant_id,
                "azure_storage_client_id": self.client_id,
                "azure_storage_client_secret": self.client_secret,
            }
        )

    def for_hadoop(self, bucket: str) -> dict[str, str]:
        """Return the settings of Hadoop's ABFS for one account: those of other accounts stay as the site has them."""
        host = bucket.rpartition("@")[2]
        settings = self._for_account(os.environ)
        found = {f"fs.azure.{name}.{host}": value for name, value in settings.items()}
        if self.endpoint_url is not None:
            # ABFS knows these for all accounts at once, and speaks TLS for abfss unless its other class is used.
            at = urlsplit(self.endpoint_url)
            found["fs.azure.abfs.endpoint"] = at.netloc
            if at.scheme == "http":
                found["fs.azure.always.use.https"] = "false"
                found["fs.abfss.impl"] = "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
        return found

    def _for_account(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return how ABFS shows who it is; without credentials as the other two clients find it in the environment."""
        if self.account_key is not None:
            return {"account.auth.type": "SharedKey", "account.key": self.account_key}
        if self.sas_token is not None:
            return {"account.auth.type": "SAS", "sas.fixed.token": self.sas_token}
        if self.client_secret is not None:
            return by_secret(self.tenant_id, self.client_id, self.client_secret)
        client_id = self.client_id or environment.get("AZURE_CLIENT_ID")
        tenant_id, authority = environment.get("AZURE_TENANT_ID"), environment.get("AZURE_AUTHORITY_HOST", AUTHORITY)
        found = {"account.auth.type": "OAuth", "account.oauth2.client.id": client_id or ""}
        if client_id and tenant_id and (file := environment.get("AZURE_FEDERATED_TOKEN_FILE")):
            return found | {
                "account.oauth.provider.type": f"{PROVIDERS}.WorkloadIdentityTokenProvider",
                "account.oauth2.msi.authority": authority,
                "account.oauth2.msi.tenant": tenant_id,
                "account.oauth2.token.file": file,
            }
        return found | {"account.oauth.provider.type": f"{PROVIDERS}.MsiTokenProvider"}


def by_secret(tenant_id: str | None, client_id: str | None, secret: str) -> dict[str, str]:
    """Return how ABFS shows who it is by an application's secret."""
    return {
        "account.auth.type": "OAuth",
        "account.oauth.provider.type": f"{PROVIDERS}.ClientCredsTokenProvider",
        "account.oauth2.client.endpoint": f"{AUTHORITY}/{tenant_id}/oauth2/token",
        "account.oauth2.client.id": client_id or "",
        "account.oauth2.client.secret": secret,
    }


NOT_EMPTY = "DirectoryIsNotEmpty"


class AzureStore(AnyStore):
    """How Azure's store differs from other file systems: its folders are objects, and stay when they are empty."""

    def open(self, place: Remote, access: StoreAccess | None) -> "UPath":
        files = import_module("kafka_ingest.foundation.stores.azure_files").AzureFiles
        import_module("fsspec").register_implementation(place.scheme, files, clobber=True)
        return super().open(place, access)

    def reason_of(self, error: BaseException) -> str:
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
        found = files_of(path).below(path.path)
        return {each.name: {"type": "file", "size": each.size} for each in found if not each.is_folder}

    def paths_in(self, folder: "UPath") -> list[str]:
        return sorted({each.name for each in files_of(folder).inside(folder.path)})

    def beginnings(self, folder: "UPath", paths: Sequence[str], most: int) -> list[bytes]:
        return files_of(folder).beginnings(paths, most)

    def names_from(self, folder: "UPath", first: str) -> list[str]:
        with remote_errors(self, folder):
            found = files_of(folder).inside(folder.path, first)
        names = [each.name.rpartition("/")[2] for each in found if not each.is_folder]
        return [name for name in names if name >= first]

    def renew(self, path: "UPath") -> None:
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
    found: AzureFiles = path.fs
    return found


STORE, ACCESS = AzureStore(), AzureAccess
