"""A store for tests and, before it, a proxy that fails as networks and stores do; run as a program of its own.

A server that speaks Google's protocol is in :mod:`tests.gcs_server`, one for Azure's in :mod:`tests.azure_server`. For
S3 it is moto's, whose application is called in this process, or S3Proxy on the JVM (docs/decisions.md says why these
two). moto is a Glue, too; the proxy compares the versions of tables, as Amazon's does and moto does not. The proxy also
answers as the endpoints from which containers and machines have their roles.
"""

import atexit
import contextlib
import functools
import http.client
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple
from urllib.parse import unquote, urlsplit

from dies_with_parent import dying_with_this_process
from embedded_broker import QUICK_START
from free_ports import LOOPBACK, random_free_ports
from java_command import java_command

Server = Literal["moto", "S3Proxy", "GCS", "Azure"]
KEY, SECRET = "test-key", "test-secret-key"
S3_PROXY_JARS = Path(__file__).resolve().parent.parent / ".jvm" / "s3-server"
S3_PROXY_LOG = """<configuration>
  <statusListener class="ch.qos.logback.core.status.NopStatusListener"/>
  <appender name="log" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%date %level %logger: %message%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="log"/></root>
</configuration>
"""
"""Without a word on that it logs each step of each request."""
CONTROL = "/__faults__"
PER_CONNECTION = frozenset({"connection", "transfer-encoding"})
CONDITIONS = frozenset({"if-none-match", "x-goog-if-generation-match"})
CONDITION = "ifGenerationMatch=0"
UPLOAD = "/upload/"
NAME_IN_BODY = re.compile(rb'"name": ?"([^"]+)"')
EMPTY = "/moto-api/reset"
ACTION, UPDATE = "X-Amz-Target", "AWSGlue.UpdateTable"
ROLE = "/__role__"
ROLE_KEY = "key-of-the-role"
POD_TOKEN = "token-of-the-pod"
MACHINE = "/latest/"
OF_MACHINE = f"{MACHINE}meta-data/iam/security-credentials/"
OF_ROLE = {
    "AccessKeyId": ROLE_KEY,
    "SecretAccessKey": "secret-of-the-role",
    "Token": "token-of-the-role",
    "Expiration": "2999-01-01T00:00:00Z",
}
"""What the endpoint for credentials of a container answers, or of a machine."""
NUMBERS = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d+")
WRITTEN = ("written",)
KEPT = "<DeleteResult><Error><Key>{}</Key><Code>{}</Code><Message>of a test</Message></Error></DeleteResult>"
XML = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{0}</Code><Message>{0} of a test</Message></Error>'


class Request(NamedTuple):
    """What a client asks of a server: ``path`` with its query, as it is sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Answer = tuple[int, list[tuple[str, str]], bytes]
"""A server's: its status, headers and content."""
Upstream = Callable[[Request], Answer]


class InPieces(io.BufferedIOBase):
    """What an answer is written to that shall come in pieces."""

    BYTES = 50

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, content: Any, /) -> int:
        """Send each piece alone."""
        for number in range(0, len(content), self.BYTES):
            self._connection.sendall(content[number : number + self.BYTES])
        return len(content)


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on, except those that a fault meets."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    upstream: ClassVar[Upstream]
    faults: ClassVar[list[dict[str, Any]]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()
    of_glue: ClassVar[threading.Lock] = threading.Lock()
    """Two updates never compare at once."""
    end_of_faults: ClassVar[threading.Event] = threading.Event()

    def handle_any(self) -> None:
        body = self.whole_body()
        if self.path == CONTROL:
            with self.lock:
                met = [each["met"] for each in self.faults]
                if self.command == "PUT":
                    self.faults[:] = [each | {"met": 0, "asked": set()} for each in json.loads(body)]
                    Proxy.end_of_faults.set()
                    Proxy.end_of_faults = threading.Event()
            self.answer(200, json.dumps(met).encode(), [])
            return
        if self.path == ROLE:
            status = 200 if self.headers.get("Authorization") == POD_TOKEN else 403
            self.answer(status, json.dumps(OF_ROLE).encode(), [("Content-Type", "application/json")])
            return
        if self.path.startswith(MACHINE):
            self.answer_as_machine()
            return
        end_of_faults = self.end_of_faults
        fault = self.fault(body) or {"kind": ""}
        if fault["kind"] == "withhold the request":
            end_of_faults.wait()
        if fault["kind"] in {"cut", "withhold the request"}:
            self.hang_up()
        elif fault["kind"] == "answer":
            self.answer(fault["status"], XML.format(fault["code"]).encode(), [("Content-Type", "application/xml")])
        elif fault["kind"] == "keep one":
            last = body.rpartition(b"<Object>")[2].partition(b"<Key>")[2].partition(b"</Key>")[0].decode()
            self.answer(200, KEPT.format(last, fault["code"]).encode(), [("Content-Type", "application/xml")])
        else:
            self.pass_on(body, fault["kind"], end_of_faults)

    def whole_body(self) -> bytes:
        """Return what was sent, also in chunks, as Google's client for Java sends files."""
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found: list[bytes] = []
        while length := int(self.rfile.readline().partition(b";")[0], 16):
            found.append(self.rfile.read(length))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(found)

    def answer_as_machine(self) -> None:
        """Answer as a machine of EC2 answers what runs on it: a token first, then its role and the role's key."""
        if (self.command, self.path) == ("PUT", f"{MACHINE}api/token"):
            self.answer(200, b"token-of-the-machine", [("X-aws-ec2-metadata-token-ttl-seconds", "21600")])
        elif self.headers.get("X-aws-ec2-metadata-token") != "token-of-the-machine":
            self.answer(401, b"", [])
        elif self.path == OF_MACHINE:
            self.answer(200, b"role-of-the-machine", [])
        elif self.path == f"{OF_MACHINE}role-of-the-machine":
            now = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
            self.answer(200, json.dumps(now | OF_ROLE).encode(), [("Content-Type", "application/json")])
        else:
            self.answer(404, b"", [])

    def pass_on(self, body: bytes, fault: str, end_of_faults: threading.Event) -> None:
        """Let the store do what it is asked, and answer as the kind of a fault says; empty where there is none."""
        headers = {name: value for name, value in self.headers.items() if name.lower() not in PER_CONNECTION}
        if fault == "forget the condition":
            headers = {name: value for name, value in headers.items() if name.lower() not in CONDITIONS}
            self.path = self.path.replace(CONDITION, "")
        with self.of_glue if self.headers.get(ACTION) == UPDATE else contextlib.nullcontext():
            if self.headers.get(ACTION) == UPDATE and not self.is_newest(json.loads(body), headers):
                self.answer(400, json.dumps({"__type": "ConcurrentModificationException"}).encode(), [])
                return
            status, answered, content = self.upstreams(body, headers)
        if fault == "withhold the answer":
            end_of_faults.wait()
        if fault in {"lose the answer", "withhold the answer"}:
            self.hang_up()
            return
        to_client, whole = self.wfile, io.BytesIO()
        if fault == "trickle":
            self.wfile = InPieces(self.connection)
        elif fault == "halve the answer":
            self.wfile = whole
        self.answer(status, content, answered)
        self.wfile = to_client
        if half := whole.getvalue()[: whole.tell() // 2]:
            to_client.write(half)
            to_client.flush()
            self.hang_up()

    def upstreams(self, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Return the server's answer."""
        return type(self).upstream(Request(self.command, self.path, headers, body))

    def is_newest(self, asked: dict[str, Any], headers: Mapping[str, str]) -> bool:
        """Whether an update of a table names the newest version that there is, or none."""
        table = json.dumps({"DatabaseName": asked["DatabaseName"], "Name": asked["TableInput"]["Name"]}).encode()
        of_table = {name: value for name, value in headers.items() if name not in {ACTION, "Content-Length"}}
        _, _, content = self.upstreams(table, of_table | {ACTION: "AWSGlue.GetTable"})
        newest = json.loads(content).get("Table", {}).get("VersionId")
        return asked.get("VersionId") in {None, newest}

    def handle_expect_100(self) -> bool:
        """Tell the client at once to go on: what is written is kept until all of an answer is there."""
        found = super().handle_expect_100()
        self.wfile.flush()
        return found

    def fault(self, body: bytes) -> dict[str, Any] | None:
        """Return the fault that meets this request.

        What Google's protocol has of an upload's name in its body alone is taken for a part of the path.
        """
        named = NAME_IN_BODY.search(body[:1_000]) if self.path.startswith(UPLOAD) else None
        path = f"{self.path}/{named[1].decode()}" if named else self.path
        is_conditional = CONDITION in self.path or not CONDITIONS.isdisjoint(map(str.lower, self.headers))
        with self.lock:
            for each in self.faults:
                if each["conditional"] and not is_conditional:
                    continue
                signer = each["unless_signed_by"]
                if signer and f"Credential={signer}/" in self.headers.get("Authorization", ""):
                    continue
                if re.search(each["what"], f"{self.command} {path} {self.headers.get(ACTION, '')}".rstrip()):
                    again = each["kinds"] and self.was_asked_before(each["asked"])
                    each["met"] += not again
                    if each["skip"] < each["met"] <= each["skip"] + each["times"] - again:
                        return each
        return None

    def was_asked_before(self, asked: set[tuple[str, ...]]) -> bool:
        """Whether the same client has asked a question of this kind before.

        Where only ids, numbers, or the part of an object differ, it is the same kind. The first question after
        something was written counts: one that fails there leaves a world that no other failure leaves.
        """
        agent = self.headers.get("User-Agent", "").partition(" ")[0]
        question = (self.command, NUMBERS.sub("0", self.path), agent)
        has_written = WRITTEN in asked
        asked.discard(WRITTEN)
        if self.command not in {"GET", "HEAD"}:
            asked.add(WRITTEN)
            return False
        was_asked = question in asked
        asked.add(question)
        return was_asked and not has_written

    def hang_up(self) -> None:
        """End the connection without an answer."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, status: int, content: bytes, headers: Sequence[tuple[str, str]]) -> None:
        """Answer as a server."""
        self.send_response(status)
        passed = [
            each for each in headers if each[0].lower() not in {"connection", "transfer-encoding", "server", "date"}
        ]
        for name, value in passed:
            if name.lower() != "content-length" or self.command == "HEAD":
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
    setattr(Proxy, f"do_{method}", Proxy.handle_any)


def moto() -> Upstream:
    """Return what calls moto's applications.

    moto's own server calls them, too. It would cost as much as they do: by a second connection for each request, and by
    a search through all services of Amazon's for the one that is asked.
    """
    from moto.moto_server.werkzeug_app import create_backend_app
    from werkzeug.test import run_wsgi_app

    application = functools.cache(create_backend_app)

    def ask(request: Request) -> Answer:
        service = "glue" if request.headers.get(ACTION, "").startswith("AWSGlue.") else "s3"
        if request.path == EMPTY:
            service = "moto_api"
        content, status, headers = run_wsgi_app(application(service), environment_of(request))
        return int(status.partition(" ")[0]), list(headers), b"".join(content)

    return ask


def environment_of(request: Request) -> dict[str, Any]:
    """Return a request as WSGI has it (PEP 3333), with the path as it was sent, as moto's server adds it."""
    sent = urlsplit(request.path)
    found = {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(request.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(sent.path).encode().decode("latin-1"),
        "QUERY_STRING": sent.query,
        "RAW_URI": request.path,
        "SERVER_NAME": LOOPBACK,
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
    }
    named = {name.upper().replace("-", "_"): value for name, value in request.headers.items() if "_" not in name}
    found |= {name if name == "CONTENT_TYPE" else f"HTTP_{name}": value for name, value in named.items()}
    return found | {"CONTENT_LENGTH": str(len(request.body))}


def s3_proxy() -> Upstream:
    """Start S3Proxy, which ends with this process, and return what asks it, once it answers."""
    [port] = random_free_ports(1)
    folder = Path(tempfile.mkdtemp(prefix="s3-proxy-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "data").mkdir()
    settings = {
        "s3proxy.endpoint": f"http://{LOOPBACK}:{port}",
        "s3proxy.authorization": "aws-v4",
        "s3proxy.identity": KEY,
        "s3proxy.credential": SECRET,
        "jclouds.provider": "filesystem-nio2",
        "jclouds.identity": "none",
        "jclouds.credential": "none",
        "jclouds.filesystem.basedir": str(folder / "data"),
    }
    properties = folder / "s3proxy.conf"
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    logs = folder / "logback.xml"
    logs.write_text(S3_PROXY_LOG)
    java = [java_command(), *QUICK_START, f"-Dlogback.configurationFile={logs}"]
    java += ["-cp", f"{S3_PROXY_JARS}/*", "org.gaul.s3proxy.Main"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            dying_with_this_process([*java, "--properties", str(properties)]), stdout=log, stderr=log
        )
    while not is_listening(port):
        if process.poll() is not None:
            sys.exit(f"expected S3Proxy on port {port}, found that it ended:\n{(folder / 'log').read_text()}")
        time.sleep(0.05)

    def ask(request: Request) -> Answer:
        with contextlib.closing(http.client.HTTPConnection(LOOPBACK, port, timeout=60)) as connection:
            connection.request(request.method, request.path, body=request.body, headers=dict(request.headers))
            found = connection.getresponse()
            return found.status, found.getheaders(), found.read()

    return ask


def gcs() -> Upstream:
    """Start a server that speaks Google's protocol, which ends with this process, and return what asks it."""
    from tests.gcs_server import fake_gcs_server, upstream_of

    [port] = random_free_ports(1)
    process = subprocess.Popen(
        dying_with_this_process(fake_gcs_server(port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    while not is_listening(port):
        if process.poll() is not None:
            sys.exit(f"expected fake-gcs-server on port {port}, found that it ended")
        time.sleep(0.05)
    return upstream_of(port)


def azure() -> Upstream:
    """Start a server that speaks Azure's protocols, which ends with this process, and return what asks it."""
    from tests.azure_server import AzureServer, azurite

    [port] = random_free_ports(1)
    command, environment = azurite(port)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            dying_with_this_process(command), stdout=log, stderr=log, env={**os.environ, **environment}
        )
        while not is_listening(port):
            if process.poll() is not None:
                log.seek(0)
                sys.exit(f"expected Azurite on port {port}, found that it ended:\n{log.read().decode()}")
            time.sleep(0.05)
    return AzureServer(port).ask


def is_listening(port: int) -> bool:
    """Whether a server takes connections at a port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def serve(server: str) -> None:
    """Run server and proxy until this process is ended; print the proxy's port."""
    Proxy.upstream = staticmethod(SERVERS[server]())
    proxy = ThreadingHTTPServer((LOOPBACK, 0), Proxy)
    sys.stdout.write(f"{proxy.server_address[1]}\n")
    sys.stdout.flush()
    proxy.serve_forever()


SERVERS: dict[str, Callable[[], Upstream]] = {"moto": moto, "S3Proxy": s3_proxy, "GCS": gcs, "Azure": azure}

if __name__ == "__main__":
    serve(sys.argv[1])
