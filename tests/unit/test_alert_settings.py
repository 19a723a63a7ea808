"""What a feed file says of alerts, and which planned feeds are looked at for it."""

from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import yaml
from tests.fakes import CLUSTER

from kafka_ingest.airflow_tasks.dags.checking_dag import WatchedFeeds, watched_feeds
from kafka_ingest.model.alert import AlertKind, AlertRules, Stops
from kafka_ingest.model.summaries import FeedOverview
from kafka_ingest.settings.feed_file import FeedFile, read_feed_file
from kafka_ingest.settings.feed_files import read_feed_files

MAIL = {"notifier": "shop.Mail", "arguments": {"to": ["ops@shop.example"], "smtp_conn_id": "mail"}}
ORDERS = {"name": "orders", "kafka": {"topics": ["orders"]}, "sink": {"format": "parquet", "path": "/data/orders"}}


def read(tmp_path: Path, alerts: Any, name: str = "orders", **changes: Any) -> FeedFile:
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(ORDERS | {"name": name, "alerts": alerts} | changes))
    return read_feed_file(path)


def test_a_file_says_what_is_an_alert_and_who_is_notified(tmp_path: Path) -> None:
    asked = {"lag": 1_000_000, "behind": "30m", "headroom": "6h", "open_batch": "2h", "held": True, "gap": True}
    feed = read(tmp_path, asked | {"stopped": True, "notify": [MAIL]}, on_data_loss="record_gap").feed
    assert feed is not None
    assert feed.alerts is not None
    [notifier] = feed.alerts.notifiers()
    assert (notifier.path, notifier.arguments) == ("shop.Mail", MAIL["arguments"])
    assert feed.alert_rules() == AlertRules(
        lag=1_000_000,
        behind=timedelta(minutes=30),
        headroom=timedelta(hours=6),
        open_batch=timedelta(hours=2),
        held=True,
        gap=True,
        stopped=True,
        stops=Stops(on_loss=False),
    )


def test_a_file_without_alerts_asks_for_none_and_only_rules_that_need_kafka_notice_that_it_is_down(
    tmp_path: Path,
) -> None:
    feed = read(tmp_path, None).feed
    assert feed is not None
    assert feed.alert_rules() is None
    assert AlertRules(held=True).kinds == {AlertKind.HELD, AlertKind.UNUSABLE}
    assert AlertRules(lag=1).kinds == {AlertKind.LAG, AlertKind.UNUSABLE, AlertKind.UNREACHABLE}


@pytest.mark.parametrize(
    ("alerts", "error"),
    [
        ({}, "expected at least one of lag, behind, headroom, open_batch, held, gap, stopped, filtered_percent, dead_"),
        ({"filtered_percent": 100}, "alerts.filtered_percent: expected"),
        ({"notify": [MAIL]}, "expected at least one of lag"),
        ({"lag": 0}, "alerts.lag: expected a number from 1 on, found 0"),
        ({"behind": 30}, "alerts.behind: expected a duration such as 90s, 30m, 2h or 7d, found 30"),
        ({"held": 1}, "alerts.held: expected true or false, found 1"),
        ({"lags": 5}, "alerts.lags: unknown key; did you mean lag?"),
        ({"lag": 5, "notify": [{"notifier": "Mail"}]}, "alerts.notify.0.notifier: expected a class by its dotted path"),
        ({"lag": 5, "notify": [{"notifier": "os; import x"}]}, "expected a class by its dotted path"),
        ({"lag": 5, "notify": [MAIL, MAIL]}, "expected each notifier once"),
        ({"lag": 5, "notify": [{"notifier": "a.B", "arguments": {"with space": 1}}]}, "notifier's arguments"),
        (
            {"lag": 5, "notify": [{"notifier": "a.B", "arguments": {"x": {1: 2, "b": 3}}}]},
            "text as keys of 'x', found 1",
        ),
        ({"lag": 5, "notify": [{"notifier": "a.B"}] * 30}, "at most 20 entries"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_was_expected(tmp_path: Path, alerts: Any, error: str) -> None:
    assert error in str(read(tmp_path, alerts).error)


@pytest.mark.parametrize(
    "arguments",
    [
        {"password": "hunter2"},
        {"headers": {"X-Api-Token": "hunter2"}},
        {"hooks": [{"webhook_url": "https://chat.example/hunter2"}]},
        {"proxy": "https://ops:hunter2@proxy.example"},
    ],
)
def test_arguments_that_look_like_a_secret_are_refused_and_not_shown(tmp_path: Path, arguments: Any) -> None:
    error = str(read(tmp_path, {"lag": 5, "notify": [{"notifier": "a.B", "arguments": arguments}]}).error)
    assert "looks like a secret" in error
    assert "hunter2" not in error


def test_another_argument_makes_another_notifier(tmp_path: Path) -> None:
    first, second = MAIL, MAIL | {"arguments": {"to": ["others@shop.example"]}}
    feed = read(tmp_path, {"lag": 5, "notify": [first, second]}).feed
    assert feed is not None
    assert feed.alerts is not None
    assert len({each.key for each in feed.alerts.notifiers()}) == 2


# ── Which feeds are looked at ─────────────────────────────────────────────────────────────────────────────────────────


def watched(tmp_path: Path, *planned: str) -> tuple[WatchedFeeds, dict[str, UUID]]:
    ids = {name: UUID(int=number) for number, name in enumerate(planned)}
    overviews = [FeedOverview(ids[name], name, CLUSTER, (), {}, 0) for name in planned]
    return watched_feeds(read_feed_files(tmp_path, {}), overviews), ids


def test_feeds_are_looked_at_that_were_planned_and_whose_files_ask_for_alerts(tmp_path: Path) -> None:
    for name, alerts in (("orders", {"lag": 5}), ("quiet", None), ("never", {"lag": 5})):
        read(tmp_path, alerts, name, sink={"format": "parquet", "path": f"/data/{name}"})
    found, ids = watched(tmp_path, "orders", "quiet", "without-file")
    assert (found.feeds.keys(), found.kept, found.problems) == ({ids["orders"]}, frozenset(), [])
    assert found.feeds[ids["orders"]].conn_id == "kafka_default"


def test_a_file_that_cannot_be_used_is_an_alert_itself_where_what_it_asks_for_can_be_read(tmp_path: Path) -> None:
    read(tmp_path, {"lag": 5, "notify": [MAIL]}, schedule="never ever")
    found, ids = watched(tmp_path, "orders")
    feed = found.feeds[ids["orders"]]
    assert (found.problems, feed.asks_kafka, len(feed.notifiers)) == ([], False, 1)
    assert "never ever" in str(feed.error)


def test_of_a_file_that_cannot_be_read_what_was_said_stays_and_the_check_reports_it(tmp_path: Path) -> None:
    read(tmp_path, {"lag": 0})
    (tmp_path / "broken.yaml").write_text("name: broken\nkafka: [")
    read(tmp_path, None, "silent", schedule="never ever")
    found, ids = watched(tmp_path, "orders", "broken", "silent")
    assert (found.feeds, found.kept) == ({}, {ids["orders"], ids["broken"]})
    assert [Path(problem.partition(": ")[0]).name for problem in found.problems] == ["broken.yaml", "orders.yaml"]


def test_a_file_that_cannot_be_read_may_be_that_of_any_feed_without_another(tmp_path: Path) -> None:
    (tmp_path / "called_otherwise.yaml").write_text("name: orders\nkafka: [")
    read(tmp_path, None, "quiet")
    found, ids = watched(tmp_path, "orders", "quiet")
    assert found.kept == {ids["orders"]}
