"""What librdkafka's error callback says: which causes no patience helps against, and which pass."""

import pytest
from confluent_kafka import KafkaError

from kafka_ingest.cluster.client_settings import KafkaClientSettings
from kafka_ingest.cluster.handshake import ClientErrors, pause_after_a_login, unreachable
from kafka_ingest.errors import KafkaLoginRefusedError, KafkaTlsRefusedError, KafkaUnavailableError

SETTINGS = KafkaClientSettings(
    "its_id", {"bootstrap.servers": "kafka:9093", "sasl.username": "ada", "sasl.password": "hunter2"}
)
UNKNOWN_CA = "ssl://kafka:9093/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed"
ALL_DOWN = (KafkaError._ALL_BROKERS_DOWN, "2/2 brokers are down")


def reported(*errors: tuple[int, str]) -> ClientErrors:
    found = ClientErrors()
    for code, text in errors:
        found(KafkaError(code, text))
    return found


def test_a_refused_login_ends_everything_at_its_first_broker() -> None:
    text = "sasl_ssl://kafka:9093/1: SASL authentication error: Authentication failed (after 301ms in state AUTH_REQ)"
    error = reported((KafkaError._AUTHENTICATION, text)).refusal(SETTINGS)
    assert isinstance(error, KafkaLoginRefusedError)
    assert "refused the login: SASL authentication error: Authentication failed." in str(error)


def test_a_connection_that_breaks_during_the_login_is_not_a_refused_one() -> None:
    text = (
        "sasl_ssl://kafka:9093/1: SASL authentication error: Local: Broker transport failure "
        "(after 3ms in state AUTH_REQ)"
    )
    assert reported((KafkaError._AUTHENTICATION, text), ALL_DOWN).refusal(SETTINGS) is None


@pytest.mark.parametrize("code", [KafkaError._SSL, KafkaError._TRANSPORT])
def test_an_unknown_authority_is_one_once_no_broker_is_left_to_try(code: int) -> None:
    assert reported((code, UNKNOWN_CA)).refusal(SETTINGS) is None
    error = reported((code, UNKNOWN_CA), ALL_DOWN).refusal(SETTINGS)
    assert isinstance(error, KafkaTlsRefusedError)
    assert "(connection 'its_id'): SSL handshake failed: SSL routines::certificate verify failed. Expected" in str(
        error
    )


def test_a_handshake_that_breaks_off_may_work_the_next_time() -> None:
    text = "ssl://kafka:9093/1: SSL handshake failed: Connection reset by peer (after 3ms in state SSL_HANDSHAKE)"
    assert reported((KafkaError._SSL, text), ALL_DOWN).refusal(SETTINGS) is None


def test_while_another_broker_may_come_back_an_unknown_authority_of_one_is_waited_out() -> None:
    refused = (KafkaError._TRANSPORT, "kafka2:9093/bootstrap: Connect to ipv4#10.0.0.1:9093 failed: Connection refused")
    found = reported((KafkaError._SSL, UNKNOWN_CA), refused, ALL_DOWN)
    assert found.refusal(SETTINGS) is None
    assert "certificate verify failed" in (found.cause or "")


def test_a_name_without_an_address_may_have_one_the_next_time() -> None:
    text = (
        "kafka:9093/bootstrap: Failed to resolve 'kafka:9093': Name or service not known (after 0ms in state CONNECT)"
    )
    error = reported((KafkaError._RESOLVE, text), ALL_DOWN).refusal(SETTINGS)
    assert isinstance(error, KafkaUnavailableError)
    assert "'kafka:9093': Name or service not known. It is in bootstrap.servers. Is the host's name" in str(error)


def test_what_a_broker_repeats_of_the_connection_is_not_shown() -> None:
    text = "kafka:9093/1: SASL authentication error: no ada with hunter2 (after 3ms in state AUTH_REQ)"
    shown = str(reported((KafkaError._AUTHENTICATION, text)).refusal(SETTINGS))
    assert "no *** with ***" in shown
    assert "hunter2" not in shown


@pytest.mark.parametrize(
    ("settings", "pause"),
    [
        ({}, {}),
        ({"security.protocol": "ssl"}, {}),
        ({"security.protocol": "SASL_SSL"}, {"reconnect.backoff.ms": "1000"}),
        ({"security.protocol": "sasl_plaintext"}, {"reconnect.backoff.ms": "1000"}),
        ({"security.protocol": "SASL_SSL", "reconnect.backoff.max.ms": "500"}, {"reconnect.backoff.ms": "500"}),
        ({"security.protocol": "SASL_SSL", "reconnect.backoff.ms": "50"}, {}),
    ],
)
def test_with_a_login_there_is_time_between_two_tries(settings: dict[str, str], pause: dict[str, str]) -> None:
    found = KafkaClientSettings("its_id", {"bootstrap.servers": "kafka:9093", **settings})
    assert pause_after_a_login(found) == pause


def test_of_an_address_that_a_broker_advertises_bootstrap_servers_is_not_blamed() -> None:
    of_cluster = KafkaClientSettings("its_id", {"bootstrap.servers": "localhost"})
    unknown = "kafka-0.kafka.svc:9092/0: Failed to resolve 'kafka-0.kafka.svc:9092': Name or service not known"
    text = str(reported((KafkaError._RESOLVE, unknown), ALL_DOWN).refusal(of_cluster))
    assert "It is kafka-0.kafka.svc:9092 that failed, which a broker advertises as its address" in text
    assert "advertised.listeners" in text
    refused = "10.0.0.7:9092/2: Connect to ipv4#10.0.0.7:9092 failed: Connection refused"
    text = str(unreachable(reported((KafkaError._TRANSPORT, refused)), of_cluster, 5, "its id", "no answer"))
    assert "It is 10.0.0.7:9092 that failed" in text


@pytest.mark.parametrize("address", ["localhost:9092/bootstrap", "localhost:9092/1"])
def test_an_address_of_the_connections_own_is_not_called_advertised(address: str) -> None:
    of_cluster = KafkaClientSettings("its_id", {"bootstrap.servers": "localhost"})
    unknown = f"{address}: Failed to resolve 'localhost:9092': Name or service not known"
    assert "advertise" not in str(reported((KafkaError._RESOLVE, unknown), ALL_DOWN).refusal(of_cluster))
