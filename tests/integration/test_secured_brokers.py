"""Brokers with TLS, mutual TLS, SASL and ACLs.

Each mechanism once as docs/security.md says it, and each refusal by name.

One broker for all. A batch goes through the real Spark by SCRAM with TLS and least rights, one by mutual TLS, and one
by tokens; the rest is asked through the Kafka client only.
"""

import json
import socket
import threading
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from tests.integration.test_group_mirror import committed, mirror_failures, mirrored_feed
from tests.killing import wait_for
from tests.quick_project import QuickProject

from certificates import Authority
from embedded_broker import EmbeddedBroker
from free_ports import free_port_from
from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster
from kafka_ingest.cluster.other_logins import token_for
from kafka_ingest.errors import (
    InvalidConnectionError,
    KafkaAccessDeniedError,
    KafkaLoginRefusedError,
    KafkaTlsRefusedError,
    KafkaUnavailableError,
)
from kafka_ingest.model.offsets import FirstRecord, Retention, TopicPartition
from kafka_ingest.ports.cluster import MirrorRefusedError
from secured_broker import MUTUAL_TLS, SASL, SASL_TLS, TLS, TOKENS, UNSIGNED, let_scram_users_in, secured_broker
from token_server import TokenServer

PLAIN_USERS = {"alice": "wonder-land-1"}
SCRAM_USERS = {"bob": 'bob"s;secret\\=1'}
TOKEN_USERS = {"dave": 'dave"s=secret\\1'}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PATIENCE = {"socket.timeout.ms": "120000"}
"""No refusal may take as long as the question could: a cause that is found out by waiting fails here, by its name."""

Connection = dict[str, str]
Allow = Callable[[str, ResourceType, str, AclOperation], None]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def another_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("another"), "another authority")


@pytest.fixture(scope="module")
def token_server(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenServer]:
    with TokenServer(tmp_path_factory.mktemp("tokens"), authority, TOKEN_USERS) as running:
        yield running


@pytest.fixture(scope="module")
def secured(
    authority: Authority, token_server: TokenServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_broker(folder, authority, PLAIN_USERS, token_server.keys) as running:
        let_scram_users_in(running, SCRAM_USERS)
        yield running


@pytest.fixture
def servers(secured: EmbeddedBroker) -> str:
    """Where everything is allowed: what the other fixtures make topics with."""
    return secured.bootstrap_servers


def cluster(connection: Mapping[str, str]) -> ConfluentKafkaCluster:
    found = KafkaClientSettings("kafka_default", {**PATIENCE, **connection})
    return ConfluentKafkaCluster(lambda: found)


def login(secured: EmbeddedBroker, authority: Authority, mechanism: str, *, tls: bool = False) -> Connection:
    """Return a connection's extra, as docs/security.md has it."""
    [(user, password)] = (PLAIN_USERS if mechanism == "PLAIN" else SCRAM_USERS).items()
    found = {
        "bootstrap.servers": secured.servers_of(SASL_TLS if tls else SASL),
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }
    return found | ({"ssl.ca.location": str(authority.ca)} if tls else {})


def tls(secured: EmbeddedBroker, authority: Authority) -> Connection:
    return {
        "bootstrap.servers": secured.servers_of(TLS),
        "security.protocol": "SSL",
        "ssl.ca.location": str(authority.ca),
    }


def mutual_tls(secured: EmbeddedBroker, authority: Authority, certified_by: Authority | None = None) -> Connection:
    chain, key = (certified_by or authority).certify("carol", password="of-the-key")
    return tls(secured, authority) | {
        "bootstrap.servers": secured.servers_of(MUTUAL_TLS),
        "ssl.certificate.location": str(chain),
        "ssl.key.location": str(key),
        "ssl.key.password": "of-the-key",
    }


def by_token(secured: EmbeddedBroker, authority: Authority, token_server: TokenServer) -> Connection:
    [(client, secret)] = TOKEN_USERS.items()
    return tls(secured, authority) | {
        "bootstrap.servers": secured.servers_of(TOKENS),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": client,
        "sasl.oauthbearer.client.secret": secret,
        "sasl.oauthbearer.token.endpoint.url": token_server.url,
        "https.ca.location": str(authority.ca),
    }


# ── Let in ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("over_tls", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_is_let_in(secured: EmbeddedBroker, authority: Authority, mechanism: str, *, over_tls: bool) -> None:
    assert cluster(login(secured, authority, mechanism, tls=over_tls)).cluster_id() == secured.cluster_id


def test_tls_is_let_in_with_the_authority_as_a_file_and_as_a_text(
    secured: EmbeddedBroker, authority: Authority
) -> None:
    by_file = tls(secured, authority)
    by_text = {key: value for key, value in by_file.items() if key != "ssl.ca.location"}
    by_text["ssl.ca.pem"] = authority.ca.read_text()
    assert cluster(by_file).cluster_id() == cluster(by_text).cluster_id() == secured.cluster_id


def test_a_clients_certificate_is_let_in(secured: EmbeddedBroker, authority: Authority) -> None:
    assert cluster(mutual_tls(secured, authority)).cluster_id() == secured.cluster_id


def test_a_clients_certificate_is_let_in_from_a_pkcs12_file(
    secured: EmbeddedBroker, authority: Authority, tmp_path: Path
) -> None:
    own = Authority(tmp_path)
    authority.certify("erin")
    connection = tls(secured, authority) | {
        "bootstrap.servers": secured.servers_of(MUTUAL_TLS),
        "ssl.keystore.location": str(authority.pkcs12("erin", "of-the-store")),
        "ssl.keystore.password": "of-the-store",
    }
    assert cluster(connection).cluster_id() == secured.cluster_id
    own.certify("erin")
    with pytest.raises(KafkaTlsRefusedError):
        cluster(connection | {"ssl.keystore.location": str(own.pkcs12("erin", "of-the-store"))}).cluster_id()


def test_a_client_with_a_token_is_let_in(
    secured: EmbeddedBroker, authority: Authority, token_server: TokenServer
) -> None:
    assert cluster(by_token(secured, authority, token_server)).cluster_id() == secured.cluster_id


def test_a_role_at_amazon_signs_a_token_for_brokers_of_a_region_and_is_let_in_by_what_it_signed(
    secured: EmbeddedBroker, orders: str, allow: Allow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-of-a-role")
    signed, until_s = token_for("eu-west-1")("")
    asked = urlsplit(urlsafe_b64decode(f"{signed}==").decode())
    assert (asked.hostname, parse_qs(asked.query)["Action"]) == (
        "kafka.eu-west-1.amazonaws.com",
        ["kafka-cluster:Connect"],
    )
    assert parse_qs(asked.query)["X-Amz-Credential"][0].startswith("AKIAOFATEST/")
    assert "hunter2" not in asked.query

    # Only Amazon's brokers can check that one: here it is one that says who it is.
    claims = {"sub": "role", "iat": until_s - 900, "exp": until_s}
    parts = [urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in ({"alg": "none"}, claims)]
    unsigned = ".".join([*parts, ""])
    signer = "aws_msk_iam_sasl_signer.MSKAuthTokenProvider.generate_auth_token"
    monkeypatch.setattr(signer, lambda _: (unsigned, until_s * 1000))
    connection = {
        "bootstrap.servers": secured.servers_of(UNSIGNED),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "AWS_MSK_IAM",
    }
    with pytest.raises(InvalidConnectionError, match=r"expected security\.protocol SASL_SSL"):
        cluster(connection)
    monkeypatch.setattr("kafka_ingest.cluster.client_settings.region_of", lambda *_: "eu-west-1")
    kafka, partition = cluster(connection), TopicPartition(orders, 0)
    assert kafka.cluster_id() == secured.cluster_id
    allow("role", ResourceType.TOPIC, orders, AclOperation.READ)
    allow("role", ResourceType.GROUP, "a-group", AclOperation.READ)
    assert isinstance(kafka.first_records({partition: 0})[partition], FirstRecord), "by another process"
    kafka.set_group_offsets("a-group", {partition: 7}, "who")
    assert kafka.group_offsets("a-group", [partition]) == {partition: 7}


# ── Refused ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Counter:
    """Stands before a broker, passes everything on, and counts the connections."""

    def __init__(self, servers: str) -> None:
        host, port = servers.split(":")
        self._target = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self._listening.getsockname()[1]}"

    def close(self) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            broker = socket.create_connection(self._target)
            for source, target in ((client, broker), (broker, client)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()


def questions(kafka: ConfluentKafkaCluster) -> list[Callable[[], object]]:
    partition = TopicPartition("orders", 0)
    return [
        kafka.cluster_id,
        kafka.topic_names,
        lambda: kafka.describe_topics(["orders"]),
        lambda: kafka.log_bounds([partition]),
        lambda: kafka.group_offsets("group", [partition]),
        lambda: kafka.set_group_offsets("group", {partition: 1}, "who"),
        lambda: kafka.unreadable_at({partition: 1}),
    ]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_named_at_once_and_tried_once(
    secured: EmbeddedBroker, authority: Authority, mechanism: str
) -> None:
    with closing(Counter(secured.servers_of(SASL))) as counter:
        connection = login(secured, authority, mechanism) | {
            "bootstrap.servers": counter.servers,
            "sasl.password": "hunter2",
        }
        with pytest.raises(KafkaLoginRefusedError, match=r"refused the login: SASL.*Authentication failed") as error:
            cluster(connection).cluster_id()
        assert counter.connections == 1
    assert error.value.exit_code == 2
    assert "hunter2" not in str(error.value)


def test_whatever_is_asked_first_a_wrong_password_is_named_at_once(
    secured: EmbeddedBroker, authority: Authority
) -> None:
    connection = login(secured, authority, "PLAIN") | {"sasl.password": "hunter2"}
    for number in range(len(questions(cluster(connection)))):
        with pytest.raises(KafkaLoginRefusedError):
            questions(cluster(connection))[number]()


def test_a_client_that_the_token_server_does_not_know_is_a_refused_login(
    secured: EmbeddedBroker, authority: Authority, token_server: TokenServer
) -> None:
    connection = by_token(secured, authority, token_server) | {"sasl.oauthbearer.client.secret": "hunter2"}
    before = len(token_server.asked)
    with pytest.raises(KafkaLoginRefusedError, match="invalid_client") as error:
        cluster(connection).cluster_id()
    assert token_server.asked[before:] == ["dave"]
    assert "hunter2" not in str(error.value)


def test_a_token_server_that_is_away_may_be_asked_again(
    secured: EmbeddedBroker, authority: Authority, token_server: TokenServer
) -> None:
    url = f"https://127.0.0.1:{free_port_from(20_000)}/token"
    connection = by_token(secured, authority, token_server) | {"sasl.oauthbearer.token.endpoint.url": url}
    with pytest.raises(KafkaUnavailableError, match="token"):
        cluster(connection | {"socket.timeout.ms": "3000"}).cluster_id()


def test_a_mechanism_that_the_broker_does_not_have_is_a_refused_login(secured: EmbeddedBroker) -> None:
    connection = {
        "bootstrap.servers": secured.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "hunter2",
    }
    with pytest.raises(KafkaLoginRefusedError, match="mechanism handshake failed"):
        cluster(connection).cluster_id()


def test_a_broker_of_an_unknown_authority_is_named_at_once(
    secured: EmbeddedBroker, authority: Authority, another_authority: Authority
) -> None:
    unknown = tls(secured, authority) | {"ssl.ca.location": str(another_authority.ca)}
    without = {key: value for key, value in unknown.items() if key != "ssl.ca.location"}
    with_login = login(secured, authority, "PLAIN", tls=True) | {"ssl.ca.location": str(another_authority.ca)}
    for connection in (unknown, without, with_login):
        with pytest.raises(KafkaTlsRefusedError, match=r"certificate verify failed.*ssl\.ca\.location") as error:
            cluster(connection).cluster_id()
        assert error.value.exit_code == 2


def test_a_broker_that_asks_for_a_certificate_refuses_none_and_one_of_another_authority(
    secured: EmbeddedBroker, authority: Authority, another_authority: Authority
) -> None:
    none = tls(secured, authority) | {"bootstrap.servers": secured.servers_of(MUTUAL_TLS)}
    for connection in (none, mutual_tls(secured, authority, certified_by=another_authority)):
        with pytest.raises(KafkaTlsRefusedError, match="certificate with its key"):
            cluster(connection).cluster_id()


def test_tls_where_the_broker_has_none_is_named_at_once(secured: EmbeddedBroker, authority: Authority) -> None:
    connection = tls(secured, authority) | {"bootstrap.servers": secured.bootstrap_servers}
    with pytest.raises(KafkaTlsRefusedError, match="PLAINTEXT broker listener"):
        cluster(connection).cluster_id()


@pytest.mark.parametrize("listener", [TLS, SASL])
def test_without_security_where_the_broker_wants_some_its_silence_is_explained(
    secured: EmbeddedBroker, listener: str
) -> None:
    connection = {"bootstrap.servers": secured.servers_of(listener), "socket.timeout.ms": "1000"}
    with pytest.raises(KafkaUnavailableError, match=r"ended the connection.*another security\.protocol"):
        cluster(connection).cluster_id()


def test_a_host_without_an_address_is_named_at_once_and_may_be_tried_again() -> None:
    with pytest.raises(KafkaUnavailableError, match=r"no address is known.*unknown\.invalid.*bootstrap\.servers"):
        cluster({"bootstrap.servers": "unknown.invalid:9092"}).cluster_id()


def test_one_host_of_two_without_an_address_is_no_obstacle(secured: EmbeddedBroker) -> None:
    connection = {"bootstrap.servers": f"unknown.invalid:9092,{secured.bootstrap_servers}"}
    assert cluster(connection).cluster_id() == secured.cluster_id


# ── Rights ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def allow(secured: EmbeddedBroker) -> Iterator[Allow]:
    """Give a user a right on a topic or group; the test's rights are taken away after it."""
    users: set[str] = set()
    with AdminClient({"bootstrap.servers": secured.bootstrap_servers, "log_level": 0}) as admin:

        def rights(user: str) -> AclBindingFilter:
            return AclBindingFilter(
                ResourceType.ANY,
                None,
                ResourcePatternType.ANY,
                f"User:{user}",
                None,
                AclOperation.ANY,
                AclPermissionType.ANY,
            )

        def give(user: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
            acl = AclBinding(
                kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW
            )
            for future in admin.create_acls([acl]).values():
                future.result()
            users.add(user)
            wait_for(lambda: acl in admin.describe_acls(rights(user)).result(), f"{acl} to be in force")

        yield give
        for user in users:
            for future in admin.delete_acls([rights(user)]).values():
                future.result()
            wait_for(lambda user=user: admin.describe_acls(rights(user)).result() == [], "no rights to be left")


def test_each_missing_right_is_named_and_no_other_is_needed(
    secured: EmbeddedBroker, authority: Authority, orders: str, allow: Allow
) -> None:
    def kafka() -> ConfluentKafkaCluster:
        return cluster(login(secured, authority, "PLAIN"))

    group, partition = f"{orders}-group", TopicPartition(orders, 0)
    assert kafka().cluster_id() == secured.cluster_id, "no right is needed for it"
    assert kafka().topic_names() == []
    with pytest.raises(KafkaAccessDeniedError, match=rf"topics {orders}: TOPIC_AUTH.*READ on each of these topics"):
        kafka().describe_topics([orders])
    # Whether it exists or not, Kafka answers alike; a question for many feeds goes on without it.
    there, denied = kafka().visible_topics([orders, f"{orders}-gone"])
    assert (there, denied.keys()) == ({}, {orders, f"{orders}-gone"})

    allow("alice", ResourceType.TOPIC, orders, AclOperation.DESCRIBE)
    assert kafka().describe_topics([orders]).keys() == {orders}
    there, denied = kafka().visible_topics([orders, f"{orders}-gone"])
    assert (there.keys(), denied.keys()) == ({orders}, {f"{orders}-gone"})
    assert kafka().missing_rights([orders], group) == [f"READ on topic {orders}", f"READ on group {group}"]
    with pytest.raises(KafkaAccessDeniedError, match=rf"the record at {orders}-0, offset 3.*READ on each of these"):
        kafka().unreadable_at({partition: 3})

    allow("alice", ResourceType.TOPIC, orders, AclOperation.READ)
    assert kafka().missing_rights([orders], None) == []
    assert kafka().unreadable_at({partition: 3}) == {}, "a group that may not be used is no record that cannot be read"
    assert isinstance(kafka().first_records({partition: 0})[partition], FirstRecord)
    for ask in (kafka().group_offsets, lambda name, wanted: kafka().set_group_offsets(name, dict(wanted), "who")):
        with pytest.raises((KafkaAccessDeniedError, MirrorRefusedError), match="READ on this consumer group"):
            ask(group, {partition: 1})

    allow("alice", ResourceType.GROUP, group, AclOperation.READ)
    assert kafka().missing_rights([orders], group) == []
    kafka().set_group_offsets(group, {partition: 7}, "who")
    assert kafka().group_offsets(group, [partition]) == {partition: 7}

    assert "TOPIC_AUTHORIZATION_FAILED" in str(kafka().retentions([orders])[orders]), "and nothing else suffers from it"
    allow("alice", ResourceType.TOPIC, orders, AclOperation.DESCRIBE_CONFIGS)
    assert kafka().retentions([orders]) == {orders: Retention(None, by_size=False)}


# ── The whole way ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def project(tmp_path: Path, servers: str) -> QuickProject:
    made = QuickProject(tmp_path / "project", servers)
    made.make_control_tables()
    return made


def connect(project: QuickProject, connection: Connection) -> None:
    """Let the project's commands use this connection."""
    project.environment["AIRFLOW_CONN_KAFKA_DEFAULT"] = json.dumps({"conn_type": "kafka", "extra": connection})


def test_a_feed_with_least_rights_is_planned_read_committed_and_mirrored_by_scram_and_tls(
    project: QuickProject, secured: EmbeddedBroker, authority: Authority, orders: str, allow: Allow
) -> None:
    project.write_feed(orders)
    connect(project, login(secured, authority, "SCRAM-SHA-512", tls=True))
    allow("bob", ResourceType.TOPIC, orders, AclOperation.DESCRIBE)
    with project.submitting(spark_is_real=True):
        exit_code, code, message = project.refusal("run", "orders")
        assert (exit_code, code) == (2, "KAFKA_ACCESS_DENIED")
        assert f"Not authorized to access topics: [{orders}]. Expected the right READ" in message

        allow("bob", ResourceType.TOPIC, orders, AclOperation.READ)
        [broken] = [check for check in project.kafka_ingest("doctor", "--json").document["checks"] if not check["ok"]]
        assert "without READ on group orders-ingest" in broken["error"]["message"]

        allow("bob", ResourceType.GROUP, "orders-ingest", AclOperation.READ)
        [batch] = project.run()
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
    assert project.group_offsets() == project.stored_offsets() == {0: 10, 1: 5, 2: 0}


def test_a_feed_is_planned_read_and_committed_by_mutual_tls(
    project: QuickProject, secured: EmbeddedBroker, authority: Authority, orders: str, allow: Allow
) -> None:
    project.write_feed(orders, kafka={"topics": [orders]})
    connect(project, mutual_tls(secured, authority))
    allow("CN=carol", ResourceType.TOPIC, orders, AclOperation.READ)
    with project.submitting(spark_is_real=True):
        [batch] = project.run()
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)


def test_a_feed_is_planned_read_and_committed_by_tokens_of_an_openid_server(
    project: QuickProject,
    secured: EmbeddedBroker,
    authority: Authority,
    token_server: TokenServer,
    orders: str,
    allow: Allow,
) -> None:
    project.write_feed(orders, kafka={"topics": [orders]})
    connect(project, by_token(secured, authority, token_server))
    allow("dave", ResourceType.TOPIC, orders, AclOperation.READ)
    with project.submitting(spark_is_real=True):
        [batch] = project.run()
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)


# ── A consumer group that may not be written to ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rights", [[], [AclOperation.DESCRIBE]], ids=["nor read", "but read"])
def test_a_group_that_may_not_be_written_to_holds_up_no_data_and_is_repaired_once_it_may(
    project: QuickProject,
    secured: EmbeddedBroker,
    authority: Authority,
    servers: str,
    orders: str,
    allow: Allow,
    monkeypatch: pytest.MonkeyPatch,
    rights: list[AclOperation],
) -> None:
    read = project.reading
    monkeypatch.setattr(
        project, "reading", lambda _, plan: read(servers, plan)
    )  # the stand-in for Spark logs in nowhere
    group = mirrored_feed(project, orders)
    connect(project, login(secured, authority, "PLAIN"))
    allow("alice", ResourceType.TOPIC, orders, AclOperation.READ)
    for right in rights:
        allow("alice", ResourceType.GROUP, group, right)
    [batch] = project.run()
    assert (batch["state"], batch["rows"]) == ("COMMITTED", 15)
    assert "GROUP_AUTHORIZATION_FAILED" in batch["mirror_failure"]
    [failure] = mirror_failures(project)
    assert failure["group"] == group
    assert "GROUP_AUTHORIZATION_FAILED" in failure["reason"]
    assert project.positions() == [(0, n) for n in range(10)] + [(1, n) for n in range(5)]
    refused = project.kafka_ingest("mirror", "orders", "--repair", "--json")
    assert refused.exit_code == (1 if rights else 2)
    assert "GROUP_AUTHORIZATION_FAILED" in refused.stdout

    allow("alice", ResourceType.GROUP, group, AclOperation.READ)
    assert project.stored_offsets() == {0: 10, 1: 5, 2: 0}
    assert project.group_offsets() == {0: None, 1: None, 2: None}
    assert project.kafka_ingest("mirror", "orders", "--json").exit_code == 1
    assert project.answer("mirror", "orders", "--repair")["drift"] == []
    assert [tp.offset for tp in committed(servers, group, orders)] == [10, 5, 0]


def test_a_start_at_a_group_that_may_not_be_read_is_access_denied(
    project: QuickProject, secured: EmbeddedBroker, authority: Authority, orders: str, allow: Allow
) -> None:
    project.write_feed(orders, kafka={"topics": [orders]}, start={"group": f"{orders}-old", "otherwise": "earliest"})
    connect(project, login(secured, authority, "PLAIN"))
    allow("alice", ResourceType.TOPIC, orders, AclOperation.READ)
    assert project.refusal("plan", "orders", "--dry-run")[:2] == (2, "KAFKA_ACCESS_DENIED")
