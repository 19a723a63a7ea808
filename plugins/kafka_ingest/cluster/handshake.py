"""The first contact with a cluster: connected and authenticated, or the reason from librdkafka's error callback.

Without it every refusal looks alike: librdkafka reconnects until the request's timeout, and reports "timed out". It
also repeats a refused password, and in many companies a few of those lock an account.
"""

import re
import time
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from kafka_ingest.cluster.client_settings import KafkaClientSettings, with_ports
from kafka_ingest.errors import KafkaIngestError, KafkaLoginRefusedError, KafkaTlsRefusedError, KafkaUnavailableError

NO_TOPIC = "no topic: does a broker answer?"
"""No topic can have this name, so asking for it creates nothing; any answer means that the client is authenticated."""

POLL_S = 0.01

PAUSE_AFTER_A_LOGIN_MS = 1_000
"""By default librdkafka repeats a refused password after 75 to 150 ms: a busy machine may not run us in this time."""

UNREACHABLE = frozenset(
    {
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.REQUEST_TIMED_OUT,
    }
)

# rdkafka_ssl.c and OpenSSL: the errors of a wrong or missing certificate, or a wrong protocol. A connection that merely
# breaks during the handshake, as when a broker stops, is none of these.
TLS_CAUSES = re.compile(r"SSL routines|certificate|wrong version number|PLAINTEXT broker listener|alert", re.IGNORECASE)

# "sasl_ssl://kafka:9092/bootstrap: … (after 301ms in state AUTH_REQ)", with OpenSSL's code in between.
OF_A_BROKER = re.compile(r"(?:\S+://)?(?P<address>\S+?:\d+)/\d+: ")
"""So begins what librdkafka says of a broker that it knows by its id: of others "bootstrap" is in its place."""

WITHOUT_ONE = "Failed to acquire SASL OAUTHBEARER token"
REFUSED_TO_GIVE = re.compile(r"\b(?:invalid_\w+|unauthorized_client|access_denied|40[013])\b")
"""What a server of tokens says that has refused (RFC 6749, section 5.2); one that is away may be asked again."""

AROUND = re.compile(r"^\S+://\S+: |^\S+:\d+/\S+: | \(after \d+ms in state \w+\)$|error:[0-9A-F]{8}:")


@dataclass(slots=True)
class ClientErrors:
    """What librdkafka reported to its error callback since the client was made. Called from several threads."""

    login: str | None = None
    tls: str | None = None
    resolve: str | None = None
    other: str | None = None
    all_down: bool = False
    advertised: str | None = None
    """The address that failed, where a broker has named it: one that bootstrap.servers led to."""

    def __call__(self, error: KafkaError) -> None:
        text = AROUND.sub("", error.str())
        if named := OF_A_BROKER.match(error.str()):
            self.advertised = named["address"]
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.all_down = True
        elif error.code() == KafkaError._AUTHENTICATION and WITHOUT_ONE in text and not REFUSED_TO_GIVE.search(text):
            self.other = text
        elif error.code() == KafkaError._AUTHENTICATION and "Local: " not in text:
            self.login = text
        elif error.code() in {KafkaError._SSL, KafkaError._TRANSPORT} and TLS_CAUSES.search(text):
            self.tls = text
        elif error.code() == KafkaError._RESOLVE:
            self.resolve = text
        else:
            self.other = text

    @property
    def cause(self) -> str | None:
        """The most specific error that was reported, None where none was."""
        if said := self.login or self.tls or self.other or self.resolve:
            return said
        if self.all_down:
            return (
                "each broker ended the connection before it answered, as one does that expects another "
                "security.protocol"
            )
        return None

    def refusal(self, settings: KafkaClientSettings) -> KafkaIngestError | None:
        """Return the error of a connection for which waiting is useless, None while it may still succeed.

        A refused login is final, since each further try counts against the account. One broker's certificate or name
        may be wrong while another one's is right, so those count once all brokers were tried.
        """
        where = f"Kafka at {settings.bootstrap_servers} (connection {settings.conn_id!r})"
        if self.login is not None:
            return KafkaLoginRefusedError(
                f"{where} refused the login: {settings.redacted(self.login)}. Expected sasl.mechanism, sasl.username "
                "and sasl.password of one of its users (with OAUTHBEARER what sasl.oauthbearer.client has), and the "
                "security.protocol of that listener; correct the connection's extra. It was tried once and is not "
                "repeated, so that no account is locked."
            )
        # A TLS connection that a broker closed is reported twice, once without the reason.
        is_tls = self.tls is not None and self.other is not None and "SSL connection closed" in self.other
        if not self.all_down or (self.other is not None and not is_tls):
            return None
        if self.tls is not None:
            return KafkaTlsRefusedError(
                f"no TLS connection to {where}: {settings.redacted(self.tls)}. Expected in the connection's extra: "
                "the security.protocol of that listener, in ssl.ca.location or ssl.ca.pem the authority that signed "
                "the brokers' certificates, which name the host that is asked, and where brokers ask for one a "
                "certificate with its key."
            )
        if self.resolve is not None:
            named_by = self.advice(settings) or " It is in bootstrap.servers."
            return KafkaUnavailableError(
                f"no address is known for {where}: {self.resolve}.{named_by} Is the host's name right, and does this "
                "machine's name service know it? Correct it, or try again once the name service answers."
            )
        return None

    def advice(self, settings: KafkaClientSettings) -> str:
        """Return which address failed, where it is not one of those that the connection names."""
        if self.advertised is None or self.advertised in with_ports(settings.bootstrap_servers).split(","):
            return ""
        return (
            f" It is {self.advertised} that failed, which a broker advertises as its address: bootstrap.servers is "
            "right, and that broker's advertised.listeners names what this machine does not reach."
        )


def pause_after_a_login(settings: KafkaClientSettings) -> dict[str, str]:
    """Return the setting that leaves time to close a client before it sends a refused password again.

    The first connection is not delayed; another one, where a broker is down, comes after half of this time.
    """
    found = settings.librdkafka
    if not found.get("security.protocol", "").lower().startswith("sasl") or "reconnect.backoff.ms" in found:
        return {}
    longest = found.get("reconnect.backoff.max.ms", "")
    return {
        "reconnect.backoff.ms": str(
            min(PAUSE_AFTER_A_LOGIN_MS, int(longest) if longest.isdecimal() else PAUSE_AFTER_A_LOGIN_MS)
        )
    }


def shake_hands(client: AdminClient, reported: ClientErrors, settings: KafkaClientSettings, limit_s: float) -> None:
    """Return once a broker answers; raises KafkaLoginRefusedError or KafkaTlsRefusedError, or KafkaUnavailableError.

    The client's settings must name ``reported`` as ``error_cb``. A client that was refused must be closed: as long as
    it lives, it tries again.
    """
    started = time.monotonic()
    [answer] = client.describe_topics(TopicCollection([NO_TOPIC]), request_timeout=limit_s).values()
    while not answer.done():
        client.poll(POLL_S)
        if refusal := reported.refusal(settings):
            raise refusal
        if time.monotonic() - started > limit_s + 5:  # librdkafka keeps the limit itself
            break
    try:
        answer.result(timeout=0)
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE:
            raise unreachable(reported, settings, limit_s, "whether it is there", error.args[0].str()) from error
        # Any other error is an answer: the client is authenticated.
    except TimeoutError as error:
        raise unreachable(reported, settings, limit_s, "whether it is there", "no answer") from error


def unreachable(
    reported: ClientErrors, settings: KafkaClientSettings, limit_s: float, question: str, cause: str
) -> KafkaIngestError:
    """Return the error of a question without an answer, with the cause that the callback reported."""
    return reported.refusal(settings) or KafkaUnavailableError(
        f"Kafka at {settings.bootstrap_servers} (connection {settings.conn_id!r}) did not answer within {limit_s:g} s "
        f"when asked for {question}: {settings.redacted(reported.cause or cause)}."
        f"{reported.advice(settings)} Is the broker up and reachable from this machine, and are security.protocol and "
        "the credentials right?"
    )
