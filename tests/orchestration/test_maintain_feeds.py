"""The daily DAG that looks after the feeds, run by Airflow on real parts."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.kafka_faults import delete_records, plain_records
from tests.kafka_faults import produce as produce_plain
from tests.orchestration.conftest import Airflow
from tests.project import Project

from embedded_broker import EmbeddedBroker
from order_events import order_events, produce

OLDER = (
    "UPDATE batch SET planned_at = '2024-01-01 00:00:00.000000', committed_at = '2024-01-01 00:00:00.000000', "
    "updated_at = '2024-01-01 00:00:00.000000'"
)


def execute(project: Project, *statements: str) -> None:
    """Change the control tables as time alone would."""
    with closing(sqlite3.connect(project.control_file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def states(run: dict) -> dict[str, str]:
    return {task: state for task, (state, _) in run["tasks"].items()}


def staged(project: Project) -> list[Path]:
    return [path for path in (project.output / "orders.kafka-ingest" / "staging").rglob("*") if path.is_file()]


def test_expired_staging_is_removed_a_group_that_drifted_is_brought_back_and_low_headroom_is_reported(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    sink = {"format": "parquet", "path": "orders", "staging_retention": "1s"}
    project.write_feed(topic, sink=sink, kafka={"topics": [topic]})
    produce(broker.bootstrap_servers, topic, list(order_events(300, seed=4)))
    project.run()
    execute(project, OLDER)
    rows = project.rows()
    assert staged(project)
    # From here on the feed names a group, which has no offsets yet: a drift that no commit has repaired.
    project.write_feed(topic, sink=sink)
    read_to = project.stored_offsets()[0]
    produce_plain(broker.bootstrap_servers, topic, 0, plain_records(200))
    delete_records(broker.bootstrap_servers, topic, 0, read_to - 3)

    run = airflow.run("maintain_feeds")

    assert run["state"] == "success"
    assert states(run) == {"orders.clean": "success", "orders.headroom": "success", "orders.mirror": "success"}
    assert staged(project) == []
    assert project.rows() == rows
    assert project.group_offsets() == project.stored_offsets()
    assert f"{topic}-0: the stored offset {read_to:,} is 3 above the log start" in airflow.log


TWENTY_NEWER = (
    "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 20) INSERT INTO batch "
    "(batch_id, feed_id, kind, state, plan, plan_fingerprint, planned_at, planned_by, updated_at, reason) SELECT "
    "printf('01990000000070008000%012d', n), feed_id, 'backfill', 'ABANDONED', plan, plan_fingerprint, '2025-01-01 "
    "00:00:00.000000', planned_by, updated_at, 'not wanted' FROM batch, numbers"
)


def test_old_batches_are_folded_once_their_staging_is_gone(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    sink = {"format": "parquet", "path": "orders", "staging_retention": "1s"}
    project.write_feed(topic, sink=sink, control_retention="365d")
    produce(broker.bootstrap_servers, topic, list(order_events(300, seed=6)))
    project.run()
    execute(project, OLDER, TWENTY_NEWER)
    assert staged(project)

    run = airflow.run("maintain_feeds")

    assert states(run)["orders.fold"] == "success"
    assert staged(project) == []
    shown = json.loads(project.kafka_ingest("batches", "orders", "--state", "committed", "--json").stdout)["batches"]
    assert [(batch["folded"], batch["rows"]) for batch in shown] == [(True, 300)]
    verified = json.loads(project.kafka_ingest("coverage", "orders", "--verify", "--json").stdout)["verified"]
    assert (verified["folded_batches"], verified["rows"], verified["differences"]) == (1, 300, [])


def test_a_feed_that_was_never_planned_is_skipped_and_a_mirror_that_cannot_be_repaired_fails_alone(
    airflow: Airflow, project: Project, broker: EmbeddedBroker, topic: str
) -> None:
    project.write_feed(topic)
    produce(broker.bootstrap_servers, topic, list(order_events(50, seed=5)))
    project.kafka_ingest("plan", "orders")
    project.write_feed(topic, name="never")
    unreachable = json.dumps(
        {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "100"}}
    )

    run = airflow.run("maintain_feeds", AIRFLOW_CONN_KAFKA_DEFAULT=unreachable)

    assert states(run) == {
        "orders.clean": "success",
        "orders.headroom": "failed",
        "orders.mirror": "failed",
        "never.clean": "skipped",
        "never.headroom": "skipped",
        "never.mirror": "skipped",
    }
    assert "the consumer group orders-ingest was not moved" in airflow.log
