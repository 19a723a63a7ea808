"""Real parts for the tests: one broker a session, and a project folder of its own for each test.

And which tests are quick.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from tests.temporary_files import give_airflow_a_home, write_to_memory
from tests.what_tests_need import NEEDS_OF_FOLDERS, ORDER, left_out, need, refusing_servers, shared_by, turns

# What the fixtures need is imported in them: the process that hands the tests out to others uses none of it.
if TYPE_CHECKING:
    from tests.object_store import ObjectStore
    from tests.project import Project
    from tests.rest_catalog import RestCatalogServer

    from embedded_broker import EmbeddedBroker

PATIENT = {"broker.session.timeout.ms": "9000"}
"""Kafka's own time limit: a machine that stands still for some seconds is no broker that died."""
IDLE = {
    "broker.heartbeat.interval.ms": "2000",
    # No record twice a second into the log of the cluster's metadata, only to prove that it can be written.
    "metadata.max.idle.interval.ms": "0",
    # 8 and 3 by default, for the controller and for each listener; each wakes up three times a second.
    "num.io.threads": "2",
    "num.network.threads": "1",
}
"""What a broker does while nobody asks it for anything: a third of its computing time in a whole run."""

TESTS = Path(__file__).parent
NEED = pytest.StashKey[str | None]()
LEFT_OUT = pytest.StashKey[Counter[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only tests without a JVM and without a server")


def pytest_configure(config: pytest.Config) -> None:
    write_to_memory()
    config.add_cleanup(give_airflow_a_home())
    config.addinivalue_line(
        "markers", "long: tries very many cases, writes many tables, or waits, and is left out of --quick"
    )
    config.addinivalue_line("markers", "sqlite_is_enough: PostgreSQL could not answer otherwise than SQLite")
    config.addinivalue_line("markers", "postgresql_too: runs on PostgreSQL, in a module where SQLite is enough")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With --quick, do not even read the folders whose tests are all left out: that takes as long as the quick ones."""
    is_left_out = collection_path.parent == TESTS and collection_path.name in NEEDS_OF_FOLDERS
    return True if is_left_out and config.getoption("quick") else None


def need_of(item: pytest.Item) -> str | None:
    """Return what a test needs, None where it is quick."""
    called = getattr(item, "callspec", None)
    parameters = list(called.params.values()) if called else []
    fixtures = getattr(item, "fixturenames", [])
    return need(folder_of(item.path), fixtures, parameters, [mark.name for mark in item.iter_markers()])


@cache
def folder_of(path: Path) -> str:
    """Return the folder of tests that a file is in."""
    return path.relative_to(TESTS).parts[0]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take long come first, as turns says; with --quick, only what is quick is left."""
    needs: dict[Path, str | None] = {}
    for item in items:
        item.stash[NEED] = need_of(item)
        needs[item.path] = min(needs.get(item.path), item.stash[NEED], key=ORDER.index)
    if config.getoption("quick"):
        others = [item for item in items if item.stash[NEED] is not None]
        config.hook.pytest_deselected(items=others)
        config.stash[LEFT_OUT] = Counter(item.stash[NEED] or "" for item in others)
        items[:] = [item for item in items if item.stash[NEED] is None]
    turn = turns(needs)
    items.sort(key=lambda item: turn[item.path])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    if item.stash[NEED] is not None:
        return (yield)
    with refusing_servers():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    if item.stash[NEED] is not None:
        return (yield)
    with refusing_servers():
        return (yield)


@pytest.fixture(scope="session")
def object_store() -> "Iterator[ObjectStore]":
    """A server that speaks S3's protocol."""
    from tests.object_store import running_store

    with running_store("moto") as store:
        yield store


@pytest.fixture(scope="session")
def s3_proxy() -> "Iterator[ObjectStore]":
    """Another server that speaks S3's protocol."""
    from tests.object_store import running_store

    with running_store("S3Proxy") as store:
        yield store


@pytest.fixture(scope="session")
def gcs() -> "Iterator[ObjectStore]":
    """A server that speaks Google Cloud Storage's protocol."""
    from tests.object_store import running_store

    with running_store("GCS") as store:
        yield store


@pytest.fixture(scope="session")
def apicurio() -> Iterator[str]:
    """Where a real schema registry is."""
    from tests.apicurio import running_apicurio

    with running_apicurio() as url:
        yield url


@pytest.fixture(scope="session")
def azure() -> "Iterator[ObjectStore]":
    """A server that speaks Azure's protocols."""
    from tests.object_store import running_store

    with running_store("Azure") as store:
        yield store


@pytest.fixture(scope="session")
def rest_catalog() -> "Iterator[RestCatalogServer]":
    """A REST catalog, behind a proxy that asks for credentials and fails as networks do."""
    from tests.rest_catalog import running_rest_catalog

    with running_rest_catalog() as server:
        yield server


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End what was kept for the whole session; let a process of xdist report what it left out."""
    kept = sys.modules.get("tests.kept_spark")  # a test that keeps one has imported it
    if kept is not None:
        kept.end_kept_spark()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = dict(session.config.stash.get(LEFT_OUT, Counter()))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out one file at a time, but those whose tests share what takes long to start together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FilesTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return shared_by(config.rootpath / file) or file

    return FilesTogether(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    # Every process collects all tests: what one of them says is what all say.
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("quick"):
        for line in left_out(config.stash.get(LEFT_OUT, Counter())):
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[EmbeddedBroker]":
    from embedded_broker import EmbeddedBroker

    with EmbeddedBroker(tmp_path_factory.mktemp("kafka"), extra=PATIENT | IDLE) as running:
        yield running


@pytest.fixture(scope="session")
def migrated_sqlite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Control tables without a row, to copy."""
    from tests.project import empty_control_tables

    file = tmp_path_factory.mktemp("control") / "empty.db"
    file.write_bytes(empty_control_tables())
    return file


@pytest.fixture
def topic(broker: "EmbeddedBroker") -> str:
    from order_events import PARTITIONS, create_topic

    name = f"orders-{uuid4().hex[:8]}"
    create_topic(broker.bootstrap_servers, name, PARTITIONS)
    return name


@pytest.fixture
def project(tmp_path: Path, broker: "EmbeddedBroker") -> "Project":
    from tests.project import Project

    made = Project(tmp_path / "project", broker.bootstrap_servers)
    made.make_control_tables()
    return made
