"""One Kafka connection in two vocabularies: librdkafka's, and the Java client's that Spark reads with."""

import sys
import traceback
from pathlib import Path
from unittest.mock import Mock

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key

from certificates import Authority
from kafka_ingest.cluster.client_settings import KafkaClientSettings, jaas_quoted
from kafka_ingest.cluster.kafka_client import KafkaClient
from kafka_ingest.cluster.other_logins import region_of, token_for
from kafka_ingest.errors import InstallationError, InvalidConnectionError, KafkaUnavailableError

PASSWORD = "hunter2"
BROKERS = {"bootstrap.servers": "kafka:9092"}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
PKCS8_KEY = "-----BEGIN PRIVATE KEY-----\nMIIE-hunter2\n-----END PRIVATE KEY-----\n"
ENCRYPTED_KEY = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIE-hunter2\n-----END ENCRYPTED PRIVATE KEY-----\n"
PKCS1_KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIE-hunter2\n-----END RSA PRIVATE KEY-----\n"


def client(**settings: str) -> KafkaClientSettings:
    """Return a connection's settings; ``sasl__mechanism`` stands for ``sasl.mechanism``."""
    return KafkaClientSettings("its_id", BROKERS | {key.replace("__", "."): value for key, value in settings.items()})


def java(**settings: str) -> dict[str, str]:
    """Return what these settings are for the Java client, without the brokers."""
    translated = client(**settings).java_settings()
    assert translated.pop("bootstrap.servers") == "kafka:9092"
    assert translated.pop("allow.auto.create.topics") == "false"
    return translated


def sasl(mechanism: str, username: str = "me", password: str = PASSWORD) -> dict[str, str]:
    """Return the settings of a SASL login."""
    return {"sasl__mechanism": mechanism, "sasl__username": username, "sasl__password": password}


# ── Translations ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_brokers_are_the_same_for_both_clients() -> None:
    assert java() == {}
    assert client().admin_settings() == BROKERS


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-256", "org.apache.kafka.common.security.scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_a_sasl_login_becomes_a_jaas_configuration(mechanism: str, module: str) -> None:
    assert java(security__protocol="sasl_ssl", **sasl(mechanism)) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="me" password="hunter2";',
    }


def by_token(**changes: str) -> dict[str, str]:
    """Return the settings of a login by tokens, with ``client__id`` for ``sasl.oauthbearer.client.id``."""
    found = {"method": "oidc", "client__id": "me", "client__secret": PASSWORD} | {
        "token__endpoint__url": "https://login.example.org/token"
    }
    return {"sasl__mechanism": "OAUTHBEARER"} | {
        f"sasl__oauthbearer__{key}": value for key, value in (found | changes).items() if value
    }


def test_a_login_by_tokens_becomes_javas_own_with_scope_extensions_and_authority() -> None:
    more = by_token(scope="kafka", extensions="logicalCluster=lkc-1,identityPoolId=pool-2")
    oauth = "org.apache.kafka.common.security.oauthbearer"
    assert java(security__protocol="sasl_ssl", https__ca__pem="-----BEGIN\nMIIB\n", **more) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class": f"{oauth}.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example.org/token",
        "sasl.jaas.config": f'{oauth}.OAuthBearerLoginModule required clientId="me" clientSecret="hunter2" '
        'scope="kafka" extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2" '
        'ssl.truststore.type="PEM" ssl.truststore.certificates="-----BEGIN\\nMIIB\\n";',
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "default"}, "expected sasl.oauthbearer.method to be oidc"),
        ({"method": ""}, "expected sasl.oauthbearer.method to be oidc"),
        ({"client__secret": ""}, "needs sasl.oauthbearer.client.secret"),
        ({"token__endpoint__url": "file:///etc/passwd"}, "to be https://HOST/PATH"),
        ({"token__endpoint__url": "https://me:hunter2@login.example.org/token"}, "to be https://HOST/PATH"),
        ({"token__endpoint__url": "http://login.example.org/token"}, "to be https://HOST/PATH"),
        ({"extensions": "logicalCluster"}, "to be NAME=VALUE"),
    ],
)
def test_a_login_by_tokens_that_lacks_something_is_refused_with_its_name(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConnectionError, match=message) as refusal:
        client(**by_token(**changes))
    assert PASSWORD not in str(refusal.value)


def test_of_a_login_by_tokens_the_secret_is_never_shown_and_where_tokens_come_from_is() -> None:
    found = client(**by_token())
    assert found.holds_secret
    assert found.redacted(f"{PASSWORD} https://login.example.org/token") == "*** https://login.example.org/token"


def test_librdkafkas_other_name_of_the_mechanism_is_understood() -> None:
    settings = sasl("PLAIN")
    settings["sasl__mechanisms"] = settings.pop("sasl__mechanism")
    assert java(**settings)["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ("simple", '"simple"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ('\\"', r'"\\\""'),
        ("it's; fine=", '"it\'s; fine="'),
    ],
)
def test_quotes_and_backslashes_in_a_password_do_not_end_it(value: str, quoted: str) -> None:
    assert jaas_quoted(value) == quoted
    assert java(**sasl("PLAIN", password=value))["sasl.jaas.config"].endswith(f" password={quoted};")
    assert f"username={quoted} " in java(**sasl("PLAIN", username=value))["sasl.jaas.config"]


def test_pem_files_go_inline_so_that_executors_need_no_files(tmp_path: Path) -> None:
    for name, content in {"ca.pem": CERTIFICATE, "client.pem": CERTIFICATE, "client.key": PKCS8_KEY}.items():
        (tmp_path / name).write_text(content)
    assert java(
        security__protocol="ssl",
        ssl__ca__location=str(tmp_path / "ca.pem"),
        ssl__certificate__location=str(tmp_path / "client.pem"),
        ssl__key__location=str(tmp_path / "client.key"),
        ssl__key__password="hunter2",
    ) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": PKCS8_KEY,
        "ssl.key.password": "hunter2",
    }


def test_pem_texts_in_the_connection_go_inline_as_they_are() -> None:
    assert java(ssl__ca__pem=CERTIFICATE, ssl__certificate__pem=CERTIFICATE, ssl__key__pem=ENCRYPTED_KEY) == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": CERTIFICATE,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": CERTIFICATE,
        "ssl.keystore.key": ENCRYPTED_KEY,
    }


def encrypted_key(password: str) -> tuple[str, EllipticCurvePrivateKey]:
    key = generate_private_key(SECP256R1())
    encryption = serialization.BestAvailableEncryption(password.encode())
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption).decode(), key


def test_an_encrypted_key_is_opened_since_java_knows_no_such_encryption() -> None:
    pem, key = encrypted_key("hunter2")
    assert "BEGIN ENCRYPTED PRIVATE KEY" in pem
    found = java(ssl__key__pem=pem, ssl__key__password="hunter2")
    assert "ssl.key.password" not in found
    opened = serialization.load_pem_private_key(found["ssl.keystore.key"].encode(), None)
    assert isinstance(opened, EllipticCurvePrivateKey)
    assert opened.private_numbers() == key.private_numbers()


def test_a_key_that_its_password_does_not_open_is_refused_and_neither_is_repeated() -> None:
    pem, _ = encrypted_key("another")
    with pytest.raises(InvalidConnectionError, match=r"expected ssl\.key\.password to open the private key") as error:
        java(ssl__key__pem=pem, ssl__key__password="hunter2")
    shown = "".join(traceback.format_exception(error.value))
    assert "hunter2" not in shown.replace('password="hunter2"', "")
    assert pem.splitlines()[1] not in shown


@pytest.mark.parametrize(("value", "translated"), [("none", ""), ("NONE", ""), ("https", "https")])
def test_host_names_are_checked_as_the_connection_says(value: str, translated: str) -> None:
    assert java(ssl__endpoint__identification__algorithm=value) == {"ssl.endpoint.identification.algorithm": translated}


@pytest.mark.parametrize(
    "key",
    [
        "client.id",
        "client.rack",
        "fetch.max.bytes",
        "max.partition.fetch.bytes",
        "reconnect.backoff.ms",
        "metadata.max.age.ms",
    ],
)
def test_settings_of_one_name_in_both_clients_go_over_as_they_are(key: str) -> None:
    assert java(**{key: "17"}) == {key: "17"}


def test_the_patience_of_a_fetch_has_another_name_in_java() -> None:
    assert java(**{"fetch.wait.max.ms": "500"}) == {"fetch.max.wait.ms": "500"}


@pytest.mark.parametrize(
    "key", ["group.id", "auto.offset.reset", "enable.auto.commit", "isolation.level", "session.timeout.ms", "debug"]
)
def test_what_says_nothing_about_a_bounded_read_is_left_out(key: str) -> None:
    assert java(**{key: "x"}) == {}


def test_the_feeds_own_group_id_never_reaches_the_read_nor_the_admin_client() -> None:
    settings = client(group__id="orders-ingest")
    assert "group.id" not in settings.java_settings()
    assert "group.id" not in settings.admin_settings()


def test_the_admin_client_gets_the_login_and_what_it_logs() -> None:
    settings = client(**sasl("PLAIN"), debug="broker", socket__timeout__ms="5000", auto__offset__reset="earliest")
    assert settings.admin_settings() == BROKERS | {
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": "hunter2",
        "debug": "broker",
        "socket.timeout.ms": "5000",
    }


def test_the_admin_client_takes_every_setting_that_it_is_handed() -> None:
    from confluent_kafka.admin import AdminClient

    known = {
        "log_level": "0",
        "client.id": "x",
        "client.rack": "a",
        "connections.max.idle.ms": "1000",
        "max.partition.fetch.bytes": "1000",
        "metadata.max.age.ms": "1000",
        "metadata.recovery.strategy": "rebootstrap",
        "reconnect.backoff.ms": "100",
        "reconnect.backoff.max.ms": "1000",
        "retry.backoff.ms": "100",
        "retry.backoff.max.ms": "1000",
        "socket.connection.setup.timeout.ms": "5000",
        "request.timeout.ms": "1000",
        "fetch.max.bytes": "1000000",
        "fetch.min.bytes": "1",
        "fetch.wait.max.ms": "500",
        "client.dns.lookup": "use_all_dns_ips",
        "socket.keepalive.enable": "true",
        "broker.address.family": "v4",
        "enable.auto.commit": "false",
        "auto.offset.reset": "earliest",
        "group.id": "x",
    }
    AdminClient(KafkaClientSettings("its_id", BROKERS | known).admin_settings())


# ── Refusals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("settings", [{}, {"bootstrap.servers": ""}, {"metadata.broker.list": "kafka:9092"}])
def test_a_connection_without_brokers_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConnectionError, match=r"connection 'its_id': expected 'bootstrap.servers'.*found none"):
        KafkaClientSettings("its_id", settings)


@pytest.mark.parametrize(
    "key",
    [
        "plugin.library.paths",
        "ssl.engine.location",
        "ssl.engine.id",
        "ssl.providers",
        "sasl.kerberos.kinit.cmd",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.token.endpoint.url",
        "https.ca.location",
        "ssl.truststore.location",
        "ssl.cipher.suites",
        "bootstrap.server",
        "Plugin.Library.Paths",
    ],
)
def test_no_client_is_made_of_a_key_that_not_both_may_have(key: str) -> None:
    """Some load a library, run a command or ask a URL in the process that makes the client: Airflow's API server."""
    with pytest.raises(
        InvalidConnectionError, match=rf"connection 'its_id': '{key}' is not among the.*ssl.ca.location"
    ) as error:
        client(**{key: "hunter2"})
    assert "hunter2" not in str(error.value)


def test_key_and_certificates_of_a_pkcs12_file_go_inline_and_what_is_none_is_refused_by_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    chain, key = authority.certify("carol")
    store = authority.pkcs12("carol", PASSWORD)
    settings = {"ssl.keystore.location": str(store), "ssl.keystore.password": PASSWORD}
    assert client(**settings).holds_secret
    assert java(**settings) == {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key.read_text(),
        "ssl.keystore.certificate.chain": chain.read_text() + authority.ca.read_text(),
    }
    (tmp_path / "carol.jks").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    for wrong, message in (
        ({"ssl.keystore.password": "hunter3"}, "a PKCS#12 file with a key and its certificate"),
        ({"ssl.keystore.location": str(chain)}, "a PKCS#12 file with a key and its certificate"),
        ({"ssl.keystore.location": str(tmp_path / "none.p12")}, "cannot be read: No such file"),
        ({"ssl.keystore.location": str(tmp_path / "carol.jks")}, "JKS, which only Java reads; convert it: keytool"),
    ):
        with pytest.raises(InvalidConnectionError, match=message) as refusal:
            java(**(settings | wrong))
        assert not any(each in str(refusal.value) for each in ("hunter", str(tmp_path)))


@pytest.mark.parametrize("value", ["-1", "1e3", "0x10", "1.5", "", "x", "2147483648", "9" * 5_000, "\uff11"])
def test_a_number_that_only_one_client_can_read_is_refused(value: str) -> None:
    with pytest.raises(
        InvalidConnectionError, match=r"expected a whole number from 0 to 2,147,483,647 in retry\.backoff"
    ):
        client(**{"retry.backoff.ms": value})


@pytest.mark.parametrize(
    ("servers", "found"),
    [
        ("localhost", "localhost:9092"),
        ("kafka-1, kafka-2:9093,", "kafka-1:9092,kafka-2:9093"),
        ("PLAINTEXT://kafka-1", "PLAINTEXT://kafka-1:9092"),
        ("[::1],[::1]:9093", "[::1]:9092,[::1]:9093"),
    ],
)
def test_a_broker_without_a_port_has_kafkas_own_for_both_clients(servers: str, found: str) -> None:
    assert KafkaClientSettings("its_id", {"bootstrap.servers": servers}).java_settings()["bootstrap.servers"] == found


def test_connections_that_never_end_when_idle_are_another_number_in_java() -> None:
    assert java(**{"connections.max.idle.ms": "0"}) == {"connections.max.idle.ms": "-1"}
    assert java(**{"connections.max.idle.ms": "1000"}) == {"connections.max.idle.ms": "1000"}


def test_the_read_makes_no_topic() -> None:
    assert client().java_settings()["allow.auto.create.topics"] == "false"


def test_a_mechanism_without_a_known_translation_is_refused() -> None:
    message = "SCRAM-SHA-512, OAUTHBEARER, GSSAPI, AWS_MSK_IAM, found another one"
    with pytest.raises(InvalidConnectionError, match=message):
        java(sasl__mechanism="DIGEST-MD5")


KERBEROS = {
    "sasl__mechanism": "GSSAPI",
    "sasl__kerberos__principal": "ingest/etl@EXAMPLE.ORG",
    "sasl__kerberos__keytab": "/etc/kafka/ingest.keytab",
}


def test_a_keytab_of_kerberos_becomes_a_jaas_configuration_and_hides_no_word() -> None:
    assert java(**KERBEROS) == {
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        'keyTab="/etc/kafka/ingest.keytab" principal="ingest/etl@EXAMPLE.ORG";',
    }
    found = client(**KERBEROS, sasl__kerberos__service__name="brokers")
    assert found.java_settings()["sasl.kerberos.service.name"] == "brokers"
    assert found.secrets() == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("principal", ""),
        ("principal", "ingest; rm -r /"),
        ("keytab", ""),
        ("keytab", "ingest.keytab"),
        ("keytab", '/etc/"$(id)"'),
    ],
)
def test_a_principal_or_keytab_that_would_be_more_to_a_shell_is_refused_and_not_repeated(key: str, value: str) -> None:
    found = "something else" if value else "none"
    with pytest.raises(InvalidConnectionError, match=rf"expected in sasl\.kerberos\.{key} .* found {found}") as error:
        client(**KERBEROS | {f"sasl__kerberos__{key}": value})
    assert not value or value not in str(error.value)


def test_without_kerberos_in_librdkafka_a_connection_is_refused_with_what_to_do() -> None:
    kafka = KafkaClient(lambda: client(security__protocol="SASL_SSL", **KERBEROS))
    with pytest.raises(InstallationError, match=r"knows sasl\.mechanism GSSAPI.*Build librdkafka with libsasl2"):
        kafka.check_let_in()


BROKERS_OF_MSK = "b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"


def of_msk(servers: str = BROKERS_OF_MSK, protocol: str = "SASL_SSL") -> KafkaClientSettings:
    settings = {"security.protocol": protocol, "sasl.mechanism": "AWS_MSK_IAM"}
    return KafkaClientSettings("its_id", settings | {"bootstrap.servers": servers})


def test_a_role_at_amazon_logs_in_by_amazons_own_class_in_java() -> None:
    found = of_msk().java_settings()
    assert found["sasl.mechanism"] == "AWS_MSK_IAM"
    assert found["sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    assert found["sasl.client.callback.handler.class"] == "software.amazon.msk.auth.iam.IAMClientCallbackHandler"


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        (BROKERS_OF_MSK, "eu-west-1"),
        ("boot-x1.c1.kafka-serverless.ap-south-1.amazonaws.com:9098", "ap-south-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("b-1.x.kafka.eu-west-1.amazonaws.com, sasl_ssl://b-2.x.kafka.eu-west-1.amazonaws.com:9098,", "eu-west-1"),
    ],
)
def test_the_region_of_a_role_is_in_the_brokers_names(servers: str, region: str) -> None:
    assert region_of("its_id", of_msk(servers, "sasl_ssl").librdkafka) == region


def test_a_role_that_cannot_sign_is_named_and_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = Mock(**{"generate_auth_token.side_effect": ValueError("AWS Credentials can not be empty")})
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer.MSKAuthTokenProvider", signer)
    with pytest.raises(KafkaUnavailableError, match="signed by this machine's role, found ValueError: AWS Credentials"):
        token_for("eu-west-1")("")


@pytest.mark.parametrize(
    "servers",
    [
        "kafka:9098",
        "b-1.x.kafka.eu-west-1.amazonaws.com.evil.org:9098",
        f"{BROKERS_OF_MSK},x:1",
        f"SASL_PLAINTEXT://{BROKERS_OF_MSK}",
        f"{BROKERS_OF_MSK},b-1.x.kafka.eu-west-2.amazonaws.com:9098",
    ],
)
def test_a_token_that_a_role_signed_goes_to_no_broker_but_amazons_of_its_region(servers: str) -> None:
    with pytest.raises(InvalidConnectionError, match="expected only brokers of Amazon MSK of one region"):
        of_msk(servers)


@pytest.mark.parametrize("protocol", ["", "SASL_PLAINTEXT", "SSL"])
def test_a_token_that_a_role_signed_goes_nowhere_in_clear(protocol: str) -> None:
    with pytest.raises(InvalidConnectionError, match=r"expected security\.protocol SASL_SSL"):
        of_msk(protocol=protocol)


@pytest.mark.parametrize(
    ("lacking", "message"),
    [
        (["sasl__username"], "PLAIN needs sasl.username$"),
        (["sasl__password"], "PLAIN needs sasl.password$"),
        (["sasl__username", "sasl__password"], "PLAIN needs sasl.username and sasl.password$"),
    ],
)
def test_a_login_that_lacks_something_is_refused_with_its_name(lacking: list[str], message: str) -> None:
    settings = {key: value for key, value in sasl("PLAIN").items() if key not in lacking}
    with pytest.raises(InvalidConnectionError, match=rf"{message}"):
        java(**settings)


@pytest.mark.parametrize("key", ["ssl__key__pem", "ssl__key__location"])
def test_a_pkcs1_key_is_refused_with_how_to_convert_it_and_never_repeated(key: str, tmp_path: Path) -> None:
    (tmp_path / "client.key").write_text(PKCS1_KEY)
    value = PKCS1_KEY if key == "ssl__key__pem" else str(tmp_path / "client.key")
    with pytest.raises(InvalidConnectionError, match=r"only as PKCS#8.*openssl pkcs8 -topk8") as error:
        java(**{key: value})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("key", ["ssl__ca__location", "ssl__certificate__location", "ssl__key__location"])
def test_a_pem_file_that_cannot_be_read_is_named_with_its_key(key: str, tmp_path: Path) -> None:
    missing = tmp_path / "absent.pem"
    name = key.replace("__", ".")
    with pytest.raises(
        InvalidConnectionError, match=rf"{name} should name a readable PEM file, found one.*No such file"
    ) as error:
        java(**{key: str(missing)})
    assert str(missing) not in "".join(traceback.format_exception(error.value))


def test_a_pem_file_that_is_binary_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.der").write_bytes(b"\x30\x82\xff\xfe")
    with pytest.raises(InvalidConnectionError, match=r"ssl.ca.location should name a readable PEM file"):
        java(ssl__ca__location=str(tmp_path / "ca.der"))


def test_certificates_are_always_verified_by_both_clients() -> None:
    assert java(enable__ssl__certificate__verification="true") == {}
    with pytest.raises(InvalidConnectionError, match=r"expected enable\.ssl\.certificate\.verification to be true"):
        client(enable__ssl__certificate__verification="false")


# ── Secrets ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_the_settings_is_shown() -> None:
    settings = client(**sasl("PLAIN"), ssl__key__pem=PKCS8_KEY)
    assert repr(settings) == str(settings) == "KafkaClientSettings(conn_id='its_id')"


@pytest.mark.parametrize(
    ("settings", "holds_secret"),
    [
        ({}, False),
        ({"ssl__ca__location": "/ca.pem", "security__protocol": "ssl"}, False),
        ({"sasl__username": "me"}, False),
        ({"sasl__password": ""}, False),
        ({"sasl__password": "hunter2"}, True),
        ({"ssl__key__password": "hunter2"}, True),
        ({"ssl__key__pem": PKCS8_KEY}, True),
        ({"ssl__key__location": "/client.key"}, True),
    ],
)
def test_a_password_or_a_private_key_makes_the_settings_secret(settings: dict[str, str], *, holds_secret: bool) -> None:
    assert client(**settings).holds_secret is holds_secret


@pytest.mark.parametrize("key", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_text_where_a_files_name_belongs_is_refused_before_any_client_sees_it(key: str) -> None:
    message = rf"the name of a file in {key}, found the text of one. Put it into {key.replace('location', 'pem')}"
    with pytest.raises(InvalidConnectionError, match=message) as error:
        client(**{key: PKCS8_KEY})
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"bootstrap.servers": "SASL_SSL://me:hunter2@kafka:9092"},
        {"bootstrap.servers": "-----BEGIN PRIVATE KEY-----\nhunter2"},
        {"bootstrap.servers": "kafka:9092 hunter2"},
        {"ssl.key.location": "hunter2"},
        {"ssl.ca.location": "hunter2\0"},
        {"sasl.mechanism": "hunter2"},
        {"enable.ssl.certificate.verification": "hunter2"},
        {"sasl.password": "hunter2", "sasl.mechanism": "PLAIN"},
        {"unknown": "hunter2"},
        {"ssl.key.pem": "hunter2"},
        {"socket.timeout.ms": "hunter2"},
    ],
)
def test_no_refusal_repeats_the_value_that_is_refused(settings: dict[str, str]) -> None:
    def use() -> None:
        found = KafkaClientSettings("its_id", BROKERS | settings)
        found.java_settings()
        assert found.request_timeout_s

    with pytest.raises(InvalidConnectionError) as error:
        use()
    assert "hunter2" not in "".join(traceback.format_exception(error.value))


@pytest.mark.parametrize(
    "servers",
    [
        "kafka:9092",
        "one:9092,two:9092",
        "one:9092, two:9092",
        "[::1]:9092",
        "SSL://kafka:9093",
        "10.0.0.1",
        "kafka_1:9092",
    ],
)
def test_brokers_are_named_as_librdkafka_takes_them(servers: str) -> None:
    assert KafkaClientSettings("its_id", {"bootstrap.servers": servers}).bootstrap_servers == servers


@pytest.mark.parametrize(
    "settings",
    [
        {"security.protocol": "hunter2"},
        {"client.dns.lookup": "hunter2", "security.protocol": "hunter2"},
        {"debug": "hunter2"},
        {"socket.timeout.ms": "77777777"},
        {"security.protocol": "ssl", "ssl.key.pem": "hunter2"},
        {"security.protocol": "ssl", "ssl.ca.location": "/hunter2"},
    ],
)
def test_what_librdkafka_says_of_a_setting_is_passed_on_without_its_value(
    settings: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    from kafka_ingest.cluster.kafka_cluster import ConfluentKafkaCluster

    found = KafkaClientSettings("its_id", {"bootstrap.servers": "127.0.0.1:1"} | settings)
    with pytest.raises(
        InvalidConnectionError, match=rf"librdkafka refuses its extra: the value of {[*settings][-1]}"
    ) as error:
        ConfluentKafkaCluster(lambda: found).cluster_id()
    shown = "".join(traceback.format_exception(error.value)) + "".join(capfd.readouterr())
    assert "hunter2" not in shown
    assert "77777777" not in shown


def test_a_text_is_shown_without_any_form_of_a_secret() -> None:
    settings = client(**sasl("PLAIN", username="ada", password='hun"ter2'), ssl__key__pem=PKCS8_KEY + "A" * 64)
    shown = settings.redacted(f"ada {jaas_quoted(chr(104) + 'un' + chr(34) + 'ter2')} {'A' * 64} kafka:9092")
    assert shown == '*** "***" *** kafka:9092'
