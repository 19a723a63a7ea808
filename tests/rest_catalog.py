"""An Iceberg REST catalog for tests: Iceberg's reference server, and a proxy before it.

The server takes anybody's requests. The proxy asks for credentials, gives the prefix of a warehouse, offers credentials
of a store, and fails as networks and servers do.
"""

import contextlib
import http.client
import json
import os
import re
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qs, urlsplit

from tests.store_proxy import is_listening

from dies_with_parent import dying_with_this_process
from embedded_broker import QUICK_START
from free_ports import LOOPBACK, random_free_ports
from java_command import java_command

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / ".jvm" / "rest-catalog"
HADOOP = ("hadoop-client-api", "hadoop-client-runtime", "commons-logging")
"""What the server needs of Spark's own jars."""
URI = "TEST_REST_CATALOG"
"""Where the proxy is, also for the processes that a test starts."""
WAREHOUSE, PREFIX = "lake", "workspaces/lake"
CLIENT, SECRET = "client-4711", "secret-of-the-client"

Kind = Literal["answer", "lose the answer", "answer after it", "wait"]


@dataclass
class CatalogFault:
    """What becomes of requests whose ``METHOD /path`` matches.

    ``answer``: the server does nothing and the proxy answers with ``status``; ``lose the answer``: it does what it is
    asked, and the connection ends; ``answer after it``: it does so, and the proxy answers with ``status``; ``wait``:
    no answer comes before the test ends.
    """

    what: str
    kind: Kind = "answer"
    status: int = 500
    times: int = 1_000
    met: int = 0


@dataclass
class RestCatalogServer:
    """A running catalog. What a test sets here, the proxy does from then on."""

    port: int = 0
    upstream: int = 0
    faults: list[CatalogFault] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    """Where there are any, requests need one of them; a client gets the first for its secret."""
    offered: dict[str, str] = field(default_factory=dict)
    """What the server adds to its answer about a table."""
    asked: list[str] = field(default_factory=list)
    ends: threading.Event = field(default_factory=threading.Event)

    @property
    def uri(self) -> str:
        """Where the proxy is."""
        return f"http://{LOOPBACK}:{self.port}"

    def reset(self) -> None:
        """Fail no more, ask for nothing and offer nothing."""
        self.faults.clear()
        self.tokens.clear()
        self.offered.clear()
        self.asked.clear()

    @contextlib.contextmanager
    def failing(self, *faults: CatalogFault) -> Iterator[None]:
        """Let it fail inside. Each fault has to be met."""
        self.faults[:] = faults
        try:
            yield
        finally:
            self.faults.clear()
        assert all(each.met for each in faults), f"expected requests that meet each of {faults}"


class Proxy(BaseHTTPRequestHandler):
    """Answers the requests to one proxy."""

    server_of_test: ClassVar[RestCatalogServer]
    upstream: ClassVar[int]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        tokens = self.server_of_test.tokens
        fault = self.fault(f"{self.command} {path}")
        if fault is not None and fault.kind == "wait":
            self.server_of_test.ends.wait()
        if fault is not None and fault.kind == "answer":
            self.refuse(fault.status, "of a test")
        elif tokens and path == "/v1/oauth/tokens":
            self.give_token(body)
        elif tokens and self.headers.get("Authorization", "").removeprefix("Bearer ") not in tokens:
            self.refuse(401, "not authorized")
        else:
            self.pass_on(body, fault)

    def fault(self, request: str) -> CatalogFault | None:
        """Return the fault that meets a request."""
        self.server_of_test.asked.append(request)
        for each in self.server_of_test.faults:
            if re.search(each.what, request):
                each.met += 1
                return each if each.met <= each.times else None
        return None

    def give_token(self, body: bytes) -> None:
        asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if (asked.get("client_id"), asked.get("client_secret")) != (CLIENT, SECRET):
            self.answer(401, json.dumps({"error": "invalid_client"}).encode())
            return
        token = {"access_token": min(self.server_of_test.tokens), "token_type": "bearer", "expires_in": 3600}
        self.answer(200, json.dumps(token).encode())

    def pass_on(self, body: bytes, fault: CatalogFault | None) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self.upstream)
        path = self.path.replace(f"/v1/{PREFIX}/", "/v1/")
        kept = {"Content-Type": "application/json"} if body else {}
        with contextlib.closing(connection):
            connection.request(self.command, path, body or None, kept)
            found = connection.getresponse()
            content = found.read()
        if fault is not None and fault.kind == "lose the answer":
            self.close_connection = True
            return
        if fault is not None:
            self.refuse(fault.status, "of a test, after it was done")
            return
        self.answer(found.status, self.changed(content))

    def changed(self, content: bytes) -> bytes:
        """Return an answer with what is the proxy's: the warehouse's prefix, and what is offered."""
        if self.path.startswith("/v1/config"):
            document: dict[str, Any] = json.loads(content)
            if f"warehouse={WAREHOUSE}" in self.path:
                document["overrides"] |= {"prefix": PREFIX}
            return json.dumps(document).encode()
        if self.server_of_test.offered and b'"metadata-location"' in content:
            return json.dumps(json.loads(content) | {"config": self.server_of_test.offered}).encode()
        return content

    def refuse(self, status: int, why: str) -> None:
        error = {"message": why, "type": "OfATestException", "code": status}
        self.answer(status, json.dumps({"error": error}).encode())

    def answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        bare = self.command == "HEAD" or status == 204
        self.send_header("Content-Length", "0" if bare else str(len(content)))
        self.end_headers()
        if not bare:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


for method in ("GET", "POST", "DELETE", "HEAD"):
    setattr(Proxy, f"do_{method}", Proxy.handle_any)


@contextlib.contextmanager
def serving(server: RestCatalogServer, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run a proxy inside, and yield its port."""
    proxy = ThreadingHTTPServer(
        (LOOPBACK, 0), type("Bound", (Proxy,), {"server_of_test": server, "upstream": server.upstream})
    )
    proxy.daemon_threads = True
    if tls is not None:
        proxy.socket = tls.wrap_socket(proxy.socket, server_side=True)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield proxy.server_address[1]
    finally:
        server.ends.set()
        proxy.shutdown()
        proxy.server_close()


@contextlib.contextmanager
def running_rest_catalog() -> Iterator[RestCatalogServer]:
    """Start the server with its proxy; both end with the block, or with this process."""
    pyspark = find_spec("pyspark")
    assert pyspark is not None
    assert pyspark.submodule_search_locations
    spark = Path(pyspark.submodule_search_locations[0]) / "jars"
    jars = [f"{JARS}/*", *(str(path) for name in HADOOP for path in sorted(spark.glob(f"{name}-*.jar")))]
    [port] = random_free_ports(1)
    with tempfile.TemporaryDirectory(prefix="rest-catalog-") as folder:
        values = {"port": port, "catalog.uri": f"jdbc:sqlite:{folder}/catalog.db", "catalog.warehouse": folder}
        flags = [f"-D{name}={value}" for name, value in values.items()]
        java = [java_command(), *QUICK_START, *flags, "-cp", os.pathsep.join(jars)]
        main = ["org.eclipse.jetty.xml.XmlConfiguration", str(ROOT / "dev/jvm/rest_catalog_server.xml")]
        log = Path(folder, "log")
        with (
            log.open("wb") as said,
            subprocess.Popen(dying_with_this_process([*java, *main]), stdout=said, stderr=said) as process,
        ):
            try:
                while not is_listening(port):
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.05)
                server = RestCatalogServer(upstream=port)
                with serving(server) as server.port:
                    os.environ[URI] = server.uri
                    yield server
            finally:
                os.environ.pop(URI, None)
                process.terminate()
