"""One Kafka connection, for two clients: librdkafka's keys, as Airflow's connection holds them, and the Java client's.

Sources of the two vocabularies: librdkafka's CONFIGURATION.md and Kafka's documentation of consumer configurations. PEM
contents go inline (KIP-651), so that Spark executors on other machines need no files.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_ingest.cluster.other_logins import (
    IAM,
    KERBEROS,
    OF_KERBEROS,
    check_kerberos,
    java_of_iam,
    java_of_kerberos,
    region_of,
    token_for,
)
from kafka_ingest.errors import InvalidConnectionError

# librdkafka settings that have the same name and meaning in the Java client.
SAME_IN_JAVA = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.rack",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "metadata.recovery.strategy",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "request.timeout.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "socket.connection.setup.timeout.ms",
    }
)

RENAMED_IN_JAVA = {"fetch.wait.max.ms": "fetch.max.wait.ms"}

NUMBERS = frozenset({"fetch.wait.max.ms", *(key for key in SAME_IN_JAVA if key.endswith((".ms", ".bytes")))})
LARGEST_NUMBER = 2**31 - 1

KEYSTORE, KEYSTORE_PASSWORD = "ssl.keystore.location", "ssl.keystore.password"
JKS = b"\xfe\xed\xfe\xed"
"""How Java's own key stores begin, which only Java reads."""

VERIFICATION = "enable.ssl.certificate.verification"
DEFAULT_PORT = 9092

# Settings of consumers in a group, of producers, or of librdkafka's own workings: they say nothing about a bounded
# read.
NOT_FOR_A_BOUNDED_READ = frozenset(
    {
        "acks",
        "api.version.request",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "broker.address.family",
        "compression.type",
        "debug",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "error_cb",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "heartbeat.interval.ms",
        "isolation.level",
        "linger.ms",
        "log.connection.close",
        "log_level",
        "max.poll.interval.ms",
        "message.timeout.ms",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "statistics.interval.ms",
    }
)

DEFAULT_REQUEST_TIMEOUT_S = 15.0

SASL_KEYS = frozenset({"sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password"})
JAAS_MODULE = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
OAUTH = "OAUTHBEARER"
OF_OAUTH = "sasl.oauthbearer."
CLIENT_ID, CLIENT_SECRET, SCOPE, EXTENSIONS, TOKEN_URL = (
    OF_OAUTH + name for name in ("client.id", "client.secret", "scope", "extensions", "token.endpoint.url")
)
METHOD = f"{OF_OAUTH}method"
OAUTH_KEYS = frozenset({METHOD, CLIENT_ID, CLIENT_SECRET, SCOPE, EXTENSIONS, TOKEN_URL})
AUTHORITIES = frozenset({"https.ca.location", "https.ca.pem"})
"""Which signed the certificate of the server that gives tokens, where the machine's own do not know it."""
OAUTH_CLASSES = "org.apache.kafka.common.security.oauthbearer"
NAMED_VALUES = re.compile(r"[A-Za-z]+=[^,=]+(?:,[A-Za-z]+=[^,=]+)*")
SECRET_KEYS = frozenset(
    {"sasl.password", CLIENT_SECRET, "ssl.key.password", "ssl.key.pem", "ssl.key.location", KEYSTORE, KEYSTORE_PASSWORD}
)
SERVERS = re.compile(r"\s*(?:[A-Za-z_]+://)?[\w.:%\[\]-]+(?:\s*,\s*(?:[A-Za-z_]+://)?[\w.:%\[\]-]+)*\s*,?\s*")

SHOWN = frozenset({METHOD, SCOPE, TOKEN_URL, *OF_KERBEROS})
NEVER_SHOWN = re.compile(r"sasl\.(?!mechanism)|ssl\.|pem|password|secret|token")
"""Of these keys the value may be a secret, or stand where one was meant to."""

HIDDEN = "***"
PEM_LINE = 16
"""What is shorter is the end of a key, and may be part of any word."""


@dataclass(frozen=True, slots=True)
class KafkaClientSettings:
    """How to reach one Kafka cluster. The settings may hold secrets, so they are not in the repr."""

    conn_id: str
    librdkafka: Mapping[str, str] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.librdkafka.get("bootstrap.servers"):
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected 'bootstrap.servers' in its extra, e.g. "
                '{"bootstrap.servers": "kafka:9092"}; found none'
            )
        if not SERVERS.fullmatch(self.bootstrap_servers):
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected bootstrap.servers to be host:port, or several with commas "
                "between them; found something else, which is not repeated. User and password are sasl.username and "
                "sasl.password."
            )
        self._check_allowed()
        for key, value in self.librdkafka.items():
            # librdkafka would take the text for a file's name and write it to stderr.
            if key.endswith(".location") and "-----BEGIN" in value:
                raise InvalidConnectionError(
                    f"connection {self.conn_id!r}: expected the name of a file in {key}, found the text of one. Put "
                    f"it into {key.removesuffix('location')}pem."
                )

    def _check_allowed(self) -> None:
        """Raise InvalidConnectionError on what is no plain setting of both clients, before either sees it.

        Some of librdkafka's load a library, run a command, or ask a URL, here and in Airflow's API server; others would
        let only one of the two clients in.
        """
        mechanism = self.mechanism
        of_login = {OAUTH: OAUTH_KEYS | AUTHORITIES, KERBEROS: OF_KERBEROS}.get(mechanism or "", frozenset())
        for key, value in self.librdkafka.items():
            if key not in ALLOWED and key not in of_login:
                raise InvalidConnectionError(
                    f"connection {self.conn_id!r}: {key!r} is not among the settings that both clients, librdkafka and "
                    f"the Java client that Spark reads with, may have. Remove it, or use one of: "
                    f"{', '.join(sorted(ALLOWED - NOT_FOR_A_BOUNDED_READ))}"
                )
            if key in NUMBERS and not (re.fullmatch("[0-9]{1,10}", value) and int(value) <= LARGEST_NUMBER):
                raise InvalidConnectionError(
                    f"connection {self.conn_id!r}: expected a whole number from 0 to {LARGEST_NUMBER:,} in {key}, "
                    "found something else"
                )
            if key == VERIFICATION and value.lower() != "true":
                raise InvalidConnectionError(
                    f"connection {self.conn_id!r}: expected {VERIFICATION} to be true, found something else: "
                    "certificates are always verified. Name the authority that signed the brokers' in ssl.ca.location "
                    "or ssl.ca.pem."
                )
        if mechanism == OAUTH:
            self._check_oauth()
        elif mechanism == KERBEROS:
            check_kerberos(self.conn_id, self.librdkafka)
        elif mechanism == IAM:
            region_of(self.conn_id, self.librdkafka)
        elif mechanism is not None and mechanism not in JAAS_MODULE:
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected sasl.mechanism to be one of "
                f"{', '.join((*JAAS_MODULE, OAUTH, KERBEROS, IAM))}, found another one, which has no known translation "
                "to the Java client"
            )

    def _check_oauth(self) -> None:
        """Raise InvalidConnectionError on a login by tokens that only one of the two clients could do."""
        found = self.librdkafka
        if found.get(METHOD, "").lower() != "oidc":
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected {METHOD} to be oidc with sasl.mechanism {OAUTH}, found "
                "something else: only the client credentials of OpenID Connect are the same to both clients"
            )
        if missing := [key for key in (TOKEN_URL, CLIENT_ID, CLIENT_SECRET) if not found.get(key)]:
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: sasl.mechanism {OAUTH} needs {', '.join(missing)}"
            )
        if not re.fullmatch(r"https://[^\s@/?#]+(?:/[^\s@?#]*)?", found[TOKEN_URL]):
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected {TOKEN_URL} to be https://HOST/PATH, without a user or a "
                "query, found something else"
            )
        if EXTENSIONS in found and not NAMED_VALUES.fullmatch(found[EXTENSIONS]):
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected {EXTENSIONS} to be NAME=VALUE, or several with commas between "
                "them, found something else"
            )

    @property
    def mechanism(self) -> str | None:
        """How the client logs in, None where it does not: librdkafka knows the setting by two names."""
        return self.librdkafka.get("sasl.mechanism") or self.librdkafka.get("sasl.mechanisms")

    @property
    def bootstrap_servers(self) -> str:
        """The brokers to ask first; no secret."""
        return self.librdkafka["bootstrap.servers"]

    @property
    def holds_secret(self) -> bool:
        return any(self.librdkafka.get(key) for key in SECRET_KEYS)

    def secrets(self) -> tuple[str, ...]:
        """Return the values that nothing may show, also in the forms that Java's settings and quoted texts have."""
        found = {
            value for key, value in self.librdkafka.items() if value and NEVER_SHOWN.search(key) and key not in SHOWN
        }
        lines = {
            line for value in found if "-----BEGIN" in value for line in value.splitlines() if len(line) >= PEM_LINE
        }
        return tuple(found | lines | {jaas_quoted(value)[1:-1] for value in found})

    def redacted(self, text: str) -> str:
        """Return a text of a client's or a broker's without what the connection keeps."""
        return without_secrets(text, self.secrets())

    @property
    def request_timeout_s(self) -> float:
        """How long a question may take: the connection's ``socket.timeout.ms``, or 15 s."""
        milliseconds = self.librdkafka.get("socket.timeout.ms")
        try:
            return float(milliseconds) / 1000 if milliseconds is not None else DEFAULT_REQUEST_TIMEOUT_S
        except ValueError:
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: expected socket.timeout.ms in milliseconds, found something else"
            ) from None

    @property
    def is_by_role(self) -> bool:
        """Whether this machine's own role at Amazon logs in."""
        return self.mechanism == IAM

    def admin_settings(self) -> dict[str, Any]:
        """Return the settings of an AdminClient: those of consumers and producers would only make it warn."""
        admin_too = {"broker.address.family", "debug", "log_level", "socket.timeout.ms", "socket.keepalive.enable"}
        java_only = {"client.dns.lookup", "request.timeout.ms"}
        consumers = {"fetch.max.bytes", "fetch.min.bytes", "fetch.wait.max.ms"}
        left_out = (NOT_FOR_A_BOUNDED_READ - admin_too) | java_only | consumers
        found: dict[str, Any] = {key: value for key, value in self.librdkafka.items() if key not in left_out}
        if self.is_by_role:
            found.pop("sasl.mechanisms", None)
            token = token_for(region_of(self.conn_id, self.librdkafka))
            found |= {"sasl.mechanism": OAUTH, "oauth_cb": token}
        return found

    def java_settings(self) -> dict[str, str]:
        """Return the Java client's settings; raises InvalidConnectionError on a value that it cannot have.

        A read makes no topic: that of one that was deleted meanwhile would, by the Java client's default.
        """
        java = {"allow.auto.create.topics": "false"}
        for key, value in self.librdkafka.items():
            if key in IN_JAVA:
                java[RENAMED_IN_JAVA.get(key, key)] = IN_JAVA[key](value)
            elif key in SSL_TRANSLATIONS:
                java.update(SSL_TRANSLATIONS[key](self.conn_id, value))
        if KEYSTORE in self.librdkafka:
            java.update(key_of_store(self.conn_id, self.librdkafka[KEYSTORE], self.librdkafka.get(KEYSTORE_PASSWORD)))
        java.update(self._java_sasl())
        return with_readable_key(self.conn_id, java)

    def _java_sasl(self) -> dict[str, str]:
        mechanism = self.mechanism
        if mechanism is None:
            return {}
        if mechanism == OAUTH:
            return self._java_oauth()
        if mechanism == KERBEROS:
            return java_of_kerberos(self.librdkafka)
        if mechanism == IAM:
            return java_of_iam()
        missing = [key for key in ("sasl.username", "sasl.password") if not self.librdkafka.get(key)]
        if missing:
            raise InvalidConnectionError(
                f"connection {self.conn_id!r}: sasl.mechanism {mechanism} needs {' and '.join(missing)}"
            )
        username, password = (jaas_quoted(self.librdkafka[key]) for key in ("sasl.username", "sasl.password"))
        return {
            "sasl.mechanism": mechanism,
            "sasl.jaas.config": f"{JAAS_MODULE[mechanism]} required username={username} password={password};",
        }

    def _java_oauth(self) -> dict[str, str]:
        found = self.librdkafka
        options = {"clientId": found[CLIENT_ID], "clientSecret": found[CLIENT_SECRET]}
        if SCOPE in found:
            options["scope"] = found[SCOPE]
        for pair in filter(None, found.get(EXTENSIONS, "").split(",")):
            name, _, value = pair.partition("=")
            options[f"extension_{name}"] = value
        location = found.get("https.ca.location")
        if authority := found.get("https.ca.pem") or (
            location and read_pem(self.conn_id, "https.ca.location", location)
        ):
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authority}
        quoted = " ".join(f"{name}={jaas_quoted(value)}" for name, value in options.items())
        return {
            "sasl.mechanism": OAUTH,
            "sasl.login.callback.handler.class": f"{OAUTH_CLASSES}.OAuthBearerLoginCallbackHandler",
            TOKEN_URL: found[TOKEN_URL],
            "sasl.jaas.config": f"{OAUTH_CLASSES}.OAuthBearerLoginModule required {quoted};",
        }


def without_secrets(text: str, secrets: Collection[str]) -> str:
    """Return a text in which nothing of these can be read; the longest first, as one may be part of another."""
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return text


def jaas_quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'


def read_pem(conn_id: str, key: str, location: str) -> str:
    """Return a PEM file's text; raises InvalidConnectionError naming the key."""
    try:
        return Path(location).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        # Nothing of the value is repeated: it may be anything, the key itself included.
        cause = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InvalidConnectionError(
            f"connection {conn_id!r}: {key} should name a readable PEM file, found one that cannot be read: {cause}"
        ) from None


def private_key(conn_id: str, pem: str) -> dict[str, str]:
    """Return the Java settings of a private key, which Java reads only as PKCS#8 (KIP-651)."""
    if "-----BEGIN PRIVATE KEY-----" not in pem and "-----BEGIN ENCRYPTED PRIVATE KEY-----" not in pem:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: the Java client reads private keys only as PKCS#8 (BEGIN PRIVATE KEY); convert "
            "it: openssl pkcs8 -topk8 -nocrypt -in client.key -out client.pk8.key"
        )
    return {"ssl.keystore.type": "PEM", "ssl.keystore.key": pem}


def key_of_store(conn_id: str, location: str, password: str | None) -> dict[str, str]:
    """Return the Java settings of a PKCS#12 file's key and certificates, as texts: executors need no file then."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only few connections have such a file
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - the same

    try:
        stored = Path(location).read_bytes()
    except OSError as error:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: {KEYSTORE} should name a readable PKCS#12 file, found one that cannot be read: "
            f"{error.strerror}"
        ) from None
    if stored.startswith(JKS):
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected a PKCS#12 file in {KEYSTORE}, found Java's own format, JKS, which only "
            "Java reads; convert it: keytool -importkeystore -srckeystore client.jks -destkeystore client.p12 "
            "-deststoretype PKCS12"
        )
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(stored, password.encode() if password else None)
    except ValueError:
        # Its own words are not repeated, nor is what it was made from.
        key = certificate = None
    if key is None or certificate is None:
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected a PKCS#12 file with a key and its certificate in {KEYSTORE}, which "
            f"{KEYSTORE_PASSWORD} opens, found none"
        )
    pem = serialization.Encoding.PEM
    text = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = b"".join(each.public_bytes(pem) for each in (certificate, *more))
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": text.decode(),
        "ssl.keystore.certificate.chain": chain.decode(),
    }


def with_readable_key(conn_id: str, java: dict[str, str]) -> dict[str, str]:
    """Return the settings with an encrypted key decrypted: Java 17 does not support today's encryption (PBES2)."""
    key, password = java.get("ssl.keystore.key", ""), java.get("ssl.key.password")
    if "-----BEGIN ENCRYPTED PRIVATE KEY-----" not in key or password is None:
        return java
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only few keys are encrypted

    try:
        opened = serialization.load_pem_private_key(key.encode(), password.encode())
    except ValueError:
        # Its own words are not repeated, nor is what it was made from.
        raise InvalidConnectionError(
            f"connection {conn_id!r}: expected ssl.key.password to open the private key, found that it does not"
        ) from None
    text = opened.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {name: value for name, value in java.items() if name != "ssl.key.password"} | {
        "ssl.keystore.key": text.decode()
    }


def with_ports(servers: str) -> str:
    """Return bootstrap servers each with a port: librdkafka takes Kafka's own where there is none, Java refuses it."""
    found = (server.strip() for server in servers.split(","))
    return ",".join(
        server if re.search(r":[0-9]+$", server) else f"{server}:{DEFAULT_PORT}" for server in found if server
    )


SSL_TRANSLATIONS: Mapping[str, Callable[[str, str], dict[str, str]]] = {
    "ssl.ca.location": lambda conn_id, value: {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": read_pem(conn_id, "ssl.ca.location", value),
    },
    "ssl.ca.pem": lambda _, value: {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": value},
    "ssl.certificate.location": lambda conn_id, value: {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": read_pem(conn_id, "ssl.certificate.location", value),
    },
    "ssl.certificate.pem": lambda _, value: {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": value},
    "ssl.key.location": lambda conn_id, value: private_key(conn_id, read_pem(conn_id, "ssl.key.location", value)),
    "ssl.key.pem": private_key,
    "ssl.key.password": lambda _, value: {"ssl.key.password": value},
    "ssl.endpoint.identification.algorithm": lambda _, value: {
        "ssl.endpoint.identification.algorithm": "" if value.lower() == "none" else value
    },
}

IN_JAVA: Mapping[str, Callable[[str], str]] = {
    **dict.fromkeys((*SAME_IN_JAVA, *RENAMED_IN_JAVA), str),
    "bootstrap.servers": with_ports,
    "security.protocol": str.upper,
    # 0 means never to librdkafka, and at once to the Java client.
    "connections.max.idle.ms": lambda value: "-1" if not int(value) else value,
}
"""What a value is to the Java client, of settings that both clients have."""

ALLOWED = frozenset(
    {*IN_JAVA, *SSL_TRANSLATIONS, *SASL_KEYS, KEYSTORE, KEYSTORE_PASSWORD, VERIFICATION, *NOT_FOR_A_BOUNDED_READ}
)
"""The only keys, but for those of tokens, that either client ever gets, or that are left out for both."""
