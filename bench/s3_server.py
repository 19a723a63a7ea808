"""An S3 server on this machine for tables: moto's, in a process of its own, without the proxy that tests put before it.

README.md says why this one. What a run left is removed before the next one: it keeps objects in memory, and those of
more than 5 MB in files.
"""

import http.client
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from process_tree import processor_s
from talking import BenchmarkError

from dies_with_parent import dying_with_this_process
from free_ports import LOOPBACK
from kafka_ingest.foundation.storage import opened_elsewhere
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.model.place import RemotePlace

PROGRAM = Path(__file__).with_name("serve_s3.py").resolve()
BUCKET = "lake"
REGION = "us-east-1"
ANY_KEY = "bench"
ANSWER_S = 30.0
LOG_CHARACTERS = 2_000


class S3Server:
    """A server that keeps its log and its large objects in ``directory``; it ends with the block, or with this process.

    ``port`` is known inside of the block.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._directory.mkdir(parents=True)
        log = self._directory / "s3-server.log"
        with log.open("w") as said:
            self._process = subprocess.Popen(
                dying_with_this_process([sys.executable, str(PROGRAM)]),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                start_new_session=True,
            )
        port = self._process.stdout.readline() if self._process.stdout is not None else ""
        if not port.strip():
            self._end()
            raise BenchmarkError(
                f"expected an S3 server, found that it ended: {log.read_text(errors='replace')[-LOG_CHARACTERS:]}"
            )
        self.port = int(port)
        self.clear()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._process = None

    @property
    def access(self) -> S3Access:
        """How to reach it; it takes any key."""
        endpoint = f"http://{LOOPBACK}:{self.port}"
        return S3Access("aws_default", endpoint_url=endpoint, region=REGION, access_key=ANY_KEY, secret_key=ANY_KEY)

    def processor_s(self) -> float:
        """Return the processor time that it has had."""
        return processor_s(self._process.pid) if self._process is not None else 0.0

    def clear(self) -> None:
        """Remove all that it holds, unfinished uploads as well; what is left is an empty bucket."""
        self._ask("POST", "/moto-api/reset")
        self._ask("PUT", f"/{BUCKET}")

    def download(self, uri: str, directory: Path) -> None:
        """Copy all objects below a URI into a directory, which does not exist yet."""
        place = opened_elsewhere(RemotePlace(uri), self.access)
        place.fs.get(place.path, str(directory), recursive=True)

    def _ask(self, method: str, path: str) -> None:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=ANSWER_S)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                raise BenchmarkError(
                    f"expected the S3 server to do {method} {path}, found {answer.status}: {answer.read().decode()}"
                )
        finally:
            connection.close()
