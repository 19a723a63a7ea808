"""An S3 server for tests, from a package, which fails as networks and stores do where a test asks for it.

Server and proxy (:mod:`tests.store_proxy`) run in processes of their own: delta-rs holds Python's lock while it waits
for an answer.
"""

import contextlib
import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tests.azure_account import ACCOUNT, IS_FOLDER
from tests.azure_account import KEY as ACCOUNT_KEY
from tests.gcs_server import PROJECT, key_of_account, private_key
from tests.store_proxy import CONTROL, EMPTY, KEY, POD_TOKEN, ROLE, ROLE_KEY, SECRET, Server

from dies_with_parent import dying_with_this_process
from free_ports import LOOPBACK
from kafka_ingest.foundation.storage import found_below, opened
from kafka_ingest.foundation.stores.access import StoreAccess
from kafka_ingest.foundation.stores.azure import AzureAccess
from kafka_ingest.foundation.stores.gcs import GcsAccess
from kafka_ingest.foundation.stores.kinds import HOST_OF_ACCOUNTS
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.place import RemotePlace

# Each process imports this, and few start Azure's server.
if TYPE_CHECKING:
    from azure.storage.blob import ContainerClient

PROGRAM = Path(__file__).with_name("store_proxy.py").resolve()
ENDPOINT_VARIABLES: Mapping[Server, str] = {
    "moto": "TEST_S3_ENDPOINT",
    "S3Proxy": "TEST_S3_PROXY_ENDPOINT",
    "GCS": "TEST_GCS_ENDPOINT",
    "Azure": "TEST_AZURE_ENDPOINT",
}
"""Where each server is, also for the processes that a test starts."""
FIXTURES: Mapping[Server, str] = {"moto": "object_store", "S3Proxy": "s3_proxy", "GCS": "gcs", "Azure": "azure"}
"""The fixtures that start them."""
REGION = "eu-west-1"
NO_FILES = {"AWS_SHARED_CREDENTIALS_FILE": os.devnull, "AWS_CONFIG_FILE": os.devnull}
"""No file of this user's may be found before a role."""

Kind = Literal[
    "answer",
    "lose the answer",
    "halve the answer",
    "withhold the answer",
    "withhold the request",
    "trickle",
    "cut",
    "forget the condition",
    "keep one",
]


@dataclass(frozen=True)
class StoreFault:
    """What becomes of requests whose ``METHOD /path?query`` matches, the first ``times`` of them after ``skip``.

    Glue's have its name of the action behind the path.

    ``answer``: the store does nothing and answers with ``status`` and ``code``; ``lose the answer``: it does what it
    is asked, and the connection ends; ``halve the answer``: it does so, and the connection ends in the middle of the
    answer; ``withhold the answer``: it does so, and no answer comes while the fault lasts; ``withhold the request``:
    it does nothing, and no answer comes while the fault lasts; ``trickle``: its answer comes a few bytes at a time;
    ``cut``: the connection ends before; ``forget the condition``: it writes over what exists; ``keep one``: it removes
    none of several objects, and its answer of 200 says that the last one stays.
    """

    what: str
    kind: Kind = "answer"
    status: int = 500
    code: str = "InternalError"
    times: int = 1_000
    skip: int = 0
    conditional: bool = field(default=False)
    """Only requests that must not overwrite."""
    unless_signed_by: str = ""
    """Only requests that are signed with another key than this one."""
    kinds: bool = False
    """Count each kind of question of a client once, and the first question after something was written."""


class ObjectStore:
    """A running store."""

    scheme = "s3"
    conn_id = "aws_default"
    bucket = "lake"
    """The bucket of these tests, as URIs have it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @classmethod
    def running(cls, server: Server = "moto") -> "ObjectStore":
        """Return the one that a test has started, also in a process of its own."""
        kinds: Mapping[Server, type[ObjectStore]] = {"GCS": GoogleStore, "Azure": AzureLake}
        return kinds.get(server, cls)(os.environ[ENDPOINT_VARIABLES[server]])

    def access(self, **changes: Any) -> StoreAccess:
        """Return how to reach it."""
        settings = {"access_key": KEY, "secret_key": SECRET, "region": REGION}
        return S3Access("aws_default", endpoint_url=self.endpoint, **(settings | changes))

    def connection(self, *, with_key: bool = True) -> str:
        """Return the Airflow connection to it, in JSON form."""
        found: dict[str, Any] = {
            "conn_type": "aws",
            "extra": {"endpoint_url": self.endpoint, "region_name": REGION},
        }
        if with_key:
            found |= {"login": KEY, "password": SECRET}
        return json.dumps(found)

    def role(self, folder: Path) -> dict[str, str]:
        """Return the environment of a container whose role leads here; its token is written to a file."""
        token = folder / "token"
        token.write_text(POD_TOKEN)
        return {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{self.endpoint}{ROLE}",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
            "AWS_EC2_METADATA_DISABLED": "true",
            **NO_FILES,
        }

    def role_of_machine(self, _: Path) -> dict[str, str]:
        """Return the environment of a machine of EC2 whose metadata are here."""
        return {
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": self.endpoint,
            "AWS_METADATA_ENDPOINT": self.endpoint,
            **NO_FILES,
        }

    @contextlib.contextmanager
    def refusing_all_but_the_role(self) -> Iterator[None]:
        """Let it take nobody else's requests inside."""
        self.set_faults(StoreFault("/lake", status=403, code="AccessDenied", unless_signed_by=ROLE_KEY))
        try:
            yield
        finally:
            self.set_faults()

    def make_bucket(self, name: str) -> None:
        """Make a bucket; does nothing where there is one."""
        files = opened(RemotePlace(f"s3://{name}/x"), self.access()).fs
        with contextlib.suppress(FileExistsError):
            files.call_s3("create_bucket", Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})

    def names_below(self, folder: str) -> list[str]:
        """Return the names of all that is below a folder, folders too."""
        return list(found_below(opened(RemotePlace(f"{self.scheme}://{self.bucket}/{folder}"), self.access())))

    @contextlib.contextmanager
    def failing(self, *faults: StoreFault) -> Iterator[None]:
        """Let the store fail inside; before and after it does not. Each fault has to be met."""
        self.set_faults(*faults)
        try:
            yield
        finally:
            met = self.set_faults()
        assert all(met), f"expected requests that meet each of {faults}, found {met}"

    def set_faults(self, *faults: StoreFault) -> list[int]:
        """Let the store fail in these ways from now on; return how many requests met each of those before."""
        found: list[int] = json.loads(
            self._asked("PUT", CONTROL, json.dumps([asdict(each) for each in faults]).encode())
        )
        return found

    def met(self) -> list[int]:
        """Return how many requests have met each fault by now."""
        found: list[int] = json.loads(self._asked("GET", CONTROL))
        return found

    def empty(self) -> None:
        """Let moto forget all buckets: it looks through all that is in one for each listing."""
        self._asked("POST", EMPTY)

    def _asked(self, method: str, path: str, content: bytes = b"") -> bytes:
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=10)
        with contextlib.closing(connection):
            connection.request(method, path, content)
            return connection.getresponse().read()


class GoogleStore(ObjectStore):
    """A running store that speaks Google's protocol."""

    scheme = "gs"
    conn_id = "google_cloud_default"

    def access(self, **changes: Any) -> StoreAccess:
        """Return how to reach it."""
        settings = {"key": json.dumps(key_of_account(self.endpoint)), "project": PROJECT}
        return GcsAccess(self.conn_id, endpoint_url=self.endpoint, **(settings | changes))

    def connection(self, *, with_key: bool = True) -> str:
        """Return the Airflow connection to it, in JSON form."""
        found: dict[str, Any] = {"gcs.endpoint": self.endpoint, "project": PROJECT}
        if with_key:
            found["keyfile_dict"] = json.dumps(key_of_account(self.endpoint))
        return json.dumps({"conn_type": "google_cloud_platform", "extra": found})

    def make_bucket(self, name: str) -> None:
        """Make a bucket; does nothing where there is one."""
        files = opened(RemotePlace(f"gs://{name}/x"), self.access()).fs
        with contextlib.suppress(Exception):  # it says so in its own way
            files.call("POST", "b", project=PROJECT, json={"name": name})


class AzureLake(ObjectStore):
    """A running store that speaks Azure's protocols."""

    scheme = "abfss"
    conn_id = "wasb_default"
    bucket = f"lake@{ACCOUNT}.{HOST_OF_ACCOUNTS}"

    def access(self, **changes: Any) -> StoreAccess:
        """Return how to reach it."""
        settings = {"account_key": ACCOUNT_KEY}
        return AzureAccess(self.conn_id, ACCOUNT, endpoint_url=f"{self.endpoint}/{ACCOUNT}", **(settings | changes))

    def connection(self, *, with_key: bool = True) -> str:
        """Return the Airflow connection to it, in JSON form."""
        found = {"conn_type": "wasb", "host": f"{self.endpoint}/{ACCOUNT}", "login": ACCOUNT}
        return json.dumps(found | ({"password": ACCOUNT_KEY} if with_key else {}))

    def sas_token(self) -> str:
        """Return a shared access signature for all of the account."""
        from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

        until = datetime.now(UTC) + timedelta(hours=1)
        kinds = ResourceTypes(service=True, container=True, object=True)
        rights = AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True)
        return generate_account_sas(ACCOUNT, ACCOUNT_KEY, kinds, rights, until)

    def container(self) -> "ContainerClient":
        """Return Azure's own client of the container of these tests."""
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.storage.blob import ContainerClient

        return ContainerClient(f"{self.endpoint}/{ACCOUNT}", "lake", AzureNamedKeyCredential(ACCOUNT, ACCOUNT_KEY))

    def make_folder(self, name: str) -> None:
        """Make a folder, as Azure's stores and Hadoop do."""
        with self.container() as container:
            container.upload_blob(name, b"", metadata=IS_FOLDER)

    def names_below(self, folder: str) -> list[str]:
        with self.container() as container:
            return list(container.list_blob_names(name_starts_with=f"{folder}/"))

    def make_bucket(self, name: str) -> None:
        """Make a container; does nothing where there is one."""
        files = opened(RemotePlace(f"abfss://{self.bucket.replace('lake', name, 1)}/x"), self.access()).fs
        with contextlib.suppress(ValueError):  # it says so in its own way
            files.mkdir(name)


@contextlib.contextmanager
def running_store(server: Server) -> Iterator[ObjectStore]:
    """Start a server with its proxy; it ends with the block, or with this process."""
    command = dying_with_this_process([sys.executable, str(PROGRAM), server])
    if server == "GCS":
        private_key()  # for the server's process, too
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            os.environ[ENDPOINT_VARIABLES[server]] = f"http://{LOOPBACK}:{port}"
            yield ObjectStore.running(server)
        finally:
            os.environ.pop(ENDPOINT_VARIABLES[server], None)
            process.terminate()
