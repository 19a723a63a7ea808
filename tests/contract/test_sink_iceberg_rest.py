"""An Iceberg table whose catalog is a REST server: each batch is there once, whatever becomes of requests."""

import json
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.io.fsspec import FsspecFileIO
from tests.contract.racing_publishers import Step, race
from tests.contract.rest_output import IcebergByRest
from tests.contract.sink_outputs import plan_to, publish, rows_of, written
from tests.rest_catalog import (
    CLIENT,
    PREFIX,
    SECRET,
    CatalogFault,
    RestCatalogServer,
    serving,
)

from certificates import Authority
from free_ports import LOOPBACK
from kafka_ingest.errors import OutputUnavailableError
from kafka_ingest.foundation.stores.s3 import S3Access
from kafka_ingest.settings.connections import ConnectionFields
from kafka_ingest.settings.store_connection import catalog_settings
from kafka_ingest.sinks.iceberg import commits as iceberg_commits
from kafka_ingest.sinks.iceberg import rest_catalog as reached_over_rest
from kafka_ingest.sinks.iceberg.table import catalog_of
from kafka_ingest.sinks.iceberg.table_io import ACCESS, TableFileIO

COMMIT = r"POST /v1/.*/tables/orders$"
CREATE = r"POST /v1/.*/tables$"
RACERS = 4


@pytest.fixture
def server(rest_catalog: RestCatalogServer) -> Iterator[RestCatalogServer]:
    rest_catalog.reset()
    yield rest_catalog
    rest_catalog.reset()


@pytest.fixture
def output(server: RestCatalogServer, tmp_path: Path) -> IcebergByRest:
    assert server.port
    made = IcebergByRest(tmp_path / "orders")
    made.sink.publisher.prepare()
    return made


def again(output: IcebergByRest) -> IcebergByRest:
    return IcebergByRest(output.path)


# ── Once ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_commit_makes_the_namespaces_and_the_table_and_a_batch_is_published_once(
    output: IcebergByRest, server: RestCatalogServer
) -> None:
    directory, published = written(output, plan_to(output, 1))
    for _ in range(2):
        again(output).sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)
    assert output.table().location() == f"file://{output.path}"
    assert all(PREFIX in each for each in server.asked if not each.endswith("/v1/config"))


def test_of_processes_that_publish_one_batch_or_several_or_revoke_it_each_batch_is_there_once(
    server: RestCatalogServer, tmp_path: Path
) -> None:
    assert server.port

    def staged(folder: str, number: int) -> Step:
        made = IcebergByRest(tmp_path / folder / "orders")
        made.sink.publisher.prepare()
        return Step(made.path, *written(made, plan_to(made, number)))

    one, contested = staged("one", 1), staged("contested", 1)
    several = [staged("several", number) for number in range(1, RACERS + 1)]
    revoking = Step(contested.path, contested.directory, contested.published, revokes=True)
    contest = [contested, contested, revoking, revoking]
    came_to = race(IcebergByRest.name, [[one, several[number], contest[number]] for number in range(RACERS)])
    assert [each[:2] for each in came_to] == [[None, None]] * RACERS
    assert IcebergByRest(one.path).seen() == rows_of(one.published)
    assert IcebergByRest(several[0].path).seen() == sum((rows_of(each.published) for each in several), Counter())
    won = [each[2] is None for each in came_to]
    seen = IcebergByRest(contested.path).seen()
    assert (won, seen) in [
        ([True, True, False, False], rows_of(contested.published)),
        ([False, False, True, True], Counter()),
    ]


# ── Whatever becomes of requests ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("revokes", [False, True], ids=["publishing", "revoking"])
def test_a_commit_that_landed_is_found_whatever_its_answer_was(
    output: IcebergByRest, server: RestCatalogServer, *, revokes: bool
) -> None:
    before = publish(output, plan_to(output, 1))
    for number, status in enumerate((0, 409, 500, 502, 503, 504), start=2):
        directory, published = written(output, plan_to(output, number))
        kind = "answer after it" if status else "lose the answer"
        with server.failing(CatalogFault(COMMIT, kind, status)):
            publisher = again(output).sink.publisher
            if revokes:
                publisher.revoke(directory, published.plan.batch_id)
            else:
                publisher.publish(directory, published)
        commits = [each for each in server.asked if each.endswith("/tables/orders") and each.startswith("POST")]
        assert len(commits) == number, f"one try for status {status}, and the mark was found"
    expected = rows_of(before)
    for number in range(2, 8):
        expected += Counter() if revokes else rows_of(written(output, plan_to(output, number), attempt=2)[1])
    assert output.seen() == expected


def test_a_table_that_was_made_is_found_whatever_the_answer_was(server: RestCatalogServer, tmp_path: Path) -> None:
    for status in (0, 409, 503):
        output = IcebergByRest(tmp_path / f"{status}" / "orders")
        output.sink.publisher.prepare()
        directory, published = written(output, plan_to(output, 1))
        kind = "answer after it" if status else "lose the answer"
        with server.failing(CatalogFault(CREATE, kind, status)):
            output.sink.publisher.publish(directory, published)
        assert output.seen() == rows_of(published)


@pytest.mark.parametrize("status", [409, 500, 503])
def test_a_commit_that_did_not_land_is_tried_again(
    output: IcebergByRest, server: RestCatalogServer, status: int
) -> None:
    directory, published = written(output, plan_to(output, 1))
    with server.failing(CatalogFault(COMMIT, status=status, times=2), CatalogFault(CREATE, status=status, times=1)):
        output.sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


@pytest.mark.parametrize("what", [r"GET /v1/config", r"GET .*/tables/orders", CREATE, COMMIT])
def test_a_server_that_is_down_at_any_step_is_named_and_the_next_run_continues(
    output: IcebergByRest, server: RestCatalogServer, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_commits, "pause", lambda _: None)
    directory, published = written(output, plan_to(output, 1))
    with (
        server.failing(CatalogFault(what, status=503)),
        pytest.raises(OutputUnavailableError, match=r"ServiceUnavailable|of a test"),
    ):
        again(output).sink.publisher.publish(directory, published)
    again(output).sink.publisher.publish(directory, published)
    assert output.seen() == rows_of(published)


def test_a_server_that_does_not_answer_ends_the_step_in_time_and_the_next_run_continues(
    output: IcebergByRest, server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(output, plan_to(output, 1))
    directory, published = written(output, plan_to(output, 2))
    monkeypatch.setattr(reached_over_rest, "ANSWER_TIMEOUT_S", 0.5)
    for what in (r"GET /v1/config", r"GET .*/tables/orders"):
        with server.failing(CatalogFault(what, "wait")), pytest.raises(OutputUnavailableError, match="timed out"):
            again(output).sink.publisher.publish(directory, published)
    monkeypatch.undo()
    again(output).sink.publisher.publish(directory, published)
    assert output.seen().total() == 2 * published.receipt.rows


# ── Who may, and over what ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_clients_secret_or_a_token_opens_it_an_expired_one_is_renewed_and_none_is_in_a_message(
    output: IcebergByRest, server: RestCatalogServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.tokens |= {"token-of-an-hour"}
    by_secret = IcebergByRest(output.path, credential=f"{CLIENT}:{SECRET}")
    first = publish(by_secret, plan_to(output, 1))
    by_token = IcebergByRest(output.path, token="token-of-an-hour")
    second = publish(by_token, plan_to(output, 2))
    server.tokens.clear()
    server.tokens |= {"token-of-the-next"}
    third = publish(by_secret, plan_to(output, 3))
    refused = [
        by_token,
        IcebergByRest(output.path, credential=f"{CLIENT}:another-secret"),
        IcebergByRest(output.path, token="another-token"),
    ]
    for each in refused:
        with pytest.raises(OutputUnavailableError, match="connection 'lake'") as found:
            each.sink.publisher.prepare()
        for secret in (SECRET, "another-secret", "another-token", "token-of"):
            assert secret not in str(found.value)
    assert not [each for each in caplog.messages if "secret" in each or "token-of" in each]
    server.tokens.clear()
    assert output.seen() == rows_of(first) + rows_of(second) + rows_of(third)


def test_a_server_with_a_certificate_of_an_authority_of_ones_own(
    output: IcebergByRest, server: RestCatalogServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "tls")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(Authority(tmp_path / "others").ca))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certify("catalog", LOOPBACK))
    with serving(RestCatalogServer(upstream=server.upstream), tls) as port:
        secure = {"uri": f"https://{LOOPBACK}:{port}"}
        with pytest.raises(OutputUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            IcebergByRest(output.path, **secure).sink.publisher.prepare()
        trusting = IcebergByRest(output.path, **secure, ssl={"cabundle": str(authority.ca)})
        published = publish(trusting, plan_to(output, 1))
    assert output.seen() == rows_of(published)


# ── What a server offers ──────────────────────────────────────────────────────────────────────────────────────────────

KEYS = {"s3.access-key-id": "offered", "s3.secret-access-key": "offered-secret", "s3.session-token": "offered-token"}


def test_a_servers_choice_of_what_reads_and_writes_files_is_not_taken(
    output: IcebergByRest, server: RestCatalogServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_this_one(*_: object) -> None:
        raise AssertionError("the server's choice")

    monkeypatch.setattr(FsspecFileIO, "__init__", not_this_one)
    server.offered |= {"py-io-impl": f"{FsspecFileIO.__module__}.{FsspecFileIO.__name__}"}
    publish(output, plan_to(output, 1))
    fields = ConnectionFields("lake", "iceberg", extra=output.extra)
    table = catalog_of(catalog_settings(fields), output.path, None).load_table(output.table_name)
    assert isinstance(table.io, TableFileIO)


@pytest.mark.parametrize("own", [None, "own-key"])
def test_credentials_that_a_server_offers_are_used_where_the_store_has_none(
    output: IcebergByRest, server: RestCatalogServer, own: str | None
) -> None:
    publish(output, plan_to(output, 1))
    with output.table().transaction() as change:
        change.set_properties(**dict.fromkeys(KEYS, "of the table"))
    server.offered |= KEYS | {"s3.endpoint": "http://elsewhere", "py-io-impl": "of.the.server"}
    access = S3Access("aws_default", endpoint_url="http://store", access_key=own, secret_key=own)
    fields = ConnectionFields("lake", "iceberg", extra=output.extra)
    io = catalog_of(catalog_settings(fields), output.path, access).load_table(output.table_name).io
    used = S3Access.from_json(json.dumps(json.loads(io.properties[ACCESS])))
    assert used.endpoint_url == "http://store"
    assert (used.access_key, used.session_token) == ((own, None) if own else ("offered", "offered-token"))
    server.offered.clear()
    io = catalog_of(catalog_settings(fields), output.path, access).load_table(output.table_name).io
    assert S3Access.from_json(io.properties[ACCESS]).access_key == own, "a table's own properties offer nothing"
