"""A real schema registry for tests: Apicurio Registry, asked by the API that it shares with Confluent's."""

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.store_proxy import is_listening

from dies_with_parent import dying_with_this_process
from embedded_broker import QUICK_START
from free_ports import LOOPBACK, random_free_ports
from java_command import java_command

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".jvm" / "schema-registry"
API = "apis/ccompat/v7"
SETTINGS = {
    "quarkus.http.host": LOOPBACK,
    "quarkus.log.level": "WARN",
    # Of its database in memory; 20 by default.
    "quarkus.datasource.jdbc.initial-size": "1",
    "quarkus.datasource.jdbc.min-size": "1",
}


@contextlib.contextmanager
def running_apicurio() -> Iterator[str]:
    """Start a registry without any schema and yield its URL; it ends with the block, or with this process."""
    [port] = random_free_ports(1)
    [jar] = HOME.glob("*-runner.jar")
    flags = [f"-D{name}={value}" for name, value in (SETTINGS | {"quarkus.http.port": str(port)}).items()]
    java = [java_command(), *QUICK_START, *flags, "-jar", str(jar)]
    with tempfile.TemporaryDirectory(prefix="apicurio-") as folder:
        log = Path(folder, "log")
        with (
            log.open("wb") as said,
            subprocess.Popen(dying_with_this_process(java), stdout=said, stderr=said, cwd=folder) as process,
        ):
            try:
                while not is_listening(port):
                    assert process.poll() is None, log.read_text()
                    time.sleep(0.05)
                yield f"http://{LOOPBACK}:{port}/{API}"
            finally:
                process.terminate()
