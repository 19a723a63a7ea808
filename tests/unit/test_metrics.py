"""What a metrics server receives from the tasks, through Airflow's own libraries."""

import atexit
import logging
import re
import threading
from collections.abc import Iterator, Mapping
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import MappingProxyType

import pytest
from airflow.sdk._shared.observability.metrics import otel_logger
from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
from airflow.sdk._shared.observability.metrics.validators import stat_name_default_handler, stat_name_otel_handler
from airflow.sdk.configuration import conf
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
from opentelemetry import metrics as opentelemetry
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.statsd_server import StatsdServer

from kafka_ingest.airflow_tasks import metrics
from kafka_ingest.airflow_tasks.metrics import LAG, METRICS, ROWS, STEP_DURATION, Metric, MetricKind

ROOT = Path(__file__).resolve().parents[2]
LONGEST_FEED = "f" * 200
VALUES = {"feed": "orders.eu", "kind": "live", "step": "write"}


def tags_of(metric: Metric) -> dict[str, str]:
    return {name: VALUES[name] for name in ("feed", *metric.more_tags)}


def value_of(metric: Metric) -> float | timedelta:
    return timedelta(seconds=1.5) if metric.kind is MetricKind.TIMER else 42


def start_sending(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str] = MappingProxyType({}), **more: str
) -> None:
    """Set Airflow's section ``metrics``, and make ready what sends as a task's process does."""
    for name, value in {
        **settings,
        **{f"AIRFLOW__METRICS__{name.upper()}": value for name, value in more.items()},
    }.items():
        monkeypatch.setenv(name, value)
    stats.initialize(factory=get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on"))


@pytest.fixture(autouse=True)
def _sending_ends() -> Iterator[None]:
    yield
    stats.initialize(factory=NoStatsLogger, export_legacy_names=True)


@pytest.fixture
def statsd() -> Iterator[StatsdServer]:
    with StatsdServer() as server:
        yield server


@pytest.fixture
def otlp() -> Iterator[tuple[str, list[ExportMetricsServiceRequest]]]:
    """An HTTP server that takes metrics in OTLP, and what it has taken."""
    found: list[ExportMetricsServiceRequest] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/metrics"
            found.append(ExportMetricsServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1/metrics", found
    server.shutdown()
    thread.join()
    server.server_close()


LINES: dict[MetricKind, str] = {
    MetricKind.COUNTER: "42|c",
    MetricKind.GAUGE: "42|g",
    MetricKind.TIMER: "1500.000000|ms",
}


def test_statsd_receives_each_metric_and_once_more_under_a_name_with_its_feed(
    monkeypatch: pytest.MonkeyPatch, statsd: StatsdServer
) -> None:
    start_sending(monkeypatch, statsd.settings)

    for metric in METRICS:
        metric.send(value_of(metric), **tags_of(metric))
        feed = "orders__eu.write" if metric is STEP_DURATION else "orders__eu"
        said = LINES[metric.kind]
        assert statsd.received() == [f"airflow.{metric.name}:{said}", f"airflow.{metric.name}.{feed}:{said}"]


def test_statsd_with_tags_receives_each_metric_once_where_airflow_sends_no_second_names(
    monkeypatch: pytest.MonkeyPatch, statsd: StatsdServer
) -> None:
    start_sending(
        monkeypatch,
        statsd.settings,
        statsd_influxdb_enabled="True",
        legacy_names_on="False",
    )

    for metric in METRICS:
        metric.send(value_of(metric), **tags_of(metric))
        tags = ",".join(f"{name}={value}" for name, value in tags_of(metric).items())
        assert statsd.received() == [f"airflow.{metric.name},{tags}:{LINES[metric.kind]}"]


def test_opentelemetry_receives_each_metric_with_its_tags(
    monkeypatch: pytest.MonkeyPatch, otlp: tuple[str, list[ExportMetricsServiceRequest]]
) -> None:
    endpoint, requests = otlp
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint)
    start_sending(monkeypatch, otel_on="True", legacy_names_on="False")
    for metric in METRICS:
        metric.send(value_of(metric), **tags_of(metric))
    opentelemetry.get_meter_provider().shutdown()
    atexit.unregister(otel_logger.flush_otel_metrics)

    found = {
        each.name: each
        for request in requests
        for of_resource in request.resource_metrics
        for of_scope in of_resource.scope_metrics
        for each in of_scope.metrics
    }
    assert found.keys() == {f"airflow.{metric.name}" for metric in METRICS}
    for metric in METRICS:
        received = found[f"airflow.{metric.name}"]
        form = {MetricKind.COUNTER: "sum", MetricKind.GAUGE: "gauge", MetricKind.TIMER: "exponential_histogram"}
        [point] = getattr(received, form[metric.kind]).data_points
        assert {each.key: each.value.string_value for each in point.attributes} == tags_of(metric)
        if metric.kind is MetricKind.TIMER:
            assert (received.unit, point.sum) == ("ms", 1500)
        else:
            assert point.as_int == 42


@pytest.mark.parametrize("switch", metrics.SWITCHES)
def test_metrics_are_sent_where_airflow_sends_its_own(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    assert not metrics.are_sent()
    monkeypatch.setenv(f"AIRFLOW__METRICS__{switch.upper()}", "True")
    assert metrics.are_sent()


def fails() -> NoStatsLogger:
    raise RuntimeError("no such host")


def test_a_task_neither_fails_nor_is_retried_where_metrics_cannot_be_sent(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    stats.initialize(factory=fails, export_legacy_names=True)
    with caplog.at_level(logging.WARNING):
        metrics.send_count(metrics.ATTEMPTS, "orders")
        with metrics.step_duration("orders", "plan"):
            done = True
    assert done
    assert caplog.text.count("some metrics were not sent; the task continues without them") == 2


def test_a_step_that_fails_fails_with_its_own_error_and_has_no_duration(
    monkeypatch: pytest.MonkeyPatch, statsd: StatsdServer
) -> None:
    start_sending(monkeypatch, statsd.settings)
    with pytest.raises(OSError, match="the disk is full"), metrics.step_duration("orders", "write"):
        raise OSError("the disk is full")
    assert statsd.received() == []


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_longest_feed_name_fits_into_every_name(metric: Metric) -> None:
    tags = tags_of(metric) | {"feed": LONGEST_FEED}
    name, rest = metric.named(tags)
    assert stat_name_default_handler(name) == name
    assert stat_name_otel_handler("airflow", name) == f"airflow.{name}"
    assert rest == {tag: tags[tag] for tag in tags if tag not in metric.in_name}


def test_the_page_on_metrics_names_each_metric_with_its_kind_and_tags_and_no_other() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(kafka_ingest\.\w+)` \| (\w+) \| \w+ \| ([^|]+) \|", text, flags=re.MULTILINE)
    assert rows == [
        (metric.name, metric.kind.value, ", ".join(f"`{tag}`" for tag in ("feed", *metric.more_tags)))
        for metric in METRICS
    ]


def test_each_metric_is_in_the_list_and_is_sent_by_a_task() -> None:
    defined = {name: each for name, each in vars(metrics).items() if isinstance(each, Metric)}
    assert tuple(defined.values()) == METRICS
    tasks = "".join(path.read_text() for path in (ROOT / "plugins/kafka_ingest/airflow_tasks").glob("*.py"))
    # Its definition and a use.
    assert [name for name in defined if len(re.findall(rf"\b{name}\b", tasks)) < 2] == []


def test_a_counter_or_gauge_takes_no_duration(monkeypatch: pytest.MonkeyPatch, statsd: StatsdServer) -> None:
    start_sending(monkeypatch, statsd.settings)
    for metric in (LAG, ROWS):
        with pytest.raises(TypeError, match="expected a number, found a duration"):
            metric.send(timedelta(seconds=1), **tags_of(metric))
