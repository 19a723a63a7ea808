"""A broker with TLS, mutual TLS, SASL and ACLs, each on a separate listener, for tests and trials."""

from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from certificates import Authority, keystore
from embedded_broker import QUICK_START, EmbeddedBroker
from free_ports import LOOPBACK

TLS, MUTUAL_TLS, SASL, SASL_TLS, TOKENS, UNSIGNED = "TLS", "MUTUALTLS", "SASL", "SASLTLS", "TOKENS", "UNSIGNED"

_LISTENERS = {
    TLS: "SSL",
    MUTUAL_TLS: "SSL",
    SASL: "SASL_PLAINTEXT",
    SASL_TLS: "SASL_SSL",
    TOKENS: "SASL_SSL",
    UNSIGNED: "SASL_PLAINTEXT",
}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_SCRAM_MECHANISMS = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}


def secured_broker(
    directory: Path, authority: Authority, passwords: dict[str, str], token_keys: Path
) -> EmbeddedBroker:
    """Return a broker, not yet started, whose SASL/PLAIN users are the ones of `passwords`.

    It takes tokens that were signed by a key of the file `token_keys` (JWKS), and on a listener of their own unsigned
    ones.

    Clients of its first listener may do everything; all others only what ACLs allow. A client certificate's user is
    `CN=<name>`; a client of the TLS listener without one is `ANONYMOUS`, as are clients of the first listener.
    """
    users = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
    jaas = {}
    for listener in (SASL, SASL_TLS):
        prefix = f"listener.name.{listener.lower()}"
        jaas[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(["PLAIN", *_SCRAM_MECHANISMS])
        jaas[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN} {users};"
        jaas |= {f"{prefix}.{name.lower()}.sasl.jaas.config": _SCRAM for name in _SCRAM_MECHANISMS}
    of_tokens = f"listener.name.{TOKENS.lower()}"
    jaas |= {
        f"{of_tokens}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{of_tokens}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
        f"{of_tokens}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
        f"{of_tokens}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": token_keys.as_uri(),
    }
    of_anybody = f"listener.name.{UNSIGNED.lower()}"
    jaas |= {
        f"{of_anybody}.sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{of_anybody}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
    }
    return EmbeddedBroker(
        directory,
        listeners=_LISTENERS,
        jvm_flags=(*QUICK_START, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_keys.as_uri()}"),
        extra={
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore(*authority.certify("broker", LOOPBACK, "localhost"))),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca),
            f"listener.name.{MUTUAL_TLS.lower()}.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "connection.failed.authentication.delay.ms": "10",
            **jaas,
        },
    )


def let_scram_users_in(broker: EmbeddedBroker, passwords: dict[str, str]) -> None:
    """Store each user's password for both SCRAM mechanisms."""
    with AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}) as admin:
        for mechanism in _SCRAM_MECHANISMS.values():
            info = ScramCredentialInfo(mechanism, 4096)
            # Of one user, one mechanism a request.
            changes: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(name, info, word.encode()) for name, word in passwords.items()
            ]
            for future in admin.alter_user_scram_credentials(changes).values():
                future.result()
