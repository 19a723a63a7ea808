"""Each committed batch is counted once among the metrics, whoever looks at it again."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from tests.contract.builders import FIRST_PLAN, commit, orders, plan_first, plan_next, plan_of
from tests.statsd_server import StatsdServer

from kafka_ingest.airflow_tasks.metrics import send_committed
from kafka_ingest.assembly import FeedParts
from kafka_ingest.batches.commit_batch import Committed
from kafka_ingest.batches.mirror_group import Mirrored
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.errors import MissingConnectionError
from kafka_ingest.settings.feed import Feed

FEED = Feed.model_validate(
    {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "/data/orders"}}
)


def no_connection(conn_id: str) -> None:
    raise MissingConnectionError(f"no connection is needed, asked for {conn_id}")


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    with StatsdServer() as server:
        for name, value in server.settings.items():
            monkeypatch.setenv(name, value)
        stats.initialize(factory=get_stats_factory(), export_legacy_names=True)
        yield server
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


def committed(control: SqlControlTables, *, by_us: bool = True, failure: str | None = None) -> Committed:
    batch = control.batch(FIRST_PLAN.batch_id)
    return Committed(batch, tuple(control.range_counts(FIRST_PLAN.batch_id)), by_us, Mirrored("group", failure))


def names(lines: list[str]) -> dict[str, str]:
    """Return what was sent under names without the feed, by name; timers without their time."""
    found = dict(line.split(":") for line in lines)
    return {
        name.removeprefix("airflow.kafka_ingest."): "timer" if value.endswith("|ms") else value
        for name, value in found.items()
        if not name.endswith(".orders")
    }


def test_a_commit_is_counted_by_the_try_that_made_it_and_by_no_later_one(
    sql_control: SqlControlTables, statsd: StatsdServer
) -> None:
    parts = FeedParts(FEED, sql_control, no_connection, {})  # type: ignore[arg-type]
    began = datetime.now(UTC)
    plan_first(sql_control)
    commit(sql_control, FIRST_PLAN)
    later = plan_of((orders(0), 100, 130), number=2)
    plan_next(sql_control, later)
    [line] = sql_control.batch_lines(FIRST_PLAN.feed_id, before=later.batch_id, limit=1)
    assert line.size_bytes

    send_committed(committed(sql_control), parts, began)
    assert names(statsd.received()) == {
        "batches": "1|c",
        "rows": f"{line.rows}|c",
        "bytes": f"{line.size_bytes}|c",
        "dead_letters": "0|c",
        "filtered": "0|c",
        "never_found_fields": "0|c",
        "batch_duration": "timer",
    }

    send_committed(committed(sql_control, by_us=False), parts, began)
    send_committed(committed(sql_control), parts, datetime.now(UTC))
    assert statsd.received() == []

    send_committed(committed(sql_control, failure="the broker is down"), parts, datetime.now(UTC))
    assert names(statsd.received()) == {"mirror_failures": "1|c"}
