"""`kill -9` of the servers that a run needs: of PostgreSQL with the control tables in it, and of Kafka's broker.

They are killed while a run is held at an exact call; then it continues without them, and a later run with them again.
"""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError
from tests.kafka_faults import create_topic
from tests.killing import (
    PATIENCE_S,
    Processes,
    Produced,
    Running,
    all_batches,
    check_every_record_once,
    ending_all,
    records_of,
    wait_for,
)
from tests.quick_project import Killed, QuickProject

from embedded_broker import EmbeddedBroker
from embedded_postgresql import EmbeddedPostgresql

LIFE = "kafka_ingest.control.batch_life"


class MortalPostgresql(EmbeddedPostgresql):
    """A server that can be killed, and started again on the data that it left."""

    def kill(self) -> None:
        """SIGKILL to the postmaster; its other processes notice, and end."""
        postmaster = psutil.Process(self.pid)
        others = postmaster.children(recursive=True)
        os.kill(postmaster.pid, signal.SIGKILL)
        wait_until_gone([postmaster, *others])

    def kill_backend(self, database: str) -> None:
        """SIGKILL to the one process that serves a database's only client.

        The postmaster ends all others and starts over.
        """
        query = "SELECT pid FROM pg_stat_activity WHERE datname = :database"
        with self._admin.connect() as connection:
            [backend] = connection.execute(text(query), {"database": database}).scalars()
        others = psutil.Process(self.pid).children(recursive=True)
        os.kill(backend, signal.SIGKILL)
        wait_until_gone(others)  # until then it would answer as if nothing had happened
        wait_for(self.answers, "the server to be through with its recovery")

    def answers(self) -> bool:
        self._admin.dispose()  # its connections ended with the others
        try:
            self.execute("SELECT 1")
        except OperationalError:
            return False
        return True

    def start_again(self) -> None:
        self._admin.dispose()
        self._server.ensure_postgres_running()


def wait_until_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, PATIENCE_S)
    assert not alive


@pytest.fixture(scope="module")
def postgresql() -> Iterator[MortalPostgresql]:
    with MortalPostgresql() as server:
        yield server


@pytest.fixture
def on_postgresql(tmp_path: Path, servers: str, name: str, postgresql: MortalPostgresql) -> QuickProject:
    """A project whose control tables are in PostgreSQL, in a database of the topic's name."""
    url = postgresql.create_database(name.replace("-", "_"))
    connection = {"conn_type": "postgres", "host": url.query["host"], "schema": url.database, "login": url.username}
    made = QuickProject(tmp_path / "quick", servers)
    made.environment["AIRFLOW_CONN_KAFKA_INGEST"] = json.dumps(connection)
    made.upgrade()
    return made


def produce_two_batches(quick: QuickProject, name: str) -> Produced:
    """Commit a first batch, and let Spark have written a second one whose receipt is not pinned yet."""
    create_topic(quick.bootstrap_servers, name, 3)
    quick.write_feed(name)
    produced = Produced(quick.bootstrap_servers, name)
    produced.add(0, 3)
    quick.run()
    produced.add(0, 4)
    produced.add(1, 5)
    with quick.stopping_before_the_pin(), suppress(Killed):
        quick.kafka_ingest("run", "orders")
    return produced


def newest_state(quick: QuickProject) -> str:
    return str(all_batches(quick)[0]["state"])


@pytest.fixture
def processes(on_postgresql: QuickProject) -> Iterator[Processes]:
    with ending_all(on_postgresql) as made:
        yield made


@pytest.mark.parametrize(
    ("killed_at", "state", "visible"),
    [
        (f"before:{LIFE}:BatchLife.pin", "PLANNED", False),
        (f"after:{LIFE}:advance_stored_offsets", "COMMITTING", True),  # in the middle of the commit's transaction
    ],
    ids=["before the pin", "in the commit"],
)
def test_a_postgresql_that_was_killed_and_started_again_has_each_step_whole_or_not_at_all(
    on_postgresql: QuickProject,
    postgresql: MortalPostgresql,
    processes: Processes,
    name: str,
    *,
    killed_at: str,
    state: str,
    visible: bool,
) -> None:
    produced = produce_two_batches(on_postgresql, name)
    before = records_of(on_postgresql)
    run = processes.run_feed(held_at=killed_at)
    run.wait_until_held()
    postgresql.kill()
    run.resume()
    check_control_tables_were_unavailable(run)
    postgresql.start_again()

    assert newest_state(on_postgresql) == state
    assert records_of(on_postgresql) == (sorted(produced.values.items()) if visible else before)
    assert on_postgresql.stored_offsets() == {0: 3, 1: 0, 2: 0}
    produced.add(2, 1)
    on_postgresql.run("orders", "--until-caught-up")
    check_every_record_once(on_postgresql, produced)


def test_a_backend_that_is_killed_in_the_commit_s_transaction_moves_no_offset_and_the_next_run_commits_on_another_one(
    on_postgresql: QuickProject, postgresql: MortalPostgresql, processes: Processes, name: str
) -> None:
    produced = produce_two_batches(on_postgresql, name)
    run = processes.run_feed(held_at=f"after:{LIFE}:advance_stored_offsets")
    run.wait_until_held()
    postgresql.kill_backend(name.replace("-", "_"))
    run.resume()

    check_control_tables_were_unavailable(run)
    assert newest_state(on_postgresql) == "COMMITTING"
    assert on_postgresql.stored_offsets() == {0: 3, 1: 0, 2: 0}
    produced.add(2, 1)
    on_postgresql.run("orders", "--until-caught-up")
    check_every_record_once(on_postgresql, produced)


def check_control_tables_were_unavailable(run: Running) -> None:
    answer = run.end()
    assert (answer.exit_code, answer.document["error"]["code"]) == (1, "CONTROL_TABLES_UNAVAILABLE"), answer


# ── The broker ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_broker_that_is_killed_before_the_commit_costs_the_mirror_only_and_the_next_commit_repairs_it(
    tmp_path: Path, mortal_broker: EmbeddedBroker, name: str
) -> None:
    quick = QuickProject(tmp_path / "quick", mortal_broker.bootstrap_servers)
    quick.make_control_tables()
    produced = produce_two_batches(quick, name)
    extra = {"bootstrap.servers": mortal_broker.bootstrap_servers, "socket.timeout.ms": 1000}
    impatient = json.dumps({"conn_type": "kafka", "extra": extra})
    with ending_all(quick) as processes:
        run = processes.run_feed(held_at=f"before:{LIFE}:BatchLife.begin_commit", AIRFLOW_CONN_KAFKA_DEFAULT=impatient)
        run.wait_until_held()
        mortal_broker.kill()
        try:
            run.resume()
            answer = run.end()
        finally:
            mortal_broker.start()

    assert answer.exit_code == 0, answer
    [batch] = answer.document["batches"]
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 9)
    assert mortal_broker.bootstrap_servers in batch["mirror_failure"]
    assert records_of(quick) == sorted(produced.values.items())

    assert quick.stored_offsets() == {0: 7, 1: 5, 2: 0}
    assert quick.group_offsets() == {0: 3, 1: 0, 2: 0}, "the group stays where the last commit with Kafka left it"
    produced.add(2, 1)
    quick.run()
    check_every_record_once(quick, produced)
