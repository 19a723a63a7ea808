"""A schema registry over HTTP: what it is asked, and what becomes of its answers and of its silence."""

import json
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from certificates import Authority
from free_ports import LOOPBACK
from kafka_ingest.errors import (
    InvalidConnectionError,
    SchemaRegistryRefusedError,
    SchemaRegistryUnavailableError,
    SubjectMissingError,
)
from kafka_ingest.schemas.schema_registry import HttpSchemaRegistry
from kafka_ingest.settings.connections import ConnectionFields, registry_settings
from schema_registry import SchemaRegistryServer, running_schema_registry

SECRET = "hunter22"
ADDRESS = {"type": "record", "name": "Address", "fields": [{"name": "city", "type": "string"}]}

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Address"}]}


@pytest.fixture
def server() -> Iterator[SchemaRegistryServer]:
    with running_schema_registry() as running:
        yield running


def connection(**values: Any) -> ConnectionFields:
    return ConnectionFields("schemas", "http", **values)


def registry(wait: Callable[[float], object] = lambda _: None, **values: Any) -> HttpSchemaRegistry:
    return HttpSchemaRegistry(registry_settings(connection(**values)), wait=wait)


def test_a_subject_has_versions_and_a_schema_is_found_by_its_id(server: SchemaRegistryServer) -> None:
    ids = [server.register("orders/eu-value", text) for text in ('"long"', '"string"')]
    asked = registry(host=server.url)

    assert asked.versions("orders/eu-value") == [1, 2]
    newest, first = asked.version("orders/eu-value", None), asked.version("orders/eu-value", 1)
    assert [(each.schema_id, each.version, each.text) for each in (newest, first)] == [
        (ids[1], 2, '"string"'),
        (ids[0], 1, '"long"'),
    ]
    found = asked.by_id(ids[0])
    assert found is not None
    assert (found.text, found.kind) == ('"long"', "AVRO")
    questions = len(server.asked)
    assert asked.by_id(ids[0]) is found
    assert len(server.asked) == questions
    assert [asked.by_id(each) for each in (77, 0, 2**32 - 1)] == [None] * 3
    assert "/subjects/orders%2Feu-value/versions/1" in server.asked[2]


def test_what_a_schema_refers_to_comes_with_it(server: SchemaRegistryServer) -> None:
    server.register("address", ADDRESS)
    home = {"type": "record", "name": "Home", "fields": [{"name": "at", "type": "Address"}]}
    server.register("home", home, references=[{"name": "Address", "subject": "address", "version": 1}])
    order = {"type": "record", "name": "Order", "fields": [{"name": "to", "type": "Home"}]}
    server.register("orders", order, references=[{"name": "Home", "subject": "home", "version": 1}])

    asked = registry(host=server.url)
    found = asked.version("orders", None)

    assert dict(found.references) == {"Home": json.dumps(home), "Address": json.dumps(ADDRESS)}
    server.asked.clear()
    assert asked.version("orders", 1) == found, "each version is asked for once"
    assert server.asked == []


@pytest.mark.parametrize(("subject", "version"), [("orders-value", None), ("there", 7)])
def test_a_subject_or_version_that_is_not_there_is_named(
    server: SchemaRegistryServer, subject: str, version: int | None
) -> None:
    server.register("there", '"long"')
    with pytest.raises(SubjectMissingError, match=f"expected .*{subject}.* in the schema registry, found none"):
        registry(host=server.url).version(subject, version)


def test_a_reference_that_was_deleted_softly_is_still_what_a_schema_refers_to(server: SchemaRegistryServer) -> None:
    server.register("address", ADDRESS)
    server.register("orders", ORDER, references=[{"name": "Address", "subject": "address", "version": 1}])
    server.deleted = {("address", 1)}

    assert dict(registry(host=server.url).version("orders", None).references) == {"Address": json.dumps(ADDRESS)}


def test_a_schema_whose_references_cannot_be_had_says_what_it_lacks(server: SchemaRegistryServer) -> None:
    server.register("address", ADDRESS)
    many = [{"name": f"r{number}", "subject": "address", "version": 1} for number in range(201)]
    server.register("many", '"long"', references=many)
    server.register("home", '"long"', references=[{"name": "Address", "subject": "address", "version": 2}])
    lacking = server.register("orders", ORDER, references=[{"name": "Home", "subject": "home", "version": 1}])
    asked = registry(host=server.url)

    assert asked.version("many", None).lacks == "expected a schema with at most 200 references, found more"
    found = asked.by_id(lacking)
    assert found is not None
    assert found.lacks == (
        "expected version 2 of subject 'address', to which it refers, in the schema registry, found none"
    )


# ── Silence and refusals ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_url_that_fails_is_passed_over_and_asked_again_after_the_others(server: SchemaRegistryServer) -> None:
    server.register("orders", '"long"')
    server.failures = [500, 0, 429]
    waited: list[float] = []
    with running_schema_registry() as other:
        other.register("orders", '"long"')
        other.failures = [503, 302]
        asked = registry(waited.append, extra={"url": f"{server.url},{other.url}/"})

        assert asked.versions("orders") == [1]
    assert waited == [0.2, 1.0]
    assert (len(server.asked), len(other.asked)) == (3, 3)


@pytest.mark.parametrize("status", [0, 500, 503, 429, 302, 408])
def test_a_registry_that_does_not_answer_is_for_a_later_try(server: SchemaRegistryServer, status: int) -> None:
    server.failures = [status] * 3
    with pytest.raises(SchemaRegistryUnavailableError, match=f"found none: {server.url}: .*a retry asks again"):
        registry(host=server.url).versions("orders")
    assert len(server.asked) >= 3


def test_a_port_without_a_registry_and_answers_that_are_none_are_for_a_later_try(
    server: SchemaRegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SchemaRegistryUnavailableError, match="refused"):
        registry(host=LOOPBACK, port=1).versions("orders")
    monkeypatch.setattr(SchemaRegistryServer, "answer", lambda *_: (404, "a proxy's own page"))
    with pytest.raises(SchemaRegistryUnavailableError, match="HTTP 404, which is no schema registry's answer"):
        registry(host=server.url).by_id(5)  # nothing shows that there is a registry at all
    for page in (b"", b"<html>nothing</html>"):  # as Apicurio answers at a wrong path, and proxies anywhere
        server.failures = [answer_of(page, status="404 Not Found")] * 3
        with pytest.raises(SchemaRegistryUnavailableError, match="HTTP 404, which is no schema registry's answer"):
            registry(host=server.url).by_id(5)


def answer_of(body: bytes, *headers: str, status: str = "200 OK", length: int | None = None) -> bytes:
    """Return an answer as it goes over the wire, which may say another length than it has."""
    lines = (
        f"HTTP/1.1 {status}",
        "Connection: close",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode() + body


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (answer_of(b'{"schema":', length=100), "10 bytes read, 90 more expected"),
        (answer_of(b"no gzip", "Content-Encoding: gzip"), "incorrect header check"),
        (answer_of(b"{"), "expected JSON"),
        (answer_of(b"<html>Log in</html>"), "expected JSON"),
        (answer_of(b'{"schema": "x", "id": NaN}'), "expected finite numbers"),
    ],
)
def test_an_answer_that_breaks_off_or_is_no_json_is_for_another_url_and_a_later_try(
    server: SchemaRegistryServer, answer: bytes, message: str
) -> None:
    server.failures = [answer] * 4
    with pytest.raises(SchemaRegistryUnavailableError, match=message):
        registry(host=server.url).version("orders", 1)
    with running_schema_registry() as other:
        other.register("orders", '"long"')
        assert registry(extra={"url": f"{server.url},{other.url}"}).version("orders", 1).text == '"long"'


@pytest.mark.parametrize(
    ("said", "waited"),
    [
        ("7", 7.0),
        ("86400", 30.0),
        ("0", 0.2),
        ("tomorrow", 0.2),
        ("Fri, 31 Dec 2999 23:59:59 GMT", 30.0),
        ("Sat, 01 Jan 2000 00:00:00 GMT", 0.2),
    ],
)
def test_a_registry_that_has_too_much_to_do_is_left_alone_as_long_as_it_says_within_limits(
    server: SchemaRegistryServer, said: str, waited: float
) -> None:
    server.register("orders", '"long"')
    server.failures = [answer_of(b"", f"Retry-After: {said}", status="429 Too Many Requests"), 429]
    pauses: list[float] = []

    assert registry(pauses.append, host=server.url).versions("orders") == [1]
    assert pauses == [waited, 1.0]


@pytest.mark.parametrize("found", [b"{}", b'["1"]', b"[null]"])
def test_versions_are_numbers(server: SchemaRegistryServer, found: bytes) -> None:
    server.failures = [answer_of(found)] * 3
    with pytest.raises(SubjectMissingError, match=r"found another answer: .*expected a list of versions"):
        registry(host=server.url).versions("orders")


IN_OTHER_WORDS = {
    "Apicurio's own API": ("404 Not Found", b'{"error_code": 404, "name": "ArtifactNotFoundException"}'),
    "Glue's": ("400 Bad Request", b'{"__type": "EntityNotFoundException"}'),
    "Karapace's": ("422 Unprocessable Entity", b'{"error_code": 42202, "message": "The id is not valid"}'),
    "a gateway's page": ("404 Not Found", b"<html>nothing</html>"),
    "no word": ("410 Gone", b""),
}


@pytest.mark.parametrize(("status", "body"), IN_OTHER_WORDS.values(), ids=IN_OTHER_WORDS)
def test_what_a_registry_does_not_know_in_words_of_its_own_is_unknown_and_asked_for_three_times_at_most(
    server: SchemaRegistryServer, status: str, body: bytes
) -> None:
    server.register("orders", '"long"')
    asked = registry(host=server.url)
    assert asked.versions("orders") == [1]
    refusal, guid = answer_of(body, status=status), "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    for unknown in (5, guid):
        server.failures = [refusal] * 3
        assert asked.by_id(unknown) is None
        assert server.failures == []
    assert server.asked[-1] == f"GET /schemas/guids/{guid}"
    for question in (lambda: asked.versions("ordres"), lambda: asked.version("ordres", 2)):
        server.failures = [refusal] * 3
        with pytest.raises(SubjectMissingError, match=f"'ordres' .*found another answer: .*HTTP {status[:3]}.*Correct"):
            question()


UNUSABLE = {
    b"null": "expected a schema, found JSON of another shape",
    b'{"schema": 5, "id": 1}': "expected a schema, found",
    b'{"schema": "x", "references": 5, "id": 1}': "expected a schema, found",
    b'{"schema": "x", "references": [{"name": "x"}], "id": 1}': "expected references with name",
}


@pytest.mark.parametrize(("body", "message"), UNUSABLE.items())
def test_a_schema_of_another_shape_concerns_the_records_of_its_id_only(
    server: SchemaRegistryServer, body: bytes, message: str
) -> None:
    server.register("orders", '"long"')
    asked = registry(host=server.url)
    server.failures = [answer_of(body)] * 3
    with pytest.raises(SubjectMissingError, match=message):
        asked.version("orders", 7)
    server.failures = [answer_of(body)] * 3
    with pytest.raises(SchemaRegistryUnavailableError, match=message):
        asked.by_id(5)
    assert asked.versions("orders") == [1]
    server.failures = [answer_of(body)] * 3
    found = asked.by_id(5)
    assert found is not None
    assert message in str(found.lacks)


def test_an_answer_that_comes_in_small_pieces_ends_at_one_time_limit(server: SchemaRegistryServer) -> None:
    server.register("orders", '"long"')
    times = iter(range(0, 1000, 61))
    asked = HttpSchemaRegistry(
        registry_settings(connection(host=server.url)), wait=lambda _: None, clock=lambda: next(times)
    )
    with pytest.raises(SchemaRegistryUnavailableError, match="expected the whole answer within 60 s"):
        asked.versions("orders")


def test_a_wrong_path_does_not_mean_that_the_registry_knows_no_such_schema(server: SchemaRegistryServer) -> None:
    server.register("orders", '"long"')
    mistyped = registry(host=f"{server.url}/api")

    with pytest.raises(SchemaRegistryUnavailableError, match="HTTP 404, which is no schema registry's answer"):
        mistyped.by_id(1)
    with pytest.raises(SubjectMissingError, match=r"HTTP 404, which is .* Correct the path of the connection's URL"):
        mistyped.version("orders", None)


@pytest.mark.parametrize("values", [{}, {"login": "app", "password": "wrong"}, {"extra": {"bearer.auth.token": "x"}}])
def test_refused_credentials_are_no_case_for_a_retry(server: SchemaRegistryServer, values: dict[str, Any]) -> None:
    server.needs("app", SECRET)
    with pytest.raises(SchemaRegistryRefusedError, match="HTTP 401: the credentials were not accepted"):
        registry(host=server.url, **values).versions("orders")
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "values",
    [
        {"login": "äpp", "password": SECRET},
        {"extra": {"basic.auth.user.info": f"äpp:{SECRET}"}},
        {"extra": {"bearer.auth.token": SECRET}},
    ],
)
def test_credentials_are_sent_and_never_shown(server: SchemaRegistryServer, values: dict[str, Any]) -> None:
    server.register("orders", '"long"')
    if "bearer.auth.token" in values.get("extra", {}):
        server.header = f"Bearer {SECRET}"
    else:
        server.needs("äpp", SECRET)

    assert registry(host=server.url, **values).versions("orders") == [1]
    assert SECRET not in repr(registry_settings(connection(host=server.url, **values)))


def test_a_registry_may_have_an_authority_of_its_own_and_ask_for_a_certificate(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "other", "another authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.certify("registry", LOOPBACK))
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    chain, key = authority.certify("client")
    ours = {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)}
    with running_schema_registry(context) as server:
        server.register("orders", '"long"')
        of_ours = {"host": server.url, "extra": {"ssl.ca.location": str(authority.ca), **ours}}

        assert registry(**of_ours).versions("orders") == [1]
        for extra in ({}, {"ssl.ca.location": str(stranger.ca)}):
            with pytest.raises(SchemaRegistryRefusedError, match="a certificate of a known authority"):
                registry(host=server.url, extra=extra).versions("orders")
        with pytest.raises(SchemaRegistryRefusedError, match="cannot be read"):
            registry(host=server.url, extra={"ssl.ca.location": str(tmp_path / "none.pem")}).versions("orders")


# ── Connections ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("values", "urls"),
    [
        ({"host": "schemas", "port": 8081}, ("http://schemas:8081",)),
        ({"host": "schemas", "schema": "http", "login": "x", "password": "y"}, ("http://schemas",)),
        ({"host": "schemas", "schema": "https"}, ("https://schemas",)),
        ({"host": "https://schemas/apis/ccompat/v7/"}, ("https://schemas/apis/ccompat/v7",)),
        ({"extra": {"url": "http://a:8081, https://b/x/"}}, ("http://a:8081", "https://b/x")),
    ],
)
def test_a_registry_is_where_a_connections_fields_or_its_extra_say(
    values: dict[str, Any], urls: tuple[str, ...]
) -> None:
    assert registry_settings(connection(**values)).urls == urls


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "expected a registry's URL such as https"),
        ({"extra": {"url": f"http://app:{SECRET}@schemas"}}, "expected a registry's URL such as https"),
        ({"host": f"app:{SECRET}@schemas"}, "expected a host's name or address"),
        ({"host": "ftp://schemas"}, "expected a registry's URL such as https"),
        ({"host": "schemas", "login": "x", "password": SECRET}, "expected https or http in the schema field or before"),
        ({"host": "schemas", "extra": {"bearer.auth.token": SECRET}}, "expected https or http in the schema field"),
        ({"host": "a", "extra": {"url": "http://a"}}, "either a host or url in its extra, found both"),
        ({"host": "a", "extra": {"ulr": "http://a"}}, "at most url, basic.auth.user.info, .*, found ulr"),
        ({"host": "a", "extra": {"bearer.auth.token": [1]}}, "expected texts in its extra, found something else as"),
        ({"host": "a", "extra": {"bearer.auth.token": f"{SECRET}\n"}}, "printable ASCII without blanks"),
        ({"host": "a", "login": "x", "extra": {"bearer.auth.token": SECRET}}, "either a login or bearer.auth.token"),
        ({"host": "a", "login": "x", "extra": {"basic.auth.user.info": "y:z"}}, "either a login or basic.auth"),
        ({"host": "a", "extra": {"basic.auth.user.info": SECRET}}, "expected USER:PASSWORD"),
        ({"host": "a", "extra": {"ssl.key.location": "x"}}, "together, found one of them"),
    ],
)
def test_a_connection_that_cannot_be_used_is_refused_without_its_secrets(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConnectionError, match=message) as error:
        registry_settings(connection(**values))
    assert SECRET not in str(error.value)
    with pytest.raises(InvalidConnectionError, match="expected one of type http, found type 'kafka'"):
        registry_settings(ConnectionFields("schemas", "kafka"))
