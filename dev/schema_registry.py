"""A schema registry for tests and the benchmark: a stand-in that speaks Confluent's API, as far as it is asked here.

The serializers, whose client registers schemas here, and the bytes that they make are Confluent's own. It asks for
credentials, and fails as registries and networks do. Tests compare it with a real one (tests/apicurio.py).
"""

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_OID, uuid5

from free_ports import LOOPBACK

Schema = dict[str, Any]


@dataclass
class SchemaRegistryServer:
    """A running registry. What a test sets here, it does from then on."""

    scheme: str = "http"
    port: int = 0
    schemas: list[Schema] = field(default_factory=list)
    """By their ids, which begin at 1."""
    subjects: dict[str, list[int]] = field(default_factory=dict)
    """The ids of each subject's versions, which begin at 1, too."""
    deleted: set[tuple[str, int]] = field(default_factory=set)
    """Versions of subjects that were deleted softly: shown to who asks for deleted ones."""
    header: str | None = None
    """What requests need as their Authorization."""
    failures: list[int | bytes] = field(default_factory=list)
    """The status of each of the next answers; 0: the connection ends; bytes: they are sent, and then it ends."""
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self.scheme}://{LOOPBACK}:{self.port}"

    def needs(self, user: str, password: str) -> None:
        """Let it ask for basic auth."""
        self.header = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    def register(self, subject: str, schema: object, kind: str = "AVRO", references: list[Schema] | None = None) -> int:
        """Add a version of a subject; return the schema's id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self.add(subject, {"schema": text, "schemaType": kind, "references": references or []})

    def add(self, subject: str, schema: Schema) -> int:
        """Add a version of a subject, unless it is there; return the schema's id."""
        kept = {key: schema.get(key) for key in ("schema", "schemaType", "references") if schema.get(key)}
        if kept not in self.schemas:
            self.schemas.append(kept)
        schema_id = self.schemas.index(kept) + 1
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def answer(self, method: str, path: str, content: bytes) -> tuple[int, object]:
        """Return the status and the document of an answer."""
        url = urlsplit(path)
        found: tuple[int, object]
        match [unquote(part) for part in url.path.strip("/").split("/")]:
            case ["schemas", "ids", text]:
                known = text.isdigit() and 0 < int(text) <= len(self.schemas)
                found = (200, self.schemas[int(text) - 1]) if known else missing(40403, "Schema not found")
            case ["schemas", "guids", guid]:
                found = next(
                    ((200, each) for each in self.schemas if guid_of(each) == guid), missing(40403, "No schema")
                )
            case ["subjects", subject, "versions"] if method == "POST":
                schema_id = self.add(subject, json.loads(content))
                found = 200, self.version(subject, self.subjects[subject].index(schema_id) + 1)
            case ["subjects", subject] if method == "POST":
                found = self.lookup(subject, json.loads(content))
            case ["subjects", subject, *others]:
                found = self.of_subject(method, subject, others, self.versions(subject, url.query))
            case _:
                found = missing(404, "HTTP 404 Not Found")
        return found

    def of_subject(self, method: str, subject: str, path: list[str], versions: list[int]) -> tuple[int, object]:
        """Return the answer to a question about a subject with these versions."""
        match path:
            case ["versions", *_] if not versions:
                return missing(40401, f"Subject '{subject}' not found.")
            case ["versions"]:
                return 200, versions
            case ["versions", text]:
                number = versions[-1] if text == "latest" else int(text)
                if number not in versions:
                    return missing(40402, "Version not found.")
                if method == "DELETE":
                    self.deleted.add((subject, number))
                    return 200, number
                return 200, self.version(subject, number)
        return missing(404, "HTTP 404 Not Found")

    def versions(self, subject: str, query: str) -> list[int]:
        """Return a subject's versions, those that were deleted softly only where a question says so."""
        numbers = range(1, len(self.subjects.get(subject, ())) + 1)
        return [each for each in numbers if "deleted=true" in query or (subject, each) not in self.deleted]

    def lookup(self, subject: str, schema: Schema) -> tuple[int, object]:
        """Return the answer to the question which version of a subject a schema is."""
        kept = {key: schema.get(key) for key in ("schema", "schemaType", "references") if schema.get(key)}
        for number, schema_id in enumerate(self.subjects.get(subject, ()), start=1):
            if self.schemas[schema_id - 1] == kept:
                return 200, self.version(subject, number)
        return missing(40403, "Schema not found")

    def version(self, subject: str, number: int) -> Schema:
        """Return a version of a subject as a registry shows it."""
        schema_id = self.subjects[subject][number - 1]
        schema = self.schemas[schema_id - 1]
        return {"subject": subject, "version": number, "id": schema_id, "guid": guid_of(schema), **schema}


def guid_of(schema: Schema) -> str:
    """Return the other id of a schema, the same wherever it is registered."""
    return str(uuid5(NAMESPACE_OID, json.dumps(schema, sort_keys=True)))


def missing(code: int, why: str) -> tuple[int, object]:
    """Return the answer where there is nothing of the kind."""
    return 404, {"error_code": code, "message": why}


class Handler(BaseHTTPRequestHandler):
    """Answers the requests to one registry."""

    server_of_test: ClassVar[SchemaRegistryServer]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def handle_any(self) -> None:
        """Answer a request, or fail as a test has asked."""
        server = self.server_of_test
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        server.asked.append(f"{self.command} {self.path}")
        failure = server.failures.pop(0) if server.failures else None
        if failure == 0:
            self.close_connection = True
        elif isinstance(failure, bytes):
            self.wfile.write(failure)
            self.close_connection = True
        elif failure is not None:
            self.send(failure, {"error_code": failure, "message": "of a test"})
        elif server.header is not None and self.headers.get("Authorization") != server.header:
            self.send(401, {"error_code": 401, "message": "Unauthorized"})
        else:
            self.send(*server.answer(self.command, self.path, content))

    def send(self, status: int, document: object) -> None:
        """Send an answer."""
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


for method in ("GET", "POST", "DELETE"):
    setattr(Handler, f"do_{method}", Handler.handle_any)


@contextmanager
def running_schema_registry(tls: ssl.SSLContext | None = None) -> Iterator[SchemaRegistryServer]:
    """Run a registry inside."""
    server = SchemaRegistryServer(scheme="https" if tls is not None else "http")
    http = ThreadingHTTPServer((LOOPBACK, 0), type("Bound", (Handler,), {"server_of_test": server}))
    http.daemon_threads = True
    if tls is not None:
        http.socket = tls.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    server.port = http.server_address[1]
    threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
