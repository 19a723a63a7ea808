"""An S3 server for tests, from a package, and a proxy before it that fails as networks and stores do.

The server is moto's. Both run in a process of their own: delta-rs holds Python's lock while it waits for an answer.
"""

import contextlib
import http.client
import json
import logging
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar, Literal

from dies_with_parent import dying_with_this_process
from kafka_ingest.foundation.s3_access import S3Access
from kafka_ingest.foundation.storage import opened
from kafka_ingest.model.place import RemotePlace

ENDPOINT_VARIABLE = "TEST_S3_ENDPOINT"
"""Where the server is, also for the processes that a test starts."""
REGION = "eu-west-1"
CONTROL = "/__faults__"
XML = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{0}</Code><Message>{0} of a test</Message></Error>'

Kind = Literal["answer", "lose the answer", "cut", "forget the condition"]


@dataclass(frozen=True)
class StoreFault:
    """What becomes of requests whose ``METHOD /path?query`` matches, the first ``times`` of them after ``skip``.

    ``answer``: the store does nothing and answers with ``status`` and ``code``; ``lose the answer``: it does what it
    is asked, and the connection ends; ``cut``: the connection ends before; ``forget the condition``: it writes over
    what exists.
    """

    what: str
    kind: Kind = "answer"
    status: int = 500
    code: str = "InternalError"
    times: int = 1_000
    skip: int = 0
    conditional: bool = field(default=False)
    """Only requests that must not overwrite."""


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on, except those that a fault meets."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    upstream: ClassVar[tuple[str, int]]
    faults: ClassVar[list[dict[str, Any]]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path == CONTROL:
            with self.lock:
                met = [each["met"] for each in self.faults]
                self.faults[:] = [each | {"met": 0} for each in json.loads(body)]
            self.answer(200, json.dumps(met).encode(), [])
            return
        fault = self.fault()
        headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
        if fault is not None and fault["kind"] == "cut":
            self.hang_up()
            return
        if fault is not None and fault["kind"] == "answer":
            self.answer(fault["status"], XML.format(fault["code"]).encode(), [("Content-Type", "application/xml")])
            return
        if fault is not None and fault["kind"] == "forget the condition":
            headers = {name: value for name, value in headers.items() if name.lower() != "if-none-match"}
        connection = http.client.HTTPConnection(*self.upstream, timeout=60)
        connection.request(self.command, self.path, body=body, headers=headers)
        found = connection.getresponse()
        content = found.read()
        if fault is not None and fault["kind"] == "lose the answer":
            self.hang_up()
            return
        self.answer(found.status, content, found.getheaders())

    def handle_expect_100(self) -> bool:
        """Tell the client at once to go on: what is written is kept until all of an answer is there."""
        found = super().handle_expect_100()
        self.wfile.flush()
        return found

    def fault(self) -> dict[str, Any] | None:
        """Return the fault that meets this request."""
        with self.lock:
            for each in self.faults:
                if each["conditional"] and "If-None-Match" not in self.headers:
                    continue
                if re.search(each["what"], f"{self.command} {self.path}"):
                    each["met"] += 1
                    if each["skip"] < each["met"] <= each["skip"] + each["times"]:
                        return each
        return None

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


def serve() -> None:
    """Run server and proxy until this process is ended; print the proxy's port."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    Proxy.upstream = server.get_host_and_port()
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    sys.stdout.write(f"{proxy.server_address[1]}\n")
    sys.stdout.flush()
    proxy.serve_forever()


class ObjectStore:
    """A running store."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    @classmethod
    def running(cls) -> "ObjectStore":
        """Return the one that a test has started, also in a process of its own."""
        return cls(os.environ[ENDPOINT_VARIABLE])

    def access(self, **changes: Any) -> S3Access:
        """Return how to reach it."""
        settings = {"access_key": "test-key", "secret_key": "test-secret-key", "region": REGION}
        return S3Access("aws_default", endpoint_url=self.endpoint, **(settings | changes))

    def connection(self) -> str:
        """Return the Airflow connection to it, in JSON form."""
        return json.dumps(
            {
                "conn_type": "aws",
                "login": "test-key",
                "password": "test-secret-key",
                "extra": {"endpoint_url": self.endpoint, "region_name": REGION},
            }
        )

    def make_bucket(self, name: str) -> None:
        """Make a bucket; does nothing where there is one."""
        files = opened(RemotePlace(f"s3://{name}/x"), self.access()).fs
        with contextlib.suppress(FileExistsError):
            files.call_s3("create_bucket", Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})

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
        content = json.dumps([asdict(each) for each in faults]).encode()
        connection = http.client.HTTPConnection(self.endpoint.removeprefix("http://"), timeout=10)
        with contextlib.closing(connection):
            connection.request("PUT", CONTROL, content)
            found: list[int] = json.loads(connection.getresponse().read())
        return found


@contextlib.contextmanager
def running_store() -> Iterator[ObjectStore]:
    """Start a server with its proxy; it ends with the block, or with this process."""
    command = dying_with_this_process([sys.executable, str(Path(__file__).resolve())])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            os.environ[ENDPOINT_VARIABLE] = f"http://127.0.0.1:{port}"
            yield ObjectStore.running()
        finally:
            os.environ.pop(ENDPOINT_VARIABLE, None)
            process.terminate()


if __name__ == "__main__":
    serve()
