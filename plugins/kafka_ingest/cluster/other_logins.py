"""Logins whose secrets are outside the connection: Kerberos by a keytab, Amazon MSK by this machine's role (IAM)."""

import re
from collections.abc import Callable, Mapping
from importlib import import_module

from kafka_ingest.errors import InstallationError, InvalidConnectionError, KafkaUnavailableError

KERBEROS, IAM = "GSSAPI", "AWS_MSK_IAM"
PRINCIPAL, KEYTAB, SERVICE = (f"sasl.kerberos.{name}" for name in ("principal", "keytab", "service.name"))
OF_KERBEROS = frozenset({PRINCIPAL, KEYTAB, SERVICE})
PLAIN_NAME = re.compile(r"[\w./@-]+")
"""librdkafka makes a shell's command of principal and keytab."""

OF_MSK = re.compile(
    r"(?:SASL_SSL://)?[a-z0-9.-]+\.kafka(?:-serverless)?\.([a-z-]+-[0-9]+)\.amazonaws\.com(?:\.cn)?(?::[0-9]+)?",
    re.IGNORECASE | re.ASCII,
)
"""A whole server: what is signed for Amazon goes nowhere else, and not in clear."""
IAM_CLASSES = "software.amazon.msk.auth.iam"
IAM_EXTRA = "kafka-ingest[msk]"


def check_kerberos(conn_id: str, found: Mapping[str, str]) -> None:
    """Raise InvalidConnectionError where principal or keytab are missing, or more than a name."""
    for key in (PRINCIPAL, KEYTAB):
        value = found.get(key, "")
        if not PLAIN_NAME.fullmatch(value) or (key == KEYTAB and not value.startswith("/")):
            raise InvalidConnectionError(
                f"connection {conn_id!r}: with sasl.mechanism {KERBEROS} expected in {key} "
                f"{'an absolute path' if key == KEYTAB else 'a name such as ingest@EXAMPLE.ORG'} of letters, digits "
                f"and . _ - / @, found {'something else, which is not repeated' if value else 'none'}"
            )


def java_of_kerberos(found: Mapping[str, str]) -> dict[str, str]:
    """Return the Java client's settings. Each Spark machine needs the keytab at this path, and /etc/krb5.conf."""
    login = f'useKeyTab=true storeKey=true keyTab="{found[KEYTAB]}" principal="{found[PRINCIPAL]}"'
    return {
        "sasl.mechanism": KERBEROS,
        SERVICE: found.get(SERVICE, "kafka"),
        "sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required {login};",
    }


def java_of_iam() -> dict[str, str]:
    """Return the Java client's settings; it finds the machine's role and the brokers' region by itself."""
    return {
        "sasl.mechanism": IAM,
        "sasl.jaas.config": f"{IAM_CLASSES}.IAMLoginModule required;",
        "sasl.client.callback.handler.class": f"{IAM_CLASSES}.IAMClientCallbackHandler",
    }


def region_of(conn_id: str, found: Mapping[str, str]) -> str:
    """Return the region in the names of MSK's brokers, as Java's client does; raises InvalidConnectionError."""
    protocol = "security.protocol"
    if found.get(protocol, "").upper() != "SASL_SSL":
        raise InvalidConnectionError(
            f"connection {conn_id!r}: with sasl.mechanism {IAM} expected {protocol} SASL_SSL, found another one or "
            "none, by which others could read the token. Set it to SASL_SSL"
        )
    servers = filter(None, (each.strip() for each in found["bootstrap.servers"].split(",")))
    regions = {match and match[1].lower() for match in map(OF_MSK.fullmatch, servers)}
    region = regions.pop() if len(regions) == 1 else None
    if region is None:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: with sasl.mechanism {IAM} expected only brokers of Amazon MSK of one region in "
            "bootstrap.servers, such as b-1.shop.abc123.c2.kafka.eu-west-1.amazonaws.com:9098, whose names have the "
            "region; found others. Name MSK's own, as its bootstrap brokers for IAM are listed"
        )
    return region


def token_for(region: str) -> Callable[[str], tuple[str, float]]:
    """Return librdkafka's ``oauth_cb``: a token that is signed by this machine's role, and until when it holds."""
    try:
        signer = import_module("aws_msk_iam_sasl_signer.MSKAuthTokenProvider")  # an extra, for few connections
    except ImportError:
        raise InstallationError(
            f"expected aws-msk-iam-sasl-signer-python for sasl.mechanism {IAM}, found none: pip install '{IAM_EXTRA}'"
        ) from None

    def token(_: str) -> tuple[str, float]:
        try:
            signed, until_ms = signer.generate_auth_token(region)
        except Exception as error:  # a client of Amazon's has many
            raise KafkaUnavailableError(
                f"expected a token for sasl.mechanism {IAM}, signed by this machine's role, found "
                f"{type(error).__name__}: {error}. Give the machine or its task a role that may "
                "kafka-cluster:Connect, or try again."
            ) from error
        return signed, until_ms / 1000

    return token


def without_kerberos(conn_id: str) -> InstallationError:
    """Return the error of a librdkafka that cannot log in by Kerberos, as the one in confluent-kafka's wheel."""
    return InstallationError(
        f"connection {conn_id!r}: expected a librdkafka that knows sasl.mechanism {KERBEROS}, found one built without "
        "it, as in confluent-kafka's wheel. Build librdkafka with libsasl2, and confluent-kafka on it, as "
        "docs/security.md says. Spark alone, with Java's client, would not do: plans and commits ask Kafka, too."
    )
