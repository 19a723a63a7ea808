"""Files in Azure's store: adlfs with a client of our own, and what adlfs does in more requests, or hides.

Importing this imports adlfs.
"""

import logging
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adlfs import AzureBlobFileSystem
from adlfs.spec import AzureBlobFile
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.identity.aio import ClientSecretCredential, DefaultAzureCredential
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobServiceClient
from fsspec.asyn import _run_coros_in_chunks, sync

from kafka_ingest.foundation.stores.access import CONNECT_TIMEOUT_S
from kafka_ingest.foundation.stores.any_store import NO_CONTAINER
from kafka_ingest.foundation.stores.azure import AUTHORITY, AzureAccess

PAUSES: Mapping[str, Any] = {"initial_backoff": 1, "increment_base": 2, "random_jitter_range": 1}
"""Between tries, in seconds; the client's own would take a minute for three of them."""
OF_PEOPLE = ("shared_token_cache", "visual_studio_code", "cli", "powershell", "developer_cli")
OF_FOLDERS = "hdi_isfolder"
"""The metadata of objects that stand for folders, in small or capital letters."""

Answer = TypeVar("Answer")

for talkative in ("azure.core.pipeline.policies.http_logging_policy", "azure.identity"):
    # They would fill the logs of tasks with each request, and each try to get a token; what fails is raised as well.
    logging.getLogger(talkative).setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class Found:
    """A file or folder in a listing; its ``name`` begins with the container's."""

    name: str
    size: int
    is_folder: bool

    @classmethod
    def of(cls, container: str, listed: Any) -> "Found":  # noqa: ANN401 - an object or a prefix of names
        name = f"{container}/{listed.name}".rstrip("/")
        if not isinstance(listed, BlobProperties):
            return cls(name, 0, is_folder=True)
        said = {key.lower(): value for key, value in (listed.metadata or {}).items()}
        return cls(name, listed.size, said.get(OF_FOLDERS) == "true")


class AzureFiles(AzureBlobFileSystem):
    """adlfs for one account.

    adlfs itself lets a connection string in the environment win over what it is given, has its own pauses between
    tries, and reaches another server than Azure's by TLS alone.
    """

    def __init__(self, access: str, account_name: str = "", **others: object) -> None:
        del account_name  # what a URI names, which is that of the connection
        self._access = AzureAccess.from_json(access)
        super().__init__(account_name=self._access.account, credential=credential_of(self._access), **others)

    def do_connect(self) -> None:
        kinds = ("retry_total", "retry_connect", "retry_read", "retry_status")
        tries_again: Mapping[str, Any] = dict.fromkeys(kinds, self._access.tries - 1)
        self.service_client = BlobServiceClient(
            self._access.blob_url,
            credential=self.credential,
            connection_timeout=CONNECT_TIMEOUT_S,
            read_timeout=self._access.read_timeout_s,
            **PAUSES,
            **tries_again,
        )

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **asked: object) -> "AzureFile":
        return AzureFile(self, path, mode, block_size or self.blocksize, **asked)

    def below(self, path: str) -> list[Found]:
        """Return all that is below a folder; raises FileNotFoundError where the container is missing."""
        return self._asked(path, self._below(path))

    def inside(self, path: str, first: str = "") -> list[Found]:
        """Return what is in a folder, from a name on; raises FileNotFoundError where the container is missing."""
        return self._asked(path, self._inside(path, first))

    def beginnings(self, paths: Sequence[str], most: int) -> list[bytes]:
        reading = [self._cat_file(path, start=0, end=most) for path in paths]
        found: list[bytes] = sync(self.loop, _run_coros_in_chunks, reading)
        return found

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files, or folders that are empty, several at once; those that are gone do not matter."""
        if paths:
            sync(self.loop, _run_coros_in_chunks, [self._remove(path) for path in paths])

    def renew(self, path: str) -> None:
        # By new metadata: copying a file onto itself needs rights on the source that tokens do not carry.
        self._asked(path, self._renew(path))

    def look_for_container(self, path: str) -> None:
        """Raise FileNotFoundError where a path's container is missing."""
        self._asked(path, self._first_below(path.partition("/")[0]))

    def _asked(self, path: str, question: Coroutine[Any, Any, Answer]) -> Answer:
        async def ask() -> Answer:
            try:
                return await question
            except ResourceNotFoundError as error:
                raise FileNotFoundError(path) from error

        answer: Answer = sync(self.loop, ask)
        return answer

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **asked: Any) -> bytes:  # noqa: ANN401
        if start is not None and start < 0:
            # Azure has no ranges that are counted from the end.
            size = await self._size(path)
            if not size:
                return b""
            start = max(0, size + start)
        content: bytes = await super()._cat_file(path, start=start, end=end, **asked)
        return content

    async def _size(self, path: str) -> int:
        container, key, _ = self.split_path(path)
        async with self.service_client.get_blob_client(container, key) as client:
            try:
                return int((await client.get_blob_properties()).size)
            except ResourceNotFoundError as error:
                raise FileNotFoundError(path) from error

    async def _below(self, path: str) -> list[Found]:
        return [each async for each in self._listed(path)]

    async def _inside(self, path: str, first: str) -> list[Found]:
        key = self.split_path(path)[1]
        asked: dict[str, object] = {"start_from": f"{key}/{first}"} if first else {}
        return [each async for each in self._listed(path, delimiter="/", **asked)]

    async def _first_below(self, path: str) -> Found | None:
        return await anext(aiter(self._listed(path, results_per_page=1)), None)

    async def _listed(self, path: str, delimiter: str = "", **asked: object) -> AsyncIterator[Found]:
        container, key, _ = self.split_path(path)
        named = {"name_starts_with": f"{key}/"} if key else {}
        async with self.service_client.get_container_client(container) as client:
            listing: Any = client.walk_blobs if delimiter else client.list_blobs
            async for each in listing(include=["metadata"], **named, **asked):
                yield Found.of(container, each)

    async def _remove(self, path: str) -> None:
        container, key, _ = self.split_path(path)
        async with self.service_client.get_blob_client(container, key) as client:
            try:
                await client.delete_blob()
            except ResourceNotFoundError as error:
                if getattr(error, "error_code", None) in NO_CONTAINER:
                    raise FileNotFoundError(path) from error

    async def _renew(self, path: str) -> None:
        container, key, _ = self.split_path(path)
        async with self.service_client.get_blob_client(container, key) as client:
            await client.set_blob_metadata({"renewed": "by_kafka_ingest"})


class AzureFile(AzureBlobFile):
    """A file that is open. adlfs hides why a piece of it cannot be written."""

    def _upload_chunk(self, final: bool = False, **asked: object) -> None:  # noqa: FBT001, FBT002 - as fsspec has it
        try:
            super()._upload_chunk(final, **asked)
        except RuntimeError as error:
            if isinstance(error.__cause__, AzureError):
                raise error.__cause__ from None
            raise


def credential_of(access: AzureAccess) -> Any:  # noqa: ANN401 - what is common to them is in no type of the library's
    if access.account_key is not None:
        return AzureNamedKeyCredential(access.account, access.account_key)
    if access.sas_token is not None:
        return AzureSasCredential(access.sas_token)
    if access.client_secret is not None:
        # The client of the store tries all of it again. The authority is named, as Hadoop has it: of Spark's driver
        # Airflow can only empty what it is not given, and an empty AZURE_AUTHORITY_HOST would be the authority.
        ids = str(access.tenant_id), str(access.client_id)
        return ClientSecretCredential(*ids, access.client_secret, authority=AUTHORITY, retry_total=0)
    # In the environment and on the machine, where the other two clients look; not among what a person left there.
    left_out = dict.fromkeys((f"exclude_{each}_credential" for each in OF_PEOPLE), True)
    return DefaultAzureCredential(managed_identity_client_id=access.client_id, **left_out)
