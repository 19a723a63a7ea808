"""What PyIceberg imports by a name, and what a catalog's server may decide."""

import ast
import inspect
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyiceberg
import pyiceberg.io.pyarrow
import pytest
from pyiceberg.table.locations import SimpleLocationProvider, load_location_provider

from kafka_ingest.errors import InvalidConnectionError, OutputNotUsableError
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.iceberg.added_files import WITHOUT_STATISTICS
from kafka_ingest.sinks.iceberg.table import catalog_of
from kafka_ingest.sinks.iceberg.table_io import (
    Files,
    TableFileIO,
    check_chooses_nothing,
    check_deletable,
    check_inside,
    properties_of,
)

OUTPUT = Path("/lake/orders")

IMPORTS = {
    ("catalog/__init__.py", "_import_catalog"): "py-catalog-impl, which connections are refused for",
    ("catalog/rest/auth.py", "create"): "auth.impl, which connections are refused for, and servers are not asked",
    ("io/__init__.py", "_import_file_io"): "py-io-impl, of which the own one counts, and no table may name one",
    ("io/pyarrow.py", "_import_retry_strategy"): "s3.retry-strategy-impl, for stores, which the own class reads",
    ("table/locations.py", "_import_location_provider"): "write.py-location-provider.impl, which no table may name",
    ("transforms.py", "_try_import"): "names in the library's own code",
}
"""All places where the library imports by a name that it is given, and why none of them is reached by data."""


def imports_in(tree: ast.AST) -> Iterator[str]:
    """Yield the functions that import by a name."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            called = (ast.unparse(each.func) for each in ast.walk(function) if isinstance(each, ast.Call))
            names = {name.rpartition(".")[2] for name in called if name.count(".") < 2}
            if names & {"import_module", "__import__", "exec", "compile_command", "load_module", "spec_from_loader"}:
                yield function.name


def test_all_that_the_library_imports_by_a_name_is_known_here() -> None:
    root = Path(pyiceberg.__file__).parent
    found = {
        (path.relative_to(root).as_posix(), name)
        for path in root.rglob("*.py")
        for name in imports_in(ast.parse(path.read_text()))
    }
    assert found == set(IMPORTS)


@pytest.mark.parametrize(
    "name",
    [
        "py-io-impl",
        "py-catalog-impl",
        "write.py-location-provider.impl",
        "s3.retry-strategy-impl",
        "write.data.path",
        "write.metadata.path",
        "write.folder-storage.path",
        "write.object-storage.path",
        "write.object-storage.enabled",
    ],
)
def test_a_property_that_chooses_a_class_or_a_place_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(OutputNotUsableError, match=f"found the property {name}"):
        check_chooses_nothing({"owner": "ada", name: "x"})


def test_other_properties_leave_the_librarys_simple_places_below_the_table() -> None:
    properties = {"write.parquet.compression-codec": "zstd", "write.metadata.previous-versions-max": "9", "pypi": "x"}
    check_chooses_nothing(properties)
    provider = load_location_provider("file:///lake/orders", properties)
    assert type(provider) is SimpleLocationProvider
    assert provider.new_metadata_location("x.avro") == "file:///lake/orders/metadata/x.avro"


def test_nothing_of_a_table_or_a_server_reaches_what_reads_and_writes_files() -> None:
    io = Files({"uri": "x", "py-io-impl": "of.the.connection"}, None, OUTPUT).io(
        {"s3.signer": "x", "DEFAULT_SCHEME": "s3"}
    )
    assert type(io) is TableFileIO
    assert not {"s3.signer", "DEFAULT_SCHEME"} & io.properties.keys()


INSIDE = ["file:///lake/orders/metadata/x.avro", "/lake/orders/data/x.parquet", "file://localhost/lake/orders/x"]
OUTSIDE = [
    "/etc/passwd",
    "file:///lake/orders-of-others/x",
    "/lake/orders/../other/x",
    "file:///lake/orders/metadata/../../other/x",
    "/lake/orders",
    "orders/x",
    "s3://lake/orders/x",
    "hdfs://lake/orders/x",
    "file://other/lake/orders/x",
    "",
]


@pytest.mark.parametrize("location", INSIDE)
def test_a_file_below_the_table_is_read_by_any_name_of_its_place(location: str) -> None:
    check_inside(location, properties_of(OUTPUT))


@pytest.mark.parametrize("location", OUTSIDE)
def test_any_other_file_is_neither_read_nor_written_nor_deleted(location: str) -> None:
    io = TableFileIO(properties_of(OUTPUT))
    for use in (io.new_input, io.new_output):
        with pytest.raises(
            OutputNotUsableError, match="expected an Iceberg table whose files are all below file:///la"
        ):
            use(location)
    with pytest.raises(PermissionError):
        io.delete(location)


def test_a_link_that_leads_out_of_the_table_is_neither_followed_nor_deleted_through(tmp_path: Path) -> None:
    others, table = tmp_path / "others", tmp_path / "orders"
    for folder in (others, table):
        folder.mkdir()
    theirs = others / f"00001-{ID}.metadata.json"
    theirs.write_text("{}")
    (table / "metadata").symlink_to(others)
    (table / "x.avro").symlink_to(theirs)
    io, through = TableFileIO(properties_of(table)), f"file://{table}/metadata/{theirs.name}"
    for use in (io.new_input, io.new_output):
        for location in (through, f"file://{table}/x.avro"):
            with pytest.raises(OutputNotUsableError, match="whose files are all below"):
                use(location)
    with pytest.raises(PermissionError):
        io.delete(through)
    assert theirs.exists()


ID = "01890000-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    "name", [f"00001-{ID}.metadata.json", f"00001-{ID}.gz.metadata.json", f"{ID}-m0.avro", f"snap-7-0-{ID}.avro"]
)
def test_only_metadata_by_the_names_that_the_library_makes_is_deleted(name: str) -> None:
    place = properties_of(OUTPUT)
    check_deletable(f"file://{OUTPUT}/metadata/{name}", place)
    for other in (f"data/{name}", f"metadata/x{name}", f"metadata/{name}.keep", "metadata/version-hint.text"):
        with pytest.raises(PermissionError):
            check_deletable(f"file://{OUTPUT}/{other}", place)


# ── What a server may decide ──────────────────────────────────────────────────────────────────────────────────────────


class Server(BaseHTTPRequestHandler):
    """A REST catalog that answers for its configuration what a test says."""

    config: ClassVar[dict[str, Any]] = {}
    moved_to: ClassVar[str | None] = None
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        self.send_response(302 if self.moved_to else 200)
        if self.moved_to:
            self.send_header("Location", self.moved_to)
        body = json.dumps({"defaults": {}, "overrides": {}, **self.config}).encode()
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def uri(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Server, "config", {})
    monkeypatch.setattr(Server, "moved_to", None)
    monkeypatch.setattr(Server, "asked", [])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def catalog_at(uri: str) -> Any:
    fields = ConnectionFields("lake", "iceberg", extra={"type": "rest", "uri": uri, "token": "own"})
    return catalog_of(catalog_settings(fields), OUTPUT, None)


def test_of_a_servers_configuration_counts_how_it_is_asked_and_nothing_else(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = {
        "auth": {"type": "custom", "impl": "mine.Own"},
        "py-io-impl": "mine.Own",
        "py-catalog-impl": "mine.Own",
        "token": "of the server",
        "oauth2-server-uri": "http://elsewhere/token",
        "rest.sigv4-enabled": "true",
        "header.x-more": "of the server",
        "ssl": {"cabundle": "/dev/null"},
        "s3.endpoint": "http://elsewhere",
    }
    monkeypatch.setattr(Server, "config", {"overrides": hostile | {"prefix": "lake"}, "defaults": hostile})
    catalog = catalog_at(uri)
    assert catalog.properties["prefix"] == "lake"
    assert {name: value for name, value in catalog.properties.items() if name in hostile} == {
        "py-io-impl": f"{TableFileIO.__module__}.TableFileIO",
        "token": "own",
    }


def test_a_server_that_leads_to_another_one_is_refused_and_nothing_is_sent_there(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "config", {"overrides": {"uri": "http://127.0.0.2:1/"}})
    with pytest.raises(InvalidConnectionError, match=r"found that its configuration leads to http://127\.0\.0\.2:1/"):
        catalog_at(uri)


def test_a_redirect_is_followed_on_the_same_server_alone(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "moved_to", "http://127.0.0.2:1/v1/config")
    with pytest.raises(OSError, match=r"redirects to another server: http://127\.0\.0\.2:1/v1/config"):
        catalog_at(uri)
    assert len(Server.asked) == 1


@pytest.mark.parametrize("impl", [{"type": "custom", "impl": "mine.Own"}, {"type": "mine.Own"}])
def test_a_connection_that_names_a_class_for_its_login_is_refused(impl: dict[str, str]) -> None:
    fields = ConnectionFields("lake", "iceberg", extra={"type": "rest", "uri": "http://x", "auth": impl})
    with pytest.raises(InvalidConnectionError, match=r"expected auth\.type to be one of"):
        catalog_settings(fields)


def test_the_library_does_not_warn_of_each_column_without_statistics_in_each_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert WITHOUT_STATISTICS in inspect.getsource(pyiceberg.io.pyarrow)
    log = logging.getLogger("pyiceberg.io.pyarrow")
    log.warning("PyArrow statistics missing for column %d when writing file", 7)
    log.warning("Unable to resolve region for bucket lake")
    assert [each.getMessage() for each in caplog.records] == ["Unable to resolve region for bucket lake"]
