"""The page "Kafka offsets" on a real API server: who gets what, and what the views show."""

import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import URL
from tests.chromium import complaints_of, running_chromium
from tests.orchestration.guest import GUEST
from tests.orchestration.page_server import ROLES, PageServer, serving
from tests.quick_project import QuickProject

from embedded_broker import EmbeddedBroker
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.control.control_tables import SqlControlTables
from kafka_ingest.control.database import ControlDatabaseSettings, open_database
from kafka_ingest.model.alert import AlertKind, Finding, NewAlert
from kafka_ingest.model.offsets import TopicPartition
from order_events import OrderEvent, create_topic, produce

HOSTILE = "<script>alert('gap')</script>"
ESCAPED = "&lt;script&gt;alert("
TOPIC = "page-orders"
SECRET = "hunter2-and-more"
TOKEN = "a-token-of-24-characters"
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


def event(partition: int, number: int) -> OrderEvent:
    return OrderEvent(partition, b"key", b"value", (), 1_700_000_000_000 + number)


@pytest.fixture(scope="module")
def filled(broker: EmbeddedBroker, tmp_path_factory: pytest.TempPathFactory) -> QuickProject:
    """Feeds in many states: with batches, gap and open batch, never planned, broken, without a file or a broker."""
    project = QuickProject(tmp_path_factory.mktemp("page") / "project", broker.bootstrap_servers)
    project.make_control_tables()
    create_topic(broker.bootstrap_servers, TOPIC, 3)
    produce(broker.bootstrap_servers, TOPIC, [event(number % 2, number) for number in range(400)])
    project.write_feed(TOPIC)
    project.run("orders", "--end-offset", f"{TOPIC}:0=50", "--end-offset", f"{TOPIC}:1=80")
    project.answer("skip", "orders", TOPIC, "0", "50-60", "--reason", HOSTILE)
    project.run("orders", "--end-offset", f"{TOPIC}:0=100", "--end-offset", f"{TOPIC}:1=120")
    at_once = {"by": "day", "delay": "1s", "idle_after": "1s"}
    project.write_feed(TOPIC, name="orders-again", complete=at_once)
    project.run("orders-again")
    project.write_feed(TOPIC, name="without-file")
    project.plan(name="without-file")
    (project.feeds / "without-file.yaml").unlink()
    project.plan("--max-records", "60", name="orders")
    kafka = ConfluentKafkaCluster(
        lambda: KafkaClientSettings("kafka_default", {"bootstrap.servers": broker.bootstrap_servers})
    )
    kafka.set_group_offsets("orders-ingest", {TopicPartition(TOPIC, 0): 90}, "somebody else")
    project.write_feed(TOPIC, name="broker-down")
    project.plan(name="broker-down")
    topics_elsewhere = {"topics": [TOPIC], "group": "broker-down-ingest", "conn_id": "kafka_down"}
    project.write_feed(TOPIC, name="broker-down", kafka=topics_elsewhere, complete={"by": "hour"})
    nobody = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    extra = nobody | {"sasl.username": "ingest", "sasl.password": SECRET, "socket.timeout.ms": "100"}
    project.environment["AIRFLOW_CONN_KAFKA_DOWN"] = json.dumps({"conn_type": "kafka", "extra": extra})
    scraper = {"conn_type": "generic", "password": TOKEN}
    project.environment["AIRFLOW_CONN_KAFKA_INGEST_METRICS"] = json.dumps(scraper)
    project.write_feed(TOPIC, name="never-planned")
    project.write_feed(TOPIC, name="broken")
    project.plan(name="broken")
    (project.feeds / "broken.yaml").write_text(f"name: broken\nkafka: {{topics: ['{HOSTILE}']}}\nsink: 5\n")
    url = URL.create("sqlite", database=str(project.control_file))
    control = SqlControlTables(open_database(ControlDatabaseSettings(url)))
    [feed] = [each.feed_id for each in control.feed_overviews() if each.name == "orders"]
    began = [NewAlert(feed, Finding(AlertKind.BEHIND, HOSTILE)), NewAlert(feed, Finding(AlertKind.LAG, "ended"))]
    control.note_alerts(began, (), datetime.now(UTC))
    control.note_alerts((), [each.alert_id for each in control.alerts() if each.text == "ended"], datetime.now(UTC))
    # A name that is no UTF-8.
    (project.feeds / os.fsdecode(b"caf\xe9.yaml")).write_text("sink: 5\n")
    return project


@pytest.fixture(scope="module")
def server(filled: QuickProject, migrated: Path) -> Iterator[PageServer]:
    with serving(filled, migrated) as running:
        yield running


def batch_of(server: PageServer, feed: str = "orders") -> str:
    return str(server.project.kafka_ingest("batches", feed, "--json").document["batches"][0]["batch_id"])


ROUTES = [
    "/",
    "/?q=orders&page=2",
    "/feeds/orders",
    "/feeds/orders/coverage",
    "/feeds/nothing-of-that-name",
    "/feeds/orders/batches/01890000-0000-7000-8000-000000000001",
    "/static/page.css",
    "/static/page.js",
    "/static/icon.svg",
    "/static/nothing",
    "/openapi.json",
    "/docs",
    "/redoc",
    "/no/such/route",
]


# ── Who gets what ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_who_is_not_signed_in_gets_nothing_by_any_method(server: PageServer, method: str) -> None:
    for route in ROUTES:
        refused = server.page(route, None, method)
        assert refused.status == 401, route
        assert "orders" not in refused.text
        assert TOPIC not in refused.text


def test_a_token_that_airflow_did_not_give_is_refused(server: PageServer) -> None:
    server.tokens["forger"] = server.token("viewer")[:-6] + "AAAAAA"
    assert [server.page(route, "forger").status for route in ROUTES] == [403] * len(ROUTES)
    assert "Sign in to Airflow again" in server.page("/feeds/orders", "forger").text


@pytest.mark.parametrize("user", sorted(ROLES))
def test_each_role_reads_the_views_and_nothing_is_done_by_any_other_method(server: PageServer, user: str) -> None:
    views = ["/", "/feeds/orders", f"/feeds/orders/batches/{batch_of(server)}", "/static/page.css", "/static/page.js"]
    assert [server.page(route, user).status for route in views] == [200] * len(views)
    assert [server.page(route, user, "HEAD").status for route in views] == [200] * len(views)
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert [server.page(route, user, method).status for route in views] == [405] * len(views)
    for route in ("/openapi.json", "/docs", "/redoc", "/static/nothing", "/static/..%2fapp.py", "/no/such/route"):
        assert server.page(route, user).status == 404


def test_a_feed_is_shown_to_who_may_read_its_dag(server: PageServer) -> None:
    shown = server.page("/", GUEST).text
    assert '/feeds/orders"' in shown
    assert all(f"feeds/{name}" not in shown for name in ("orders-again", "never-planned", "without-file", "broken"))
    # Whether there is such a feed is not said either.
    for name in ("orders-again", "without-file", "nothing-of-that-name"):
        assert server.page(f"/feeds/{name}", GUEST).status == 403
        assert server.page(f"/feeds/{name}/batches/{batch_of(server)}", GUEST).status == 403
    # Nor a batch of another feed below the name of one's own, and not that there is one of this id.
    refused = []
    for batch_id in (batch_of(server, "orders-again"), str(UUID(int=7))):
        answer = server.page(f"/feeds/orders/batches/{batch_id}", GUEST)
        assert answer.status == 404
        refused += re.findall(r'role="alert">(.*?)</p>', answer.text.replace(batch_id, "ID"))
    assert len(refused) == 2
    assert refused[0] == refused[1]


def test_connections_of_feeds_that_a_user_may_not_read_are_not_shown(server: PageServer) -> None:
    assert "connection kafka_down" in server.page_with_kafka("/")
    of_guest = server.page("/", GUEST).text
    assert "kafka_down" not in of_guest
    assert "127.0.0.1:1 " not in of_guest


def test_to_read_a_gap_again_is_offered_to_who_may_trigger_the_backfill(server: PageServer) -> None:
    offered = f"{TOPIC}:0=50-60"
    assert [user for user in sorted(ROLES) if offered in server.page("/feeds/orders", user).text] == [
        "admin",
        "operator",
        "user",
    ]


def test_decisions_are_offered_to_who_may_trigger_them_with_what_the_form_is_to_say(server: PageServer) -> None:
    batch_id = f'"batch_id": "{batch_of(server)}"'
    for route in ("/feeds/orders", f"/feeds/orders/batches/{batch_of(server)}"):
        pages = {user: unescape(server.page(route, user).text) for user in ROLES}
        offering = [user for user, text in sorted(pages.items()) if '"action": "abandon"' in text and batch_id in text]
        assert offering == ["admin", "operator", "user"], route
    assert "operate_feed" not in server.page("/feeds/orders", GUEST).text


def test_every_answer_forbids_what_is_inline_and_other_origins_frames(server: PageServer) -> None:
    for user in (None, "viewer"):
        for route in ROUTES:
            headers = server.page(route, user).headers
            policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
            assert (policy["default-src"], policy["script-src"], policy["style-src"]) == ("'none'", "'self'", "'self'")
            assert (policy["frame-ancestors"], policy["base-uri"]) == ("'self'", "'none'")
            assert headers["x-content-type-options"] == "nosniff"
    assert server.page("/").headers["cache-control"] == "no-store"


def test_no_view_has_a_script_or_a_style_inline_and_what_anybody_wrote_is_escaped(server: PageServer) -> None:
    views = ["/", "/?q=" + "%3Cscript%3E", "/feeds/orders", f"/feeds/orders/batches/{batch_of(server)}"]
    pages = [server.page_with_kafka(route) for route in views]
    for text in pages:
        assert re.findall(r"<script(?! src=\"/kafka-offsets/static/page\.js\?)|<style|\sstyle=|\son\w+=", text) == []
    assert ESCAPED in pages[2]
    assert "&lt;script&gt;" in pages[1]


# ── What the views show ───────────────────────────────────────────────────────────────────────────────────────────────


def cells(text: str, name: str) -> str:
    """Return the words of a feed's row, or a partition's."""
    [row] = [
        row for row in re.findall(r"<tr>.*?</tr>", text, re.DOTALL) if re.search(rf">\s*{re.escape(name)}\s*<", row)
    ]
    return " ".join(re.sub(r"<title>.*?</title>|<[^>]*>", " ", row).split())


def test_all_feeds_are_listed_the_worst_first(server: PageServer) -> None:
    text = server.page_with_kafka("/")
    names = re.findall(r'<td class="name"><a href="/kafka-offsets/feeds/([^"]+)"', text)
    assert names == ["broken", "caf%5Cxe9", "orders", "orders-again", "broker-down", "without-file", "never-planned"]
    of_orders = cells(text, "orders")
    # 400 records, of which 100 and 120 are passed. An operator has decided the gap: it is no state, and hides none.
    why = r"drifted behind alert: behind for \d+\s(s|min) 1 gap of 10 offsets, decided"
    # Lag and the age of the oldest waiting record (of November 2023), of the newest committed one, headroom, drift.
    assert re.search(rf"{TOPIC} 3 partitions {why} 180 oldest [\d,]{{3,}}\sd [\d,]{{3,}}\sd 100 10 behind ", of_orders)
    assert " PLANNED for " in of_orders
    assert re.search(r" up to date 0 [\d,]{3,}\sd - 0 ", cells(text, "orders-again"))
    assert "never planned" in cells(text, "never-planned")
    assert "There is no feed file of without-file" in text


def test_with_the_broker_down_what_is_stored_is_shown_and_said_so_without_the_password(server: PageServer) -> None:
    of_all, of_feed = server.page_with_kafka("/"), server.page_with_kafka("/feeds/broker-down")
    assert "Kafka over connection kafka_down: Kafka at 127.0.0.1:1" in of_all
    assert " unknown - - - - - PLANNED for " in cells(of_all, "broker-down")
    assert "up to date" in cells(of_all, "orders-again")
    assert "Kafka at 127.0.0.1:1" in of_feed
    assert "What is stored is shown." in of_feed
    # The stored offset is there, the log's bounds are not.
    assert cells(of_feed, f"{TOPIC}-0").endswith(" - 0 - - - - - 0")
    assert SECRET not in of_all + of_feed


def test_a_feed_whose_file_cannot_be_used_says_why(server: PageServer) -> None:
    server.page_with_kafka("/")
    of_feed = server.page_with_kafka("/feeds/broken")
    assert "broken.yaml: " in of_feed
    assert " - 0 - - - - - 0" in cells(of_feed, f"{TOPIC}-0")


def test_feeds_are_found_by_their_name_and_by_their_topic(server: PageServer) -> None:
    assert "/feeds/orders-again" in server.page("/?q=AGAIN").text
    assert '/feeds/orders"' not in server.page("/?q=AGAIN").text
    assert '/feeds/orders"' in server.page(f"/?q={TOPIC}").text
    assert "No feed and no topic is called so." in server.page("/?q=zzz").text


def test_a_feed_shows_its_partitions_to_scale_its_batches_gaps_and_journal(server: PageServer) -> None:
    text = server.page_with_kafka("/feeds/orders")
    assert f"{TOPIC}-0 " in cells(text, f"{TOPIC}-0") + " "
    # Log start, stored offset, last stable offset, high watermark, lag, headroom, group, rows.
    assert cells(text, f"{TOPIC}-0").endswith("0 100 200 200 100 100 90 90")
    assert "the consumer group stands -10 from the stored offset" in text
    assert cells(text, f"{TOPIC}-1").endswith("0 120 200 200 80 120 120 120")
    assert "no offsets yet" in cells(text, f"{TOPIC}-2")
    of_partition_0 = text[text.index(f"{TOPIC}-0: ") :]
    # Half is committed; the gap lies at a quarter, and is a twentieth.
    assert re.search(r'class="committed" x="0.0" y="3" width="500.0"', of_partition_0)
    assert re.search(r'class="gap" x="250.0" y="3" width="50.0" height="16" fill="url\(#stripes\)"', of_partition_0)
    assert re.search(r'class="unread" x="500.0" y="3" width="500.0"', of_partition_0)
    assert re.search(r'class="open" x="500.0"', of_partition_0)
    assert text.count('class="state COMMITTED"') == 2
    assert text.count('class="state PLANNED"') == 1
    assert "passed over" in text
    assert "by start rule earliest" in text
    assert "orders-ingest" in text
    # How it stands, as among all feeds, and what it is.
    top = " ".join(re.sub(r"<[^>]*>", " ", text[text.index("<h1>") : text.index("</ul>")]).split())
    assert top.startswith("orders drifted behind DAG Coverage topics page-orders schedule @hourly , next run 20")
    assert " output (parquet) /" in top
    assert " lag 180 cluster " in top
    # Produced in November 2023.
    assert re.search(r"oldest waiting record</span> [\d,]{3,}\sd<", text)
    alerts = re.findall(r"<strong>Alert since .*? UTC, (\w+):</strong> (.*?)</p>", text)
    assert alerts == [("behind", HOSTILE.replace("'", "&#39;").replace("<", "&lt;").replace(">", "&gt;"))]


def test_a_feed_shows_which_days_are_complete_page_by_page_and_what_the_next_one_waits_for(server: PageServer) -> None:
    text = server.page_with_kafka("/feeds/orders-again")
    shown = server.project.kafka_ingest("partitions", "orders-again", "--limit", "1000", "--json").document
    waiting = shown["waiting"]
    days = [each["key"] for each in shown["complete"]]
    # The oldest record is of 2023: its hours begin a month ago.
    assert len(days) == 31
    assert f"Waiting for day {waiting['began_at'][:10]} 00:00:00 UTC." in text
    assert f"<li>{waiting['waits_for'][0]['reason']}</li>" in text
    assert re.findall(r'<td class="t">(\S*T00:00:00)</td>', text) == days[:24]
    older = unescape(re.search(r'<a href="[^"]*(/feeds/[^"]*)#complete">older', text)[1])
    rest = server.page_with_kafka(older)
    assert re.findall(r'<td class="t">(\S*T00:00:00)</td>', rest) == days[24:]
    assert "older →" not in rest
    assert "Complete" not in server.page("/feeds/orders").text
    assert "The next run finds out with which hour they begin." in server.page("/feeds/broker-down").text
    assert server.page("/feeds/orders-again?complete_before=2026-03-01").status == 400


def test_a_feed_whose_dag_is_paused_says_so_and_that_no_run_is_started(server: PageServer) -> None:
    headers = {"Cookie": f"_token={server.token('admin')}", "Content-Type": "application/json"}
    views = []
    for is_paused in (True, False):
        body = json.dumps({"is_paused": is_paused})
        assert server.ask("PATCH", "/api/v2/dags/orders-again", body=body, headers=headers).status == 200
        views.append((cells(server.page_with_kafka("/"), "orders-again"), server.page("/feeds/orders-again").text))
    (row, view), (row_after, view_after) = views
    assert " up to date paused " in row
    assert "its DAG is paused: no run is started" in view
    assert "paused" not in row_after + view_after


def test_the_coverage_of_a_feed_is_what_the_command_line_says(server: PageServer) -> None:
    text = server.page("/feeds/orders/coverage").text
    assert "Every offset up to the stored ones is accounted for" in text
    # First, stored offset, live, pending, open gaps.
    assert cells(text, f"{TOPIC}-0").startswith(f"{TOPIC}-0 0 100 90 ")
    shown = server.project.kafka_ingest("coverage", "orders", "--json").document["partitions"]
    for partition in shown:
        counts = [str(partition["offsets"][name]) for name in ("live", "pending", "gaps_open")]
        assert cells(text, f"{TOPIC}-{partition['partition']}").endswith(" ".join([*counts, "yes"]))
    assert server.page("/feeds/never-planned/coverage").status == 404


def test_a_batch_shows_its_way_its_ranges_and_its_counts(server: PageServer) -> None:
    newest, second, _ = server.project.kafka_ingest("batches", "orders", "--json").document["batches"]
    text = server.page_with_kafka(f"/feeds/orders/batches/{second['batch_id']}")
    files = re.findall(r"<code>(part-[^<]*\.parquet)</code></td><td class=\"n\">(\d+)</td>", text)
    assert sorted(int(rows) for _, rows in files) == [40, 40]
    assert f"{TOPIC}-0[60, 100)" in text
    steps = re.findall(r"<li><strong>(.*?)</strong>", text)
    assert steps == ["PLANNED", "attempt 1", "WRITTEN", "COMMITTED"]
    assert cells(text, f"{TOPIC}-0") == f"{TOPIC}-0 60 100 40 40 0 0"
    assert second["planned_by"] in text
    open_batch = server.page_with_kafka(f"/feeds/orders/batches/{newest['batch_id']}")
    assert re.findall(r"<li><strong>(.*?)</strong>", open_batch) == ["PLANNED"]
    assert 'data-refresh="30"' in open_batch


def test_what_does_not_exist_is_said_and_addresses_that_make_no_sense_are_refused(server: PageServer) -> None:
    assert server.page("/feeds/never-planned").status == 404
    assert "the feed was never planned" in server.page("/feeds/never-planned").text
    assert server.page(f"/feeds/orders/batches/{UUID(int=7)}").status == 404
    assert server.page("/feeds/orders/batches/no-id").status == 400
    assert server.page("/feeds/orders?page=x").status == 400
    for number in (-1, 2**63, 10**30):
        assert server.page(f"/feeds/orders?events_before={number}").status == 400
        assert server.page(f"/feeds/orders?page={number}&gaps={number}").status == 200
        assert server.page(f"/?page={number}").status == 200
    assert server.page("/feeds/orders?page=99999&gaps=-5&topic=none&events_before=0").status == 200


def test_errors_of_the_control_tables_are_named_and_hold_no_secret(server: PageServer) -> None:
    file = server.project.control_file
    content = file.read_bytes()
    try:
        file.unlink()
        missing = server.page("/")
        file.write_bytes(b"no database, but " + SECRET.encode() * 20)
        damaged = server.page("/feeds/orders")
    finally:
        file.write_bytes(content)
    assert (missing.status, damaged.status) == (503, 503)
    assert "CONTROL_SCHEMA: expected the control tables in" in missing.text
    assert "CONTROL_SCHEMA" in damaged.text
    assert SECRET not in missing.text + damaged.text
    assert server.page("/").status == 200


# ── What is scraped ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_metrics_are_for_who_has_their_token_and_for_no_user_of_airflow(server: PageServer) -> None:
    address = "/kafka-ingest/metrics"
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"_token={server.token('admin')}"}):
        refused = server.ask("GET", address, headers=headers)
        assert (refused.status, refused.text) == (404, "")
    scraped = server.ask("GET", address, headers={"Authorization": f"Bearer {TOKEN}"})
    assert (scraped.status, scraped.headers["x-content-type-options"]) == (200, "nosniff")
    samples = {
        (sample.name.removeprefix("kafka_ingest_"), sample.labels["feed"]): sample.value
        for family in text_string_to_metric_families(scraped.text)
        for sample in family.samples
    }
    # As the page shows them.
    of_orders = {"lag": 180, "headroom": 100, "open_gaps": 1, "gap_offsets": 10, "rows_total": 210, "kafka_answers": 1}
    assert {name: samples[name, "orders"] for name in of_orders} == of_orders
    assert {feed for name, feed in samples if name == "lag"} == {"orders", "orders-again"}
    assert samples["kafka_answers", "broker-down"] == samples["kafka_answers", "without-file"] == 0
    assert SECRET not in scraped.text
    # And the page is still for users alone.
    assert server.ask("GET", "/kafka-offsets/", headers={"Authorization": f"Bearer {TOKEN}"}).status == 403


# ── In a browser ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def tab(chromium: Browser, server: PageServer) -> Iterator[Page]:
    """A browser's window in which a user has signed in."""
    with chromium.new_context(base_url=server.address, viewport={"width": 1400, "height": 900}) as context:
        context.add_cookies([{"name": "_token", "value": server.token("user"), "url": server.address}])
        context.set_default_timeout(PATIENCE_MS)
        yield context.new_page()


def in_frame(tab: Page) -> FrameLocator:
    """Return the page within Airflow's frame."""
    return tab.frame_locator("iframe[title='Kafka offsets']")


def test_a_user_goes_from_airflows_navigation_through_all_views_and_back_to_the_dag(tab: Page) -> None:
    said = complaints_of(tab)
    tab.goto("/")
    tab.locator("a[href='/plugin/kafka-offsets']").click()
    frame = in_frame(tab)
    frame.get_by_role("link", name="orders", exact=True).click()
    expect(frame.get_by_role("heading", name="orders")).to_be_visible()
    expect(frame.locator("svg.bar")).to_have_count(2)  # partitions with offsets
    expect(frame.locator("svg.plot")).to_have_count(3)  # lag, rows, seconds
    frame.locator("#batches").get_by_role("link").nth(1).click()
    expect(frame.get_by_role("heading", name="Batch")).to_be_visible()
    expect(frame.locator("#ranges tbody tr")).to_have_count(2)
    frame.get_by_role("link", name="orders", exact=True).click()
    frame.get_by_role("link", name="DAG", exact=True).click()
    tab.wait_for_url("**/dags/orders**")
    assert said == []


def test_a_feeds_dag_has_a_tab_with_its_offsets(tab: Page) -> None:
    said = complaints_of(tab)
    tab.goto("/dags/orders")
    tab.locator("a[href='/dags/orders/plugin/kafka-offsets-of-feed']").click()
    expect(in_frame(tab).get_by_role("heading", name="orders")).to_be_visible()
    assert said == []


def test_the_page_is_as_light_or_dark_as_airflow_and_follows_its_switch(tab: Page) -> None:
    tab.goto("/kafka-offsets/")
    grounds = []
    for theme in ("light", "dark"):
        tab.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        tab.reload()
        expect(tab.locator("html")).to_have_attribute("data-theme", theme)
        grounds.append(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(22, 24, 29)"]


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_is_cut_on_a_narrow_window_or_a_shadow_shows_that_there_is_more(tab: Page, width: int) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    for route in ("/", "/feeds/orders", "/feeds/orders-again", "/feeds/orders/coverage"):
        tab.goto(f"/kafka-offsets{route}")
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), route
        for table in tab.locator("table").all():
            is_cut = table.evaluate("it => it.getBoundingClientRect().right > window.innerWidth")
            shadow = table.evaluate("it => getComputedStyle(it.closest('.scroll') ?? it).backgroundImage")
            assert not is_cut or "linear-gradient" in shadow, route
    # Of all feeds nothing has to be looked for beyond the edge.
    tab.goto("/kafka-offsets/")
    assert tab.locator(".scroll").evaluate("it => it.scrollWidth <= it.clientWidth")


def test_plots_have_values_a_unit_and_times_at_their_axes(tab: Page) -> None:
    tab.goto("/kafka-offsets/feeds/orders")
    lag = tab.locator("figure").filter(has_text="Lag at each plan, offsets")
    # 400 records waited at the first plan.
    assert lag.locator(".values span").all_inner_texts() == ["500", "250", "0"]
    [at] = lag.locator("svg.times text").all_text_contents()
    assert re.fullmatch(r"\d\d-\d\d \d\d:\d\d", at)


def test_one_click_triggers_the_dry_run_in_the_users_name_and_shows_it(tab: Page, server: PageServer) -> None:
    said = complaints_of(tab)
    tab.goto("/dags/orders/plugin/kafka-offsets-of-feed")
    frame = in_frame(tab)
    frame.get_by_text("What can be decided here").click()
    frame.get_by_role("listitem").filter(has_text="give the open batch up").get_by_role("button").click()
    tab.wait_for_url("**/dags/operate_feed/runs/*")
    answer = server.ask(
        "GET", "/api/v2/dags/operate_feed/dagRuns", headers={"Cookie": f"_token={server.token('user')}"}
    )
    [run] = json.loads(answer.text)["dag_runs"]
    asked = {"feed": "orders", "action": "abandon", "dry_run": True, "batch_id": batch_of(server)}
    assert asked.items() <= run["conf"].items()
    assert (run["triggering_user_name"], said) == ("user", [])


def test_a_backfill_of_a_gap_takes_a_second_click_and_what_airflow_refuses_is_said(tab: Page) -> None:
    asked: list[str] = []
    tab.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    tab.route("**/api/v2/dags/backfill_offsets/dagRuns", lambda route: route.fulfill(status=409, body="not now"))
    tab.goto("/kafka-offsets/feeds/orders")
    tab.get_by_role("button", name="Read again").click()
    assert asked == []
    tab.get_by_role("button", name="Start the backfill").click()
    expect(tab.get_by_role("alert")).to_have_text("Airflow refused: 409 not now")
    assert len(asked) == 1


def test_the_page_asks_again_by_itself_and_keeps_what_is_open_and_focused(tab: Page) -> None:
    said = complaints_of(tab)
    tab.goto("/kafka-offsets/feeds/orders")
    tab.locator("#content").evaluate("content => { content.dataset.seen = 'before'; }")
    tab.get_by_role("link", name="All feeds").focus()
    tab.evaluate("refresh()")
    expect(tab.locator("#content[data-seen]")).to_have_count(0)
    expect(tab.get_by_role("link", name="All feeds")).to_be_focused()
    expect(tab.get_by_role("heading", name="orders")).to_be_visible()
    assert said == []


def test_everything_is_reached_by_keyboard_alone(tab: Page) -> None:
    tab.goto("/kafka-offsets/")
    tab.keyboard.press("Tab")
    tab.keyboard.type("again")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?q=again")
    tab.keyboard.press("Tab")
    for _ in range(5):
        if tab.evaluate("document.activeElement.textContent") == "orders-again":
            break
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="orders-again")).to_be_visible()


def test_what_somebody_wrote_as_a_script_does_not_run(tab: Page) -> None:
    said = complaints_of(tab)
    tab.on("dialog", lambda dialog: said.append(dialog.message))
    tab.goto("/kafka-offsets/feeds/orders")
    expect(tab.get_by_text(HOSTILE).first).to_be_visible()
    # And were it in the page, the policy would stop it.
    tab.evaluate(
        "() => { const it = document.createElement('script'); it.text = 'alert(1)'; document.body.append(it); }"
    )
    assert len(said) == 1
    assert "Content Security Policy" in said[0]
