"""Metrics for who scrapes: who gets them, what is in them, and how long a scrape waits for Kafka."""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import promql_parser
import pytest
import yaml
from fastapi import HTTPException, Request
from fastapi.testclient import TestClient
from httpx import ASGITransport, AsyncClient
from prometheus_client.parser import text_string_to_metric_families
from tests.fakes import CLUSTER, TOPIC_ID, log

from kafka_ingest.airflow_tasks.metrics import METRICS, MetricKind
from kafka_ingest.errors import ControlSchemaError, InvalidConnectionError, KafkaUnavailableError
from kafka_ingest.model.hold import Hold, HoldCause
from kafka_ingest.model.offsets import StoredOffset, TopicPartition
from kafka_ingest.model.summaries import FeedOverview, NotRows, OpenGaps, ReadCounts
from kafka_ingest.observing.feed_lines import ClusterLogs
from kafka_ingest.page import metrics_app
from kafka_ingest.page.kept_answers import Answer, KeptAnswers
from kafka_ingest.page.metrics_app import CONN_ID, SCRAPED, build_app, token_needed
from kafka_ingest.page.sources import Sources
from kafka_ingest.settings.connections import ConnectionFields, missing
from kafka_ingest.settings.feed import Feed
from kafka_ingest.settings.feed_file import FeedFile

ROOT = Path(__file__).resolve().parents[2]
TOKEN = "a-token-of-24-characters"
HOSTILE = 'quoted "name" \\ of\na feed'
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
PARTITION = TopicPartition("orders", 0)


def overview(name: str, **changes: Any) -> FeedOverview:
    stored = StoredOffset(PARTITION, TOPIC_ID, 0, 100, "earliest", None, None, NOON)
    made = FeedOverview(UUID(int=len(name)), name, CLUSTER, ("orders",), {PARTITION: stored}, rows_committed=90)
    return replace(made, **changes)


def feed_file(name: str, conn_id: str = "kafka_default") -> FeedFile:
    kafka, sink = {"topics": ["orders"], "conn_id": conn_id}, {"format": "parquet", "path": "/lake"}
    return FeedFile(Path(f"{name}.yaml"), Feed.model_validate({"name": name, "kafka": kafka, "sink": sink}))


@dataclass(frozen=True)
class KnownSources(Sources):
    """The page's sources with known answers; ``ask`` is what Kafka does over a connection."""

    feeds: tuple[FeedOverview, ...] = ()
    files: Mapping[str, FeedFile] = field(default_factory=dict)
    ask: Callable[[str], ClusterLogs] = lambda _: logs()

    def control(self) -> Any:
        return self

    def feed_overviews(self) -> list[FeedOverview]:
        return list(self.feeds)

    def feed_files(self, *, wait_s: float = 0) -> Answer[dict[str, FeedFile]]:  # noqa: ARG002 - given at once
        return Answer(dict(self.files), 0.0)

    def logs(
        self,
        conn_id: str,
        feeds: list[FeedOverview],  # noqa: ARG002 - the answer is known
        *,
        wait_s: float = 0,
    ) -> Answer[ClusterLogs]:
        return self.kept.answer(conn_id, lambda: self.ask(conn_id), wait_s=wait_s)


def logs(cluster_id: str = CLUSTER, topic_id: str = TOPIC_ID) -> ClusterLogs:
    return ClusterLogs(cluster_id, {"orders": topic_id}, {PARTITION: log(40, 250)})


def a_token(password: str | None = TOKEN) -> Callable[[str], ConnectionFields]:
    return lambda conn_id: ConnectionFields(conn_id, "generic", password=password)


def client_of(sources: Sources) -> TestClient:
    return TestClient(build_app(sources), raise_server_exceptions=False)


def scrape(sources: Sources) -> dict[str, dict[str, float]]:
    """Return the samples by name and feed, as Prometheus' own library reads them."""
    answer = client_of(sources).get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            assert set(sample.labels) == {"feed"}
            assert sample.labels["feed"] not in found.setdefault(sample.name, {})
            found[sample.name][sample.labels["feed"]] = sample.value
    return found


# ── Who gets them ─────────────────────────────────────────────────────────────────────────────────────────────────────


def refuse_to_find(conn_id: str) -> ConnectionFields:
    raise missing(conn_id)


def refuse_to_read(conn_id: str) -> ConnectionFields:
    raise InvalidConnectionError(f"connection {conn_id!r} cannot be read")


@pytest.mark.parametrize(
    ("find_connection", "header"),
    [
        (a_token(), None),
        (a_token(), TOKEN),
        (a_token(), "Bearer"),
        (a_token(), "Bearer "),
        (a_token(), f"Basic {TOKEN}"),
        (a_token(), f"Bearer {TOKEN}x"),
        (a_token(), f"Bearer {TOKEN[:-1]}"),
        (a_token(), "Bearer tök".encode()),
        (a_token(None), "Bearer "),
        (a_token(""), "Bearer "),
        (a_token("too-short"), "Bearer too-short"),
        (refuse_to_find, f"Bearer {TOKEN}"),
        (refuse_to_read, f"Bearer {TOKEN}"),
    ],
)
def test_without_the_token_nobody_learns_even_that_there_is_something(
    find_connection: Callable[[str], ConnectionFields], header: Any
) -> None:
    client = client_of(KnownSources(find_connection, feeds=(overview("orders"),)))
    headers = {} if header is None else {"Authorization": header}
    answers = [
        client.get("/metrics", headers=headers),
        client.get(f"/metrics?token={TOKEN}&access_token={TOKEN}", headers=headers),
        client.get("/nothing", headers=headers),
        *(client.request(method, "/metrics", headers=headers) for method in ("HEAD", "POST", "OPTIONS", "TRACE")),
    ]
    assert {(each.status_code, each.text, tuple(sorted(each.headers.items()))) for each in answers} == {
        (404, "", (("content-length", "0"),))
    }


def test_with_the_token_nothing_else_is_served() -> None:
    client = client_of(KnownSources(a_token()))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    for path in ("/", "/metrics/", "/openapi.json", "/docs", "/redoc", "/metrics/../metrics/x"):
        assert client.get(path, headers=headers, follow_redirects=False).status_code == 404


def test_the_token_is_the_password_of_a_connection_that_strangers_do_not_keep_busy() -> None:
    asked = []

    def find_connection(conn_id: str) -> ConnectionFields:
        asked.append(conn_id)
        return a_token()(conn_id)

    client = client_of(KnownSources(find_connection))
    for _ in range(20):
        client.get("/metrics", headers={"Authorization": "Bearer another-of-24-characters"})
    assert asked == [CONN_ID] == ["kafka_ingest_metrics"]


def test_who_has_nothing_that_could_be_a_token_is_refused_before_anything_is_looked_up() -> None:
    asked: list[str] = []
    client = client_of(KnownSources(lambda conn_id: asked.append(conn_id) or a_token()(conn_id)))
    for header in ({}, {"Authorization": "Bearer short"}, {"Authorization": f"Basic {TOKEN}"}):
        assert client.get("/metrics", headers=header).status_code == 404
    assert asked == []


async def statuses(app: Any, count: int) -> list[int]:
    """Return the answers to so many requests at once, of which each has what could be a token."""
    headers = {"Authorization": "Bearer another-of-24-characters"}
    async with AsyncClient(transport=ASGITransport(app), base_url="http://server") as client:
        found = await asyncio.gather(*(client.get("/metrics", headers=headers) for _ in range(count)))
    return [each.status_code for each in found]


def test_strangers_hold_no_thread_while_the_token_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's API server has 40 threads for all that waits; here 100 requests wait for a database that hangs."""
    monkeypatch.setattr(metrics_app, "WAIT_S", 0.2)
    may_end, threads = threading.Event(), []

    def hanging(conn_id: str) -> ConnectionFields:
        may_end.wait()
        return a_token()(conn_id)

    def in_a_thread(*_: object, **__: object) -> None:
        threads.append(threading.current_thread())

    monkeypatch.setattr("fastapi.dependencies.utils.run_in_threadpool", in_a_thread)
    monkeypatch.setattr("fastapi.routing.run_in_threadpool", in_a_thread)
    try:
        assert asyncio.run(statuses(build_app(KnownSources(hanging)), 100)) == [404] * 100
    finally:
        may_end.set()
    assert threads == []


def test_a_token_that_cannot_be_looked_up_any_more_is_not_good_any_more() -> None:
    kept, found = KeptAnswers(), [a_token()]
    check = token_needed(lambda conn_id: found[0](conn_id), kept)  # noqa: PLW0108 - it is replaced below
    request = Request({"type": "http", "headers": [(b"authorization", f"Bearer {TOKEN}".encode())]})
    asyncio.run(check(request))

    def breaks(_conn_id: str) -> ConnectionFields:
        raise RuntimeError("nobody has named this")

    found[0] = breaks
    asyncio.run(check(request))
    [entry] = kept._entries.values()
    entry.ended_at = -1_000.0
    with pytest.raises(HTTPException):
        asyncio.run(check(request))


# ── What is in them ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_feed_has_what_is_stored_and_what_kafka_says() -> None:
    hold = Hold("orders", 0, HoldCause.NO_ANSWER, "no leader", NOON)
    not_rows = NotRows(filtered=70, dead_letters=4, newest=ReadCounts(rows=10, filtered=29, dead_letters=1))
    stored: dict[str, Any] = {"holds": (hold,), "open_gaps": OpenGaps(2, 30), "not_rows": not_rows}
    feed = overview("orders", **stored, last_committed_at=NOON, open_since=NOON)
    assert scrape(KnownSources(a_token(), feeds=(feed,), files={"orders": feed_file("orders")})) == {
        "kafka_ingest_lag": {"orders": 150},
        "kafka_ingest_headroom": {"orders": 60},
        "kafka_ingest_low_headroom_partitions": {"orders": 0},
        "kafka_ingest_lost_offsets": {"orders": 0},
        "kafka_ingest_silent_partitions": {"orders": 0},
        "kafka_ingest_holds": {"orders": 1},
        "kafka_ingest_open_gaps": {"orders": 2},
        "kafka_ingest_gap_offsets": {"orders": 30},
        "kafka_ingest_rows_total": {"orders": 90},
        "kafka_ingest_filtered_total": {"orders": 70},
        "kafka_ingest_filtered_percent": {"orders": 72.5},
        "kafka_ingest_dead_letters_left": {"orders": 4},
        "kafka_ingest_kafka_answers": {"orders": 1},
        "kafka_ingest_committed_timestamp_seconds": {"orders": NOON.timestamp()},
        "kafka_ingest_open_batch_timestamp_seconds": {"orders": NOON.timestamp()},
    }


STORED = {"kafka_ingest_holds": 0, "kafka_ingest_open_gaps": 0, "kafka_ingest_gap_offsets": 0}
STORED |= {"kafka_ingest_filtered_total": 0, "kafka_ingest_dead_letters_left": 0}


def down(_conn_id: str) -> ClusterLogs:
    raise KafkaUnavailableError("the broker is down")


@pytest.mark.parametrize("ask", [down, lambda _: logs(cluster_id="another cluster")])
def test_where_kafka_does_not_answer_only_what_is_stored_is_shown(ask: Callable[[str], ClusterLogs]) -> None:
    found = scrape(KnownSources(a_token(), feeds=(overview("orders"),), files={"orders": feed_file("orders")}, ask=ask))
    known = STORED | {"kafka_ingest_rows_total": 90, "kafka_ingest_kafka_answers": 0}
    assert found == {name: {"orders": value} for name, value in known.items()}


def test_a_feed_without_a_file_has_what_is_stored() -> None:
    assert scrape(KnownSources(a_token(), feeds=(overview("orders"),)))["kafka_ingest_kafka_answers"] == {"orders": 0}


def test_names_of_feeds_are_escaped() -> None:
    found = scrape(KnownSources(a_token(), feeds=(overview(HOSTILE), overview("orders"))))
    assert found["kafka_ingest_holds"] == {HOSTILE: 0, "orders": 0}


@pytest.mark.parametrize(
    ("answer", "answers"),
    [
        (Answer(logs(), 100.0, None, is_pending=True), 1),
        (Answer(logs(), 130.0, None, is_pending=True), 0),
        (Answer(logs(), 1.0, "the broker is down"), 0),
        (Answer(None, None, None, is_pending=True), 0),
    ],
)
def test_an_answer_that_is_old_or_overtaken_by_an_error_is_not_shown_as_one_of_now(
    answer: Answer[ClusterLogs], answers: int
) -> None:
    class Answered(KnownSources):
        def logs(self, *_: object, **__: object) -> Answer[ClusterLogs]:
            return answer

    found = scrape(Answered(a_token(), feeds=(overview("orders"),), files={"orders": feed_file("orders")}))
    assert found["kafka_ingest_kafka_answers"] == {"orders": answers}
    assert ("kafka_ingest_lag" in found) == bool(answers)


FOUR = ["one", "two", "three", "four"]


@dataclass(frozen=True)
class FourConnections(KnownSources):
    """Four feeds over a connection each; ``waits`` is how long each answer was waited for."""

    feeds: tuple[FeedOverview, ...] = tuple(map(overview, FOUR))
    files: Mapping[str, FeedFile] = field(default_factory=lambda: {each: feed_file(each, each) for each in FOUR})
    waits: list[float] = field(default_factory=list)

    def logs(self, conn_id: str, feeds: list[FeedOverview], *, wait_s: float = 0) -> Answer[ClusterLogs]:
        self.waits.append(wait_s)
        return super().logs(conn_id, feeds, wait_s=wait_s)


def test_kafka_is_asked_over_all_connections_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_app, "KAFKA_TIMEOUT_S", 60.0)
    all_asked = threading.Barrier(len(FOUR))

    def ask(_: str) -> ClusterLogs:
        all_asked.wait()  # each needs all the others to be under way
        return logs()

    assert scrape(FourConnections(a_token(), ask=ask))["kafka_ingest_kafka_answers"] == dict.fromkeys(FOUR, 1)


def test_connections_that_do_not_answer_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_app, "KAFKA_TIMEOUT_S", 0.2)
    ends = threading.Event()

    def ask(_: str) -> ClusterLogs:
        ends.wait()
        return logs()

    sources = FourConnections(a_token(), ask=ask)
    try:
        assert scrape(sources)["kafka_ingest_kafka_answers"] == dict.fromkeys(FOUR, 0)
    finally:
        ends.set()
    assert sum(sources.waits) < 2 * 0.2


def test_errors_of_the_control_tables_are_named_to_who_has_the_token() -> None:
    class Broken(KnownSources):
        def control(self) -> Any:
            raise ControlSchemaError("expected the control tables, found none")

    answer = client_of(Broken(a_token())).get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.text) == (503, "CONTROL_SCHEMA: expected the control tables, found none\n")


def test_unexpected_errors_say_nothing() -> None:
    class Broken(KnownSources):
        def control(self) -> Any:
            raise RuntimeError(TOKEN)

    answer = client_of(Broken(a_token())).get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    assert (answer.status_code, answer.text) == (500, "")


# ── One set of names ──────────────────────────────────────────────────────────────────────────────────────────────────

NAMES = {each.name: each.kind for each in SCRAPED}
MONITORING = ROOT / "docs" / "monitoring"
OBSERVED = {MetricKind.COUNTER: "counter", MetricKind.GAUGE: "gauge", MetricKind.TIMER: "observer"}
"""What the StatsD exporter calls them."""


def test_what_tasks_send_under_a_name_is_scraped_under_the_same() -> None:
    sent = {each.name.replace(".", "_"): each for each in METRICS}
    for name, kind in NAMES.items():
        metric = sent.pop(name.removesuffix("_total"), None)
        assert metric is None or metric.kind.value == kind
    # A scrape reads no record.
    assert [name for name, metric in sent.items() if metric.kind is MetricKind.GAUGE] == ["kafka_ingest_freshness"]


def test_the_page_on_metrics_has_each_scraped_one_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(kafka_ingest_\w+)` \| (\w+) \|", text, flags=re.MULTILINE)
    assert rows == list(NAMES.items())


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bkafka_ingest_\w+", text))


def targets(panels: list[dict[str, Any]]) -> Iterator[tuple[str, str, str]]:
    """Yield the title, the unit and the question of each plot."""
    for panel in panels:
        for target in panel.get("targets", []):
            yield panel["title"], panel["fieldConfig"]["defaults"]["unit"], target["expr"]


def test_the_dashboard_asks_for_metrics_that_exist_in_their_units() -> None:
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    asked = list(targets(dashboard["panels"]))
    assert len(asked) >= len(dashboard["panels"]) - 1
    for title, unit, question in asked:
        names = names_in(question)
        assert names, title
        assert names <= NAMES.keys(), title
        assert promql_parser.parse(question), f"{title}: Prometheus refuses the question"
        counters = {name for name in names if NAMES[name] == "counter"}
        assert counters == set(re.findall(r"rate\((\w+)\{", question)), f"{title}: a counter is shown as a rate"
        expected = "s" if "timestamp_seconds" in question else "rowsps" if counters else "short"
        assert unit == expected, title
    [variable] = [each for each in dashboard["templating"]["list"] if each["name"] == "feed"]
    assert names_in(json.dumps(variable)) <= NAMES.keys()
    identifiers = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(identifiers)) == len(identifiers)


def test_the_alert_rules_ask_for_metrics_that_exist_and_say_what_to_do() -> None:
    document = yaml.safe_load((MONITORING / "prometheus-alerts.yaml").read_text())
    rules = [rule for group in document["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    for rule in rules:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert names_in(rule["expr"]) <= NAMES.keys(), rule["alert"]
        assert promql_parser.parse(rule["expr"]), rule["alert"]
        assert names_in(rule["expr"]) or rule["expr"].startswith("up{"), rule["alert"]
        assert re.fullmatch(r"\d+[smh]", rule["for"]), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
        assert {"summary", "description"} == set(rule["annotations"]), rule["alert"]


def test_statsd_names_are_mapped_to_those_that_are_scraped() -> None:
    """As the StatsD exporter does it: a star stands for one part of a name."""
    mappings = yaml.safe_load((MONITORING / "statsd-mapping.yaml").read_text())["mappings"]
    for metric in METRICS:
        tags = {"feed": "orders.eu", "step": "write"} | dict.fromkeys(metric.more_tags, "write")
        name, _ = metric.named(tags)
        [(mapping, match)] = [
            (each, match)
            for each in mappings
            if each.get("match_metric_type") in {None, OBSERVED[metric.kind]}
            and (match := re.fullmatch(each["match"].replace(".", r"\.").replace("*", "([^.]*)"), f"airflow.{name}"))
        ]
        mapped = mapping["name"]
        for number, part in enumerate(match.groups(), start=1):
            mapped = mapped.replace(f"${{{number}}}", part)
        expected = metric.name.replace(".", "_")
        if metric.kind is MetricKind.COUNTER:
            expected += "_total"
        elif metric.kind is MetricKind.TIMER:
            expected += "_seconds"
        assert mapped == expected
        of_feed = match[int(mapping["labels"]["feed"][2:-1])]
        assert of_feed == "orders__eu"
