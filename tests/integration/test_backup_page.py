"""docs/backup.md, as it is written: control tables are copied, lost and restored, and each record compared.

Its commands run in forks, with a stand-in for Spark.
"""

import os
from pathlib import Path

from tests.shell_commands import forking_commands

from embedded_broker import EmbeddedBroker
from embedded_postgresql import EmbeddedPostgresql
from try_tutorial import ROOT, try_page


def test_the_commands_of_the_page_restore_the_feeds_and_print_what_it_shows(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "backup.md").read_text()
    with EmbeddedPostgresql() as server, forking_commands(tmp_path / "commands") as functions:
        url = server.url("postgres")
        path = os.pathsep.join([str(server.programs), os.environ["PATH"]])
        who = {"PGHOST": str(url.query["host"]), "PGUSER": str(url.username)}
        try_page(page, broker.bootstrap_servers, tmp_path, PATH=path, BASH_ENV=str(functions), **who)
